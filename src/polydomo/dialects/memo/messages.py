"""MemoDB's messages: a header, which is a CBOR array, and behind it the payload as it is.

| message    | header                                             | payload | who says it                          |
| ---------- | -------------------------------------------------- | ------- | ------------------------------------ |
| READY      | "memo01", 1, ID, [service names]                   | no      | a worker, before it has an ID        |
| JOB        | "memo01", 2, ID, service name, timeout in ms       | yes     | a client; the broker to a worker     |
| RESULT     | "memo01", 3, ID, true if disconnecting (optional)  | yes     | a worker; the broker to a client     |
| HEARTBEAT  | "memo01", 4, ID                                    | no      | the broker; a worker in answer to it |
| DISCONNECT | "memo01", 5, ID                                    | no      | the broker                           |

The ID is the worker's, and empty in everything to and from clients and in READY.

A payload is one body, other protocols' bodies have several frames. A body of exactly one frame is its bytes; any other
is FRAMES and the frames as they lie in memory (wire/frames.py), which a peer that knows it takes apart again. A single
frame that would be taken apart is packed as well, so every body and every payload comes out as it went in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from polydomo.dialects.memo import cbor
from polydomo.dialects.memo.cbor import Reader
from polydomo.errors import ProtocolError
from polydomo.wire.cbor import ARRAY, UINT, head
from polydomo.wire.frames import LONG, MORE, frame

PROTOCOL: Final = b"memo01"

READY: Final = 1
JOB: Final = 2
RESULT: Final = 3
HEARTBEAT: Final = 4
DISCONNECT: Final = 5

NAMES: Final = ("", "READY", "JOB", "RESULT", "HEARTBEAT", "DISCONNECT")

# A READY with a few hundred long names fits; what is longer is no header.
HEADER_MAX: Final = 65536

# Services of one worker.
SERVICES_MAX: Final = 1000

# No time-out is longer: 30 days, in milliseconds.
TIMEOUT_MAX: Final = 30 * 86400 * 1000

FRAMES: Final = b"\0polydomo:frames\0"
FRAMES_MAX: Final = 1024

# How headers begin: an array of n items, "memo01", the kind of message.
_START: Final = cbor.text_string(PROTOCOL)
_READY: Final = head(ARRAY, 4) + _START + bytes((READY,))
_JOB: Final = head(ARRAY, 5) + _START + bytes((JOB,))
_RESULT: Final = head(ARRAY, 3) + _START + bytes((RESULT,))
_LEAVING: Final = head(ARRAY, 4) + _START + bytes((RESULT,))
_HEARTBEAT: Final = head(ARRAY, 3) + _START + bytes((HEARTBEAT,))
_DISCONNECT: Final = head(ARRAY, 3) + _START + bytes((DISCONNECT,))

# What every answer to a client begins with.
CLIENT_RESULT: Final = _RESULT + b"\x40"

# How a RESULT of a worker begins whose ID has four bytes, as all have that we gave out.
WORKER_RESULT: Final = _RESULT + b"\x44"


class Header:
    """What a message says before its payload, which begins at `end`. Names are UTF-8."""

    __slots__ = ("end", "id", "kind", "leaving", "service", "services", "timeout")

    def __init__(self, kind: int, id: bytes) -> None:
        self.kind = kind
        self.id = id
        self.services: list[bytes] = []  # of READY
        self.service = b""  # of JOB
        self.timeout = 0  # of JOB, in milliseconds
        self.leaving = False  # of RESULT
        self.end = 0


def ready(services: Iterable[bytes]) -> bytes:
    """READY; the names are put in MemoDB's order, by length and then bytes."""
    names = sorted(set(services), key=lambda name: (len(name), name))
    return _READY + b"\x40" + head(ARRAY, len(names)) + b"".join([cbor.text_string(name) for name in names])


def job(id: bytes, service: bytes, timeout: int) -> bytes:
    """The header of a JOB; `timeout` in milliseconds."""
    return _JOB + cbor.byte_string(id) + cbor.text_string(service) + head(UINT, timeout)


def result(id: bytes, leaving: bool = False) -> bytes:
    """The header of a RESULT. `leaving`: and no more jobs, please."""
    return _LEAVING + cbor.byte_string(id) + b"\xf5" if leaving else _RESULT + cbor.byte_string(id)


def heartbeat(id: bytes) -> bytes:
    """A HEARTBEAT."""
    return _HEARTBEAT + cbor.byte_string(id)


def disconnect(id: bytes) -> bytes:
    """A DISCONNECT."""
    return _DISCONNECT + cbor.byte_string(id)


def read(data: bytes, start: int, end: int) -> Header:
    """The header of the message in `data[start:end]`; ProtocolError says why it is none."""
    bound = min(end, start + HEADER_MAX)
    reader = Reader(data, start, bound)
    items = reader.array()
    if reader.text_string() != PROTOCOL:
        raise ProtocolError("a message of another protocol than memo01")
    kind = reader.uint()
    if not READY <= kind <= DISCONNECT:
        raise ProtocolError(f"memo01 has no message of type {kind}")
    header = Header(kind, reader.byte_string())
    count = 3
    if kind == READY:
        _services(reader, header)
        count = 4
    elif kind == JOB:
        header.service = reader.text_string()
        header.timeout = reader.uint()
        count = 5
    elif kind == RESULT and (items == 4 or (items < 0 and not reader.ended())):
        header.leaving = reader.boolean()
        count = 4
    elif kind == RESULT and items < 0:  # its end has been taken
        items = 3
    if items != count and (items >= 0 or not reader.ended()):
        raise ProtocolError(f"a {NAMES[kind]} of another number of items than {count}")
    header.end = reader.pos
    if header.end < end and kind != JOB and kind != RESULT:
        raise ProtocolError(f"a {NAMES[kind]} with a payload")
    return header


def _services(reader: Reader, header: Header) -> None:
    count = reader.array()
    while not reader.ended() if count < 0 else len(header.services) < count:
        if len(header.services) >= SERVICES_MAX:
            raise ProtocolError(f"a READY with more than {SERVICES_MAX} services")
        header.services.append(reader.text_string())


def payload_of(body: bytes) -> bytes:
    """A canonical body as a payload."""
    if body:
        flags = body[0]
        if not flags & MORE:
            content = body[9:] if flags & LONG else body[2:]
            if not content.startswith(FRAMES) or not _is_packed(content):
                return content
    return FRAMES + body


def body_of(payload: bytes) -> bytes:
    """A payload as a canonical body."""
    if payload.startswith(FRAMES) and _is_packed(payload):
        return payload[len(FRAMES) :]
    return frame(payload)


def _is_packed(payload: bytes) -> bool:
    """Would `payload_of` have made it? One frame is not packed, unless what it contains would be taken apart."""
    pos = 0
    while payload.startswith(FRAMES, pos):
        pos += len(FRAMES)
        count = _count(payload, pos)
        if count != 1:
            return count >= 0
        pos += 9 if payload[pos] & LONG else 2
    return False


def _count(data: bytes, pos: int) -> int:
    """How many frames there are from `pos` to the end; -1: they are not as they should be."""
    end = len(data)
    count = 0
    more = pos < end
    while more:
        if count == FRAMES_MAX or pos + 2 > end or data[pos] & ~(MORE | LONG):
            return -1
        flags = data[pos]
        if flags & LONG:
            if pos + 9 > end:
                return -1
            pos += 9 + int.from_bytes(data[pos + 1 : pos + 9], "big")
        else:
            pos += 2 + data[pos + 1]
        count += 1
        more = flags & MORE != 0
    return count if pos == end else -1
