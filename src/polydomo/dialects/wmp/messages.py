"""WMP's messages on ZeroMQ: docs/reference/wmp-framing.md is the specification of what is here.

    destination* | "" | "WMP1" | command | source* | "" | headers | payload*

Both paths have the next hop first. A message's destination is what is left of its way; its source is the way back, on
which every device has laid the hop it came from. Whoever answers sends to the source it was given. Headers are one CBOR
map; devices pass them on unread.
"""

from __future__ import annotations

from typing import Final

from polydomo.errors import ProtocolError
from polydomo.wire import cbor
from polydomo.wire.frames import DELIMITER, Message, frame

PROTOCOL: Final = b"WMP1"

READY: Final = 1  # a worker: I could do something
WAKE: Final = 2  # a manager: I have something
GIVE: Final = 3  # a worker: give it to me
TAKE: Final = 4  # a manager: here it is
NO: Final = 5  # a manager: somebody else has it
DONE: Final = 6  # a worker: this came out of it
STATUS: Final = 7  # a worker: this is how it goes
CANCEL: Final = 8  # a manager: nobody wants it any more

NAMES: Final = ("", "READY", "WAKE", "GIVE", "TAKE", "NO", "DONE", "STATUS", "CANCEL")
FROM_WORKERS: Final = (READY, GIVE, DONE, STATUS)
FROM_MANAGERS: Final = (WAKE, TAKE, NO, CANCEL)

# How DONE says what came out of it, in its header `status`.
OK: Final = 200
FAILED: Final = 500  # the worker's code failed
CANCELLED: Final = 499  # it was told that nobody wants it
NOT_BEGUN: Final = 503  # it has no room after all, or stops: another may have the job

# A path that is longer went in a circle.
HOPS: Final = 16

# Of the headers, in bytes.
HEADERS_MAX: Final = 65536

FOREVER: Final = float("inf")
TIMEOUT_MAX: Final = (1 << 53) - 1


def write(destination: list[bytes], command: int, source: list[bytes], headers: bytes, body: bytes) -> bytes:
    """A message as wire bytes."""
    way = b"".join([frame(hop, True) for hop in destination])
    back = b"".join([frame(hop, True) for hop in source])
    return way + HEADS[command] + back + DELIMITER + frame(headers, bool(body)) + body


def head_of(command: int) -> bytes:
    """The middle of a message, behind the destination and before the source."""
    return DELIMITER + frame(PROTOCOL, True) + frame(bytes((command,)), True)


HEADS: Final = [head_of(command) for command in range(CANCEL + 1)]


def path(message: Message, hops: int) -> list[bytes]:
    """Up to an empty frame."""
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


def word(value: bytes) -> bytes:
    """A name in the headers: a text, or a byte string if it is none."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return cbor.head(cbor.BYTES, len(value)) + value
    return cbor.head(cbor.TEXT, len(value)) + value


# The headers that each job needs are written, and recognised, by hand: keys in their order, as `cbor.encode` has them.
_KEY_JOB: Final = cbor.text("job")
_KEY_ROLE: Final = cbor.text("role")
_KEY_WAKE: Final = cbor.text("wake")
_KEY_ROLES: Final = cbor.text("roles")
_KEY_GONE: Final = cbor.text("gone")
_KEY_STATUS: Final = cbor.text("status")
_KEY_SLOTS: Final = cbor.text("slots")
_ONLY_SLOTS: Final = cbor.head(cbor.MAP, 1) + _KEY_SLOTS
_ONE_WAKE: Final = cbor.head(cbor.MAP, 1) + _KEY_WAKE
_WAKE_AND_ROLES: Final = cbor.head(cbor.MAP, 2) + _KEY_WAKE
_ONE_JOB: Final = cbor.head(cbor.MAP, 1) + _KEY_JOB
_DONE: Final = cbor.head(cbor.MAP, 2) + _KEY_JOB
_DONE_WELL: Final = _KEY_STATUS + cbor.encode(OK)


# What a device says for a peer that it has lost: it is ready for nothing, and gone.
GONE: Final = cbor.encode({"roles": [], "gone": True})


def wake_tail(role: bytes) -> bytes:
    """The end of a WAKE's headers for one role."""
    return _KEY_ROLES + cbor.head(cbor.ARRAY, 1) + word(role)


