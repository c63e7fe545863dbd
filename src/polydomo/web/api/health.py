"""Is it alive, and does it take jobs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from polydomo.web.api.json_responses import show_now
from polydomo.web.api.openapi import failing, shows
from polydomo.web.api.problems import problem

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def make_router(server: BrokerServer) -> APIRouter:
    """See the module's text."""
    router = APIRouter(tags=["broker"], default_response_class=Response)

    @router.get("/healthz", summary="Is it alive?", responses=shows("Health"))
    async def healthz() -> Response:
        """Answered as long as the broker's loop goes round."""
        return show_now({"status": "ok"})

    @router.get("/readyz", summary="Does it take jobs?", responses=shows("Health") | failing("not-ready"))
    async def readyz() -> Response:
        """Ready means consuming: it is not stopping, its store can be written, and there is room for jobs."""
        why = _why_not(server)
        if why:
            raise problem("not-ready", why)
        damage = "" if server.store is None else server.store.damage
        return show_now(
            {"status": "ready"} | ({"warning": f"the store has lost jobs: {damage}"} if damage else {})
        )

    return router


def _why_not(server: BrokerServer) -> str:
    """Empty: it is ready."""
    broker = server.broker
    if broker.draining:  # before that the listeners are open: HTTP is the last one that is opened
        return "the broker is stopping"
    if broker.memory > broker.memory_limit:
        return f"its jobs have {broker.memory} bytes, more than limits.memory"
    watch = server.store_watch
    if watch is not None and watch.trouble is not None:
        return f"the store is in trouble: {watch.trouble}"
    return ""
