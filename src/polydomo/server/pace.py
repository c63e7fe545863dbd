"""Pace: whether a transfer goes on fast enough.

A time limit that any byte renews is none: a byte now and then keeps a transfer, and the memory it takes, alive for
ever. One limit for the whole transfer is too short for a large message on a slow line. So time runs out as it passes,
and each byte buys a little of it back, up to the limit: a transfer may stand still for as long as the limit says, and
go on for as long as it likes at `SLOWEST` or faster.
"""

from __future__ import annotations

from typing import Final

# Bytes per second: a line of 64 kbit/s.
SLOWEST: Final = 8192


class Pace:
    """The time that one transfer has left."""

    def __init__(self, limit: float, now: float) -> None:
        self._left = limit
        self._seen = now

    def keeps_up(self, limit: float, now: float, moved: int) -> bool:
        """Take off the time since the last look, in which `moved` bytes came or went. False: there is none left."""
        self._left = min(limit, self._left - (now - self._seen) + moved / SLOWEST)
        self._seen = now
        return self._left > 0
