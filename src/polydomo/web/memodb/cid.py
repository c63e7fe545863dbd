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

from base64 import b32decode, b32encode, b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
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
        if text[0] not in BASES:
            raise BadCid(f"{shorten(text)} begins with {text[0]!r}, which is not a known base")
        decode, encode = BASES[text[0]]
        try:
            data = decode(text[1:])
        except ValueError:  # binascii.Error is one
            data = b""
        if encode(data) != text[1:]:
            raise BadCid(f"{shorten(text)} is malformed in the base {text[0]!r}")
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
        return "u" + _bare(urlsafe_b64encode(self.bytes))

    def __repr__(self) -> str:
        return f"Cid({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cid) and self.bytes == other.bytes

    def __hash__(self) -> int:
        return hash(self.bytes)


# Bases: letter, decoder, encoder. The standard library's decoders tolerate other characters and left-over bits, so that
# two texts could mean one CID; encoding again detects that.

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_MAX: Final = 200  # decoding is quadratic


def _padded(text: str, group: int) -> str:
    return text + "=" * (-len(text) % group)


def _from_base58(text: str) -> bytes:
    if len(text) > _BASE58_MAX:
        raise ValueError(text)
    number = 0
    for letter in text:
        number = number * 58 + _BASE58.index(letter)
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def _to_base58(data: bytes) -> str:
    number = int.from_bytes(data, "big")
    text = ""
    while number:
        number, digit = divmod(number, 58)
        text = _BASE58[digit] + text
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + text


BASES: Final[dict[str, tuple[Callable[[str], bytes], Callable[[bytes], str]]]] = {
    "u": (lambda text: urlsafe_b64decode(_padded(text, 4)), lambda data: _bare(urlsafe_b64encode(data))),
    "U": (urlsafe_b64decode, lambda data: urlsafe_b64encode(data).decode()),
    "m": (lambda text: b64decode(_padded(text, 4)), lambda data: _bare(b64encode(data))),
    "M": (b64decode, lambda data: b64encode(data).decode()),
    "b": (lambda text: b32decode(_padded(text.upper(), 8)), lambda data: _bare(b32encode(data)).lower()),
    "B": (lambda text: b32decode(_padded(text, 8)), lambda data: _bare(b32encode(data))),
    "f": (bytes.fromhex, bytes.hex),
    "F": (bytes.fromhex, lambda data: data.hex().upper()),
    "z": (_from_base58, _to_base58),
}


def _bare(encoded: bytes) -> str:
    return encoded.decode().rstrip("=")


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


def shorten(value: object) -> str:
    """Return a representation of a value for error messages."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."
