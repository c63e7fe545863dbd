"""The server as its parts see it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from polydomo.core.broker import Broker
from polydomo.server.clock import ServerClock
from polydomo.server.settings import Settings
from polydomo.store import Store


class ServerHost(Protocol):
    """Owner of a part: the settings in effect, the core with its clock, the event loop and the store."""

    settings: Settings
    clock: ServerClock
    broker: Broker
    loop: asyncio.AbstractEventLoop
    store: Store | None  # None: there are no durable jobs

    def advance(self) -> None:
        """Set the core's time. To be called before the core is called from anything but a peer's bytes."""
