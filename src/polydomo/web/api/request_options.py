"""What a request says about its job beside the body: query, headers, and how both are described.

Submitting is the API's hot path, so this is read by hand rather than by the framework, and the same words again cost
nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.types import Scope

from polydomo.core.extras import Options
from polydomo.core.targets import Target
from polydomo.dialects import options as spoken
from polydomo.dialects import targets
from polydomo.web.api.problems import problem

# A client's or worker's name.
NAME_MAX: Final = 255

_NAME: Final = re.compile(rb"[!-~]{1,255}")
_KEY: Final = re.compile(rb'"[!#-~]{1,255}"|[!#-~]{1,255}')
# What is longer is not worth remembering.
CACHED: Final = 200

_NUMBERS: Final = ("delay", "deadline", "timeout", "wait")
_KNOWN: Final = (*_NUMBERS, "priority", "durable", "target")
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """By their names in lower case; of several with one name the last."""
    return dict(scope["headers"])


def client_of(scope: Scope, headers: dict[bytes, bytes]) -> bytes:
    """Whose job it is: the header `Polydomo-Client`, or the host it comes from."""
    name = headers.get(b"polydomo-client")
    if name is not None:
        if _NAME.fullmatch(name) is None:
            raise problem("malformed", f"Polydomo-Client has 1 to {NAME_MAX} visible ASCII characters")
        return name
    peer = scope.get("client")
    return b"unknown" if peer is None else peer[0].encode()


def options_of(
    query: bytes, headers: dict[bytes, bytes], durable: bool, extra: tuple[str, ...] = ()
) -> Options:
    """What its client wishes. `durable` if it does not say; names in `extra` are somebody else's."""
    key = headers.get(b"idempotency-key")
    if not query and key is None:
        return Options(durable=durable)
    try:
        said, target = (_read if len(query) <= CACHED else _read.__wrapped__)(query, extra)
        if key is not None:
            if _KEY.fullmatch(key) is None:
                raise ValueError("Idempotency-Key has 1 to 255 visible ASCII characters")
            said = {**said, "key": key.decode().strip('"')}
        options = spoken.read(said, durable)
    except ValueError as error:
        raise problem("malformed", str(error)) from None
    options.target = target
    return options


@lru_cache(maxsize=1024)
def _read(query: bytes, extra: tuple[str, ...]) -> tuple[dict[str, Any], Target | None]:
    said: dict[str, Any] = {}
    target: list[str] = []
    for name, text in parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=100):
        if name in extra:
            continue
        if name not in _KNOWN:
            raise ValueError(f"no option {name[:40]!r}; there are {', '.join(_KNOWN)}")
        if name in _NUMBERS:
            said[name] = number(name, text)
        elif name == "priority":
            said[name] = whole(name, text)
        elif name == "durable":
            if text not in _FLAGS:
                raise ValueError(f"durable must be true or false, not {text[:40]!r}")
            said[name] = _FLAGS[text]
        else:
            target.append(text)
    return said, targets.parse(",".join(target).encode(), written=True) if target else None


def number(name: str, text: str) -> float:
    """Seconds."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number of seconds, not {text[:40]!r}") from None


def whole(name: str, text: str) -> int:
    """A whole number of a few digits."""
    try:
        return int(text[:20])
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {text[:40]!r}") from None


def patience_of(prefer: bytes | None, most: float) -> float | None:
    """`Prefer: wait` (RFC 7240): how long the answer may take, at most `most` seconds. None: it is not waited for.
    What cannot be read is no preference."""
    if prefer is None:
        return None
    wanted = (_wait if len(prefer) <= CACHED else _wait.__wrapped__)(prefer)
    return None if wanted is None else min(wanted, most)


@lru_cache(maxsize=256)
def _wait(prefer: bytes) -> float | None:
    for part in prefer.decode("latin-1").split(","):
        name, _, value = part.partition(";")[0].partition("=")
        if name.strip().lower() != "wait":
            continue
        value = value.strip().strip('"')
        if not value:
            return spoken.LONGEST
        try:
            seconds = float(value)
        except ValueError:
            return None
        return seconds if 0 <= seconds <= spoken.LONGEST else None
    return None


def _parameter(name: str, place: str, text: str, schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": False,
        "description": text,
        "schema": schema,
        "example": example,
    }


_SECONDS: Final = {"type": "number", "minimum": 0, "maximum": spoken.LONGEST}

SERVICE: Final[dict[str, Any]] = {
    "name": "service",
    "in": "path",
    "required": True,
    "description": "the service's name",
    "schema": {"type": "string", "minLength": 1},
    "example": "echo",
}
OPTIONS: Final[list[dict[str, Any]]] = [
    _parameter(
        "target",
        "query",
        "who does it: `any` (default), `all`, names of workers, or `resource:NAME`, separated by commas",
        {"type": "string"},
        "any",
    ),
    _parameter("priority", "query", "higher ones first", {"type": "integer", "minimum": -9, "maximum": 9}, 0),
    _parameter(
        "timeout",
        "query",
        "how long one attempt may run, in seconds",
        {"type": "number", "exclusiveMinimum": 0, "maximum": spoken.LONGEST},
        60,
    ),
    _parameter("wait", "query", "how long it may wait for a worker, in seconds", _SECONDS, 60),
    _parameter("delay", "query", "not before so many seconds from now", _SECONDS, 0),
    _parameter("deadline", "query", "its whole life, in seconds", _SECONDS, 3600),
    _parameter("durable", "query", "keep it on disk; default: `http.durable`", {"type": "boolean"}, True),
    _parameter(
        "Polydomo-Client",
        "header",
        "whose job it is; default: the host it comes from",
        {"type": "string", "minLength": 1, "maxLength": NAME_MAX, "pattern": "^[!-~]+$"},
        "billing",
    ),
]
KEY: Final = _parameter(
    "Idempotency-Key",
    "header",
    "of requests for a service with the same key, one is run and all get its answer",
    {"type": "string", "minLength": 1, "maxLength": spoken.KEY_MAX, "pattern": "^[!#-~]+$"},
    "order-4711",
)
PREFER: Final = _parameter(
    "Prefer",
    "header",
    "`wait=N`: wait up to N seconds for the answer (RFC 7240); `wait`: as long as `http.patience`",
    {"type": "string"},
    "wait=10",
)
