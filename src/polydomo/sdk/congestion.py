"""Congestion window: the number of requests outstanding at a broker that does not state its own limit.

Too few leave workers idle. Too many wait in the broker's queue, which gains nothing, and may be dropped there. The
reply rate grows with the window up to the right size and no further, so the window follows that rate: it doubles
while the rate grows, then shrinks in small steps as long as the rate holds, grows when the rate falls, and is held for
some rounds in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from polydomo.sdk.clock import AsyncClock

START: Final = 16

# A measuring round has at least so many replies and seconds. Shorter ones say little about a rate.
ROUND_REPLIES: Final = 16
ROUND_SECONDS: Final = 0.05

# Rates that differ by a smaller fraction count as equal.
TOLERANCE: Final = 0.05

# Rounds for which the window is held when it seems to have the right size.
HOLD_ROUNDS: Final = 10


class CongestionWindow:
    """A window of at most `most` requests: `enter` before a request is sent, `leave` when it has ended. `async with`
    does both; a block that ends without an exception has had its reply."""

    def __init__(self, most: int, clock: AsyncClock) -> None:
        if most < 1:
            raise ValueError("a window has room for 1 request at least")
        self.most = most
        self.limit = min(START, most)
        self.used = 0
        self._clock = clock
        self._queue: deque[asyncio.Future[None]] = deque()
        self._slow_start = True
        self._growing = True
        self._hold = 0  # rounds left
        self._last_rate = 0.0
        self._replies = 0  # in this round
        self._round_start = -1.0  # -1: no round

    async def enter(self) -> None:
        """Wait for room, first come, first served."""
        if self.used < self.limit and not self._queue:
            self.used += 1
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():
                self.leave()  # admitted in the same turn of the loop
            raise

    def leave(self, answered: bool = False) -> None:
        """Release a request's room and count its reply, if it had one."""
        self.used -= 1
        if answered:
            self._count()
        self._admit()

    async def __aenter__(self) -> None:
        await self.enter()

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self.leave(answered=kind is None)

    def shrink(self) -> None:
        """Halve the window after a request was not answered in time: probably there are too many."""
        self.limit = max(1, self.limit // 2)
        self._slow_start = False
        self._round_start = -1.0

    def _admit(self) -> None:
        while self._queue and self.used < self.limit:
            admitted = self._queue.popleft()
            if not admitted.done():  # otherwise the waiter was cancelled
                self.used += 1
                admitted.set_result(None)

    def _count(self) -> None:
        if not self._queue:  # the window is not the bottleneck, so the rate says nothing about it
            self._round_start = -1.0
            return
        if self._round_start < 0.0:
            self._round_start = self._clock.time()
            self._replies = 0
            return
        self._replies += 1
        if self._replies < max(self.limit, ROUND_REPLIES):
            return
        elapsed = self._clock.time() - self._round_start
        if elapsed >= ROUND_SECONDS:
            self._adjust(self._replies / elapsed)
            self._round_start = -1.0

    def _adjust(self, rate: float) -> None:
        last, self._last_rate = self._last_rate, rate
        if self._hold:
            self._hold -= 1
            return
        if self._growing and rate > last * (1 + TOLERANCE):
            self._grow()
        elif self._growing:
            self._growing = self._slow_start = False
            self._reduce()
        elif rate < last * (1 - TOLERANCE):
            self._growing = True
            self._hold = HOLD_ROUNDS
            self._grow()
        else:
            self._reduce()

    def _grow(self) -> None:
        step = self.limit if self._slow_start else max(1, self.limit // 4)
        self.limit = min(self.most, self.limit + step)
        if self.limit == self.most:
            self._slow_start = False
            self._hold = HOLD_ROUNDS

    def _reduce(self) -> None:
        self.limit = max(1, self.limit - max(1, self.limit // 8))