def wake_headers(wake: int, tail: bytes) -> bytes:
    """WAKE."""
    return _WAKE_AND_ROLES + cbor.head(cbor.UINT, wake) + tail


def only_wake(wake: int) -> bytes:
    """GIVE or NO, without more."""
    return _ONE_WAKE + cbor.head(cbor.UINT, wake)


def take_headers(job: bytes, role: bytes, wake: int, tail: bytes, more: int) -> bytes:
    """TAKE; `tail` has the other `more` headers, of longer names than these."""
    return (
        cbor.head(cbor.MAP, 3 + more)
        + _KEY_JOB
        + word(job)
        + _KEY_ROLE
        + role
        + _KEY_WAKE
        + cbor.head(cbor.UINT, wake)
        + tail
    )


def take_tail(manager: bytes, timeout: float) -> bytes:
    """The end of most TAKEs' headers: who gives it, and for how many seconds, if that is limited."""
    tail = cbor.text("manager") + word(manager)
    if timeout < FOREVER:
        tail += cbor.text("timeout") + cbor.head(cbor.UINT, min(round(timeout * 1000), TIMEOUT_MAX))
    return tail


def only_job(job: bytes) -> bytes:
    """CANCEL, and a STATUS that is nothing but a sign of life."""
    return _ONE_JOB + word(job)


def done_headers(job: bytes) -> bytes:
    """DONE, when all went well."""
    return _DONE + word(job) + _DONE_WELL


def only_slots(slots: int) -> bytes:
    """READY, of one who has said what it offers."""
    return _ONLY_SLOTS + cbor.head(cbor.UINT, slots)


def names_roles(headers: bytes) -> bool:
    """Does a READY say what its worker offers? For those who do not read headers otherwise."""
    return _KEY_ROLES in headers


def says_gone(headers: bytes) -> bool:
    """Does a READY say that its worker, and everybody behind it, is gone?"""
    if headers == GONE:
        return True
    try:
        return _KEY_GONE in headers and cbor.decode_map(headers).get("gone") is True
    except ProtocolError:
        return False


def wake_in(headers: bytes) -> int:
    """The wake in the usual headers of GIVE and NO; -1: they are not the usual ones."""
    return _only_number(headers, _ONE_WAKE)


def slots_in(headers: bytes) -> int:
    """The same of a READY that has nothing but slots."""
    return _only_number(headers, _ONLY_SLOTS)


def _only_number(headers: bytes, head: bytes) -> int:
    """A number behind `head` and nothing else; -1: something else."""
    size = len(headers)
    at = len(head)
    if size <= at or not headers.startswith(head):
        return -1
    first = headers[at]
    if first < 24:
        return first if size == at + 1 else -1
    if first < 28 and size == at + 1 + (1 << (first - 24)):
        return int.from_bytes(headers[at + 1 :], "big")
    return -1


def job_done_well(headers: bytes) -> bytes:
    """The job in the usual headers of DONE; empty: they are not the usual ones."""
    if headers.startswith(_DONE) and headers.endswith(_DONE_WELL):
        pos = len(_DONE)
        length = headers[pos] - 0x60
        if 0 < length < 24 and pos + 1 + length + len(_DONE_WELL) == len(headers):
            return headers[pos + 1 : pos + 1 + length]
    return b""


def only_frame(body: bytes) -> bytes:
    """The first frame of a payload; empty if there is none."""
    return Message(body, 0, len(body)).take() or b""


def whole(headers: dict[str, object], name: str, default: int = 0) -> int:
    """A whole number from 0 on among the headers, or ProtocolError."""
    value = headers.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProtocolError(f"the WMP header {name!r} must be a whole number from 0 on")
    return value


def token(headers: dict[str, object], name: str) -> bytes:
    """A text or byte string among the headers, as bytes; empty if there is none."""
    value = headers.get(name)
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise ProtocolError(f"the WMP header {name!r} must be a text or a byte string")


def tokens(headers: dict[str, object], name: str) -> list[bytes]:
    """A list of such, without repetitions."""
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
    """A map among the headers; empty if there is none."""
    value = headers.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(f"the WMP header {name!r} must be a map")
    return value
