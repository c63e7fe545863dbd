"""Routing by raw paths: `a%2Fb` is one segment with a slash in it, `a/b` are two segments."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote_to_bytes

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from polydomo.store.store import NAME_BYTES
from polydomo.web.api.problems import problem
from polydomo.web.memodb.content_store import FUNC_BYTES, FunctionCall
from polydomo.web.memodb.content_types import parse_cid

# Limit of a call's arguments: more would not fit into the head of a request.
ARGUMENTS_MAX: Final = 1000


class RawPathRoute(APIRoute):
    """A route that matches the raw path; its parameters are still percent-encoded."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches({**scope, "path": raw_path(scope)})


def raw_path(scope: Scope) -> str:
    """Return the path of the request line, one character per byte."""
    raw = scope.get("raw_path")
    return quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")


def func_of(raw: str) -> str:
    """Decode a function's name in a path."""
    func = decode_segment(raw, FUNC_BYTES)
    if "\0" in func:
        raise problem("invalid-string", "a function's name must not contain a zero byte")
    return func


def head_of(raw: str) -> str:
    """Decode a head's name in a path; its slashes may be escaped or not."""
    return decode_segment(raw, NAME_BYTES)


def call_of(func: str, args: str) -> FunctionCall:
    """Decode a call in a path."""
    texts = decode_segment(args, 1 << 20).split(",")
    if len(texts) > ARGUMENTS_MAX:
        raise problem("invalid-or-unsupported-cid", f"{len(texts)} arguments; the limit is {ARGUMENTS_MAX}")
    return FunctionCall(func_of(func), tuple(parse_cid(text) for text in texts))


def decode_segment(raw: str, most: int) -> str:
    """Decode a percent-encoded part of a path."""
    data = unquote_to_bytes(raw.encode("latin-1", "replace"))
    if not 0 < len(data) <= most:
        raise problem("invalid-string", f"a name has 1 to {most} bytes, not {len(data)}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise problem("invalid-string", f"{raw[:100]!r} is not UTF-8") from None


def path_segment(text: str) -> str:
    """Encode a name as one segment of a path."""
    return quote(text, safe="!$&'()*+,;=:@~")


def path_segments(text: str) -> str:
    """Encode a name as one or more segments of a path: its slashes stay."""
    return quote(text, safe="/!$&'()*+,;=:@~")
