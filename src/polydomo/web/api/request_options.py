"""Options of a job in a request's query and headers, and their OpenAPI descriptions.

Submitting is the API's hot path, so the options are parsed here rather than by the framework, and results are cached.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.types import Scope

from polydomo.core.targets import Target
from polydomo.core.tracked_job import Options
from polydomo.dialects import options as job_options
from polydomo.dialects import targets
from polydomo.web.api.problems import problem
from polydomo.web.api.schemas import FLAG, TEXT

# A client's or worker's name.
NAME_MAX: Final = 255

_NAME: Final = re.compile(rb"[!-~]{1,255}")
_KEY: Final = re.compile(rb'"[!#-~]{1,255}"|[!#-~]{1,255}')
# Longer texts are not cached.
CACHED_MAX: Final = 200

_NUMBERS: Final = ("delay", "deadline", "timeout", "wait")
_KNOWN: Final = (*_NUMBERS, "priority", "durable", "target")
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by lower-case name; the last one of several."""
    return dict(scope["headers"])


def client_of(scope: Scope, headers: dict[bytes, bytes]) -> bytes:
    """Return the client's name: the header `Polydomo-Client`, or the remote host."""
    name = headers.get(b"polydomo-client")
    if name is not None:
        if _NAME.fullmatch(name) is None:
            raise problem("malformed", f"Polydomo-Client needs 1 to {NAME_MAX} visible ASCII characters")
        return name
    peer = scope.get("client")
    return b"unknown" if peer is None else peer[0].encode()


def options_of(
    query: bytes, headers: dict[bytes, bytes], durable: bool, extra: tuple[str, ...] = ()
) -> Options:
    """Return the job's options. `durable` is the default; parameters in `extra` are ignored."""
    key = headers.get(b"idempotency-key")
    if not query and key is None:
        return Options(durable=durable)
    try:
        given, target = (_parse if len(query) <= CACHED_MAX else _parse.__wrapped__)(query, extra)
        if key is not None:
            if _KEY.fullmatch(key) is None:
                raise ValueError("Idempotency-Key needs 1 to 255 visible ASCII characters")
            given = {**given, "key": key.decode().strip('"')}
        options = job_options.read(given, durable)
    except ValueError as error:
        raise problem("malformed", str(error)) from None
    options.target = target
    return options


@lru_cache(maxsize=1024)
def _parse(query: bytes, extra: tuple[str, ...]) -> tuple[dict[str, Any], Target | None]:
    given: dict[str, Any] = {}
    target: list[str] = []
    for name, text in parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=100):
        if name in extra:
            continue
        if name not in _KNOWN:
            raise ValueError(f"unknown option {name[:40]!r}; known are {', '.join(_KNOWN)}")
        if name in _NUMBERS:
            given[name] = _parse_seconds(name, text)
        elif name == "priority":
            given[name] = _parse_integer(name, text)
        elif name == "durable":
            if text not in _FLAGS:
                raise ValueError(f"durable must be true or false, not {text[:40]!r}")
            given[name] = _FLAGS[text]
        else:
            target.append(text)
    return given, targets.parse(",".join(target).encode(), written=True) if target else None


def _parse_seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number of seconds, not {text[:40]!r}") from None


def _parse_integer(name: str, text: str) -> int:
    try:
        return int(text[:20])
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {text[:40]!r}") from None


def preferred_wait(prefer: bytes | None, most: float) -> float | None:
    """Return the seconds of `Prefer: wait` (RFC 7240), at most `most`; None if it is missing or malformed."""
    if prefer is None:
        return None
    wanted = (_wait if len(prefer) <= CACHED_MAX else _wait.__wrapped__)(prefer)
    return None if wanted is None else min(wanted, most)


@lru_cache(maxsize=256)
def _wait(prefer: bytes) -> float | None:
    for part in prefer.decode("latin-1").split(","):
        name, _, value = part.partition(";")[0].partition("=")
        if name.strip().lower() != "wait":
            continue
        value = value.strip().strip('"')
        if not value:
            return job_options.LONGEST
        try:
            seconds = float(value)
        except ValueError:
            return None
        return seconds if 0 <= seconds <= job_options.LONGEST else None
    return None


def parameter(
    place: str, name: str, schema: dict[str, Any], example: Any, text: str, required: bool = False
) -> dict[str, Any]:
    """Return the OpenAPI description of a parameter."""
    found = {"name": name, "in": place, "required": required, "description": text}
    return found | {"schema": schema, "example": example}


_SECONDS: Final = {"type": "number", "minimum": 0, "maximum": job_options.LONGEST}
_TIMEOUT: Final = {"type": "number", "exclusiveMinimum": 0, "maximum": job_options.LONGEST}
_PRIORITY: Final = {"type": "integer", "minimum": -9, "maximum": 9}
_CLIENT: Final = {"type": "string", "minLength": 1, "maxLength": NAME_MAX, "pattern": "^[!-~]+$"}
_KEYS: Final = {"type": "string", "minLength": 1, "maxLength": job_options.KEY_MAX, "pattern": "^[!#-~]+$"}
_TARGETS: Final = (
    "workers for the job: `any` (default), `all`, names, or `resource:NAME`, separated by commas"
)
_SAME_KEY: Final = "of requests to a service with the same key, one is run and all get its result"
_WAITING: Final = "`wait=N`: wait up to N seconds for the result (RFC 7240); `wait`: up to `http.patience`"

SERVICE: Final = parameter("path", "service", {**TEXT, "minLength": 1}, "echo", "the service's name", True)
OPTIONS: Final[list[dict[str, Any]]] = [
    parameter("query", "target", TEXT, "any", _TARGETS),
    parameter("query", "priority", _PRIORITY, 0, "higher priorities run first"),
    parameter("query", "timeout", _TIMEOUT, 60, "limit of one attempt, in seconds"),
    parameter("query", "wait", _SECONDS, 60, "limit of the time in the queue, in seconds"),
    parameter("query", "delay", _SECONDS, 0, "seconds before the job may start"),
    parameter("query", "deadline", _SECONDS, 3600, "limit of the job's whole life, in seconds"),
    parameter("query", "durable", FLAG, True, "store the job on disk; default: `http.durable`"),
    parameter("header", "Polydomo-Client", _CLIENT, "billing", "the client's name; default: the remote host"),
]
KEY: Final = parameter("header", "Idempotency-Key", _KEYS, "order-4711", _SAME_KEY)
PREFER: Final = parameter("header", "Prefer", TEXT, "wait=10", _WAITING)
