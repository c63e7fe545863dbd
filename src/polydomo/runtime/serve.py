"""Run a broker in this process until it is told to stop: event loop, signals, the process's own limits."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from polydomo.runtime.data import DataFolder
from polydomo.runtime.house import House
from polydomo.runtime.settings import Settings

# Jobs live briefly and are freed by counting references; the collector finds nothing among them, so it need
# not look after every 700 objects.
GC_THRESHOLDS = (50_000, 50, 100)


def run(main: Coroutine[Any, Any, None]) -> None:
    """On uvloop where there is one, on asyncio's own loop otherwise."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def serve(
    settings: Settings,
    *,
    started: Callable[[House], None] | None = None,
    reread: Callable[[], Settings | None] | None = None,
) -> None:
    """A broker with these settings. SIGTERM and SIGINT drain and stop (twice: at once), SIGHUP calls
    `reread`: settings from it take effect, None keeps the old ones."""
    _raise_file_limit()
    gc.set_threshold(*GC_THRESHOLDS)
    folder = DataFolder(settings.broker.data) if settings.broker.data else None
    if folder is not None:
        folder.open()
    try:
        house = House(settings)
        await house.start()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, house.stop)
        loop.add_signal_handler(signal.SIGHUP, _reload, house, reread)
        gc.freeze()
        if folder is not None:
            folder.announce(house.bound)
        if started is not None:
            started(house)
        await house.wait()
    finally:
        if folder is not None:
            folder.close()


def _reload(house: House, reread: Callable[[], Settings | None] | None) -> None:
    settings = reread() if reread is not None else None
    if settings is not None:
        house.reload(settings)


def _raise_file_limit() -> None:
    """One descriptor per peer: take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
