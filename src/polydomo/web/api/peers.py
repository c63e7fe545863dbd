"""The broker as a whole, and its connected workers and clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.json_responses import json_uncached, run_task
from polydomo.web.api.openapi import ROWS, Limit, documented
from polydomo.web.api.schemas import WORKER

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

Skip = Annotated[int, Query(description="rows to skip: the `next` of a page", ge=0, le=10**9)]


def make_router(server: BrokerServer) -> APIRouter:
    """Return the routes `/v1/broker`, `/v1/workers` and `/v1/clients`."""
    router = APIRouter(prefix="/v1", default_response_class=Response)

    @router.get("/broker", summary="Show the broker", tags=["broker"], responses=documented("Broker"))
    async def show_broker(request: Request) -> Response:
        """Show the broker's name, addresses and counters."""
        return json_uncached(await run_task(server, request, "show_broker"))

    @router.get("/workers", summary="List workers", tags=["peers"], responses=documented("Workers"))
    async def list_workers(
        request: Request,
        service: Annotated[str | None, Query(description="only those that offer it")] = None,
        limit: Limit = ROWS,
        skip: Skip = 0,
    ) -> Response:
        """List the registered workers of all dialects."""
        found = await run_task(server, request, "show_workers", service or None)
        rows = [{name: row[name] for name in WORKER} for row in found]  # without norfab's names for the same
        return json_uncached(_page("workers", rows, limit, skip))

    @router.get("/clients", summary="List clients", tags=["peers"], responses=documented("Clients"))
    async def list_clients(request: Request, limit: Limit = ROWS, skip: Skip = 0) -> Response:
        """List clients that have submitted a job and are connected or may reconnect."""
        return json_uncached(_page("clients", await run_task(server, request, "show_clients"), limit, skip))

    return router


def _page(what: str, rows: list[dict[str, Any]], limit: int, skip: int) -> dict[str, Any]:
    return {what: rows[skip : skip + limit], "next": skip + limit if len(rows) > skip + limit else None}
