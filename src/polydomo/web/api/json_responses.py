"""JSON responses, ETags, and calls of the broker's management tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from polydomo.deferred import Deferred
from polydomo.services.authorizer import View
from polydomo.store.errors import StoreClosed, StoreError, StoreInvalid, StoreRefusal, UnknownJob
from polydomo.web.api.bodies import JSON
from polydomo.web.api.problems import problem
from polydomo.web.callers import caller_of

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Reason of a problem by kind of the store's error: the first that fits.
_STORE_PROBLEMS: Final = (
    (UnknownJob, "not-found"),
    (StoreRefusal, "conflict"),
    (StoreInvalid, "malformed"),
    (StoreClosed, "draining"),
    (StoreError, "store"),
)


async def run_task(server: BrokerServer, request: Request, task: str, *args: Any, **kwargs: Any) -> Any:
    """Run a management task (`mmi.service.broker`) for a request that was admitted to its route.

    Raises ValueError if the task refuses, HttpProblem if the store fails.
    """
    server.advance()
    with store_errors():
        return await await_deferred(
            server.management.tasks.run(task, view_of(server, request), *args, **kwargs)
        )


def view_of(server: BrokerServer, request: Request) -> View:
    """Return what a request's principal sees in lists."""
    return server.management.authorizer.view(caller_of(server.broker, request.scope))


async def await_deferred(answer: Any) -> Any:
    """Return a value that may be deferred."""
    return await answer if isinstance(answer, Deferred) else answer


@contextmanager
def store_errors() -> Iterator[None]:
    """Translate errors of the store to problems."""
    try:
        yield
    except StoreError as error:
        reason = next(reason for kind, reason in _STORE_PROBLEMS if isinstance(error, kind))
        raise problem(reason, str(error)) from error


def json_cached(request: Request, value: Any) -> Response:
    """Return JSON with an ETag, or 304 if the client has this version."""
    return with_etag(request, msgspec.json.encode(value), JSON)


def json_uncached(value: Any, status: int = 200) -> Response:
    """Return JSON that must not be cached."""
    return Response(msgspec.json.encode(value), status, {"cache-control": "no-store"}, JSON)


def with_etag(
    request: Request, data: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with an ETag, or 304 if the client has this version."""
    tag = f'W/"{blake2b(data, digest_size=12).hexdigest()}"'
    given = {"etag": tag, "cache-control": "no-cache", **(headers or {})}
    if matches_etag(request, tag):
        return Response(status_code=304, headers=given)
    return Response(data, 200, given, media_type)


def matches_etag(request: Request, tag: str) -> bool:
    """Return whether `If-None-Match` contains the tag (RFC 9110 §13.1.2: weak comparison)."""
    known = request.headers.get("if-none-match")
    if known is None:
        return False
    bare = tag.removeprefix("W/")
    return known.strip() == "*" or any(one.strip().removeprefix("W/") == bare for one in known.split(","))
