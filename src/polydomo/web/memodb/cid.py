"""CIDs: content-derived names of values.

A CID has a version (always 1), a codec that says what the content is, and a multihash: the hash function, the length
and the hash. All numbers are varints. MemoDB knows two hash functions: blake2b-256, and *identity*, where the "hash"
is the content itself. Identity is used whenever it does not make the CID longer, which is up to 34 bytes of content;
such a value needs no storage.

    01          version
    71          codec: dag-cbor
    00 01 02    multihash: identity, one byte, the CBOR item 2

As text a CID has a prefix of one letter for its base. Ours are base64url: `uAXEAAQI` is the number 2.
"""

from __future__ import annotations

import binascii
import re
from base64 import b32decode, b64decode, urlsafe_b64encode
from collections.abc import Callable
from functools import total_ordering
from hashlib import blake2b
from typing import Final

RAW: Final = 0x55  # a byte string
DAG_CBOR: Final = 0x71
# MemoDB's own codec for values that DAG-CBOR excludes: numbers above 2**63-1, infinities, NaN.
UNRESTRICTED: Final = 0x0171

CODECS: Final = {RAW: "raw", DAG_CBOR: "dag-cbor", UNRESTRICTED: "dag-cbor-unrestricted"}

IDENTITY: Final = 0x00
BLAKE2B_256: Final = 0xB220
DIGEST: Final = 32

# The code of blake2b-256 is two bytes longer than that of identity.
IDENTITY_MAX: Final = DIGEST + 2

# Limit for the text of a CID: identity is for small contents.
TEXT_MAX: Final = 8192


class BadCid(ValueError):
    """Text or bytes that are not a CID, or one of an unknown kind."""


@total_ordering
class Cid:
    """An immutable CID; equal CIDs have equal bytes."""

    __slots__ = ("bytes", "codec", "digest", "hash")

    def __init__(self, codec: int, hash: int, digest: bytes) -> None:
        self.codec = codec
        self.hash = hash
        self.digest = digest  # of identity: the content
        self.bytes = b"\x01" + _varint(codec) + _varint(hash) + _varint(len(digest)) + digest

    @classmethod
    def of(cls, codec: int, block: bytes) -> Cid:
        """Return the CID of a content."""
        if len(block) <= IDENTITY_MAX:
            return cls(codec, IDENTITY, block)
        return cls(codec, BLAKE2B_256, blake2b(block, digest_size=DIGEST).digest())

    @classmethod
    def parse(cls, text: str) -> Cid:
        """Parse text in any base, with or without the prefix `/cid/`."""
        text = text.removeprefix("/cid/")
        if len(text) > TEXT_MAX:
            raise BadCid(f"{text[:40]}... has {len(text)} characters: too long for a CID")
        if len(text) < 2:
            raise BadCid(f"{text!r} is too short for a CID")
        decode = BASES.get(text[0])
        if decode is None:
            raise BadCid(f"{_shown(text)} begins with {text[0]!r}, which is not a known base")
        try:
            data = decode(text[1:])
        except (ValueError, binascii.Error):
            raise BadCid(f"{_shown(text)} is malformed in the base {text[0]!r}") from None
        return cls.load(data)

    @classmethod
    def load(cls, data: bytes) -> Cid:
        """Decode bytes that are exactly one CID."""
        cid, end = cls.load_from(data, 0)
        if end != len(data):
            raise BadCid(f"{len(data) - end} bytes after the end of a CID")
        return cid

    @classmethod
    def load_from(cls, data: bytes, start: int) -> tuple[Cid, int]:
        """Decode a CID that begins at `start`; return it and the position of its end."""
        version, pos = _read_varint(data, start)
        if version != 1:
            raise BadCid(f"CID version {version} is not known, only 1 is")
        codec, pos = _read_varint(data, pos)
        if codec not in CODECS:
            raise BadCid(f"codec {codec:#x} is not known; {', '.join(CODECS.values())} are")
        hash, pos = _read_varint(data, pos)
        size, pos = _read_varint(data, pos)
        if hash not in (IDENTITY, BLAKE2B_256):
            raise BadCid(f"hash {hash:#x} is not known; identity and blake2b-256 are")
        if hash == BLAKE2B_256 and size != DIGEST:
            raise BadCid(f"a blake2b-256 hash has {DIGEST} bytes, not {size}")
        digest = data[pos : pos + size]
        if len(digest) != size:
            raise BadCid(f"truncated CID: {len(digest)} of {size} bytes of its hash")
        return cls(codec, hash, digest), pos + size

    @property
    def content(self) -> bytes | None:
        """Return the content if the CID contains it (identity)."""
        return self.digest if self.hash == IDENTITY else None

    def __str__(self) -> str:
        return "u" + urlsafe_b64encode(self.bytes).rstrip(b"=").decode()

    def __repr__(self) -> str:
        return f"Cid({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cid) and self.bytes == other.bytes

    def __lt__(self, other: Cid) -> bool:
        return self.bytes < other.bytes

    def __hash__(self) -> int:
        return hash(self.bytes)


