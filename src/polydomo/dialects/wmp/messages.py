"""WMP's messages on ZeroMQ, as specified in docs/reference/wmp-framing.md.

    destination* | "" | "WMP1" | command | source* | "" | headers | payload*

Both paths begin with the next hop. The destination is the rest of a message's path; the source is the path back, to
which every device adds the hop that the message came from. A reply goes to the source of its message. Headers are one
CBOR map; devices forward them unread.
"""

from __future__ import annotations

from typing import Final

from polydomo.errors import ProtocolError
from polydomo.wire import cbor
from polydomo.wire.frames import DELIMITER, Message, frame, head

PROTOCOL: Final = b"WMP1"

READY: Final = 1  # worker: it has room for jobs
WAKE: Final = 2  # manager: a job waits
GIVE: Final = 3  # worker: it asks for the job
TAKE: Final = 4  # manager: the job
NO: Final = 5  # manager: no job is left
DONE: Final = 6  # worker: the job's result
STATUS: Final = 7  # worker: a partial reply, an event or a heartbeat
CANCEL: Final = 8  # manager: the result is not needed any more

NAMES: Final = ("", "READY", "WAKE", "GIVE", "TAKE", "NO", "DONE", "STATUS", "CANCEL")
FROM_WORKERS: Final = (READY, GIVE, DONE, STATUS)
FROM_MANAGERS: Final = (WAKE, TAKE, NO, CANCEL)

# Values of DONE's header `status`.
OK: Final = 200
FAILED: Final = 500  # the worker's code failed
CANCELLED: Final = 499  # after CANCEL
NOT_BEGUN: Final = 503  # the worker has no room after all, or stops: another worker may have the job

# A longer path comes from a loop.
HOPS: Final = 16

HEADERS_MAX: Final = 65536

# By command: what is between destination and source.
HEADS: Final[list[bytes]] = [
    DELIMITER + frame(PROTOCOL, True) + frame(bytes((command,)), True) for command in range(CANCEL + 1)
]

FOREVER: Final = float("inf")
TIMEOUT_MAX: Final = (1 << 53) - 1


def write(destination: list[bytes], command: int, source: list[bytes], headers: bytes, body: bytes) -> bytes:
    """Encode a complete message."""
    back = head(*source) + DELIMITER
    return head(*destination) + HEADS[command] + back + frame(headers, bool(body)) + body


def command_name(command: int) -> str:
    """Return the name of a command, or its number."""
    return NAMES[command] if command < len(NAMES) else str(command)


def path(message: Message, hops: int) -> list[bytes]:
    """Read a path and the empty frame after it."""
    found: list[bytes] = []
    while True:
        hop = message.take()
        if hop is None:
            raise ProtocolError("a WMP path without its end")
        if not hop:
            return found
        if len(found) >= hops:
            raise ProtocolError(
                f"a WMP path of more than {hops} hops", hint="are devices connected in a circle?"
            )
        found.append(hop)


def name_value(name: bytes) -> str | bytes:
    """Return a name as headers have it: text, or a byte string if it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def encode_name(name: bytes) -> bytes:
    """Encode a name for the headers."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return cbor.byte_string(name)
    return cbor.text_string(name)


# The headers of each job are encoded and recognised without the codec: keys in the order of `cbor.encode`.
_KEY_JOB: Final = cbor.text_string(b"job")
_KEY_ROLE: Final = cbor.text_string(b"role")
_KEY_WAKE: Final = cbor.text_string(b"wake")
_KEY_ROLES: Final = cbor.text_string(b"roles")
_KEY_GONE: Final = cbor.text_string(b"gone")
_KEY_STATUS: Final = cbor.text_string(b"status")
_KEY_SLOTS: Final = cbor.text_string(b"slots")
_ONLY_SLOTS: Final = cbor.head(cbor.MAP, 1) + _KEY_SLOTS
_ONE_WAKE: Final = cbor.head(cbor.MAP, 1) + _KEY_WAKE
_WAKE_AND_ROLES: Final = cbor.head(cbor.MAP, 2) + _KEY_WAKE
_ONE_JOB: Final = cbor.head(cbor.MAP, 1) + _KEY_JOB
_DONE: Final = cbor.head(cbor.MAP, 2) + _KEY_JOB
_DONE_WELL: Final = _KEY_STATUS + cbor.encode(OK)


# Name of the header by which a broker tells a joined one on whose behalf a job is done.
PRINCIPAL: Final = "principal"

# Headers of the READY that a device sends for a peer that it has lost.
GONE: Final = cbor.encode({"roles": [], "gone": True})


def wake_tail(role: bytes) -> bytes:
    """Encode the headers of a WAKE for one role after its number."""
    return _KEY_ROLES + cbor.head(cbor.ARRAY, 1) + encode_name(role)


def wake_headers(wake: int, tail: bytes) -> bytes:
    """Encode the headers of WAKE."""
    return _WAKE_AND_ROLES + cbor.head(cbor.UINT, wake) + tail


