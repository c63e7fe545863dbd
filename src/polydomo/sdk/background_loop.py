"""The event loop behind the sync twins: one for the whole process, in a thread of its own.

All sync clients, workers and test brokers share it, so they cost no thread each, and a test with all three of
them runs on one loop as its async counterpart would.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_portal: BackgroundLoop | None = None


class BackgroundLoop:
    """A loop in a thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = new_loop()
        self._thread = threading.Thread(target=self._run, name="polydomo-sdk", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin something there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a sync twin was used from the event loop it runs on; use the async class there"
            )
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something there and wait for it. Interrupting the wait gives it up."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """At the end of the process."""
        if self.pid == os.getpid() and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(5.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()


def portal() -> BackgroundLoop:
    """The process's own; a forked child gets a new one."""
    global _portal
    with _lock:
        if _portal is None or _portal.pid != os.getpid():
            _portal = BackgroundLoop()
        return _portal


def new_loop() -> asyncio.AbstractEventLoop:
    """Uvloop's where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
