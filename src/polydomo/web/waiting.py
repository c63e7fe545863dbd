"""Waiting with a timeout, and callbacks as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wake(future: asyncio.Future[None] | None) -> None:
    """Complete a future, unless there is none or it is done."""
    if future is not None and not future.done():
        future.set_result(None)


async def wait_future(future: asyncio.Future[None], timeout: float) -> None:
    """Return when the future is woken or the timeout expires."""
    timer = future.get_loop().call_later(timeout, wake, future)
    try:
        await future
    finally:
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
