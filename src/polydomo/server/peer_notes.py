"""What is logged and recorded of peers that were refused, cut off or sent nonsense.

Strangers can cause as many of these notes as they like, with text of their own in them (a mechanism's name, a service's
name, a body). So lines are limited per time and the rest is counted, each text is cut, and the ledger counts as well
(`ledger/denials.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from polydomo.safe_text import safe_line
from polydomo.server.log import Log

log = Log()

# Lines in so many seconds, of all and of the same; more are only counted.
LINES: Final = 100
SAME: Final = 10
PERIOD: Final = 10.0

# Characters of a reason.
LONGEST: Final = 300


class PeerLog:
    """Belongs to one server. `denied` records a denial in the ledger."""

    def __init__(self, denied: Callable[[str, str], None]) -> None:
        self._denied = denied
        self._lines: Counter[tuple[str, str]] = Counter()  # in this period: what, and why
        self._suppressed: Counter[str] = Counter()
        self._period: asyncio.TimerHandle | None = None

    def note(self, what: str, address: str, listener: str, reason: str) -> None:
        """Log and record one peer, unless there were too many of late."""
        reason = safe_line(reason, LONGEST)
        self._denied(address, reason)
        if self._period is None:
            self._period = asyncio.get_running_loop().call_later(PERIOD, self.end_period)
        line = (what, reason)
        if self._lines[line] < SAME and self._lines.total() < LINES:
            self._lines[line] += 1
            log.warning(what, peer=address, listener=listener, reason=reason)
        else:
            self._suppressed[what] += 1

    def end_period(self) -> None:
        """Say how many lines were not written, and count from 0 again."""
        if self._period is not None:
            self._period.cancel()
            self._period = None
        suppressed, self._suppressed = self._suppressed, Counter()
        self._lines.clear()
        if suppressed:
            log.warning(f"suppressed {suppressed.total()} repeated messages", about=dict(suppressed))
