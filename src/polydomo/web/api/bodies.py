"""Conversion between HTTP bodies and the frames of a job.

Internally a body is one or more frames in canonical form (`wire.frames`). Over HTTP a single frame is the body itself,
regardless of its type; several frames are `multipart/mixed`, one part each. Nothing is transcoded: JSON and CBOR are
validated on input, and labelled on output if the client accepts them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request

from polydomo.web.api import cbor
from polydomo.web.api.body_json import is_json, is_text
from polydomo.web.api.problems import problem
from polydomo.wire.frames import EMPTY_BODY, LONG, MORE, frame, join, split

OCTETS: Final = "application/octet-stream"
JSON: Final = "application/json"
CBOR: Final = "application/cbor"
TEXT: Final = "text/plain; charset=utf-8"
MIXED: Final = "multipart/mixed"

# Limit for the headers of one part, in bytes.
PART_HEAD_MAX: Final = 8192

# Headers of a part that is one frame.
_FRAME_HEAD: Final = "content-type: application/octet-stream\r\n"

_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_PARAMETER = re.compile(r';\s*([^\s=;]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]*)')
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00\r\n]*")


async def read_body(request: Request) -> bytes:
    """Return the request's body as frames."""
    limits = request.scope["app"].server.settings.limits
    raw = await read_bytes(request, limits.message_bytes)
    content_type = dict(request.scope["headers"]).get(b"content-type", b"").decode("latin-1")
    body = to_frames(raw, content_type, limits.frames)
    if len(body) > limits.message_bytes:
        raise problem("too-large", f"the body has {len(body)} bytes including frame headers")
    return body


async def read_bytes(request: Request, limit: int) -> bytes:
    """Return the request's body unchanged; it may have at most `limit` bytes."""
    headers = dict(request.scope["headers"])
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
        raise problem(
            "unsupported-media-type",
            f"Content-Encoding {encoding[:40].decode('latin-1')!r} is not supported: send the body unencoded",
            {"accept-encoding": "identity", "connection": "close"},
        )
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced[:20]) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
    return b"".join(chunks)


def to_frames(raw: bytes, content_type: str, most_frames: int = 1024) -> bytes:
    """Convert an HTTP body to frames; raise HttpProblem if it does not match its content type."""
    if not raw:
        return EMPTY_BODY
    if not content_type:
        return frame(raw)
    kind = media_type(content_type)
    if kind == JSON or kind.endswith("+json"):
        if not is_json(raw):
            raise problem("malformed", f"Content-Type is {kind}, but the body is not JSON")
    elif kind == CBOR or kind.endswith("+cbor"):
        if not cbor.well_formed(raw):
            raise problem("malformed", f"Content-Type is {kind}, but the body is not well-formed CBOR")
    elif kind.startswith("multipart/"):
        return join(parts(raw, content_type, most_frames))
    return frame(raw)


def write_body(body: bytes, accept: str | None = None) -> tuple[str, bytes]:
    """Return the media type and the bytes of a response.

    The type is always true: a client that accepts only JSON gets other bytes as `application/octet-stream`.
    """
    if not body:
        return OCTETS, b""
    flags = body[0]
    if flags & MORE:
        return multipart([(_FRAME_HEAD, part) for part in split(body)])
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
            return multipart([(_FRAME_HEAD, raw)])
    return OCTETS, raw


def multipart(parts: Sequence[tuple[str, bytes]]) -> tuple[str, bytes]:
    """Return the media type and the bytes of a multipart body; each part has its header lines and its content."""
    boundary = secrets.token_hex(16)  # no content can contain it, except by a chance of 1 in 2**128
    out: list[bytes] = []
    for head, content in parts:
        out += (f"--{boundary}\r\n{head}\r\n".encode(), content, b"\r\n")
    out.append(f"--{boundary}--\r\n".encode())
    return f"{MIXED}; boundary={boundary}", b"".join(out)


def parts(raw: bytes, content_type: str, most: int) -> list[bytes]:
    """Return the contents of a multipart body, in order (RFC 2046 §5.1.1); names and types of parts are ignored."""
    boundary = parameter(content_type, "boundary")
    if not _BOUNDARY.fullmatch(boundary):
        raise problem("malformed", f"Content-Type {content_type[:100]!r} has no valid boundary")
    mark = b"--" + boundary.encode()
    found: list[bytes] = []
    pos, ended = _after_delimiter(raw, mark, 0 if raw.startswith(mark) else _delimiter(raw, mark, 0) + 2)
    while not ended:
        if len(found) >= most:
            raise problem("too-large", f"the body has more than {most} parts")
        start = _after_head(raw, pos)
        end = _delimiter(raw, mark, start)
        found.append(raw[start:end])
        pos, ended = _after_delimiter(raw, mark, end + 2)
    if not found:
        raise problem("malformed", "the multipart body has no part")
    return found


def media_type(content_type: str) -> str:
    """Return the media type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def parameter(content_type: str, name: str) -> str:
    """Return a parameter of a media type; empty if there is none."""
    for key, value in _PARAMETER.findall(content_type):
        if key.lower() == name:
            return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] == '"' else value
    return ""


def preferred(accept: str, offers: Sequence[str]) -> list[str]:
    """Return the acceptable ones of `offers`, best first (RFC 9110 §12.5.1).

    Ties go to the offer that `accept` names more exactly, then to the one offered first.
    """
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
    """Return the media ranges of `Accept` with their qualities; malformed ones are ignored."""
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
    """Return how exactly a range matches the offer; -1 for no match."""
    if kind == offer:
        return 2
    if kind == "*/*":
        return 0
    return 1 if kind.endswith("/*") and offer.startswith(kind[:-1]) else -1


def _delimiter(raw: bytes, mark: bytes, pos: int) -> int:
    """Return the position of the next delimiter, at the line break before it."""
    found = raw.find(b"\r\n" + mark, pos)
    if found < 0:
        raise problem("malformed", "the body ends before its last boundary")
    return found


def _after_delimiter(raw: bytes, mark: bytes, pos: int) -> tuple[int, bool]:
    """Return the position after the delimiter at `pos`, and whether it is the last one."""
    pos += len(mark)
    if raw.startswith(b"--", pos):
        return pos, True
    end = raw.find(b"\r\n", pos)
    if end < 0 or raw[pos:end].strip(b" \t"):
        raise problem("malformed", "a boundary is followed by other text on its line")
    return end + 2, False


def _after_head(raw: bytes, pos: int) -> int:
    """Return the position after a part's headers, of which only Content-Transfer-Encoding matters."""
    while True:
        end = raw.find(b"\r\n", pos, pos + PART_HEAD_MAX)
        if end < 0:
            raise problem("malformed", "the headers of a part do not end")
        if end == pos:
            return end + 2
        line = raw[pos:end]
        if not _HEADER.fullmatch(line) and line[:1] not in (b" ", b"\t"):
            raise problem("malformed", f"a part has a malformed header: {line[:40]!r}")
        name, _, value = line.lower().partition(b":")
        if name == b"content-transfer-encoding" and value.strip() not in (b"binary", b"8bit", b"7bit"):
            raise problem("unsupported-media-type", f"a part is encoded as {value.strip()[:40]!r}")
        pos = end + 2


def _too_large(limit: int) -> Any:
    return problem("too-large", f"the body has more than {limit} bytes", {"connection": "close"}, limit=limit)
