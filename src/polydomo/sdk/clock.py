"""The SDK's time: the event loop's, or a virtual clock that moves only when a test advances it.

Every timer, time-out and pause of clients and workers goes through a clock, so the whole SDK runs on either.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Any, Protocol


class TimerHandle(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class AsyncClock(ABC):
    """Monotonic seconds, and calls at given times."""

    @abstractmethod
    def time(self) -> float:
        """Return the current monotonic time in seconds."""

    @abstractmethod
    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        """Schedule a callback on the running loop."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        """Schedule a callback `delay` seconds from now."""
        return self.call_at(self.time() + delay, callback, *args)

    async def sleep(self, delay: float) -> None:
        """Suspend the calling coroutine."""
        woken = asyncio.Event()
        timer = self.call_later(delay, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    @abstractmethod
    def timeout(self, delay: float | None) -> AbstractAsyncContextManager[object]:
        """Return a context that raises TimeoutError if its block takes longer; None: no limit."""


class LoopClock(AsyncClock):
    """Real time on the running event loop."""

    def time(self) -> float:
        return monotonic()

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        return asyncio.get_running_loop().call_later(max(when - monotonic(), 0.0), callback, *args)

    def timeout(self, delay: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(delay)


class ClockFollower(Protocol):
    """A component with timers of its own that a virtual clock must drive in small steps."""

    def due(self) -> float:
        """Return the time by which `tick` must be called next."""

    def tick(self) -> None:
        """Process everything due after the clock has moved."""


class VirtualClock(AsyncClock):
    """A clock that moves only by `move_to`. Its owner lets the event loop settle between two steps."""

    def __init__(self) -> None:
        self.followers: list[ClockFollower] = []
        self._now = monotonic()
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._sequence = count()

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        timer = VirtualTimer(asyncio.get_running_loop(), callback, args)
        heappush(self._timers, (when, next(self._sequence), timer))
        return timer

    @asynccontextmanager
    async def timeout(self, delay: float | None) -> AsyncIterator[None]:
        async with asyncio.timeout(None) as scope:
            if delay is None:
                yield
                return
            timer = self.call_later(delay, scope.reschedule, 0.0)  # in the past: expires at once
            try:
                yield
            finally:
                timer.cancel()

    def next(self) -> float:
        """Return when the next timer or follower is due; infinity if there is none."""
        return min([self._next_timer(), *[follower.due() for follower in self.followers]])

    def move_to(self, when: float) -> None:
        """Set the time to `when` and fire the timers that are due."""
        self._now = max(self._now, when)
        while self._next_timer() <= self._now:
            heappop(self._timers)[2].fire()
        for follower in self.followers:
            follower.tick()

    def _next_timer(self) -> float:
        while self._timers and self._timers[0][2].cancelled:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else float("inf")


@dataclass(slots=True, eq=False)
class VirtualTimer:
    """A callback scheduled on a virtual clock, called on the loop that scheduled it."""

    loop: asyncio.AbstractEventLoop
    callback: Callable[..., object]
    args: tuple[Any, ...]
    cancelled: bool = False

    def fire(self) -> None:
        if asyncio.get_running_loop() is self.loop:
            self.callback(*self.args)
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.callback, *self.args)

    def cancel(self) -> None:
        self.cancelled = True


REAL_TIME = LoopClock()
