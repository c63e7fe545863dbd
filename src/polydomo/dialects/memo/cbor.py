"""As much of CBOR (RFC 8949) as MemoDB's headers need: whole numbers, byte and text strings, arrays, true and false.

Written: the deterministic encoding (§4.2.1), so equal headers are equal bytes. Read: any well-formed encoding, with
longer heads than needed, or strings and arrays of indefinite length. Everything is bounded by where the header may end.
"""

from __future__ import annotations

from typing import Final

from polydomo.errors import ProtocolError
from polydomo.wire.cbor import ARRAY, BYTES, TEXT, UINT, head

_BREAK: Final = 0xFF
_INDEFINITE: Final = -1


def byte_string(value: bytes) -> bytes:
    return head(BYTES, len(value)) + value


def text_string(value: bytes) -> bytes:
    """Text is handed in, as it is handed out, as UTF-8."""
    return head(TEXT, len(value)) + value


class Reader:
    """Takes data items from the front of `data[start:end]`. Whatever is not what was asked for is a ProtocolError."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.data = data
        self.pos = start
        self.end = end

    def uint(self) -> int:
        """A whole number from 0 on."""
        return self._definite(UINT)

    def byte_string(self) -> bytes:
        return self._string(BYTES)

    def text_string(self) -> bytes:
        """As UTF-8, checked."""
        return self._string(TEXT)

    def boolean(self) -> bool:
        byte = self._byte()
        if byte in (0xF4, 0xF5):
            return byte == 0xF5
        if byte == 0xF8:  # well formed only from 32 on, and those are unassigned
            self._byte()
        raise ProtocolError(f"0x{byte:02x} in a header where true or false should be")

    def array(self) -> int:
        """How many items follow; -1: until `ended` says so."""
        return self._head(ARRAY)

    def ended(self) -> bool:
        """In an array of indefinite length: is it over? Then its end is taken."""
        if self.pos < self.end and self.data[self.pos] == _BREAK:
            self.pos += 1
            return True
        return False

    def _byte(self) -> int:
        if self.pos >= self.end:
            raise ProtocolError("a header that is cut short, or too long")
        self.pos += 1
        return self.data[self.pos - 1]

    def _head(self, major: int) -> int:
        """The head of an item of this kind: its value or length."""
        byte = self._byte()
        if byte >> 5 != major:
            raise ProtocolError(
                f"a data item of CBOR's major type {byte >> 5} where one of type {major} should be"
            )
        value = byte & 0x1F
        if value < 24:
            return value
        if value < 28:
            size = 1 << (value - 24)
            if self.pos + size > self.end:
                raise ProtocolError("a header that is cut short, or too long")
            self.pos += size
            return int.from_bytes(self.data[self.pos - size : self.pos], "big")
        if value == 31 and major >= BYTES:
            return _INDEFINITE
        raise ProtocolError(f"0x{byte:02x} begins no data item")

    def _definite(self, major: int) -> int:
        length = self._head(major)
        if length < 0:
            raise ProtocolError("an indefinite length within another")
        return length

    def _string(self, major: int) -> bytes:
        length = self._head(major)
        if length >= 0:
            return self._chunk(major, length)
        chunks: list[bytes] = []
        while not self.ended():
            chunks.append(self._chunk(major, self._definite(major)))
        return b"".join(chunks)

    def _chunk(self, major: int, length: int) -> bytes:
        end = self.pos + length
        if end > self.end:
            raise ProtocolError("a header that is cut short, or too long")
        found = self.data[self.pos : end]
        self.pos = end
        if major == TEXT and not found.isascii():
            try:
                found.decode()
            except UnicodeDecodeError:
                raise ProtocolError("text that is not UTF-8") from None
        return found
