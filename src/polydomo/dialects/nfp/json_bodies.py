"""The JSON bodies of NFP: what the broker itself says, and results of workers of any dialect as clients know them.

JSON is put together from bytes: a result that is JSON already is checked, not made anew.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import msgspec

from polydomo.core import job as jobs
from polydomo.core.extras import Options
from polydomo.core.gather import Piece
from polydomo.core.job import Failure
from polydomo.core.names import printable
from polydomo.dialects import options as given
from polydomo.dialects.nfp.messages import ERROR, TIMEOUT, UNEXPECTED, UNKNOWN
from polydomo.wire.frames import LONG, MORE, frame, split

# What a failure is called in a status frame; a worker's own is in its account.
STATUSES: Final[dict[str, bytes]] = {
    jobs.EXPIRED: TIMEOUT,
    jobs.DEADLINE: TIMEOUT,
    jobs.BAD_SERVICE: UNKNOWN,
    jobs.BAD_TARGET: UNKNOWN,
    jobs.DUPLICATE: UNKNOWN,
}
_WORKERS_OWN: Final = (UNKNOWN, TIMEOUT, UNEXPECTED, ERROR)

# orjson, with which norfab's workers read, refuses numbers that are too big for a float; a worker's thread dies of it.
_BOTTOMLESS_NUMBER: Final = re.compile(rb"[0-9]{300}")

# How norfab's client ends its jobs. Behind these bytes there is only the end of the whole object.
_TIMEOUT_LAST: Final = re.compile(rb',"timeout":([1-9][0-9]{0,6})\}\Z')

_BLANKS: Final = b" \t\r\n"
_OWN_WORDS: Final = ("message", "kind", "traceback")


def quoted(name: bytes) -> bytes:
    """A name in JSON's quotes."""
    # Nearly all are so, and need nothing but the quotes.
    if (name.isalnum() or name.replace(b"-", b"").isalnum()) and not name.startswith(b"0x"):
        return b'"%b"' % name
    return msgspec.json.encode(printable(name))


def echoed(text: bytes) -> bytes:
    """A client's own UUID or target in JSON's quotes."""
    if text.isalnum() or text.replace(b"-", b"").isalnum():
        return b'"%b"' % text
    return msgspec.json.encode(text.decode("utf-8", "backslashreplace"))


def listed(names: list[bytes] | None) -> bytes:
    """Names as a JSON list; `null` if nobody knows them yet."""
    return b"null" if names is None else b"[%b]" % b",".join([quoted(name) for name in names])


def told(uuid: bytes, service: bytes, target: bytes, status: bytes, workers: list[bytes] | None) -> bytes:
    """How a job stands."""
    return b'{"workers":%b,"uuid":%b%b' % (listed(workers), echoed(uuid), told_tail(service, target, status))


def told_tail(service: bytes, target: bytes, status: bytes) -> bytes:
    """What is the same for many jobs."""
    return b',"target":%b,"status":"%b","service":%b}' % (echoed(target), status, quoted(service))


def trouble(uuid: bytes, service: bytes, message: str, reason: str, detail: bytes = b"") -> bytes:
    """Why there is no result; with what the worker itself says of it."""
    said = msgspec.json.encode(message)
    return b'{"error":%b,"reason":"%b","status":"FAILED","errors":[%b],"uuid":%b,"service":%b%b}' % (
        said,
        reason.encode(),
        said,
        echoed(uuid),
        quoted(service),
        _account(detail),
    )


def status_for(failure: Failure) -> bytes:
    """The status frame of a failure."""
    if failure.reason == jobs.WORKER_ERROR and failure.detail:
        members = object_in(failure.detail)
        if members is not None and "status" in members:
            own = bytes(members["status"])
            if own in _WORKERS_OWN:
                return own
    return STATUSES.get(failure.reason, ERROR)


def account(status: bytes, message: str) -> bytes:
    """A failure as a worker tells it that only gave a status."""
    return b'{"reason":"%b","message":%b,"status":%b}' % (
        jobs.WORKER_ERROR.encode(),
        msgspec.json.encode(message),
        status,
    )


