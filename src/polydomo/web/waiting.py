"""Waiting with a timeout, and callbacks as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Wakeup:
    """A place where one task waits until it is woken. Nothing is remembered: a `wake` before `wait` has no effect."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Let the waiting task continue, if there is one."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout: float | None = None) -> None:
        """Return when `wake` is called or the timeout expires."""
        self._future = self._loop.create_future()
        timer = None if timeout is None else self._loop.call_later(timeout, self.wake)
        try:
            await self._future
        finally:
            self._future = None
            if timer is not None:
                timer.cancel()


async def wait_event(event: asyncio.Event, timeout: float) -> bool:
    """Return whether the event was set before the timeout expired."""
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        pass
    return event.is_set()


async def called_back(start: Callable[[Callable[[T], None]], object]) -> T:
    """Call `start` with a callback and return the value that the callback receives."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(value: T) -> None:
        if not future.done():  # the waiting task may have been cancelled
            future.set_result(value)

    start(done)
    return await future
