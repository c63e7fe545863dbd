"""JSON bodies of NFP: the broker's own, and the results of workers of any dialect in the forms of NFP's clients.

JSON is composed from bytes: a result that is JSON already is checked, not encoded again.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import msgspec

from polydomo._version import __version__
from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.names import printable
from polydomo.core.pieces import Piece
from polydomo.core.services import SERVICE_NAME_MAX
from polydomo.core.tracked_job import Options
from polydomo.dialects import options as job_options
from polydomo.dialects.nfp.messages import ERROR, TIMEOUT, UNEXPECTED, UNKNOWN, UUID_MAX
from polydomo.dialects.session import SessionContext
from polydomo.wire.frames import LONG, MORE, split

# The status of the broker's own failures; a worker's is in its failure detail.
STATUSES: Final[dict[str, bytes]] = {
    reasons.EXPIRED: TIMEOUT,
    reasons.DEADLINE: TIMEOUT,
    reasons.BAD_SERVICE: UNKNOWN,
    reasons.BAD_TARGET: UNKNOWN,
    reasons.DUPLICATE: UNKNOWN,
    reasons.KEY_REUSED: UNKNOWN,
    reasons.DENIED: UNKNOWN,
}
_WORKER_STATUSES: Final = (UNKNOWN, TIMEOUT, UNEXPECTED, ERROR)

# orjson, which norfab's workers use, rejects numbers too large for a float, and that ends a worker's thread.
_HUGE_NUMBER: Final = re.compile(rb"[0-9]{300}")

# The end of a norfab client's job body.
_TIMEOUT_LAST: Final = re.compile(rb',"timeout":([1-9][0-9]{0,6})\}\Z')

_WHITESPACE: Final = b" \t\r\n"
_DETAIL_MEMBERS: Final = ("message", "kind", "traceback")


def quote_name(name: bytes) -> bytes:
    """Return a name as a JSON string."""
    # The fast path for nearly all names.
    if (name.isalnum() or name.replace(b"-", b"").isalnum()) and not name.startswith(b"0x"):
        return b'"%b"' % name
    return msgspec.json.encode(printable(name))


def quote_text(text: bytes) -> bytes:
    """Return a client's UUID or target as a JSON string."""
    if text.isalnum() or text.replace(b"-", b"").isalnum():
        return b'"%b"' % text
    return msgspec.json.encode(text.decode("utf-8", "backslashreplace"))


def name_list(names: list[bytes] | None) -> bytes:
    """Return names as a JSON list; `null` if they are not known yet."""
    return b"null" if names is None else b"[%b]" % b",".join([quote_name(name) for name in names])


def job_status(
    uuid: bytes, service: bytes, target: bytes, status: bytes, workers: list[bytes] | None
) -> bytes:
    """Return the body that tells a job's state."""
    return b'{"workers":%b,"uuid":%b%b' % (
        name_list(workers),
        quote_text(uuid),
        job_status_tail(service, target, status),
    )


def job_status_tail(service: bytes, target: bytes, status: bytes) -> bytes:
    """Return the end of that body, which is the same for many jobs."""
    return b',"target":%b,"status":"%b","service":%b}' % (quote_text(target), status, quote_name(service))


def failure_body(uuid: bytes, service: bytes, failure: Failure) -> bytes:
    """Return the body that tells a failure, with the worker's own detail."""
    message = msgspec.json.encode(failure.message)
    return b'{"error":%b,"reason":"%b","status":"FAILED","errors":[%b],"uuid":%b,"service":%b%b}' % (
        message,
        failure.reason.encode(),
        message,
        quote_text(uuid),
        quote_name(service),
        _detail_members(failure.detail),
    )


def failure_status(failure: Failure) -> bytes:
    """Return the status of a failure."""
    if failure.reason == reasons.WORKER_ERROR and failure.detail:
        members = object_in(failure.detail)
        if members is not None and "status" in members:
            status = bytes(members["status"])
            if status in _WORKER_STATUSES:
                return status
    return STATUSES.get(failure.reason, ERROR)


