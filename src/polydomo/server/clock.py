"""The broker's own time: monotonic, and standing still while the broker does.

A broker that was stopped (SIGSTOP, a suspended machine, a long pause of any kind) finds on waking that nobody has
been heard from for a long time. That silence is its own, not the workers'. So a gap between two looks at the clock
that is longer than the loop ever sleeps is taken out of the time the core sees: nobody expires because of it. How
long the loop sleeps depends on the heartbeat, so that even a stall that goes unnoticed is shorter than one interval.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

# The loop looks at the clock at least this often.
LONGEST_SLEEP = 1.0


class Clock:
    """Call `read` at every turn of the loop."""

    def __init__(self, source: Callable[[], float] = monotonic) -> None:
        self._source = source
        self._last = source()
        self.longest_sleep = LONGEST_SLEEP  # a gap of more than twice as long is a stall
        self.skipped = 0.0

    def follow(self, interval: float) -> None:
        """Workers are heard from once per `interval`."""
        self.longest_sleep = min(LONGEST_SLEEP, interval / 2)

    def read(self) -> float:
        """Now, less all stalls."""
        now = self._source()
        gap = now - self._last
        if gap > 2 * self.longest_sleep:
            self.skipped += gap
        self._last = now
        return now - self.skipped
