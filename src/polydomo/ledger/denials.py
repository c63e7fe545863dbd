"""Denied peers on their way into the ledger: counted, not written down one by one.

Whoever can connect can be denied, as often as it likes and with words of its own in the reason. So for each reason the
first denial of a minute is a row at once, and all further ones are one row with their number when the minute is over.
Reasons beyond the first few of a minute share one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# Seconds that denials are counted for.
PERIOD: Final = 60.0

# Different reasons in that time.
REASONS: Final = 20

OTHERS: Final = "for various other reasons"

Note = Callable[[str, str], object]


class Denials:
    """`note` writes a row: who was denied, if it was one peer, and why."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._since = 0.0
        self._more: dict[str, int] = {}  # by reason: how many since its row

    def add(self, peer: str, reason: str, now: float) -> None:
        """Count a denial."""
        if self._more and now - self._since >= PERIOD:
            self.collect()
        if not self._more:
            self._since = now
        if reason in self._more:
            self._more[reason] += 1
        elif len(self._more) < REASONS:
            self._more[reason] = 0
            self._note(peer, reason)
        else:
            self._more[OTHERS] = self._more.get(OTHERS, 0) + 1

    def is_due(self, now: float) -> bool:
        """Whether the counted denials are old enough to be written."""
        return bool(self._more) and now - self._since >= PERIOD

    def collect(self) -> None:
        """Write a row for each reason that was met again, with the number of times."""
        more, self._more = self._more, {}
        for reason, count in more.items():
            if count:
                self._note("", f"{reason} ({count} more)")