def only_wake(wake: int) -> bytes:
    """Encode the headers of GIVE or NO."""
    return _ONE_WAKE + cbor.head(cbor.UINT, wake)


def refusal(reason: str) -> bytes:
    """Encode the headers of a NO that refuses a role."""
    return cbor.encode({"error": reason})


def refusal_in(headers: bytes) -> str:
    """Return the reason in the headers of a NO that refuses a role; empty in those of any other."""
    if headers.startswith(_ONE_WAKE):
        return ""
    return token(cbor.decode_map(headers), "error").decode("utf-8", "replace")


def take_headers(job: bytes, role: bytes, wake: int, tail: bytes, more: int) -> bytes:
    """Encode the headers of TAKE; `tail` has `more` others, which have longer names."""
    return (
        cbor.head(cbor.MAP, 3 + more)
        + _KEY_JOB
        + encode_name(job)
        + _KEY_ROLE
        + role
        + _KEY_WAKE
        + cbor.head(cbor.UINT, wake)
        + tail
    )


def take_tail(manager: bytes, timeout: float) -> bytes:
    """Encode the last headers of most TAKEs: the manager, and the timeout in seconds, if any."""
    tail = cbor.text_string(b"manager") + encode_name(manager)
    if timeout < FOREVER:
        tail += cbor.text_string(b"timeout") + cbor.head(cbor.UINT, min(round(timeout * 1000), TIMEOUT_MAX))
    return tail


def only_job(job: bytes) -> bytes:
    """Encode the headers of CANCEL, and of a STATUS that is only a heartbeat or a partial reply."""
    return _ONE_JOB + encode_name(job)


def done_headers(job: bytes) -> bytes:
    """Encode the headers of a successful DONE."""
    return _DONE + encode_name(job) + _DONE_WELL


def only_slots(slots: int) -> bytes:
    """Encode the headers of a READY after the first one."""
    return _ONLY_SLOTS + cbor.head(cbor.UINT, slots)


def names_roles(headers: bytes) -> bool:
    """Return whether a READY has roles, without decoding its headers."""
    return _KEY_ROLES in headers


def says_gone(headers: bytes) -> bool:
    """Return whether a READY says that its sender, and all peers below it, are gone."""
    if headers == GONE:
        return True
    try:
        return _KEY_GONE in headers and cbor.decode_map(headers).get("gone") is True
    except ProtocolError:
        return False


def wake_in(headers: bytes, default: int) -> int:
    """Return the number in the headers of GIVE or NO; `default` if there is none."""
    number = _only_number(headers, _ONE_WAKE)
    return number if number >= 0 else whole(cbor.decode_map(headers), "wake", default)


def slots_in(headers: bytes) -> int:
    """Return the slots in the headers of READY; -1 if there are others."""
    return _only_number(headers, _ONLY_SLOTS)


def _only_number(headers: bytes, start: bytes) -> int:
    """Return the number after `start` if the headers consist of these two; else -1."""
    size = len(headers)
    at = len(start)
    if size <= at or not headers.startswith(start):
        return -1
    first = headers[at]
    if first < 24:
        return first if size == at + 1 else -1
    if first < 28 and size == at + 1 + (1 << (first - 24)):
        return int.from_bytes(headers[at + 1 :], "big")
    return -1


def job_done_well(headers: bytes) -> bytes:
    """Return the job in the usual headers of a successful DONE; empty if they are others."""
    if headers.startswith(_DONE) and headers.endswith(_DONE_WELL):
        pos = len(_DONE)
        length = headers[pos] - 0x60
        if 0 < length < 24 and pos + 1 + length + len(_DONE_WELL) == len(headers):
            return headers[pos + 1 : pos + 1 + length]
    return b""


def only_frame(body: bytes) -> bytes:
    """Return the first frame of a payload; empty if there is none."""
    return Message(body, 0, len(body)).take() or b""


def whole(headers: dict[str, object], name: str, default: int = 0) -> int:
    """Return a header that is an integer from 0 on; raise ProtocolError if it is not."""
    value = headers.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProtocolError(f"the WMP header {name!r} must be an integer from 0 on")
    return value


def token(headers: dict[str, object], name: str) -> bytes:
    """Return a header that is a text or byte string, as bytes; empty if there is none."""
    value = headers.get(name)
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise ProtocolError(f"the WMP header {name!r} must be a text or a byte string")


def tokens(headers: dict[str, object], name: str) -> list[bytes]:
    """Return a header that is a list of text or byte strings, without duplicates."""
    value = headers.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ProtocolError(f"the WMP header {name!r} must be a list")
    found: dict[bytes, None] = {}
    for one in value:
        found[token({name: one}, name)] = None
    return list(found)


def table(headers: dict[str, object], name: str) -> dict[str, object]:
    """Return a header that is a map; empty if there is none."""
    value = headers.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(f"the WMP header {name!r} must be a map")
    return value