def failure_detail(status: bytes, message: str) -> bytes:
    """Return the failure detail for a worker that only sent a status."""
    return b'{"reason":"%b","message":%b,"status":%b}' % (
        reasons.WORKER_ERROR.encode(),
        msgspec.json.encode(message),
        status,
    )


def greeting(context: SessionContext) -> bytes:
    """Return the body of the broker's OPEN."""
    return msgspec.json.encode(
        {
            "events": context.events,
            "broker": context.broker_name,
            "version": __version__,
            "keepalive_ms": round(context.beat.interval * 1000),
            "liveness": context.beat.liveness,
            "limits": {
                "credit": context.credit_max,
                "service_bytes": SERVICE_NAME_MAX,
                "uuid_bytes": UUID_MAX,
            },
        }
    )


# Received bodies


def only_frame(body: bytes) -> bytes | None:
    """Return the frame of a body that has exactly one."""
    if not body or body[0] & MORE:
        return None
    return body[9:] if body[0] & LONG else body[2:]


def object_in(data: bytes) -> dict[str, Any] | None:
    """Return the members of a JSON object, each as JSON text; None if it is not an object."""
    try:
        data.decode()  # the decoder does not check strings that it leaves undecoded
        members: dict[str, Any] = _MEMBERS.decode(data)
        return members
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def member(members: dict[str, Any], name: str) -> object:
    """Return the value of one member; None if it is missing or invalid."""
    found = members.get(name)
    return None if found is None else _decode(found, None)


def is_task(body: bytes) -> bool:
    """Return whether norfab's workers can take this job: one frame, a JSON object. Others end their thread for good."""
    data = only_frame(body)
    if data is None or data[:1] != b"{":
        return False
    return isinstance(_decode(data, None), dict) and _HUGE_NUMBER.search(data) is None


