"""A server that is only a core and a clock, for tests of what stands between HTTP and the core."""

from __future__ import annotations

import asyncio
from typing import Any

from polydomo.core.policy import BrokerLimits
from polydomo.server.settings import Settings
from polydomo.web.job_events import JobEvent, JobEventQueue
from tests.support.core import make_broker


async def all_events(listener: JobEventQueue) -> list[JobEvent]:
    """What is read from a queue until it is over."""
    heard = []
    while not listener.over:
        event = await listener.next(10)
        if event is not None:
            heard.append(event)
    return heard


class StubServer:
    """As much of `server.server.BrokerServer` as clients and workers of the web see."""

    def __init__(self, bounds: BrokerLimits | None = None) -> None:
        self.broker = make_broker(bounds)
        self.broker.advance(100.0)
        self.loop = asyncio.get_running_loop()
        self.settings = Settings()
        self.store: Any = None
        self.attempt_secret = bytes(32)

    def advance(self) -> None:
        pass  # the test says what time it is

    def pass_time(self, seconds: float) -> None:
        self.broker.advance(self.broker.now + seconds)
        self.broker.tick()
