"""Aggregation of denied peers for the ledger.

Any peer that can connect can cause denials without limit, with text of its own in the reason. So for each reason the
first denial of a minute is a row at once, and the others are one row with their count at the end of the minute. Reasons
beyond the first few of a minute share one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# Length of the counting period in seconds.
PERIOD: Final = 60.0

# Different reasons per period.
REASONS: Final = 20

OTHERS: Final = "for various other reasons"


class Denials:
    """Counter of denials by reason. `write(peer, reason)` writes a row; the peer is empty if there are several."""

    def __init__(self, write: Callable[[str, str], object]) -> None:
        self._write = write
        self._since = 0.0
        self._more: dict[str, int] = {}  # denials after the reason's first row

    def add(self, peer: str, reason: str, now: float) -> None:
        """Count a denial, and write a row if it is the first with its reason."""
        if self._more and now - self._since >= PERIOD:
            self.collect()
        if not self._more:
            self._since = now
        if reason in self._more:
            self._more[reason] += 1
        elif len(self._more) < REASONS:
            self._more[reason] = 0
            self._write(peer, reason)
        else:
            self._more[OTHERS] = self._more.get(OTHERS, 0) + 1

    def is_due(self, now: float) -> bool:
        """Return whether the period of the counted denials is over."""
        return bool(self._more) and now - self._since >= PERIOD

    def collect(self) -> None:
        """Write a row with the count for each reason that occurred more than once."""
        more, self._more = self._more, {}
        for reason, count in more.items():
            if count:
                self._write("", f"{reason} ({count} more)")
