"""`/cid`: values by their content."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.problems import problem
from polydomo.web.connection import connection_of
from polydomo.web.loading import Loading
from polydomo.web.memodb import dagcbor, memojson, openapi
from polydomo.web.memodb.cid import Cid
from polydomo.web.memodb.content_store import ContentStore
from polydomo.web.memodb.content_types import (
    MUTABLE,
    PASSING,
    parse_cid,
    read_node,
    show_json,
    show_node,
    show_value,
)
from polydomo.web.memodb.dagcbor import BadCbor
from polydomo.web.memodb.openapi import CidPath, Depth
from polydomo.web.memodb.routing import text_of
from polydomo.web.memodb.values import Value, aside

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# A value that is shown with those it links to, all together.
SHOWN_VALUES: Final = 1000
SHOWN_BYTES: Final = 16 * 1024 * 1024


def add_routes(router: APIRouter, server: BrokerServer, library: ContentStore, loading: Loading) -> None:
    """See the module's text."""

    @router.post(
        "/cid",
        summary="Store a value",
        status_code=201,
        responses=openapi.value("It is stored; a link to it.", {"cid": "uAXEAAQI"}, 201)
        | openapi.fails(*openapi.READ, "memodb-full"),
        openapi_extra=openapi.body("a value", 2, octets=True),
    )
    async def store(request: Request) -> Response:
        """The same value always has the same CID, and is stored once."""
        node = await read_node(request, server)
        value = await aside(_size(node), Value.of_node, node)
        await library.keep(value)
        headers = {
            "location": f"{request.url.path}/{value.cid}",
            "cache-control": "no-store",
            "vary": "Accept",
        }
        return show_node(request, value.cid, 201, headers)

    @router.get(
        "/cid/{cid}",
        summary="Get a value",
        responses=openapi.value("The value. It never changes.", 2, octets=True)
        | openapi.unchanged()
        | openapi.fails("invalid-or-unsupported-cid", "invalid-string", "unknown-cid", "not-acceptable"),
    )
    async def fetch(request: Request, cid: CidPath, depth: Depth = 0) -> Response:
        """A value that is inside its CID is there even if nobody has stored it."""
        name = parse_cid(text_of(cid, 1 << 16))
        # As it is stored, and as it is sent.
        value = await loading.load(
            connection_of(request.scope),
            lambda: library.value(name),
            lambda value: 0 if value is None else 2 * len(value.block),
        )
        if value is None:
            raise problem("unknown-cid", f"{name} is not in the store")
        if depth:
            return await _unfolded(request, value, depth)
        return await show_value(request, value)

    @router.delete(
        "/cid/{cid}",
        summary="Remove a value",
        status_code=204,
        response_class=Response,
        responses=openapi.nothing("It is gone from here.", 204)
        | openapi.fails("invalid-or-unsupported-cid", "invalid-string", "unknown-cid", "conflict"),
    )
    async def drop(cid: CidPath) -> Response:
        """To make room: links to it stay, and lead nowhere until somebody stores it again. A value that is inside its
        CID cannot be removed."""
        name = parse_cid(text_of(cid, 1 << 16))
        if name.content is not None:
            raise problem(
                "conflict", f"{name} has its content inside: it takes no place, and is always there"
            )
        if not await library.drop(name):
            raise problem("unknown-cid", f"{name} is not in the store")
        return Response(status_code=204, headers=PASSING)

    async def _unfolded(request: Request, value: Value, depth: int) -> Response:
        """With the values that it links to, as `{"node": ...}`."""
        try:
            made, size = await _Unfolding(library).unfold(value, depth)
            text = await aside(size, memojson.write, made)
        except BadCbor as error:
            raise problem("invalid-or-unsupported-cid", f"its content is no value: {error}") from None
        except RecursionError:
            raise problem("malformed", f"with depth={depth} it is too deep for JSON") from None
        return show_json(request, text, MUTABLE)


class _Unfolding:
    """Values inside values, within bounds: what does not fit stays a link, and so does what is not there. A value that
    is linked to twice is shown twice, so a few small ones could be endless: what counts is how much is shown."""

    def __init__(self, library: ContentStore) -> None:
        self.library = library
        self.left = SHOWN_VALUES
        self.known: dict[tuple[Cid, int], tuple[Any, int] | None] = {}

    async def unfold(self, value: Value, depth: int) -> tuple[Any, int]:
        """As JSON has it, and how large that is."""
        node = await aside(len(value.block), value.node)
        inside: dict[Cid, Any] = {}
        size = len(value.block)
        for cid, times in Counter(dagcbor.links(node) if depth else ()).items():
            found = await self._find(cid, depth - 1)
            if found is not None and size + found[1] * times <= SHOWN_BYTES:
                inside[cid] = found[0]
                size += found[1] * times
        return await aside(len(value.block), memojson.plain, node, inside), size

    async def _find(self, cid: Cid, depth: int) -> tuple[Any, int] | None:
        if (cid, depth) not in self.known and self.left > 0:
            self.left -= 1
            found = await self.library.value(cid)
            made = None
            if found is not None:
                try:
                    made = await self.unfold(found, depth)
                except BadCbor:
                    pass  # a CID with nonsense inside
            self.known[(cid, depth)] = made
        return self.known.get((cid, depth))


def _size(node: Any) -> int:
    """Roughly: is it worth a thread?"""
    return len(node) if isinstance(node, (bytes, str, list, dict)) else 0
