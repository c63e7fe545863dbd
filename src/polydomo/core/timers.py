"""Timers: one heap of (time, timer), in which each timer has at most one live entry.

Nothing on a message's path touches the heap: a worker is checked once per heartbeat interval, a queue when its oldest
job may have expired, and each timer says in `fire` when it is due again. A superseded entry stays in the heap and is
skipped when its time comes, or swept out when there are too many.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final

from mypy_extensions import mypyc_attr

NEVER: Final = float("inf")

# Superseded entries beyond this many, and as many again as there are live ones, are swept out.
SLACK: Final = 64


class Clock:
    """The core's time. Only its owner moves it (`Broker.advance`)."""

    def __init__(self) -> None:
        self.now = 0.0  # seconds of a monotonic clock
        self.epoch = 0.0  # wall time at 0, for records

    def wall(self, time: float) -> int:
        """Return a time of this clock as microseconds of wall time."""
        return int((time + self.epoch) * 1_000_000)


@mypyc_attr(allow_interpreted_subclasses=True)
class Timer:
    """Something that is due at a time."""

    def __init__(self) -> None:
        self.fires_at = NEVER

    def fire(self, now: float) -> None:
        """Do what is due. Set the timer again in here if there is a next time."""


class CallTimer(Timer):
    """A timer that calls a function."""

    def __init__(self, action: Callable[..., None], *arguments: Any) -> None:
        super().__init__()
        self._action = action
        self._arguments = arguments

    def fire(self, now: float) -> None:
        self._action(*self._arguments)


class TimerHeap:
    """All timers of a broker."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._live = 0  # timers that are set
        self.soonest = NEVER  # no timer is due before this
        self.on_sooner: Callable[[float], object] | None = (
            None  # called when a timer is set before all others
        )

    def set(self, timer: Timer, when: float) -> None:
        """Let `timer` fire at `when` at the latest; an earlier time stays."""
        if when >= timer.fires_at:
            return
        if timer.fires_at == NEVER:
            self._live += 1
        timer.fires_at = when
        if when < self.soonest:
            self.soonest = when
            if self.on_sooner is not None:
                self.on_sooner(when)
        self._sequence += 1
        heappush(self._heap, (when, self._sequence, timer))
        if len(self._heap) > 2 * self._live + SLACK:
            self._sweep()

    def clear(self, timer: Timer) -> None:
        """Unset `timer`, if it is set."""
        if timer.fires_at != NEVER:
            self._live -= 1
            timer.fires_at = NEVER

    def next(self) -> float:
        """Return when to call `fire` next; NEVER if no timer is set."""
        heap = self._heap
        while heap and heap[0][2].fires_at != heap[0][0]:
            heappop(heap)
        self.soonest = heap[0][0] if heap else NEVER
        return self.soonest

    def fire(self, now: float) -> None:
        """Fire every timer that is due."""
        while self.next() <= now:
            timer = heappop(self._heap)[2]
            self.clear(timer)
            timer.fire(now)

    def __len__(self) -> int:
        return len(self._heap)

    def _sweep(self) -> None:
        """Remove superseded entries: they may be hours away, and what they refer to would be kept until then."""
        live: dict[Timer, tuple[float, int, Timer]] = {}
        for entry in self._heap:
            if entry[2].fires_at == entry[0]:
                live[entry[2]] = entry
        self._heap = list(live.values())
        heapify(self._heap)
