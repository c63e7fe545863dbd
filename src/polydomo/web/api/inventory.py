"""The inventory: what workers are told about themselves (`sid.service.broker`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from polydomo.services.sid import LONGEST_NAME
from polydomo.web.api.json_responses import settled, show, show_now
from polydomo.web.api.openapi import cached, failing, shows
from polydomo.web.api.problems import problem

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def make_router(server: BrokerServer) -> APIRouter:
    """See the module's text."""
    router = APIRouter(prefix="/v1/inventory", tags=["inventory"], default_response_class=Response)
    sid = server.builtin_services.sid

    @router.get("", summary="See where the inventory comes from", responses=cached("InventoryFiles"))
    async def list_inventory(request: Request) -> Response:
        """The names and patterns, and the files they are read from. All empty if the broker has none."""
        return show(request, sid.list_inventory())

    @router.post(
        "",
        summary="Read the inventory again",
        responses=shows("Reloaded") | failing("conflict", "not-supported"),
    )
    async def reload() -> Response:
        """If the files are wrong the old ones stay in use, and the answer says why."""
        server.advance()
        if not sid.path:
            raise problem("not-supported", "this broker has no inventory: start it with --inventory FILE")
        try:
            return show_now(await settled(sid.reload()))
        except ValueError as error:
            raise problem("conflict", str(error)) from error

    @router.get(
        "/{worker:path}",
        summary="See a worker's inventory",
        responses=cached("Inventory") | failing("malformed", "not-found"),
    )
    async def get_inventory(
        request: Request,
        worker: Annotated[
            str, Path(description="the worker's name", examples=["nornir-1"], max_length=LONGEST_NAME)
        ],
    ) -> Response:
        """Everything under the names and patterns that fit its own, merged."""
        found = sid.get_inventory(worker)
        if found is None:
            raise problem("not-found", f"there is nothing for a worker named {worker[:100]!r}")
        return show(request, found)

    return router
