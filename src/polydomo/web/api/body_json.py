"""Bodies as members of JSON documents.

The member is `body` for one frame of JSON, `text` for one frame of UTF-8, `base64` for one frame of other bytes, or
`frames`, a list of base64, for several frames. JSON input uses the same members.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from polydomo.wire.frames import EMPTY_BODY, frame, join, split

NAMES: Final = ("body", "text", "base64", "frames")

_json = msgspec.json.Decoder(msgspec.Raw)


def body_to_json(body: bytes) -> dict[str, Any]:
    """Return a canonical body as one member. JSON is copied verbatim, on one line."""
    frames = split(body)
    if len(frames) > 1:
        return {"frames": [b64encode(part).decode() for part in frames]}
    raw = frames[0] if frames else b""
    if raw and is_json(raw):
        # JSON strings contain no raw line breaks, so all of them are white space.
        return {"body": msgspec.Raw(raw.replace(b"\n", b" ").replace(b"\r", b" "))}
    if is_text(raw):
        return {"text": raw.decode()}
    return {"base64": b64encode(raw).decode()}


def body_from_json(members: Mapping[str, Any]) -> bytes:
    """Return the canonical body of the given members of NAMES (`body` as raw JSON); ValueError unless exactly one."""
    if len(members) != 1:
        raise ValueError(f"exactly one of {', '.join(NAMES)} is required, not {len(members)}")
    ((name, value),) = members.items()
    if name == "body":
        return frame(bytes(value))
    if name == "frames":
        if not isinstance(value, list) or not value:
            raise ValueError("frames must be a list of base64")
        return join([_bytes(part) for part in value])
    if name == "base64":
        return frame(_bytes(value))
    if not isinstance(value, str):
        raise ValueError("text must be a string")
    return frame(value.encode()) if value else EMPTY_BODY


def json_or_none(raw: bytes) -> Any:
    """Return the value of JSON; None if the bytes are not JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def is_json(raw: bytes) -> bool:
    """Return whether the bytes are well-formed JSON."""
    try:
        _json.decode(raw)
        return raw.isascii() or is_text(raw)
    except (msgspec.DecodeError, RecursionError):
        return False


def is_text(raw: bytes) -> bool:
    """Return whether the bytes are UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("base64 must be a string")
    try:
        return b64decode(value, validate=True)
    except ValueError:
        raise ValueError(f"{value[:40]!r} is not base64") from None