# Bases. The standard library's decoders skip invalid characters and ignore left-over bits, so that two texts could
# mean one CID. Therefore the characters are checked before decoding, and the left-over bits after it.

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def _base16(text: str) -> bytes:
    if not re.fullmatch("[0-9a-f]*", text):
        raise ValueError(text)
    return bytes.fromhex(text)


def _base32(text: str) -> bytes:
    if not re.fullmatch("[a-z2-7]*", text):
        raise ValueError(text)
    data = b32decode(text.upper() + "=" * (-len(text) % 8))
    _no_bits_left(text[-1:], len(text) * 5 - len(data) * 8, "abcdefghijklmnopqrstuvwxyz234567")
    return data


def _base58(text: str) -> bytes:
    if len(text) > 200:  # decoding is quadratic
        raise ValueError(text)
    number = 0
    for letter in text:
        number = number * 58 + _BASE58.index(letter)
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def _base64(text: str) -> bytes:
    if not re.fullmatch("[A-Za-z0-9+/]*", text):
        raise ValueError(text)
    data = b64decode(text + "=" * (-len(text) % 4), validate=True)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    _no_bits_left(text[-1:], len(text) * 6 - len(data) * 8, letters)
    return data


def _base64pad(text: str) -> bytes:
    bare = text.rstrip("=")
    if len(text) % 4 or len(text) - len(bare) > 2:
        raise ValueError(text)
    return _base64(bare)


def _no_bits_left(last: str, bits: int, letters: str) -> None:
    """Raise ValueError unless the left-over bits of the last letter are 0."""
    if last and letters.index(last) & ((1 << bits) - 1):
        raise ValueError(last)


def _upper(decode: Callable[[str], bytes]) -> Callable[[str], bytes]:
    def decoded(text: str) -> bytes:
        if text != text.upper() or not text.isascii():
            raise ValueError(text)
        return decode(text.lower())

    return decoded


def _url(decode: Callable[[str], bytes]) -> Callable[[str], bytes]:
    def decoded(text: str) -> bytes:
        if "+" in text or "/" in text:
            raise ValueError(text)
        return decode(text.replace("-", "+").replace("_", "/"))

    return decoded


BASES: Final[dict[str, Callable[[str], bytes]]] = {
    "u": _url(_base64),
    "U": _url(_base64pad),
    "m": _base64,
    "M": _base64pad,
    "b": _base32,
    "B": _upper(_base32),
    "f": _base16,
    "F": _upper(_base16),
    "z": _base58,
}


def _varint(number: int) -> bytes:
    """Encode seven bits per byte, the lowest first; the high bit marks that more follow."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    number = 0
    for place in range(9):
        if pos >= len(data):
            raise BadCid("truncated CID")
        byte = data[pos]
        pos += 1
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if not byte and place:
                raise BadCid("a number in a CID is not in its shortest form")
            return number, pos
    raise BadCid("a number in a CID has more than nine bytes")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