def options_in(body: bytes, durable: bool) -> Options:
    """Return the job options in a POST's body: `options` and `timeout`. Raises ValueError."""
    if not body:
        return Options(durable=durable)
    start = 9 if body[0] & LONG else 2
    first = body[start : start + 1]
    if (first != b"{" and (not first or first not in _WHITESPACE)) or (
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
    found = members.get("options")
    options = Options(durable=durable) if found is None else job_options.read_json(bytes(found), durable)
    timeout = member(members, "timeout")
    if isinstance(timeout, (int, float)) and not isinstance(timeout, bool):
        seconds = job_options.timeout(timeout)
        options.timeout = options.timeout or seconds
        if options.wait < 0:
            options.wait = seconds
    return options


def event_in(frames: list[bytes]) -> tuple[str, bytes]:
    """Return the kind and the body of a worker's event."""
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
    """Return a canonical body as one JSON value: JSON unchanged, else a string, else base64; several frames as a
    list."""
    frames = split(body)
    if len(frames) == 1:
        return _value(frames[0])
    return b"[%b]" % b",".join([_value(data) for data in frames])


def merge(pieces: list[Piece]) -> bytes:
    """Return a gathered result for the specification's clients: `{worker: value}`."""
    return b"{%b}" % b",".join([quote_name(piece.name) + b":" + _piece_value(piece) for piece in pieces])


def norfab_result(
    name: bytes, shown: bytes, body: bytes, uuid: bytes, service: bytes, request: bytes = b""
) -> bytes:
    """Return the result of the worker `name`, under the name `shown`, for norfab's clients: `{worker: {"result": …}}`.
    norfab's own workers send it like this."""
    data = only_frame(body)
    if data is not None and data.startswith(b"{" + quote_name(name) + b":"):
        if name == shown:
            return data
        result = _norfab_member(name, data)
        if result is not None:
            return b"{%b:%b}" % (quote_name(shown), result)
    return b"{%b:%b}" % (quote_name(shown), _norfab_job(value(body), b"", uuid, service, task_in(request)))


def norfab_failure(shown: bytes, failure: Failure, uuid: bytes, service: bytes) -> bytes:
    """Return the failure of the worker `shown` for norfab's clients."""
    return b"{%b:%b}" % (
        quote_name(shown),
        _norfab_job(b"null", msgspec.json.encode(failure.message or failure.reason), uuid, service, b"null"),
    )


def norfab_pieces(pieces: list[Piece], uuid: bytes, service: bytes) -> bytes:
    """Return a gathered result for norfab's clients."""
    parts: list[bytes] = []
    for piece in pieces:
        if piece.reason or piece.body is None:
            failure = Failure(piece.reason, piece.message)
            parts.append(norfab_failure(piece.name, failure, uuid, service)[1:-1])
        else:
            parts.append(norfab_result(piece.name, piece.name, piece.body, uuid, service)[1:-1])
    return b"{%b}" % b",".join(parts)


def norfab_event(shown: bytes, kind: str, body: bytes, uuid: bytes, service: bytes, task: bytes) -> bytes:
    """Return the event of a worker that is not norfab's for norfab's clients. `body` is one frame."""
    content = _value(body)
    message = content if content[:1] == b'"' else msgspec.json.encode(kind)
    return (
        b'{"worker":%b,"service":%b,"uuid":%b,"event_type":"progress","message":%b,"task":%b,"status":"running",'
        b'"resource":[],"severity":"INFO","extras":{"kind":%b,"body":%b}}'
        % (
            quote_name(shown),
            quote_name(service),
            quote_text(uuid),
            message,
            task if task != b"null" else b'""',
            msgspec.json.encode(kind),
            content,
        )
    )


def rename_worker(event: bytes, shown: bytes) -> bytes:
    """Return norfab's event with another worker name."""
    members = object_in(event)
    if members is None:
        return event
    members["worker"] = msgspec.Raw(quote_name(shown))
    return msgspec.json.encode(members)


def task_in(body: bytes) -> bytes:
    """Return the task name in a job's body, as JSON; `null` if there is none."""
    data = only_frame(body)
    if data is not None and data[:1] == b"{":
        members = object_in(data)
        if members is not None and "task" in members:
            return bytes(members["task"])
    return b"null"


_INVALID: Final = object()
_MEMBERS: Final[Any] = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _decode(data: Any, invalid: object) -> object:
    """Return the value of JSON text, or `invalid`."""
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return invalid
    return value


def _is_json(data: bytes) -> bool:
    return _decode(data, _INVALID) is not _INVALID


def _value(data: bytes) -> bytes:
    if data and _is_json(data):
        return data
    try:
        return msgspec.json.encode(data.decode())
    except UnicodeDecodeError:
        return b'{"base64":"%b"}' % base64.b64encode(data)


def _detail_members(detail: bytes) -> bytes:
    """Return the members of a worker's failure detail as the rest of a JSON object."""
    members = object_in(detail) if detail and _is_json(detail) else None
    if members is None:
        return b""
    return b"".join(
        [b',"%b":%b' % (name.encode(), bytes(members[name])) for name in _DETAIL_MEMBERS if name in members]
    )


def _piece_value(piece: Piece) -> bytes:
    if piece.reason:
        message = msgspec.json.encode(piece.message)
        detail = _detail_members(piece.detail) or b',"message":%b' % message
        return b'{"failed":true,"reason":"%b","error":%b%b}' % (piece.reason.encode(), message, detail)
    if piece.body is None:
        return b"null"
    data = only_frame(piece.body)
    found = _norfab_member(piece.name, data) if data is not None else None
    return found if found is not None else value(piece.body)


def _norfab_member(name: bytes, data: bytes) -> bytes | None:
    """Return the value in the object `{name: …}` that norfab's worker `name` sends."""
    if not data.startswith(b"{" + quote_name(name) + b":") or not _is_json(data):
        return None
    members = object_in(data)
    if members is None or len(members) != 1:
        return None
    return bytes(members[printable(name)])


def _norfab_job(result: bytes, error: bytes, uuid: bytes, service: bytes, task: bytes) -> bytes:
    return (
        b'{"result":%b,"failed":%b,"errors":[%b],"task":%b,"messages":[],"juuid":%b,"resources":[],'
        b'"resources_failed":[],"status":"%b","task_started":null,"task_completed":null,"service":%b,'
        b'"diff":null,"dry_run":false}'
        % (
            result,
            b"true" if error else b"false",
            error,
            task,
            quote_text(uuid),
            b"error" if error else b"completed",
            quote_name(service),
        )
    )
