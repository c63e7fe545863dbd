"""Conversion between Python values and message bodies.

The rules, for clients and workers alike:

- `bytes`, `bytearray` and `memoryview` are sent as one frame, unchanged, with any codec;
- any other value is encoded with the codec of the call or service, else with that of the client or worker, which is
  JSON by default;
- received bodies are decoded with the codec. `raw` does not decode: one frame is `bytes`, several are a list of
  `bytes` (and such a list is sent as several frames). All other codecs decode an empty frame to `None`.

A body that cannot be decoded raises `BodyError`; there is no fallback. (JSON cannot express infinity and NaN: they
become null. The other codecs carry them.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cbor2
import msgspec

from polydomo.errors import PolydomoError
from polydomo.wire.frames import frame, join, split


class BodyError(PolydomoError):
    """A body cannot be encoded or decoded with the codec in use."""

    code = "body"
    hint = "codec='raw' gives the bytes as they came; request() sends and gets several frames"


class Codec(NamedTuple):
    """A name and two functions. Any exception they raise becomes a BodyError."""

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _raw_encode(value: Any) -> bytes:
    raise TypeError("only bytes and lists of bytes can be sent raw")


JSON = Codec("json", msgspec.json.encode, msgspec.json.decode)
MSGPACK = Codec("msgpack", msgspec.msgpack.encode, msgspec.msgpack.decode)
CBOR = Codec("cbor", cbor2.dumps, cbor2.loads)
RAW = Codec("raw", _raw_encode, bytes)

_KNOWN = {codec.name: codec for codec in (JSON, MSGPACK, CBOR, RAW)}


def find(codec: str | Codec) -> Codec:
    """Return the codec of this name; a `Codec` is returned as it is."""
    if isinstance(codec, Codec):
        return codec
    found = _KNOWN.get(codec)
    if found is None:
        raise ValueError(f"no codec {codec!r}; use one of {', '.join(_KNOWN)}, or a Codec")
    return found


def encode(value: Any, codec: Codec) -> bytes:
    """Encode a value as a canonical body (wire.frames)."""
    if isinstance(value, bytes):
        return frame(value)
    if isinstance(value, bytearray | memoryview):
        return frame(bytes(value))
    if codec is RAW and isinstance(value, list | tuple) and _all_bytes(value):
        return join(value)
    try:
        return frame(codec.encode(value))
    except Exception as error:
        raise BodyError(
            f"a {type(value).__name__} cannot be sent as {codec.name}: {error}", hint=""
        ) from error


def _all_bytes(parts: Sequence[object]) -> bool:
    return bool(parts) and all(isinstance(part, bytes) for part in parts)


def decode(body: bytes, codec: Codec) -> Any:
    """Decode a canonical body (wire.frames)."""
    frames = split(body)
    if codec is RAW:
        return frames[0] if len(frames) == 1 else frames
    if len(frames) > 1:
        raise BodyError(f"a body of {len(frames)} frames is not one {codec.name} value")
    if not frames or not frames[0]:
        return None
    try:
        return codec.decode(frames[0])
    except Exception as error:
        shown = frames[0][:40]
        raise BodyError(f"{len(frames[0])} bytes {shown!r} are not {codec.name}: {error}") from error
