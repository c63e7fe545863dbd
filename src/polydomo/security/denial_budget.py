"""Budget of the denials in the audit log.

Any peer that can connect can cause denials without limit. So at most `BURST` of them are recorded at once, and `RATE`
per second after that. The others are counted, and each kind of them is one record at the end of a period. Kinds beyond
the first few of a period share one record.
"""

from __future__ import annotations

from typing import Final

import msgspec

from polydomo.security.audit_record import AuditEntry

# Denials that are recorded one by one: at once, and per second after that.
BURST: Final = 100
RATE: Final = 1.0

# Length of a counting period in seconds.
PERIOD: Final = 60.0

# Different kinds of counted denials per period.
KINDS: Final = 20

OTHERS: Final = "various other denials"


class DenialBudget:
    """Token bucket of one group of denials, and the count of those that it did not admit."""

    def __init__(self, now: float) -> None:
        self._tokens = float(BURST)
        self._filled = now
        self._since = now  # begin of the period
        self._counted: dict[AuditEntry, int] = {}

    def admits(self, entry: AuditEntry, now: float) -> bool:
        """Return whether a denial is to be recorded by itself; otherwise count it."""
        self._tokens = min(BURST, self._tokens + (now - self._filled) * RATE)
        self._filled = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return True
        if not self._counted:
            self._since = now
        kind = msgspec.structs.replace(entry, address="")
        if kind not in self._counted and len(self._counted) >= KINDS:
            kind = AuditEntry(kind.kind, reason=OTHERS)
        self._counted[kind] = self._counted.get(kind, 0) + 1
        return False

    def is_due(self, now: float) -> bool:
        """Return whether denials were counted, and their period is over."""
        return bool(self._counted) and now - self._since >= PERIOD

    def collect(self) -> list[AuditEntry]:
        """Return a record for each kind of denials that were only counted."""
        counted, self._counted = self._counted, {}
        return [msgspec.structs.replace(kind, count=count) for kind, count in counted.items()]
