"""The broker's clock: monotonic, and without the time in which the process did not run.

After a stall (SIGSTOP, a suspended machine, a long pause of any kind) no peer has been heard from for a long time, but
the silence was the broker's own. So a gap between two readings that is longer than the event loop ever sleeps is
subtracted from the core's time, and no worker expires because of it. The longest sleep depends on the heartbeat, so
that an undetected stall is shorter than one interval.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, time_ns

# The longest time in seconds between two readings of the clock.
LONGEST_SLEEP = 1.0


class ServerClock:
    """Clock of one broker. The owner calls `read` at least every `longest_sleep` seconds."""

    def __init__(self, source: Callable[[], float] = monotonic) -> None:
        self._source = source
        self._last = source()
        self.longest_sleep = LONGEST_SLEEP  # a gap of more than twice this is a stall
        self.skipped = 0.0  # duration of all stalls

    def follow(self, interval: float) -> None:
        """Adapt the longest sleep to a heartbeat `interval`."""
        self.longest_sleep = min(LONGEST_SLEEP, interval / 2)

    def read(self) -> float:
        """Return the current time without stalls."""
        now = self._source()
        gap = now - self._last
        if gap > 2 * self.longest_sleep:
            self.skipped += gap
        self._last = now
        return now - self.skipped


def wall_time() -> int:
    """Return the wall time in microseconds since 1970."""
    return time_ns() // 1000
