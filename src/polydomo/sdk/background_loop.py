"""Event loop of the sync twins: one for the whole process, in a thread of its own.

All sync clients, workers and test brokers share this loop, so none of them needs a thread, and a test that uses all
three runs on one loop, as its async counterpart does.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_shared: BackgroundLoop | None = None


class BackgroundLoop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = new_loop()
        self._thread = threading.Thread(target=self._run, name="polydomo-sdk", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Schedule a coroutine on the loop. Raises RuntimeError when called from the loop's own thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a sync twin was used from the event loop it runs on; use the async class there"
            )
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. Interrupting the wait cancels the coroutine."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function that needs a running event loop, and return its result."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self.run(call())

    def close(self) -> None:
        """Stop the loop and join its thread; registered with `atexit`."""
        if self.pid == os.getpid() and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(5.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()


def shared_loop() -> BackgroundLoop:
    """Return the process's loop; a forked child gets a new one."""
    global _shared
    with _lock:
        if _shared is None or _shared.pid != os.getpid():
            _shared = BackgroundLoop()
        return _shared


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
