"""Liveness and readiness of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from polydomo.web.api.json_responses import json_uncached
from polydomo.web.api.openapi import documented, failing
from polydomo.web.api.problems import problem

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def make_router(server: BrokerServer) -> APIRouter:
    """Return the routes `/healthz` and `/readyz`."""
    router = APIRouter(tags=["broker"], default_response_class=Response)

    @router.get("/healthz", summary="Check liveness", responses=documented("Health"))
    async def healthz() -> Response:
        """Succeed as long as the broker's event loop runs."""
        return json_uncached({"status": "ok"})

    @router.get("/readyz", summary="Check readiness", responses=documented("Health") | failing("not-ready"))
    async def readyz() -> Response:
        """Succeed if the broker accepts jobs: it is not stopping, its store is writable, and it has memory left."""
        reason = _not_ready_reason(server)
        if reason:
            raise problem("not-ready", reason)
        damage = "" if server.store is None else server.store.damage
        return json_uncached(
            {"status": "ready"} | ({"warning": f"the store has lost jobs: {damage}"} if damage else {})
        )

    return router


def _not_ready_reason(server: BrokerServer) -> str:
    """Return why the broker accepts no jobs; empty if it does."""
    broker = server.broker
    # HTTP opens after all other listeners, so the broker is complete.
    if broker.accounting.draining:
        return "the broker is stopping"
    if broker.accounting.memory > broker.accounting.memory_limit:
        return f"its jobs have {broker.accounting.memory} bytes, more than limits.memory"
    watch = server.store_watch
    if watch is not None and watch.trouble is not None:
        return f"the store is in trouble: {watch.trouble}"
    return ""
