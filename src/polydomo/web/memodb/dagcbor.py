"""Values as deterministic CBOR, so that each value has exactly one CID.

A value is null, a boolean, an integer of 64 bits, a float, a text, a byte string, a link (`Cid`), a list, or a map with
texts as keys. The deterministic form is DAG-CBOR's: shortest numbers and lengths, floats always of eight bytes, keys
sorted by length and then by their bytes, no indefinite lengths, no tag but 42 (a link). MemoDB adds what DAG-CBOR
excludes, under a codec of its own (`UNRESTRICTED`): integers above 2**63-1, infinities and NaN.

`encode` produces this form; `decode` accepts, like MemoDB's server, any CBOR that means a value, however it is encoded
(`undefined` is null); `codec_of` recognises the deterministic form.

cbor2 is not used. Its encoder shortens floats in canonical mode and always shortens NaN and infinities, and CIDs must
not depend on such choices of a library. Its decoder does not limit the number of items, accepts bignums, computes other
tags, and drops duplicate keys by default.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from polydomo.web.memodb.cid import DAG_CBOR, UNRESTRICTED, BadCid, Cid, shorten
from polydomo.wire.cbor import ARRAY, BYTES, INDEFINITE, MAP, NEGATIVE, SIMPLE, TAG, TEXT, UINT, head

# None, bool, int, float, str, bytes, Cid, list, dict
Node = Any

# Nesting of lists and maps. MemoDB-JSON has two levels for each, and Python's parser does not go deeper than 1000.
DEPTH_MAX: Final = 128

# Items in one value: each costs some fifty bytes and half a microsecond when decoded.
ITEMS_MAX: Final = 1_000_000

INTEGER_MAX: Final = (1 << 64) - 1
INTEGER_MIN: Final = -(1 << 63)
DAG_INTEGER_MAX: Final = (1 << 63) - 1

LINK_TAG: Final = 42

_FLOATS: Final = {25: struct.Struct(">e"), 26: struct.Struct(">f"), 27: struct.Struct(">d")}
_NAN: Final = bytes.fromhex("fb7ff8000000000000")


class BadCbor(ValueError):
    """Bytes that are not a value in CBOR, or an object that is not a value."""


def decode(data: bytes) -> Node:
    """Return the value that the bytes encode, in any form of CBOR."""
    decoder = _Decoder(data)
    try:
        node = decoder.item(0)
    except IndexError:
        raise BadCbor(f"cut off after {len(data)} bytes") from None
    if decoder.pos != len(data):
        raise BadCbor(f"{len(data) - decoder.pos} bytes after the value's end")
    return node


def codec_of(block: bytes) -> int | None:
    """Return the codec of which these bytes are the deterministic form of a value, or None."""
    if not block or not _plausible(block):
        return None
    try:
        codec, encoded = encode(decode(block))
    except BadCbor:
        return None
    return codec if encoded == block else None


def encode(node: Node) -> tuple[int, bytes]:
    """Return the codec and the deterministic form of a value."""
    encoder = _Encoder()
    encoder.item(node, 0)
    return (UNRESTRICTED if encoder.unrestricted else DAG_CBOR), bytes(encoder.out)


def in_order(keys: dict[str, Node]) -> list[str]:
    """Return a map's keys in the order in which they are encoded."""
    return sorted(keys, key=_sort_key)


def links(node: Node) -> list[Cid]:
    """Return all links in a value."""
    found: list[Cid] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Cid):
            found.append(one)
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.values()
    return found


