"""MemoDB's messages: a header, which is a CBOR array, followed by the payload as raw bytes.

| message    | header                                             | payload | sender                               |
| ---------- | -------------------------------------------------- | ------- | ------------------------------------ |
| READY      | "memo01", 1, ID, [service names]                   | no      | a worker without an ID               |
| JOB        | "memo01", 2, ID, service name, timeout in ms       | yes     | a client; the broker to a worker     |
| RESULT     | "memo01", 3, ID, true if disconnecting (optional)  | yes     | a worker; the broker to a client     |
| HEARTBEAT  | "memo01", 4, ID                                    | no      | the broker; a worker in reply        |
| DISCONNECT | "memo01", 5, ID                                    | no      | the broker                           |

The ID is the worker's. It is empty in READY and in all messages to and from clients.

A payload is one string of bytes, while bodies of other protocols have several frames. A body of exactly one frame is
sent as its bytes; any other is packed: FRAMES, then the frames in canonical form (wire/frames.py), which a peer that
knows the mark unpacks. A single frame that looks packed is packed as well, so every body and every payload is restored
exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from polydomo.errors import ProtocolError
from polydomo.wire.cbor import ARRAY, UINT, CborReader, byte_string, head, text_string
from polydomo.wire.frames import LONG, MORE, frame

PROTOCOL: Final = b"memo01"
DIALECT: Final = "memo01"

READY: Final = 1
JOB: Final = 2
RESULT: Final = 3
HEARTBEAT: Final = 4
DISCONNECT: Final = 5

NAMES: Final = ("", "READY", "JOB", "RESULT", "HEARTBEAT", "DISCONNECT")

# Enough for a READY with a few hundred long names.
HEADER_MAX: Final = 65536

# Of one worker.
SERVICES_MAX: Final = 1000

# 30 days, in milliseconds; longer timeouts are cut to it.
TIMEOUT_MAX: Final = 30 * 86400 * 1000

FRAMES: Final = b"\0polydomo:frames\0"
FRAMES_MAX: Final = 1024

# The beginning of each header: an array of n items, "memo01", the kind of message.
_START: Final = text_string(PROTOCOL)
_READY: Final = head(ARRAY, 4) + _START + bytes((READY,))
_JOB: Final = head(ARRAY, 5) + _START + bytes((JOB,))
_RESULT: Final = head(ARRAY, 3) + _START + bytes((RESULT,))
_LEAVING: Final = head(ARRAY, 4) + _START + bytes((RESULT,))
_HEARTBEAT: Final = head(ARRAY, 3) + _START + bytes((HEARTBEAT,))
_DISCONNECT: Final = head(ARRAY, 3) + _START + bytes((DISCONNECT,))

# The header of every reply to a client.
CLIENT_RESULT: Final = _RESULT + b"\x40"

# Length of the IDs that workers are assigned: a worker is known by nothing else, so nobody else may guess its ID.
ID_SIZE: Final = 16

# The beginning of a RESULT whose worker ID has this broker's length.
WORKER_RESULT: Final = _RESULT + bytes((0x40 + ID_SIZE,))


class Header:
    """Decoded header of a message; the payload begins at `end`. Names are UTF-8."""

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
    """Encode READY, with the names in MemoDB's order: by length, then by bytes."""
    names = sorted(set(services), key=lambda name: (len(name), name))
    return _READY + b"\x40" + head(ARRAY, len(names)) + b"".join([text_string(name) for name in names])


def job(id: bytes, service: bytes, timeout: int) -> bytes:
    """Encode the header of a JOB; `timeout` is in milliseconds."""
    return _JOB + byte_string(id) + text_string(service) + head(UINT, timeout)


def result(id: bytes, leaving: bool = False) -> bytes:
    """Encode the header of a RESULT; a `leaving` worker wants no more jobs."""
    return _LEAVING + byte_string(id) + b"\xf5" if leaving else _RESULT + byte_string(id)


def heartbeat(id: bytes) -> bytes:
    return _HEARTBEAT + byte_string(id)


def disconnect(id: bytes) -> bytes:
    return _DISCONNECT + byte_string(id)


def read(data: bytes, start: int, end: int) -> Header:
    """Decode the header of the message in `data[start:end]`; raise ProtocolError if it is malformed."""
    bound = min(end, start + HEADER_MAX)
    reader = CborReader(data, start, bound)
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
    elif kind == RESULT and (items == 4 or (items < 0 and not reader.at_break())):
        header.leaving = reader.boolean()
        count = 4
    elif kind == RESULT and items < 0:  # its break has been read
        items = 3
    if items != count and (items >= 0 or not reader.at_break()):
        raise ProtocolError(f"a {NAMES[kind]} of another number of items than {count}")
    header.end = reader.pos
    if header.end < end and kind != JOB and kind != RESULT:
        raise ProtocolError(f"a {NAMES[kind]} with a payload")
    return header


def _services(reader: CborReader, header: Header) -> None:
    count = reader.array()
    while reader.has_item(count, len(header.services)):
        if len(header.services) >= SERVICES_MAX:
            raise ProtocolError(f"a READY with more than {SERVICES_MAX} services")
        header.services.append(reader.text_string())


def payload_of(body: bytes) -> bytes:
    """Convert a canonical body to a payload."""
    if body:
        flags = body[0]
        if not flags & MORE:
            content = body[9:] if flags & LONG else body[2:]
            if not content.startswith(FRAMES) or not _is_packed(content):
                return content
    return FRAMES + body


def body_of(payload: bytes) -> bytes:
    """Convert a payload to a canonical body."""
    if payload.startswith(FRAMES) and _is_packed(payload):
        return payload[len(FRAMES) :]
    return frame(payload)


def _is_packed(payload: bytes) -> bool:
    """Return whether `payload_of` made this: it packs one frame only if the frame itself looks packed."""
    pos = 0
    while payload.startswith(FRAMES, pos):
        pos += len(FRAMES)
        count = _count(payload, pos)
        if count != 1:
            return count >= 0
        pos += 9 if payload[pos] & LONG else 2
    return False


def _count(data: bytes, pos: int) -> int:
    """Return the number of frames from `pos` to the end; -1 if they are malformed."""
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
