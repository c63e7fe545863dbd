"""Routes under `/head`: names that point to values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.openapi import no_content
from polydomo.web.api.problems import problem
from polydomo.web.memodb import openapi
from polydomo.web.memodb.content_store import ContentStore
from polydomo.web.memodb.content_types import MUTABLE, UNCACHED, node_response, read_link
from polydomo.web.memodb.routing import head_of, path_segments, raw_path

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def add_routes(router: APIRouter, server: BrokerServer, content: ContentStore) -> None:
    """Add the routes under `/head`."""

    @router.get(
        "/head", summary="List heads", responses=openapi.shows("Their paths.", ["/head/a", "/head/b"])
    )
    async def show_all(request: Request, after: openapi.After = "") -> Response:
        """List heads by name. The header `Link` leads to the next page."""
        names, more = await content.heads(after)
        return listing(request, [f"/head/{path_segments(name)}" for name in names], names[-1] if more else "")

    @router.get(
        "/head/{name:path}",
        summary="Show a head",
        responses=openapi.shows("A link.", {"cid": "uAXEAAQI"}, "invalid-string"),
    )
    async def show(request: Request, name: openapi.HeadPath) -> Response:
        """Return a link to the value that the head points to."""
        head = head_of(name)
        cid = await content.head(head)
        if cid is None:
            raise problem("not-found", f"there is no head {head[:100]!r}")
        return node_response(request, cid)

    @router.put(
        "/head/{name:path}",
        summary="Set a head",
        responses=no_content("The head is set.", 201)
        | openapi.failing(*openapi.READ, "invalid-string", "expected-cid", "memodb-full"),
        openapi_extra=openapi.value_body(openapi.LINK, {"cid": "uAXEAAQI"}),
    )
    async def set_head(request: Request, name: openapi.HeadPath) -> Response:
        """Let a new or existing head point to a value."""
        head = head_of(name)
        await content.set_head(head, await read_link(request, server))
        return Response(status_code=201, headers=UNCACHED)

    @router.delete(
        "/head/{name:path}",
        summary="Delete a head",
        responses=no_content("The head is deleted; the value stays.") | openapi.failing("invalid-string"),
    )
    async def drop(name: openapi.HeadPath) -> Response:
        """Delete a head, but not its value."""
        head = head_of(name)
        if not await content.drop_head(head):
            raise problem("not-found", f"there is no head {head[:100]!r}")
        return Response(status_code=204, headers=UNCACHED)


def listing(request: Request, paths: list[str], last: str) -> Response:
    """Return a list of paths; `last` is the last name if there are more."""
    response = node_response(request, paths, headers=MUTABLE)
    if last:
        response.headers["link"] = f'<{raw_path(request.scope)}?after={path_segments(last)}>; rel="next"'
    return response
