"""Log of peers that were refused, cut off or sent invalid messages, and of principals that were denied something.

Any peer can cause such entries without limit, with text of its own in them (a mechanism's name, a service's name, a
body). So the lines per period are limited and the rest is counted, each text is truncated, and the ledger counts as
well (`ledger/denials.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from polydomo.core.failure import DENIED
from polydomo.safe_text import safe_line
from polydomo.security.roles import Denial
from polydomo.server.log import Log

log = Log()

# Lines per period in seconds, of all events and of the same one; more are only counted.
LINES: Final = 100
SAME: Final = 10
PERIOD: Final = 10.0

# Longest reason in characters.
LONGEST: Final = 300


class PeerAddress(Protocol):
    """Peer as the log shows it."""

    address: str
    listener: str  # where the peer connected


def address_of(transport: asyncio.BaseTransport) -> str:
    """Return the peer's address as text."""
    peername = transport.get_extra_info("peername")
    if isinstance(peername, tuple):
        return f"{peername[0]}:{peername[1]}"
    return "ipc"


class PeerLog:
    """Rate-limited log of one server. `denied(address, reason)` records an entry in the ledger."""

    def __init__(self, denied: Callable[[str, str], object]) -> None:
        self._denied = denied
        self._lines: Counter[tuple[str, str]] = Counter()  # in this period, by event and reason
        self._suppressed: Counter[str] = Counter()
        self._period: asyncio.TimerHandle | None = None

    def add(self, event: str, peer: PeerAddress, reason: str) -> None:
        """Record an event of a peer in the ledger, and log it unless the limits are reached."""
        reason = safe_line(reason, LONGEST)
        self._denied(peer.address, reason)
        if self._may_log(event, reason):
            log.warning(event, peer=peer.address, listener=peer.listener, reason=reason)

    def add_denial(self, denial: Denial, advice: Callable[[], str]) -> None:
        """Record a denial in the ledger, and log it with what would grant it unless the limits are reached."""
        reason = safe_line(str(denial), LONGEST)
        self._denied(denial.principal, reason)
        if self._may_log(DENIED, reason):
            hint = advice()
            granted_by = {"granted_by": safe_line(hint, LONGEST)} if hint else {}
            log.warning(DENIED, reason=reason, **granted_by)

    def end_period(self) -> None:
        """Log the number of suppressed messages and start a new period."""
        if self._period is not None:
            self._period.cancel()
            self._period = None
        suppressed, self._suppressed = self._suppressed, Counter()
        self._lines.clear()
        if suppressed:
            log.warning(f"suppressed {suppressed.total()} repeated messages", about=dict(suppressed))

    def _may_log(self, event: str, reason: str) -> bool:
        """Return whether a line is within the limits; if not, count it."""
        if self._period is None:
            self._period = asyncio.get_running_loop().call_later(PERIOD, self.end_period)
        line = (event, reason)
        if self._lines[line] < SAME and self._lines.total() < LINES:
            self._lines[line] += 1
            return True
        self._suppressed[event] += 1
        return False
