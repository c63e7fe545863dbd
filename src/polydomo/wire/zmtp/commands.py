"""ZMTP commands: READY, ERROR, PING, PONG, SUBSCRIBE, CANCEL (RFC 37/ZMTP §Commands).

A command is one frame with the COMMAND bit: one byte with the length of its name, the name, the data.
"""

from typing import Final

from polydomo.errors import ProtocolError
from polydomo.wire.frames import COMMAND, frame

READY: Final = b"READY"
ERROR: Final = b"ERROR"
PING: Final = b"PING"
PONG: Final = b"PONG"
SUBSCRIBE: Final = b"SUBSCRIBE"
CANCEL: Final = b"CANCEL"

# RFC 37: the context of a PING has 0 to 16 bytes.
PING_CONTEXT_MAX: Final = 16


def encode(name: bytes, data: bytes = b"") -> bytes:
    """Encode a command frame."""
    encoded = frame(bytes((len(name),)) + name + data)
    return bytes((COMMAND | encoded[0],)) + encoded[1:]


def decode(body: bytes) -> tuple[bytes, bytes]:
    """Decode the body of a command frame to (name, data)."""
    if not body or len(body) < 1 + body[0] or body[0] == 0:
        raise ProtocolError("a command frame without a complete name")
    end = 1 + body[0]
    return body[1:end], body[end:]


def encode_properties(properties: dict[bytes, bytes]) -> bytes:
    """Encode the metadata of READY: pairs of name and value."""
    return b"".join(
        [
            bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value
            for name, value in properties.items()
        ]
    )


def decode_properties(data: bytes) -> dict[bytes, bytes]:
    """Decode the metadata of READY. Names are case-insensitive (RFC 37) and returned in lower case."""
    found: dict[bytes, bytes] = {}
    pos = 0
    size = len(data)
    while pos < size:
        name_end = pos + 1 + data[pos]
        value_start = name_end + 4
        if data[pos] == 0 or value_start > size:
            raise ProtocolError("the peer's metadata is cut short")
        end = value_start + int.from_bytes(data[name_end:value_start], "big")
        if end > size:
            raise ProtocolError("a metadata value exceeds its command")
        found[data[pos + 1 : name_end].lower()] = data[value_start:end]
        pos = end
    return found


def encode_error(reason: str) -> bytes:
    """Encode ERROR with a readable reason, truncated to 255 bytes."""
    text = reason.encode("ascii", "replace")[:255]
    return encode(ERROR, bytes((len(text),)) + text)


def decode_error(data: bytes) -> str:
    """Return the reason of an ERROR; the repr of its data if it is malformed."""
    if data and len(data) >= 1 + data[0]:
        return data[1 : 1 + data[0]].decode("ascii", "replace")
    return repr(data)
