"""The broker as a whole, and who is connected to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.json_responses import MOST_ROWS, ROWS, ask, show_now
from polydomo.web.api.openapi import failing, shows

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# What is shown of a worker: the catalogue's rows have norfab's names for the same things, too.
WORKER = ("name", "dialect", "services", "state", "holds", "credit", "done", "seen", "since")

Limit = Annotated[int, Query(description="rows in the answer", ge=1, le=MOST_ROWS)]
Skip = Annotated[
    int, Query(description="rows to leave out at the beginning: the `next` of a page", ge=0, le=10**9)
]


def make_router(server: BrokerServer) -> APIRouter:
    """See the module's text."""
    router = APIRouter(prefix="/v1", default_response_class=Response)

    @router.get("/broker", summary="See the broker", tags=["broker"], responses=shows("Broker"))
    async def show_broker(request: Request) -> Response:
        """Its name, where it listens, and its books."""
        return show_now(await ask(server, "show_broker"))

    @router.get(
        "/workers", summary="List workers", tags=["peers"], responses=shows("Workers") | failing("malformed")
    )
    async def list_workers(
        service: Annotated[str | None, Query(description="only those that offer it")] = None,
        limit: Limit = ROWS,
        skip: Skip = 0,
    ) -> Response:
        """Every worker that is here, of every dialect."""
        rows = [
            {name: row[name] for name in WORKER} for row in await ask(server, "show_workers", service or None)
        ]
        return show_now(_page("workers", rows, limit, skip))

    @router.get(
        "/clients", summary="List clients", tags=["peers"], responses=shows("Clients") | failing("malformed")
    )
    async def list_clients(limit: Limit = ROWS, skip: Skip = 0) -> Response:
        """Every client that has sent a job and is connected, or may come back."""
        return show_now(_page("clients", await ask(server, "show_clients"), limit, skip))

    return router


def _page(what: str, rows: list[dict[str, Any]], limit: int, skip: int) -> dict[str, Any]:
    return {what: rows[skip : skip + limit], "next": skip + limit if len(rows) > skip + limit else None}
