"""Memory budget: accounting of all bytes that the broker holds for its peers.

Jobs are counted by the core (`Broker.memory`). Everything else is *transit*: unfinished input, unread output, answers
kept for disconnected clients, event streams, file transfers. An object with such bytes is a `Holder` and reports their
number when it changes considerably. Small buffers need not be reported; the connection limits bound them.

Both together stay within `limits.memory`. Jobs may use what transit leaves, except the last `TRANSIT_SHARE`: a broker
that is full of jobs must still be able to read its workers' replies. A job beyond that is refused. When transit exceeds
what jobs leave, the holder with the most bytes is cut, then the next one, until the total fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from polydomo.core.broker import Broker

# Share of the limit that is reserved for transit: one part in so many.
TRANSIT_SHARE: Final = 8


class Holder(Protocol):
    """Object that holds bytes for one peer. Compared by identity."""

    def cut(self, reason: str) -> None:
        """Release the bytes at once, close the peer's connection, and log the reason."""


class MemoryBudget:
    """Account of one broker."""

    def __init__(self, broker: Broker, limit: int) -> None:
        self.transit = 0  # bytes of all holders
        self.cuts = 0  # holders that were cut
        self._broker = broker
        self._sizes: dict[Holder, int] = {}
        self.configure(limit)

    def configure(self, limit: int) -> None:
        """Set the limit; it takes effect when a holder grows."""
        self.limit = limit
        self._reserve = limit // TRANSIT_SHARE
        self._leave_to_jobs()

    def hold(self, holder: Holder, size: int) -> None:
        """Record that `holder` has `size` bytes in all, and cut the largest holders while the total is too large.

        `holder` itself may be among them.
        """
        before = self._sizes.get(holder, 0)
        if size:
            self._sizes[holder] = size
        elif before:
            del self._sizes[holder]
        self.transit += size - before
        if size > before:
            self._enforce()
        self._leave_to_jobs()

    def release(self, holder: Holder) -> None:
        """Record that `holder` has no bytes any more."""
        if holder in self._sizes:
            self.hold(holder, 0)

    def total(self) -> int:
        """Return the bytes of all jobs and holders."""
        return self._broker.accounting.memory + self.transit

    def show(self) -> dict[str, Any]:
        """Describe the account for `show_broker`."""
        return {
            "limit": self.limit,
            "jobs": self._broker.accounting.memory,
            "transit": self.transit,
            "holders": len(self._sizes),
            "cut": self.cuts,
        }

    def _enforce(self) -> None:
        while self.transit > self._reserve and self.transit + self._broker.accounting.memory > self.limit:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            size = self._sizes.pop(largest)
            self.transit -= size
            self.cuts += 1
            largest.cut(
                f"held most ({size} bytes) when connections and jobs reached limits.memory ({self.limit} bytes)"
            )

    def _leave_to_jobs(self) -> None:
        self._broker.accounting.limit_memory(self.limit - max(self.transit, self._reserve))
