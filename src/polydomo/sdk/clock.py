"""Where the SDK gets its time from: the event loop, or a clock that stands still until it is told to move.

Every timer, time-out and pause of clients and workers goes through here, so the whole SDK runs on either.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Any, Protocol


class Timer(Protocol):
    """What `call_at` gives back."""

    def cancel(self) -> None: ...


class Clock(ABC):
    """Monotonic seconds, and calls at given times."""

    @abstractmethod
    def time(self) -> float:
        """Now."""

    @abstractmethod
    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call back on the running loop when the time has come."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """The same, counted from now."""
        return self.call_at(self.time() + delay, callback, *args)

    async def sleep(self, delay: float) -> None:
        """Pause the calling coroutine."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(delay, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()

    @abstractmethod
    def timeout(self, delay: float | None) -> AbstractAsyncContextManager[object]:
        """`TimeoutError` if the block takes longer; None: no limit."""


class LoopClock(Clock):
    """Real time."""

    def time(self) -> float:
        return monotonic()

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        return asyncio.get_running_loop().call_later(max(when - monotonic(), 0.0), callback, *args)

    def timeout(self, delay: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(delay)


class Follower(Protocol):
    """Somebody who has to be told that time has passed, in small steps."""

    def due(self) -> float:
        """When to tell them next, at the latest."""

    def tick(self) -> None:
        """It is later now."""


class VirtualClock(Clock):
    """Stands still until its owner moves it, who sees to it that everybody gets a turn in between."""

    def __init__(self) -> None:
        self.followers: list[Follower] = []
        self._now = monotonic()
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._sequence = count()

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = VirtualTimer(asyncio.get_running_loop(), callback, args)
        heappush(self._timers, (when, next(self._sequence), timer))
        return timer

    @asynccontextmanager
    async def timeout(self, delay: float | None) -> AsyncIterator[None]:
        async with asyncio.timeout(None) as scope:
            if delay is None:
                yield
                return
            timer = self.call_later(delay, scope.reschedule, 0.0)  # long ago: it fires at once
            try:
                yield
            finally:
                timer.cancel()

    def next(self) -> float:
        """When the next timer rings or a follower is due; infinity if nobody waits for anything."""
        return min([self._next_timer(), *[follower.due() for follower in self.followers]])

    def move_to(self, when: float) -> None:
        """It is `when` now: ring what is due."""
        self._now = max(self._now, when)
        while self._next_timer() <= self._now:
            heappop(self._timers)[2].fire()
        for follower in self.followers:
            follower.tick()

    def _next_timer(self) -> float:
        while self._timers and self._timers[0][2].cancelled:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else float("inf")


class VirtualTimer:
    """One call to come, on the loop that asked for it."""

    __slots__ = ("_args", "_callback", "_loop", "cancelled")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._loop = loop
        self._callback = callback
        self._args = args
        self.cancelled = False

    def fire(self) -> None:
        if asyncio.get_running_loop() is self._loop:
            self._callback(*self._args)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._callback, *self._args)

    def cancel(self) -> None:
        self.cancelled = True


REAL_TIME = LoopClock()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