class _Decoder:
    """Decoder of items from `pos` on. Reading past the end raises IndexError."""

    __slots__ = ("data", "left", "pos")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.left = ITEMS_MAX

    def item(self, depth: int) -> Node:
        self.left -= 1
        if self.left < 0:
            raise BadCbor(f"more than {ITEMS_MAX} items in one value")
        first = self.data[self.pos]
        self.pos += 1
        major, info = first >> 5, first & 0x1F
        if major == SIMPLE:
            return self._simple(info)
        size = self._argument(major, info)
        if major == UINT:
            return size
        if major == NEGATIVE:
            if size > DAG_INTEGER_MAX:
                raise BadCbor(f"{-1 - size} is below -2**63")
            return -1 - size
        if major == BYTES:
            return self._string(major, size)
        if major == TEXT:
            try:
                return self._string(major, size).decode()
            except UnicodeDecodeError as error:
                raise BadCbor(f"a text is not UTF-8: {error}") from None
        if major == TAG:
            return self._link(size)
        _check_depth(depth + 1)
        items = size * 2 if major == MAP else size
        if items > len(self.data) - self.pos:  # each has at least one byte: do not loop for a false length
            raise IndexError
        if major == ARRAY:
            values: list[Node] = []
            while self._has_item(size, len(values)):
                values.append(self.item(depth + 1))
            return values
        found: dict[str, Node] = {}
        while self._has_item(size, len(found)):
            key = self.item(depth + 1)
            if not isinstance(key, str):
                raise BadCbor(f"a map's key is {shorten(key)}; only texts are allowed")
            if key in found:
                raise BadCbor(f"the key {shorten(key)} is twice in a map")
            found[key] = self.item(depth + 1)
        return found

    def _argument(self, major: int, info: int) -> int:
        """Return the number in an item's head, or INDEFINITE."""
        if info < 24:
            return info
        if info < 28:
            return int.from_bytes(self._take(1 << (info - 24)), "big")
        if info < 31:
            raise BadCbor(f"{info} is reserved in the head of an item")
        if major not in (BYTES, TEXT, ARRAY, MAP):
            raise BadCbor("a number or a tag has an indefinite length")
        return INDEFINITE

    def _take(self, size: int) -> bytes:
        start = self.pos
        end = start + size
        if end > len(self.data):
            raise IndexError
        self.pos = end
        return self.data[start:end]

    def _has_item(self, size: int, count: int) -> bool:
        """Return whether an item of this size has another part after `count`; read its break, if any."""
        if size != INDEFINITE:
            return count < size
        if self.data[self.pos] != 0xFF:
            return True
        self.pos += 1
        return False

    def _string(self, major: int, size: int) -> bytes:
        if size != INDEFINITE:
            return self._take(size)
        chunks = []
        while self._has_item(size, 0):
            first = self.data[self.pos]
            if first >> 5 != major or first & 0x1F == 31:
                raise BadCbor("a string of indefinite length contains another type")
            self.pos += 1
            chunks.append(self._take(self._argument(major, first & 0x1F)))
        return b"".join(chunks)

    def _link(self, tag: int) -> Cid:
        if tag != LINK_TAG:
            raise BadCbor(f"tag {tag}; only 42 (a link) is known")
        if self.data[self.pos] >> 5 != BYTES:
            raise BadCbor("a link is not a byte string")
        data = self.item(DEPTH_MAX)
        if data[:1] != b"\0":
            raise BadCbor("a link does not begin with a zero byte")
        try:
            return Cid.load(data[1:])
        except BadCid as error:
            raise BadCbor(f"invalid link: {error}") from None

    def _simple(self, info: int) -> Node:
        if info == 20 or info == 21:
            return info == 21
        if info == 22 or info == 23:  # null, undefined
            return None
        packing = _FLOATS.get(info)
        if packing is None:
            raise BadCbor("a simple value is neither null nor a boolean")
        return packing.unpack(self._take(packing.size))[0]


class _Encoder:
    """Encoder of items to the end of `out`."""

    __slots__ = ("out", "unrestricted")

    def __init__(self) -> None:
        self.out = bytearray()
        self.unrestricted = False  # MemoDB allows the value, DAG-CBOR does not

    def item(self, node: Node, depth: int) -> None:
        _check_depth(depth)
        if node is None:
            self.out.append(0xF6)
        elif node is True or node is False:
            self.out.append(0xF5 if node else 0xF4)
        elif isinstance(node, int):
            if not INTEGER_MIN <= node <= INTEGER_MAX:
                raise BadCbor(f"{node} does not fit into 64 bits")
            if node > DAG_INTEGER_MAX:
                self.unrestricted = True
            self.out += head(UINT, node) if node >= 0 else head(NEGATIVE, -1 - node)
        elif isinstance(node, str):
            self._text(node)
        elif isinstance(node, bytes):
            self._string(BYTES, node)
        elif isinstance(node, float):
            if not math.isfinite(node):
                self.unrestricted = True
            self.out += _NAN if node != node else b"\xfb" + _FLOATS[27].pack(node)
        elif isinstance(node, Cid):
            self.out += head(TAG, LINK_TAG)
            self._string(BYTES, b"\0" + node.bytes)
        elif isinstance(node, list):
            self.out += head(ARRAY, len(node))
            for one in node:
                self.item(one, depth + 1)
        elif isinstance(node, dict):
            self.out += head(MAP, len(node))
            for key in in_order(node):
                self._text(key)
                self.item(node[key], depth + 1)
        else:
            raise BadCbor(f"{type(node).__name__} is not a type of value")

    def _string(self, major: int, data: bytes) -> None:
        self.out += head(major, len(data))
        self.out += data

    def _text(self, text: str) -> None:
        try:
            self._string(TEXT, text.encode())
        except UnicodeEncodeError:
            raise BadCbor(f"{shorten(text)} contains a lone surrogate") from None


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise BadCbor(f"lists and maps are nested deeper than {DEPTH_MAX}")


def _sort_key(key: Node) -> tuple[int, bytes]:
    if not isinstance(key, str):
        raise BadCbor(f"a map's key is {shorten(key)}; only texts are allowed")
    data = key.encode(errors="surrogatepass")
    return len(data), data


def _plausible(block: bytes) -> bool:
    """Return whether the first bytes can be those of one item. Most large bodies are not, and need no decoding."""
    major = block[0] >> 5
    info = block[0] & 0x1F
    if major in (UINT, NEGATIVE, SIMPLE):
        return len(block) <= 9
    if major not in (BYTES, TEXT):
        return True
    if info < 24:
        return len(block) == 1 + info
    if info > 27:
        return False
    size = 1 + (1 << (info - 24))
    return len(block) == size + int.from_bytes(block[1:size], "big")
