"""Bodies: what HTTP carries, and the frames of a job.

Inside, a body is one or more frames in canonical form (`wire.frames`). Over HTTP one frame is a body as it is, whatever
its type; several are `multipart/mixed`, one part each. Nothing is converted: JSON and CBOR are bytes that are checked
on the way in, and named on the way out to those who ask for them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from polydomo.web.api import cbor
from polydomo.web.api.body_json import is_json, is_text
from polydomo.web.api.problems import problem
from polydomo.wire.frames import EMPTY_BODY, LONG, MORE, frame, join, split

OCTETS: Final = "application/octet-stream"
JSON: Final = "application/json"
CBOR: Final = "application/cbor"
TEXT: Final = "text/plain; charset=utf-8"
MIXED: Final = "multipart/mixed"

# Headers of one part: nobody needs more.
PART_HEAD: Final = 8192

_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_PARAMETER = re.compile(r';\s*([^\s=;]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]*)')
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00\r\n]*")


async def read_body(request: Request) -> bytes:
    """The request's body as frames."""
    limits = request.scope["app"].state.server.settings.limits
    headers = dict(request.scope["headers"])
    raw = await _read(request, headers, limits.message_bytes)
    body = to_frames(raw, headers.get(b"content-type", b"").decode("latin-1"), limits.frames)
    if len(body) > limits.message_bytes:
        raise problem("too-large", f"with its frames' headers it has {len(body)} bytes")
    return body


async def read_bytes(request: Request, limit: int) -> bytes:
    """The request's body as it is, if it has no more than `limit` bytes."""
    return await _read(request, dict(request.scope["headers"]), limit)


async def _read(request: Request, headers: dict[bytes, bytes], limit: int) -> bytes:
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
        raise problem(
            "unsupported-media-type",
            f"a body that is encoded as {encoding[:40].decode('latin-1')!r} is not understood: send it as it is",
            {"accept-encoding": "identity", "connection": "close"},
        )
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced[:20]) > limit:
        raise _too_large(limit)
    receive = request.receive
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    data: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(data) > limit:
            raise _too_large(limit)
        return data
    chunks = [data]
    size = len(data)
    while True:
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join(chunks)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        data = message.get("body", b"")
        chunks.append(data)
        size += len(data)


def to_frames(raw: bytes, content_type: str, most_frames: int = 1024) -> bytes:
    """What was sent, as frames; a Problem if it is not what it says."""
    if not raw:
        return EMPTY_BODY
    if not content_type:
        return frame(raw)
    kind = media_type(content_type)
    if kind == JSON or kind.endswith("+json"):
        if not is_json(raw):
            raise problem("malformed", f"the body is said to be {kind}, and is no JSON")
    elif kind == CBOR or kind.endswith("+cbor"):
        if not cbor.well_formed(raw):
            raise problem("malformed", f"the body is said to be {kind}, and is not well-formed CBOR")
    elif kind.startswith("multipart/"):
        return join(parts(raw, content_type, most_frames))
    return frame(raw)


def write_body(body: bytes, accept: str | None = None) -> tuple[str, bytes]:
    """The media type and the bytes for an answer. A type that would not be true is never given: a client that takes
    JSON only gets `application/octet-stream` if it is no JSON, rather than nothing."""
    if not body:
        return OCTETS, b""
    flags = body[0]
    if flags & MORE:
        return multipart(split(body))
    raw = body[9:] if flags & LONG else body[2:]
    if not accept or accept == "*/*":
        return OCTETS, raw
    for kind in preferred(accept, (OCTETS, JSON, CBOR, "text/plain", MIXED)):
        if kind == OCTETS:
            break
        if kind == JSON and is_json(raw):
            return JSON, raw
        if kind == CBOR and cbor.well_formed(raw):
            return CBOR, raw
        if kind == "text/plain" and is_text(raw):
            return TEXT, raw
        if kind == MIXED:
            return multipart([raw])
    return OCTETS, raw


def multipart(frames: Sequence[bytes]) -> tuple[str, bytes]:
    """One part per frame, behind a boundary that occurs in none of them."""
    while True:
        boundary = secrets.token_hex(16).encode()
        if not any(boundary in part for part in frames):
            break
    head = b"--" + boundary + b"\r\ncontent-type: application/octet-stream\r\n\r\n"
    pieces: list[bytes] = []
    for part in frames:
        pieces += (head, part, b"\r\n")
    pieces.append(b"--" + boundary + b"--\r\n")
    return f"{MIXED}; boundary={boundary.decode()}", b"".join(pieces)


