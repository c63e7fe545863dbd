"""A server that is only a core and a clock, for tests of what stands between HTTP and the core."""

from __future__ import annotations

import asyncio
from typing import Any

from polydomo.core.policy import BrokerLimits
from polydomo.server.settings import Settings
from tests.support.core import make_broker


class StubServer:
    """As much of `server.server.BrokerServer` as clients and workers of the web see."""

    def __init__(self, bounds: BrokerLimits | None = None) -> None:
        self.broker = make_broker(bounds)
        self.broker.advance(100.0)
        self.loop = asyncio.get_running_loop()
        self.settings = Settings()
        self.store: Any = None

    def advance(self) -> None:
        pass  # the test says what time it is

    def pass_time(self, seconds: float) -> None:
        self.broker.advance(self.broker.now + seconds)
        self.broker.tick()
