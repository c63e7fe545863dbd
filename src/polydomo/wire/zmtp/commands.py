"""ZMTP commands: READY, ERROR, PING, PONG, SUBSCRIBE, CANCEL (RFC 37/ZMTP §Commands).

A command is one frame with the COMMAND bit: the length of its name in a byte, its name, its data.
"""

from typing import Final

from polydomo.errors import ProtocolError
from polydomo.wire.frames import COMMAND, LONG

READY: Final = b"READY"
ERROR: Final = b"ERROR"
PING: Final = b"PING"
PONG: Final = b"PONG"
SUBSCRIBE: Final = b"SUBSCRIBE"
CANCEL: Final = b"CANCEL"

# RFC 37: the context of a PING has 0 to 16 bytes.
PING_CONTEXT_MAX: Final = 16


def encode(name: bytes, data: bytes = b"") -> bytes:
    """A command as wire bytes."""
    body = bytes((len(name),)) + name + data
    if len(body) > 255:
        return bytes((COMMAND | LONG,)) + len(body).to_bytes(8, "big") + body
    return bytes((COMMAND, len(body))) + body


def decode(body: bytes) -> tuple[bytes, bytes]:
    """A command frame's body to (name, data)."""
    if not body or len(body) < 1 + body[0] or body[0] == 0:
        raise ProtocolError("a command frame has no whole name")
    end = 1 + body[0]
    return body[1:end], body[end:]


def encode_properties(properties: dict[bytes, bytes]) -> bytes:
    """Metadata of READY: name and value pairs."""
    parts: list[bytes] = []
    for name, value in properties.items():
        parts.append(bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value)
    return b"".join(parts)


def decode_properties(data: bytes) -> dict[bytes, bytes]:
    """Metadata of READY; names are case-insensitive (RFC 37) and are given back in lower case."""
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
            raise ProtocolError("a metadata value reaches past the end of its command")
        found[data[pos + 1 : name_end].lower()] = data[value_start:end]
        pos = end
    return found


def encode_error(reason: str) -> bytes:
    """ERROR with a reason a person can read, at most 255 bytes of it."""
    text = reason.encode("ascii", "replace")[:255]
    return encode(ERROR, bytes((len(text),)) + text)


def decode_error(data: bytes) -> str:
    """The reason inside an ERROR; a malformed one is shown as it is."""
    if data and len(data) >= 1 + data[0]:
        return data[1 : 1 + data[0]].decode("ascii", "replace")
    return repr(data)
