"""Values as CBOR: one way to write each, so that one value has one CID.

A value is null, a boolean, an integer of 64 bits, a float, a text, a byte string, a link (`Cid`), a list, or a map with
texts as keys. The deterministic form is DAG-CBOR's: numbers and lengths as short as they can be, floats always of eight
bytes, keys sorted by length and then by their bytes, no indefinite lengths, no tag but 42 (a link). MemoDB adds to it
what DAG-CBOR leaves out, under a codec of its own (`UNRESTRICTED`): integers above 2**63-1, infinities and NaN.

`decode` with `strict` takes the deterministic form and nothing else. Without, it takes what MemoDB's server does:
any CBOR that means a value, however it is written (`undefined` is null).
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from polydomo.web.memodb.cid import DAG_CBOR, UNRESTRICTED, BadCid, Cid

# None, bool, int, float, str, bytes, Cid, list, dict
Node = Any

# Lists and maps inside each other. JSON has two levels for each, and its parser does not go deeper than 1000.
DEPTH: Final = 128

# Items in one value: taken apart, each costs some fifty bytes and half a microsecond.
ITEMS: Final = 1_000_000

LARGEST: Final = (1 << 64) - 1
SMALLEST: Final = -(1 << 63)
LARGEST_DAG: Final = (1 << 63) - 1

_FLOATS: Final = {25: struct.Struct(">e"), 26: struct.Struct(">f"), 27: struct.Struct(">d")}
_NAN: Final = bytes.fromhex("fb7ff8000000000000")


class BadCbor(ValueError):
    """These bytes are no value."""


def decode(data: bytes, *, strict: bool = True) -> Node:
    """The one value that all of the bytes are."""
    reader = _Reader(data, strict)
    try:
        node = reader.item(0)
    except IndexError:
        raise BadCbor(f"cut off behind {len(data)} bytes") from None
    if reader.pos != len(data):
        raise BadCbor(f"{len(data) - reader.pos} bytes behind the value's end")
    return node


def codec_of(block: bytes) -> int | None:
    """Which codec these bytes are a value of, in its deterministic form; None: they are none."""
    if not block or not _plausible(block):
        return None
    reader = _Reader(block, True)
    try:
        reader.item(0)
    except (BadCbor, IndexError):
        return None
    if reader.pos != len(block):
        return None
    return UNRESTRICTED if reader.unrestricted else DAG_CBOR


def encode(node: Node) -> tuple[int, bytes]:
    """The codec, and the deterministic form."""
    writer = _Writer()
    writer.item(node, 0)
    return (UNRESTRICTED if writer.unrestricted else DAG_CBOR), bytes(writer.out)


class _Reader:
    """Takes items apart, from `pos` on. Running over the end is an IndexError."""

    __slots__ = ("data", "left", "pos", "strict", "unrestricted")

    def __init__(self, data: bytes, strict: bool) -> None:
        self.data = data
        self.pos = 0
        self.strict = strict
        self.unrestricted = False  # MemoDB has it, DAG-CBOR has not
        self.left = ITEMS

    def item(self, depth: int) -> Node:
        self.left -= 1
        if self.left < 0:
            raise BadCbor(f"more than {ITEMS} items in one value")
        first = self.data[self.pos]
        self.pos += 1
        major = first >> 5
        if major == 7:
            return self._simple(first & 0x1F)
        if first & 0x1F == 31:
            return self._indefinite(major, depth)
        size = self._argument(first & 0x1F)
        if major == 0:
            if size > LARGEST_DAG:
                self.unrestricted = True
            return size
        if major == 1:
            if size > LARGEST_DAG:
                raise BadCbor(f"{-1 - size} is below -2**63")
            return -1 - size
        if major == 2:
            return self._take(size)
        if major == 3:
            return self._text(self._take(size))
        if major == 4:
            self._enter(depth, size)
            return [self.item(depth + 1) for _ in range(size)]
        if major == 5:
            self._enter(depth, size * 2)
            return self._map(size, depth + 1)
        return self._link(size)

    def _argument(self, info: int) -> int:
        """The number in an item's head."""
        if info < 24:
            return info
        if info > 27:
            raise BadCbor(f"an item's head with {info} in its low bits, which means nothing")
        size = 1 << (info - 24)
        number = int.from_bytes(self._take(size), "big")
        if self.strict and (number < 24 or (size > 1 and number >> (size * 4) == 0)):
            raise BadCbor(f"{number} is written longer than it must be")
        return number

    def _take(self, size: int) -> bytes:
        start = self.pos
        end = start + size
        if end > len(self.data):
            raise IndexError
        self.pos = end
        return self.data[start:end]

    def _enter(self, depth: int, items: int) -> None:
        if depth >= DEPTH:
            raise BadCbor(f"more than {DEPTH} lists and maps inside each other")
        if items > len(self.data) - self.pos:  # each has one byte at least: do not believe, do not make room
            raise IndexError

    @staticmethod
    def _text(data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise BadCbor(f"a text that is not UTF-8: {error}") from None

    def _map(self, size: int, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        last = b""
        for number in range(size):
            start = self.pos
            key = self.item(depth)
            if self.strict:
                # Bytewise order of the encoded keys is order by length first: the length is what they begin with.
                raw = self.data[start : self.pos]
                if number and raw <= last:
                    raise BadCbor(f"the key {_shown(key)} is not in its place in a map")
                last = raw
            self._add(found, key, depth)
        return found

    def _add(self, found: dict[str, Node], key: Node, depth: int) -> None:
        if not isinstance(key, str):
            raise BadCbor(f"a map's key is {_shown(key)}; only texts can be")
        if key in found:
            raise BadCbor(f"the key {_shown(key)} is in a map twice")
        found[key] = self.item(depth)

    def _link(self, tag: int) -> Cid:
        if tag != 42:
            raise BadCbor(f"tag {tag}; only 42 (a link) is known")
        # A byte string in what is left, and it is not counted as an item of its own.
        start = self.pos
        first = self.data[start]
        if first >> 5 != 2:
            raise BadCbor("a link that is no byte string")
        data = self.item(DEPTH)
        if data[:1] != b"\0":
            raise BadCbor("a link that does not begin with a zero byte")
        try:
            return Cid.load(data[1:])
        except BadCid as error:
            raise BadCbor(f"a link: {error}") from None

    def _simple(self, info: int) -> Node:
        if info == 20 or info == 21:
            return info == 21
        if info == 22 or (info == 23 and not self.strict):  # undefined
            return None
        packing = _FLOATS.get(info)
        if packing is None:
            raise BadCbor("a simple value that is neither null nor a boolean")
        if info != 27 and self.strict:
            raise BadCbor("a float that is not eight bytes long")
        start = self.pos
        number: float = packing.unpack(self._take(packing.size))[0]
        if not math.isfinite(number):
            self.unrestricted = True
            if self.strict and number != number and self.data[start - 1 : self.pos] != _NAN:
                raise BadCbor("a NaN that is not written as 7ff8000000000000")
        return number

    def _indefinite(self, major: int, depth: int) -> Node:
        if self.strict or not 2 <= major <= 5:
            raise BadCbor("an item of indefinite length")
        if major <= 3:
            parts = []
            while not self._at_break():
                first = self.data[self.pos]
                if first >> 5 != major or first & 0x1F == 31:
                    raise BadCbor("a string of indefinite length with something else inside")
                self.pos += 1
                parts.append(self._take(self._argument(first & 0x1F)))
            joined = b"".join(parts)
            return joined if major == 2 else self._text(joined)
        self._enter(depth, 0)
        if major == 4:
            found = []
            while not self._at_break():
                found.append(self.item(depth + 1))
            return found
        named: dict[str, Node] = {}
        while not self._at_break():
            self._add(named, self.item(depth + 1), depth + 1)
        return named

    def _at_break(self) -> bool:
        if self.data[self.pos] != 0xFF:
            return False
        self.pos += 1
        return True


class _Writer:
    __slots__ = ("out", "unrestricted")

    def __init__(self) -> None:
        self.out = bytearray()
        self.unrestricted = False

    def item(self, node: Node, depth: int) -> None:
        if depth > DEPTH:
            raise BadCbor(f"more than {DEPTH} lists and maps inside each other")
        if node is None:
            self.out.append(0xF6)
        elif node is True or node is False:
            self.out.append(0xF5 if node else 0xF4)
        elif isinstance(node, int):
            if not SMALLEST <= node <= LARGEST:
                raise BadCbor(f"{node} does not fit into 64 bits")
            if node > LARGEST_DAG:
                self.unrestricted = True
            self._head(0, node) if node >= 0 else self._head(1, -1 - node)
        elif isinstance(node, str):
            self._text(node)
        elif isinstance(node, bytes):
            self._head(2, len(node))
            self.out += node
        elif isinstance(node, float):
            if not math.isfinite(node):
                self.unrestricted = True
            self.out += _NAN if node != node else b"\xfb" + _FLOATS[27].pack(node)
        elif isinstance(node, Cid):
            self.out += b"\xd8\x2a"
            self._head(2, len(node.bytes) + 1)
            self.out += b"\0" + node.bytes
        elif isinstance(node, list):
            self._head(4, len(node))
            for one in node:
                self.item(one, depth + 1)
        elif isinstance(node, dict):
            self._head(5, len(node))
            for key in in_order(node):
                self._text(key)
                self.item(node[key], depth + 1)
        else:
            raise BadCbor(f"{type(node).__name__} is no kind of value")

    def _head(self, major: int, number: int) -> None:
        out = self.out
        if number < 24:
            out.append(major << 5 | number)
        elif number < 1 << 8:
            out += bytes((major << 5 | 24, number))
        elif number < 1 << 16:
            out += bytes((major << 5 | 25,)) + number.to_bytes(2, "big")
        elif number < 1 << 32:
            out += bytes((major << 5 | 26,)) + number.to_bytes(4, "big")
        else:
            out += bytes((major << 5 | 27,)) + number.to_bytes(8, "big")

    def _text(self, text: Node) -> None:
        if not isinstance(text, str):
            raise BadCbor(f"a map's key is {_shown(text)}; only texts can be")
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise BadCbor(f"{_shown(text)} has half a character (a lone surrogate) in it") from None
        self._head(3, len(data))
        self.out += data


def in_order(keys: dict[str, Node]) -> list[str]:
    """A map's keys in the order in which they are written."""
    if len(keys) < 2:
        return list(keys)
    return sorted(keys, key=_place)


def links(node: Node) -> list[Cid]:
    """All links in a value."""
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


def _place(key: Node) -> tuple[int, bytes]:
    if not isinstance(key, str):
        raise BadCbor(f"a map's key is {_shown(key)}; only texts can be")
    data = key.encode(errors="surrogatepass")
    return len(data), data


def _plausible(block: bytes) -> bool:
    """Can it be one item, by its first bytes? Most large bodies are something else, and need not be walked through."""
    major = block[0] >> 5
    info = block[0] & 0x1F
    if major in (0, 1, 7):
        return len(block) <= 9
    if major not in (2, 3):
        return True
    if info < 24:
        return len(block) == 1 + info
    if info > 27:
        return False
    head = 1 + (1 << (info - 24))
    return len(block) == head + int.from_bytes(block[1:head], "big")


def _shown(node: Node) -> str:
    text = repr(node)
    return text if len(text) <= 60 else text[:60] + "..."
