"""The inventory: configuration data for workers (`sid.service.broker`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from polydomo.services.sid import LONGEST_NAME
from polydomo.web.api.json_responses import await_deferred, json_cached, json_uncached
from polydomo.web.api.openapi import cached, documented, failing
from polydomo.web.api.problems import problem

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def make_router(server: BrokerServer) -> APIRouter:
    """Return the routes under `/v1/inventory`."""
    router = APIRouter(prefix="/v1/inventory", tags=["inventory"], default_response_class=Response)
    sid = server.builtin_services.sid

    @router.get("", summary="Show the inventory's sources", responses=cached("InventoryFiles"))
    async def list_inventory(request: Request) -> Response:
        """List names and patterns and the files they are read from; all empty if the broker has no inventory."""
        return json_cached(request, sid.list_inventory())

    @router.post(
        "",
        summary="Reload the inventory",
        responses=documented("Reloaded") | failing("conflict", "not-supported"),
    )
    async def reload() -> Response:
        """Read the files again. If they are invalid, the previous ones stay in use and the response says why."""
        server.advance()
        if not sid.path:
            raise problem("not-supported", "this broker has no inventory: start it with --inventory FILE")
        try:
            return json_uncached(await await_deferred(sid.reload()))
        except ValueError as error:
            raise problem("conflict", str(error)) from error

    @router.get("/{worker:path}", summary="Show a worker's inventory", responses=cached("Inventory"))
    async def get_inventory(
        request: Request,
        worker: Annotated[
            str, Path(description="the worker's name", examples=["nornir-1"], max_length=LONGEST_NAME)
        ],
    ) -> Response:
        """Show the merged data of all names and patterns that match the worker's name."""
        found = sid.get_inventory(worker)
        if found is None:
            raise problem("not-found", f"there is no inventory for a worker named {worker[:100]!r}")
        return json_cached(request, found)

    return router
