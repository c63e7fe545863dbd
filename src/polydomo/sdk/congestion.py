"""How many requests a client keeps outstanding where the broker does not say how many it wants.

Too few leave workers idle. Too many wait in the broker's queue, which gains nothing, and may be given up there. What is
right shows in the rate of the answers: it grows with the window up to the right one and no further. So the window moves
by that rate: it doubles while that pays, then feels its way down as long as nothing is lost and up when something is,
and rests in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from polydomo.sdk.clock import Clock

START: Final = 16

# A round: so many answers at least, and so many seconds. Shorter ones say little about a rate.
ROUND_ANSWERS: Final = 16
ROUND_SECONDS: Final = 0.05

# A rate that differs by less is the same.
SAME: Final = 0.05

# Rounds of rest when the right place seems to be found.
REST: Final = 10


class CongestionWindow:
    """`enter` before a request is sent, `leave` when it is over. `most`: it never grows beyond."""

    def __init__(self, most: int, clock: Clock) -> None:
        if most < 1:
            raise ValueError("a window has room for 1 request at least")
        self.most = most
        self.limit = min(START, most)
        self.used = 0
        self._clock = clock
        self._queue: deque[asyncio.Future[None]] = deque()
        self._starting = True
        self._upwards = True
        self._rest = 0
        self._before = 0.0  # the rate of the round before
        self._answers = 0
        self._began = -1.0  # the round; -1: there is none

    async def enter(self) -> None:
        """Wait for room, in order."""
        if self.used < self.limit and not self._queue:
            self.used += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave()  # it was let in, and goes at once
            raise

    def leave(self, answered: bool = False) -> None:
        """A request is over, with an answer or without."""
        self.used -= 1
        if answered:
            self._count()
        self._admit()

    def shrink(self) -> None:
        """A request was not answered in time: there are too many, most likely."""
        self.limit = max(1, self.limit // 2)
        self._starting = False
        self._began = -1.0

    def _admit(self) -> None:
        while self._queue and self.used < self.limit:
            turn = self._queue.popleft()
            if not turn.done():  # otherwise it was given up
                self.used += 1
                turn.set_result(None)

    def _count(self) -> None:
        """Nobody waits: the window is not what holds us back, and the rate says nothing about it."""
        if not self._queue:
            self._began = -1.0
            return
        if self._began < 0.0:
            self._began = self._clock.time()
            self._answers = 0
            return
        self._answers += 1
        if self._answers < max(self.limit, ROUND_ANSWERS):
            return
        elapsed = self._clock.time() - self._began
        if elapsed >= ROUND_SECONDS:
            self._move(self._answers / elapsed)
            self._began = -1.0

    def _move(self, rate: float) -> None:
        before, self._before = self._before, rate
        if self._rest:
            self._rest -= 1
            return
        if self._upwards and rate > before * (1 + SAME):
            self._grow()
        elif self._upwards:
            self._upwards = self._starting = False
            self._fall()
        elif rate < before * (1 - SAME):
            self._upwards = True
            self._rest = REST
            self._grow()
        else:
            self._fall()

    def _grow(self) -> None:
        step = self.limit if self._starting else max(1, self.limit // 4)
        self.limit = min(self.most, self.limit + step)
        if self.limit == self.most:
            self._starting = False
            self._rest = REST

    def _fall(self) -> None:
        self.limit = max(1, self.limit - max(1, self.limit // 8))