# Bodies that come in


def only_frame(body: bytes) -> bytes | None:
    """The frame of a body that has just one."""
    if not body or body[0] & MORE:
        return None
    return body[9:] if body[0] & LONG else body[2:]


def object_in(data: bytes) -> dict[str, Any] | None:
    """The members of a JSON object, each still as text; None if it is none."""
    try:
        data.decode()  # the decoder does not look into strings that it leaves as they are
        members: dict[str, Any] = _MEMBERS.decode(data)
        return members
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def member(members: dict[str, Any], name: str) -> object:
    """The value of one member; None if there is none, or it is broken."""
    found = members.get(name)
    if found is None:
        return None
    try:
        value: object = msgspec.json.decode(found)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value


def task_like(body: bytes) -> bool:
    """May norfab's workers see this? Only one frame, a JSON object: anything else ends their thread for good."""
    data = only_frame(body)
    if data is None or data[:1] != b"{":
        return False
    try:
        found: object = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and _BOTTOMLESS_NUMBER.search(data) is None


def options_in(body: bytes, durable: bool) -> Options:
    """What a POST's body says about the job itself: `options` and `timeout`. Raises ValueError."""
    if not body:
        return Options(durable=durable)
    start = 9 if body[0] & LONG else 2
    first = body[start : start + 1]
    if (first != b"{" and (not first or first not in _BLANKS)) or (
        b'"timeout"' not in body and b'"options"' not in body
    ):
        return Options(durable=durable)
    last = _TIMEOUT_LAST.search(body[-24:])
    if last is not None and not body[0] & MORE and b'"options"' not in body:
        seconds = float(last[1])
        return Options(durable=durable, timeout=seconds, wait=seconds)
    data = only_frame(body)
    members = object_in(data) if data is not None else None
    if members is None:
        return Options(durable=durable)
    said = members.get("options")
    options = Options(durable=durable) if said is None else given.read_json(bytes(said), durable)
    limit = member(members, "timeout")
    if isinstance(limit, (int, float)) and not isinstance(limit, bool):
        lasting = given.timeout(limit)
        options.timeout = options.timeout or lasting
        if options.wait < 0:
            options.wait = lasting
    return options


def event_in(frames: list[bytes]) -> tuple[str, bytes]:
    """The kind of a worker's event and what it says."""
    if len(frames) >= 2:
        return frames[0].decode("utf-8", "replace")[:100], frames[1]
    data = frames[0] if frames else b""
    if data[:1] == b"{":
        members = object_in(data)
        if members is not None and "event_type" in members:
            kind = member(members, "event_type")
            if isinstance(kind, str):
                return kind[:100], data
    return "event", data


# Results


def value(body: bytes) -> bytes:
    """A canonical body as one JSON value: JSON as it is, else text, else base64; several frames as a list."""
    frames = split(body)
    if len(frames) == 1:
        return _value(frames[0])
    return b"[%b]" % b",".join([_value(data) for data in frames])


def merged(pieces: list[Piece]) -> bytes:
    """A gathered result for the specification's clients: `{worker: value}`."""
    return b"{%b}" % b",".join([quoted(piece.name) + b":" + _piece(piece) for piece in pieces])


def norfab_result(
    name: bytes, shown: bytes, body: bytes, uuid: bytes, service: bytes, asked: bytes = b""
) -> bytes:
    """One worker's result for norfab's clients: `{worker: {"result": …}}`. norfab's workers say it so."""
    data = only_frame(body)
    if data is not None and data.startswith(b"{" + quoted(name) + b":"):
        if name == shown:
            return data
        own = _own(name, data)
        if own is not None:
            return b"{%b:%b}" % (quoted(shown), own)
    return b"{%b:%b}" % (quoted(shown), _result(value(body), b"", uuid, service, task_in(asked)))


def norfab_failure(shown: bytes, failure: Failure, uuid: bytes, service: bytes) -> bytes:
    """The same for a part that failed."""
    return b"{%b:%b}" % (
        quoted(shown),
        _result(b"null", msgspec.json.encode(failure.message or failure.reason), uuid, service, b"null"),
    )


