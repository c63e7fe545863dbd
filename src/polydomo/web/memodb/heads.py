"""`/head`: names that point to values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.problems import problem
from polydomo.web.memodb import openapi
from polydomo.web.memodb.content_store import ContentStore
from polydomo.web.memodb.content_types import MUTABLE, PASSING, read_link, show_node
from polydomo.web.memodb.openapi import LINK, After, HeadPath
from polydomo.web.memodb.routing import head_of, steps, written_path

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def add_routes(router: APIRouter, server: BrokerServer, library: ContentStore) -> None:
    """See the module's text."""

    @router.get(
        "/head",
        summary="List heads",
        responses=openapi.value("Their paths.", ["/head/a", "/head/b"])
        | openapi.unchanged()
        | openapi.fails("not-acceptable", "malformed"),
    )
    async def show_all(request: Request, after: After = "") -> Response:
        """In the order of their names. If there are more, the header `Link` says where."""
        names, more = await library.heads(after)
        return listing(request, [f"/head/{steps(name)}" for name in names], names[-1] if more else "")

    @router.get(
        "/head/{name:path}",
        summary="See where a head points",
        responses=openapi.value("A link.", {"cid": "uAXEAAQI"})
        | openapi.unchanged()
        | openapi.fails("invalid-string", "not-found", "not-acceptable"),
    )
    async def show(request: Request, name: HeadPath) -> Response:
        """To the value that it was set to last."""
        head = head_of(name)
        cid = await library.head(head)
        if cid is None:
            raise problem("not-found", f"there is no head {head[:100]!r}")
        return show_node(request, cid)

    @router.put(
        "/head/{name:path}",
        summary="Let a head point to a value",
        status_code=201,
        response_class=Response,
        responses=openapi.nothing("It does.", 201)
        | openapi.fails(*openapi.READ, "invalid-string", "expected-cid", "memodb-full"),
        openapi_extra=openapi.body(LINK, {"cid": "uAXEAAQI"}),
    )
    async def set_head(request: Request, name: HeadPath) -> Response:
        """Whether there was such a head or not."""
        head = head_of(name)
        await library.set_head(head, await read_link(request, server))
        return Response(status_code=201, headers=PASSING)

    @router.delete(
        "/head/{name:path}",
        summary="Remove a head",
        status_code=204,
        response_class=Response,
        responses=openapi.nothing("It is gone; the value stays.", 204)
        | openapi.fails("invalid-string", "not-found"),
    )
    async def drop(name: HeadPath) -> Response:
        """Nothing has this name any more."""
        head = head_of(name)
        if not await library.drop_head(head):
            raise problem("not-found", f"there is no head {head[:100]!r}")
        return Response(status_code=204, headers=PASSING)


def listing(request: Request, paths: list[str], last: str) -> Response:
    """A list of names; `last` if there are more behind it."""
    answer = show_node(request, paths, headers=MUTABLE)
    if last:
        answer.headers["link"] = f'<{written_path(request.scope)}?after={steps(last)}>; rel="next"'
    return answer
