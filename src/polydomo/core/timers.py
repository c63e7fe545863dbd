"""When to look at what. One heap of (time, thing); each thing has at most one live entry.

Nothing on a message's path touches the heap: a worker is looked at once per heartbeat interval, a service when its
oldest waiting job may have expired, and whoever is looked at says when to look again. An entry that was superseded
stays in the heap and is skipped when its time comes, or swept out when there are too many of them.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import mypyc_attr

NEVER: Final = float("inf")

# Superseded entries beyond this many, and as many again as there are live ones, are swept out.
SLACK: Final = 64


@mypyc_attr(allow_interpreted_subclasses=True)
class Timer:
    """Something that wants to be looked at at a time. Subclasses say what for, in `ring`."""

    def __init__(self) -> None:
        self.fires_at = NEVER

    def fire(self, now: float) -> None:
        """The time has come. Set the next alarm in here if there is one."""


class TimerHeap:
    """The heap."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._live = 0  # things that have an alarm
        self.soonest = NEVER  # no alarm is earlier than this
        self.on_sooner: Callable[[float], object] | None = None  # told when an alarm is set before all others

    def set(self, timed: Timer, when: float) -> None:
        """Look at `timed` no later than `when`; an earlier alarm stays."""
        if when >= timed.fires_at:
            return
        if timed.fires_at == NEVER:
            self._live += 1
        timed.fires_at = when
        if when < self.soonest:
            self.soonest = when
            if self.on_sooner is not None:
                self.on_sooner(when)
        self._sequence += 1
        heappush(self._heap, (when, self._sequence, timed))
        if len(self._heap) > 2 * self._live + SLACK:
            self._sweep()

    def clear(self, timed: Timer) -> None:
        """Forget about it."""
        if timed.fires_at != NEVER:
            self._live -= 1
            timed.fires_at = NEVER

    def next(self) -> float:
        """When to call `ring` next; NEVER if there is nothing to do."""
        heap = self._heap
        while heap and heap[0][2].fires_at != heap[0][0]:
            heappop(heap)
        self.soonest = heap[0][0] if heap else NEVER
        return self.soonest

    def fire(self, now: float) -> None:
        """Look at everything whose time has come."""
        while self.next() <= now:
            timed = heappop(self._heap)[2]
            self.clear(timed)
            timed.fire(now)

    def __len__(self) -> int:
        return len(self._heap)

    def _sweep(self) -> None:
        """Their time may be hours away, and what they point to would be kept until then."""
        live: dict[Timer, tuple[float, int, Timer]] = {}
        for entry in self._heap:
            if entry[2].fires_at == entry[0]:
                live[entry[2]] = entry
        self._heap = list(live.values())
        heapify(self._heap)
