"""How handlers ask the catalogue, and how they show what they have."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from polydomo.deferred import Deferred
from polydomo.store.errors import StoreClosed, StoreError, StoreInvalid, StoreRefusal, UnknownJob
from polydomo.web.api.problems import Problem, problem

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

JSON = "application/json"

# Rows of a list: unless asked for another number, and at most.
ROWS = 100
MOST_ROWS = 1000


async def ask(server: BrokerServer, task: str, *args: Any, **kwargs: Any) -> Any:
    """A task of the broker's catalogue (`mmi.service.broker`). ValueError: it said no; a Problem: it could not."""
    server.advance()
    try:
        return await settled(server.management.tasks[task](*args, **kwargs))
    except StoreError as error:
        raise store_problem(error) from error


async def settled(answer: Any) -> Any:
    """Return an answer that may be deferred."""
    return await answer if isinstance(answer, Deferred) else answer


def store_problem(error: StoreError) -> Problem:
    """What the store said."""
    if isinstance(error, UnknownJob):
        return problem("not-found", str(error))
    if isinstance(error, StoreRefusal):
        return problem("conflict", str(error))
    if isinstance(error, StoreInvalid):
        return problem("malformed", str(error))
    if isinstance(error, StoreClosed):
        return problem("draining", str(error))
    return problem("store", str(error))


def show(request: Request, value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """As JSON, with an ETag: who has it already gets 304 and nothing else."""
    return tagged(request, msgspec.json.encode(value), JSON, headers)


def show_now(value: Any, status: int = 200) -> Response:
    """As JSON, good for this moment only."""
    return Response(msgspec.json.encode(value), status, {"cache-control": "no-store"}, JSON)


def tagged(
    request: Request, data: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer, or 304 if the client has the same one already."""
    tag = f'W/"{blake2b(data, digest_size=12).hexdigest()}"'
    given = {"etag": tag, "cache-control": "no-cache", **(headers or {})}
    if unchanged(request, tag):
        return Response(status_code=304, headers=given)
    return Response(data, 200, given, media_type)


def unchanged(request: Request, tag: str) -> bool:
    """Does the client have it (RFC 9110 §13.1.2: weak tags count)?"""
    known = request.headers.get("if-none-match")
    if known is None:
        return False
    bare = tag.removeprefix("W/")
    return known.strip() == "*" or any(one.strip().removeprefix("W/") == bare for one in known.split(","))
