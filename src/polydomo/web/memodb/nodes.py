"""Routes under `/cid`: values by their content."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.bodies import JSON
from polydomo.web.api.openapi import no_content
from polydomo.web.api.problems import problem
from polydomo.web.connection import connection_of
from polydomo.web.loader import BoundedLoader
from polydomo.web.memodb import dagcbor, memojson, openapi
from polydomo.web.memodb.cid import Cid
from polydomo.web.memodb.content_store import ContentStore
from polydomo.web.memodb.content_types import (
    MUTABLE,
    UNCACHED,
    choose_type,
    node_response,
    parse_cid,
    read_node,
    value_response,
)
from polydomo.web.memodb.dagcbor import BadCbor
from polydomo.web.memodb.routing import decode_segment
from polydomo.web.memodb.values import Value, run_aside

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Limits of a value together with the linked values that are included.
EXPANDED_VALUES_MAX: Final = 1000
EXPANDED_BYTES_MAX: Final = 16 * 1024 * 1024


def add_routes(
    router: APIRouter, server: BrokerServer, content: ContentStore, loading: BoundedLoader
) -> None:
    """Add the routes under `/cid`."""

    @router.post(
        "/cid",
        summary="Store a value",
        responses=openapi.returns("The value is stored; a link to it.", {"cid": "uAXEAAQI"}, 201)
        | openapi.failing(*openapi.READ, "memodb-full"),
        openapi_extra=openapi.value_body("a value", 2, octets=True),
    )
    async def store(request: Request) -> Response:
        """Store a value. Equal values have equal CIDs and are stored once."""
        node = await read_node(request, server)
        value = await run_aside(_size(node), Value.of_node, node)
        await content.keep(value)
        headers = UNCACHED | {"location": f"{request.url.path}/{value.cid}"}
        return node_response(request, value.cid, 201, headers)

    @router.get(
        "/cid/{cid}",
        summary="Get a value",
        responses=openapi.shows(
            "The value. It never changes.", 2, *openapi.CID_PATH, "unknown-cid", octets=True
        ),
    )
    async def fetch(request: Request, cid: openapi.CidPath, depth: openapi.Depth = 0) -> Response:
        """Return a value. A value that its CID contains is always available, even if it was never stored."""
        name = parse_cid(decode_segment(cid, 1 << 16))
        # It is in memory as stored and as sent.
        value = await loading.load(
            connection_of(request.scope),
            lambda: content.value(name),
            lambda value: 0 if value is None else 2 * len(value.block),
        )
        if value is None:
            raise problem("unknown-cid", f"{name} is not in the store")
        if depth:
            return await _expanded(request, value, depth)
        return await value_response(request, value)

    @router.delete(
        "/cid/{cid}",
        summary="Delete a value",
        responses=no_content("The value is deleted.")
        | openapi.failing(*openapi.CID_PATH, "unknown-cid", "conflict"),
    )
    async def drop(cid: openapi.CidPath) -> Response:
        """Delete a value to free storage. Links to it stay, and are unresolved until it is stored again. A value that
        its CID contains cannot be deleted."""
        name = parse_cid(decode_segment(cid, 1 << 16))
        if name.content is not None:
            raise problem("conflict", f"{name} contains its value, which is not stored separately")
        if not await content.drop(name):
            raise problem("unknown-cid", f"{name} is not in the store")
        return Response(status_code=204, headers=UNCACHED)

    async def _expanded(request: Request, value: Value, depth: int) -> Response:
        """Return a value with linked values included as `{"node": ...}`."""
        try:
            objects, size = await _LinkExpander(content).expand(value, depth)
            text = await run_aside(size, memojson.write, objects)
        except BadCbor as error:
            raise problem("invalid-or-unsupported-cid", f"the content is not a value: {error}") from None
        except RecursionError:
            raise problem("malformed", f"depth={depth} is too deep for JSON") from None
        choose_type(request, [JSON])
        return Response(text, 200, dict(MUTABLE), JSON)


class _LinkExpander:
    """Expansion of links to values, within limits: values beyond them, and unknown ones, stay links.

    A value that is linked twice is included twice, so a few small values could grow without bound: the limit applies to
    the output.
    """

    def __init__(self, content: ContentStore) -> None:
        self.content = content
        self.left = EXPANDED_VALUES_MAX
        self.known: dict[tuple[Cid, int], tuple[Any, int] | None] = {}

    async def expand(self, value: Value, depth: int) -> tuple[Any, int]:
        """Return the objects of JSON and their approximate size."""
        node = await run_aside(len(value.block), value.node)
        inside: dict[Cid, Any] = {}
        size = len(value.block)
        for cid, times in Counter(dagcbor.links(node) if depth else ()).items():
            found = await self._find(cid, depth - 1)
            if found is not None and size + found[1] * times <= EXPANDED_BYTES_MAX:
                inside[cid] = found[0]
                size += found[1] * times
        return await run_aside(len(value.block), memojson.plain, node, inside), size

    async def _find(self, cid: Cid, depth: int) -> tuple[Any, int] | None:
        if (cid, depth) not in self.known and self.left > 0:
            self.left -= 1
            found = await self.content.value(cid)
            expanded = None
            if found is not None:
                try:
                    expanded = await self.expand(found, depth)
                except BadCbor:
                    pass  # a CID with invalid content
            self.known[(cid, depth)] = expanded
        return self.known.get((cid, depth))


def _size(node: Any) -> int:
    """Return the approximate size of a node."""
    return len(node) if isinstance(node, (bytes, str, list, dict)) else 0
