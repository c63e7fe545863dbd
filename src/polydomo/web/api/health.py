"""Is it alive, and does it take jobs?"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from starlette.responses import Response

from polydomo.store import Store
from polydomo.store.errors import StoreError
from polydomo.web.api.openapi import failing, shows
from polydomo.web.api.problems import problem
from polydomo.web.api.replies import show_now

if TYPE_CHECKING:
    from polydomo.runtime.house import House

# How long a store in trouble may take to show that it is well again, in seconds.
PROBE: Final = 1.0

# Where that is tried.
SPACE: Final = "probe"


def make_router(house: House) -> APIRouter:
    """See the module's text."""
    router = APIRouter(tags=["broker"], default_response_class=Response)

    @router.get("/healthz", summary="Is it alive?", responses=shows("Health"))
    async def healthz() -> Response:
        """Answered as long as the broker's loop goes round."""
        return show_now({"status": "ok"})

    @router.get("/readyz", summary="Does it take jobs?", responses=shows("Health") | failing("not-ready"))
    async def readyz() -> Response:
        """Ready means consuming: it is not stopping, its store can be written, and there is room for jobs."""
        why = await _why_not(house)
        if why:
            raise problem("not-ready", why)
        return show_now({"status": "ready"})

    return router


async def _why_not(house: House) -> str:
    """Empty: it is ready."""
    broker = house.broker
    if broker.draining:  # before that the listeners are open: HTTP is the last one that is opened
        return "the broker is stopping"
    if broker.memory > broker.memory_limit:
        return f"its jobs have {broker.memory} bytes, more than limits.memory"
    store = house.store
    if store is not None and store.trouble is not None:
        await _try(store)
        if store.trouble is not None:
            return f"the store is in trouble: {store.trouble}"
    return ""


async def _try(store: Store) -> None:
    """Only a write shows that trouble is over; without jobs there would be none."""
    tried = asyncio.Event()
    try:
        store.put(SPACE, b"", b"", time.time_ns() // 1000, done=lambda error: tried.set())
        await asyncio.wait_for(tried.wait(), PROBE)
    except (StoreError, TimeoutError):
        pass  # it is as it was