def parts(raw: bytes, content_type: str, most: int) -> list[bytes]:
    """The contents of a multipart body, in order (RFC 2046 §5.1.1). Names and types of parts are not looked at."""
    boundary = parameter(content_type, "boundary")
    if not _BOUNDARY.fullmatch(boundary):
        raise problem("malformed", f"the content type {content_type[:100]!r} names no boundary")
    mark = b"--" + boundary.encode()
    found: list[bytes] = []
    pos, ended = _behind(raw, mark, 0 if raw.startswith(mark) else _delimiter(raw, mark, 0) + 2)
    while not ended:
        if len(found) >= most:
            raise problem("too-large", f"there are more than {most} parts")
        start = _behind_head(raw, pos)
        end = _delimiter(raw, mark, start)
        found.append(raw[start:end])
        pos, ended = _behind(raw, mark, end + 2)
    if not found:
        raise problem("malformed", "there is no part in the body")
    return found


def media_type(content_type: str) -> str:
    """Without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def parameter(content_type: str, name: str) -> str:
    """A parameter of a media type; empty if there is none."""
    for key, value in _PARAMETER.findall(content_type):
        if key.lower() == name:
            return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] == '"' else value
    return ""


def preferred(accept: str, offers: Sequence[str]) -> list[str]:
    """Those of `offers` that are acceptable, the best first; of equals the one that `accept` names more exactly, then
    the one offered first (RFC 9110 §12.5.1)."""
    ranges = _ranges(accept)
    rated: list[tuple[float, int, int, str]] = []
    for place, offer in enumerate(offers):
        best = (-1, 0.0)
        for kind, quality in ranges:
            exact = _fits(kind, offer)
            if exact > best[0]:
                best = (exact, quality)
        if best[1] > 0:
            rated.append((-best[1], -best[0], place, offer))
    return [offer for *_, offer in sorted(rated)]


def _ranges(accept: str) -> list[tuple[str, float]]:
    """What `Accept` names, with its quality; what cannot be read is left out."""
    found = []
    for item in accept.split(",")[:100]:
        kind, _, rest = item.partition(";")
        kind = kind.strip().lower()
        if "/" not in kind:
            continue
        try:
            quality = float(parameter(f";{rest}", "q") or 1)
        except ValueError:
            continue
        found.append((kind, quality if 0 <= quality <= 1 else 0.0))
    return found


def _fits(kind: str, offer: str) -> int:
    """How exactly a range names the offer; -1: not at all."""
    if kind == offer:
        return 2
    if kind == "*/*":
        return 0
    return 1 if kind.endswith("/*") and offer.startswith(kind[:-1]) else -1


def _delimiter(raw: bytes, mark: bytes, pos: int) -> int:
    """Where the next line begins that is a delimiter, at the line break before it."""
    found = raw.find(b"\r\n" + mark, pos)
    if found < 0:
        raise problem("malformed", "the body ends before its last boundary")
    return found


def _behind(raw: bytes, mark: bytes, pos: int) -> tuple[int, bool]:
    """Behind the delimiter at `pos`, and whether it is the last one."""
    pos += len(mark)
    if raw.startswith(b"--", pos):
        return pos, True
    end = raw.find(b"\r\n", pos)
    if end < 0 or raw[pos:end].strip(b" \t"):
        raise problem("malformed", "something stands behind a boundary on its line")
    return end + 2, False


def _behind_head(raw: bytes, pos: int) -> int:
    """Behind a part's headers. They are only looked at for what would change its content."""
    while True:
        end = raw.find(b"\r\n", pos, pos + PART_HEAD)
        if end < 0:
            raise problem("malformed", "a part has no end of its headers")
        if end == pos:
            return end + 2
        line = raw[pos:end]
        if not _HEADER.fullmatch(line) and line[:1] not in (b" ", b"\t"):
            raise problem("malformed", f"a part has a header that is none: {line[:40]!r}")
        name, _, value = line.lower().partition(b":")
        if name == b"content-transfer-encoding" and value.strip() not in (b"binary", b"8bit", b"7bit"):
            raise problem("unsupported-media-type", f"a part is encoded as {value.strip()[:40]!r}")
        pos = end + 2


def _too_large(limit: int) -> Any:
    return problem("too-large", f"a body has at most {limit} bytes", {"connection": "close"}, limit=limit)
