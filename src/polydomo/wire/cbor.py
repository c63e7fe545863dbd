"""Small values as CBOR (RFC 8949): null, booleans, whole numbers, floats, byte and text strings, lists, maps with
texts as keys.

Written: the deterministic encoding (§4.2.1), so equal values are equal bytes. Read: any well-formed encoding, strings
and lists of indefinite length among it; a tag is skipped and what it is on is taken. What a map's key is that is no
text, nobody here knows: it is an error, as is everything that goes deeper than DEPTH.
"""

from __future__ import annotations

import struct
from typing import Final

from polydomo.errors import ProtocolError

UINT: Final = 0
NEGATIVE: Final = 1
BYTES: Final = 2
TEXT: Final = 3
ARRAY: Final = 4
MAP: Final = 5
TAG: Final = 6
SIMPLE: Final = 7

DEPTH: Final = 16

_BREAK: Final = 0xFF
_LARGEST: Final = (1 << 64) - 1
_HALF: Final = struct.Struct(">e")
_SINGLE: Final = struct.Struct(">f")
_DOUBLE: Final = struct.Struct(">d")


def head(major: int, value: int) -> bytes:
    """The shortest head of a data item."""
    kind = major << 5
    if value < 24:
        return bytes((kind | value,))
    if value < 0x100:
        return bytes((kind | 24, value))
    if value < 0x1_0000:
        return bytes((kind | 25,)) + value.to_bytes(2, "big")
    if value < 0x1_0000_0000:
        return bytes((kind | 26,)) + value.to_bytes(4, "big")
    return bytes((kind | 27,)) + value.to_bytes(8, "big")


def text(value: str) -> bytes:
    """A text string."""
    encoded = value.encode()
    return head(TEXT, len(encoded)) + encoded


def encode(value: object) -> bytes:
    """Any of the values above; TypeError or ValueError for others."""
    if value is None:
        return b"\xf6"
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int):
        if not -_LARGEST - 1 <= value <= _LARGEST:
            raise ValueError(f"{value} has more than 64 bits")
        return head(UINT, value) if value >= 0 else head(NEGATIVE, -1 - value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return head(BYTES, len(value)) + value
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, (list, tuple)):
        return head(ARRAY, len(value)) + b"".join([encode(item) for item in value])
    if isinstance(value, dict):
        pairs: list[tuple[bytes, bytes]] = []
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no text")
            pairs.append((text(key), encode(item)))
        pairs.sort()
        return head(MAP, len(pairs)) + b"".join([key + item for key, item in pairs])
    raise TypeError(f"a {type(value).__name__} cannot be written as CBOR")


def decode_map(data: bytes) -> dict[str, object]:
    """The one map that all of the bytes are, or ProtocolError."""
    reader = Reader(data)
    value = reader.item(0)
    if not isinstance(value, dict):
        raise ProtocolError("headers that are no CBOR map")
    if reader.pos != len(data):
        raise ProtocolError("bytes behind the end of the headers")
    return value


def _float(value: float) -> bytes:
    """As short as it can be without another value; NaN has one form."""
    if value != value:
        return b"\xf9\x7e\x00"
    try:
        packed = _HALF.pack(value)
        if _HALF.unpack(packed)[0] == value:
            return b"\xf9" + packed
    except (OverflowError, struct.error):
        pass
    try:
        packed = _SINGLE.pack(value)
        if _SINGLE.unpack(packed)[0] == value:
            return b"\xfa" + packed
    except (OverflowError, struct.error):
        pass
    return b"\xfb" + _DOUBLE.pack(value)


class Reader:
    """Takes data items from the front."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.end = len(data)

    def item(self, depth: int) -> object:
        """The next value."""
        byte = self._byte()
        major = byte >> 5
        if major == SIMPLE:
            return self._simple(byte)
        if major == TAG:
            self._argument(byte)
            return self.item(self._deeper(depth))
        if byte & 0x1F == 31:
            return self._indefinite(major, depth)
        value = self._argument(byte)
        if major == UINT:
            return value
        if major == NEGATIVE:
            return -1 - value
        if major == BYTES:
            return self._chunk(value)
        if major == TEXT:
            return _decoded(self._chunk(value))
        deeper = self._deeper(depth)
        if major == ARRAY:
            return [self.item(deeper) for _ in range(self._count(value))]
        found: dict[str, object] = {}
        for _ in range(self._count(value)):
            self._pair(found, deeper)
        return found

    def _pair(self, found: dict[str, object], depth: int) -> None:
        key = self.item(depth)
        if not isinstance(key, str):
            raise ProtocolError("a key in the headers that is no text")
        if key in found:
            raise ProtocolError(f"the key {key[:32]!r} twice in the headers")
        found[key] = self.item(depth)

    def _indefinite(self, major: int, depth: int) -> object:
        """Until a break."""
        deeper = self._deeper(depth)
        if major == ARRAY:
            items: list[object] = []
            while not self._ended():
                items.append(self.item(deeper))
            return items
        if major == MAP:
            found: dict[str, object] = {}
            while not self._ended():
                self._pair(found, deeper)
            return found
        if major not in (BYTES, TEXT):
            raise ProtocolError("an indefinite length where there can be none")
        chunks: list[bytes] = []
        while not self._ended():
            byte = self._byte()
            if byte >> 5 != major or byte & 0x1F == 31:
                raise ProtocolError("a string in pieces of another kind")
            piece = self._chunk(self._argument(byte))
            chunks.append(piece)
            if major == TEXT:
                _decoded(piece)  # each must be whole by itself
        joined = b"".join(chunks)
        return joined if major == BYTES else _decoded(joined)

    def _simple(self, byte: int) -> object:
        if byte == 0xF4 or byte == 0xF5:
            return byte == 0xF5
        if byte == 0xF6 or byte == 0xF7:  # undefined is null
            return None
        if byte == 0xF9:
            return float(_HALF.unpack(self._chunk(2))[0])
        if byte == 0xFA:
            return float(_SINGLE.unpack(self._chunk(4))[0])
        if byte == 0xFB:
            return float(_DOUBLE.unpack(self._chunk(8))[0])
        raise ProtocolError(f"0x{byte:02x} in the headers, which means nothing here")

    def _argument(self, byte: int) -> int:
        value = byte & 0x1F
        if value < 24:
            return value
        if value < 28:
            return int.from_bytes(self._chunk(1 << (value - 24)), "big")
        raise ProtocolError(f"0x{byte:02x} begins no data item")

    def _count(self, value: int) -> int:
        """Of items to come, of which each takes a byte at least."""
        if value > self.end - self.pos:
            raise ProtocolError("headers that are cut short")
        return value

    def _chunk(self, length: int) -> bytes:
        end = self.pos + length
        if end > self.end:
            raise ProtocolError("headers that are cut short")
        found = self.data[self.pos : end]
        self.pos = end
        return found

    def _byte(self) -> int:
        pos = self.pos
        if pos >= self.end:
            raise ProtocolError("headers that are cut short")
        self.pos = pos + 1
        return self.data[pos]

    def _ended(self) -> bool:
        if self.pos < self.end and self.data[self.pos] == _BREAK:
            self.pos += 1
            return True
        return False

    def _deeper(self, depth: int) -> int:
        if depth >= DEPTH:
            raise ProtocolError("headers nested too deep")
        return depth + 1


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProtocolError("text in the headers that is not UTF-8") from None
