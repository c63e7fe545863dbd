"""Minimum speed of a transfer.

A time limit that any byte renews is no limit: an occasional byte keeps the transfer and its memory alive. One limit for
the whole transfer is too short for a large message on a slow line. So time runs out as it passes and each byte adds
some, up to the limit: a transfer may stall for as long as the limit, and last any time at `SLOWEST` or faster.
"""

from __future__ import annotations

from typing import Final

# Bytes per second: a line of 64 kbit/s.
SLOWEST: Final = 8192


class Pace:
    """Remaining time of one transfer."""

    def __init__(self, limit: float, now: float) -> None:
        self._left = limit
        self._seen = now

    def keeps_up(self, limit: float, now: float, moved: int) -> bool:
        """Account for the time since the last call, in which `moved` bytes passed; return whether time is left."""
        self._left = min(limit, self._left - (now - self._seen) + moved / SLOWEST)
        self._seen = now
        return self._left > 0
