"""Paths as they were written: `a%2Fb` is one name with a slash in it, `a/b` are two steps."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote_to_bytes

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from polydomo.store.store import NAME_BYTES
from polydomo.web.api.problems import problem
from polydomo.web.memodb.content_store import FUNC_BYTES, Call
from polydomo.web.memodb.content_types import parse_cid

# Arguments of a call that somebody names: more would not fit into the head of a request.
MOST_ARGUMENTS: Final = 1000


class WrittenRoute(APIRoute):
    """Matches what is in the request line; parameters are still percent-encoded."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches({**scope, "path": written_path(scope)})


def written_path(scope: Scope) -> str:
    """The path in the request line, one character for each byte."""
    raw = scope.get("raw_path")
    return quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")


def func_of(written: str) -> str:
    """A function's name, from a path."""
    func = text_of(written, FUNC_BYTES)
    if "\0" in func:
        raise problem("invalid-string", "a function's name has no zero byte")
    return func


def head_of(written: str) -> str:
    """A head's name, from a path; its slashes may be escaped or not."""
    return text_of(written, NAME_BYTES)


def call_of(func: str, args: str) -> Call:
    """A call, from a path."""
    texts = text_of(args, 1 << 20).split(",")
    if len(texts) > MOST_ARGUMENTS:
        raise problem(
            "invalid-or-unsupported-cid", f"{len(texts)} arguments; a call has {MOST_ARGUMENTS} at most"
        )
    return Call(func_of(func), tuple(parse_cid(text) for text in texts))


def text_of(written: str, most: int) -> str:
    """What a part of a path means."""
    data = unquote_to_bytes(written.encode("latin-1", "replace"))
    if not 0 < len(data) <= most:
        raise problem("invalid-string", f"a name has 1 to {most} bytes, not {len(data)}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise problem("invalid-string", f"{written[:100]!r} is not UTF-8") from None


def step(text: str) -> str:
    """The opposite: a name as one step of a path."""
    return quote(text, safe="!$&'()*+,;=:@~")


def steps(text: str) -> str:
    """A name whose slashes stay."""
    return quote(text, safe="/!$&'()*+,;=:@~")