def norfab_pieces(pieces: list[Piece], uuid: bytes, service: bytes) -> bytes:
    """A gathered result for norfab's clients."""
    parts: list[bytes] = []
    for piece in pieces:
        if piece.reason or piece.body is None:
            failure = Failure(piece.reason, piece.message)
            parts.append(norfab_failure(piece.name, failure, uuid, service)[1:-1])
        else:
            parts.append(norfab_result(piece.name, piece.name, piece.body, uuid, service)[1:-1])
    return b"{%b}" % b",".join(parts)


def norfab_event(shown: bytes, kind: str, body: bytes, uuid: bytes, service: bytes, task: bytes) -> bytes:
    """An event of a worker that is not norfab's as norfab's clients know them. `body` is one frame."""
    said = _value(body)
    message = said if said[:1] == b'"' else msgspec.json.encode(kind)
    return (
        b'{"worker":%b,"service":%b,"uuid":%b,"event_type":"progress","message":%b,"task":%b,"status":"running",'
        b'"resource":[],"severity":"INFO","extras":{"kind":%b,"body":%b}}'
        % (
            quoted(shown),
            quoted(service),
            echoed(uuid),
            message,
            task if task != b"null" else b'""',
            msgspec.json.encode(kind),
            said,
        )
    )


def renamed(event: bytes, shown: bytes) -> bytes:
    """norfab's event of one worker shown as another's."""
    members = object_in(event)
    if members is None:
        return event
    members["worker"] = msgspec.Raw(quoted(shown))
    return msgspec.json.encode(members)


def task_in(body: bytes) -> bytes:
    """The task a job asks for, as JSON; `null` if it does not say."""
    data = only_frame(body)
    if data is not None and data[:1] == b"{":
        members = object_in(data)
        if members is not None and "task" in members:
            return bytes(members["task"])
    return b"null"


def body_of(pieces: list[bytes]) -> bytes:
    """Short frames as a canonical body."""
    last = len(pieces) - 1
    return b"".join([frame(piece, index < last) for index, piece in enumerate(pieces)])


_MEMBERS: Final[Any] = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _value(data: bytes) -> bytes:
    if data and _is_json(data):
        return data
    try:
        return msgspec.json.encode(data.decode())
    except UnicodeDecodeError:
        return b'{"base64":"%b"}' % base64.b64encode(data)


def _account(detail: bytes) -> bytes:
    """A worker's own words about its failure, as further members of an object."""
    members = object_in(detail) if detail and _is_json(detail) else None
    if members is None:
        return b""
    return b"".join(
        [b',"%b":%b' % (name.encode(), bytes(members[name])) for name in _OWN_WORDS if name in members]
    )


def _piece(piece: Piece) -> bytes:
    if piece.reason:
        said = msgspec.json.encode(piece.message)
        more = _account(piece.detail) or b',"message":%b' % said
        return b'{"failed":true,"reason":"%b","error":%b%b}' % (piece.reason.encode(), said, more)
    if piece.body is None:
        return b"null"
    data = only_frame(piece.body)
    own = _own(piece.name, data) if data is not None else None
    return own if own is not None else value(piece.body)


def _own(name: bytes, data: bytes) -> bytes | None:
    """What norfab's worker `name` says inside of `{name: …}`."""
    if not data.startswith(b"{" + quoted(name) + b":") or not _is_json(data):
        return None
    members = object_in(data)
    if members is None or len(members) != 1:
        return None
    return bytes(members[printable(name)])


def _result(result: bytes, error: bytes, uuid: bytes, service: bytes, task: bytes) -> bytes:
    return (
        b'{"result":%b,"failed":%b,"errors":[%b],"task":%b,"messages":[],"juuid":%b,"resources":[],'
        b'"resources_failed":[],"status":"%b","task_started":null,"task_completed":null,"service":%b,'
        b'"diff":null,"dry_run":false}'
        % (
            result,
            b"true" if error else b"false",
            error,
            task,
            echoed(uuid),
            b"error" if error else b"completed",
            quoted(service),
        )
    )
