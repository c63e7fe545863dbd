"""Memory budget: one account of all bytes that peers make the broker hold.

Jobs are counted by the core (`Broker.memory`). Everything else is *transit*: input that is not a whole message yet,
output that its peer has not read, answers kept for a client that dropped off, event streams, file transfers. Whoever
keeps such bytes is a `Holder` and reports how many it has, whenever that changes by more than a little. Small buffers
need not be reported; the connection limits bound them.

Both together stay within `limits.memory`. Jobs may use what transit leaves, but never the last `TRANSIT_SHARE`: a
broker that is full of jobs must still be able to read its workers' replies. A job beyond that is refused. When transit
passes what jobs leave, the holder with the most bytes is cut, then the next one, until the total fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from polydomo.core.broker import Broker

# The part of the limit that jobs leave to transit: one in so many.
TRANSIT_SHARE: Final = 8


class Holder(Protocol):
    """Part of the broker that keeps bytes for one peer. Compared by identity."""

    def cut(self, reason: str) -> None:
        """Let go of the bytes at once, end the peer's connection, and log why."""


class MemoryBudget:
    """The account, and who is in it."""

    def __init__(self, broker: Broker, limit: int) -> None:
        self.transit = 0  # bytes of all holders
        self.cuts = 0  # holders that were cut
        self._broker = broker
        self._sizes: dict[Holder, int] = {}
        self.configure(limit)

    def configure(self, limit: int) -> None:
        """Set the limit; holders are compared with it when one of them grows next."""
        self.limit = limit
        self._reserve = limit // TRANSIT_SHARE
        self._leave_to_jobs()

    def hold(self, holder: Holder, size: int) -> None:
        """Record that `holder` keeps `size` bytes in all, and cut the largest holders while the total is too much.

        `holder` itself may be among them; its `cut` has been called then when this returns.
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
        """Record that `holder` keeps nothing any more."""
        if holder in self._sizes:
            self.hold(holder, 0)

    def total(self) -> int:
        """Return the bytes of all jobs and holders."""
        return self._broker.memory + self.transit

    def show(self) -> dict[str, Any]:
        """Describe the account for `show_broker`."""
        return {
            "limit": self.limit,
            "jobs": self._broker.memory,
            "transit": self.transit,
            "holders": len(self._sizes),
            "cut": self.cuts,
        }

    def _enforce(self) -> None:
        while self.transit > self._reserve and self.transit + self._broker.memory > self.limit:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            size = self._sizes.pop(largest)
            self.transit -= size
            self.cuts += 1
            largest.cut(
                f"held most ({size} bytes) when connections and jobs reached limits.memory ({self.limit} bytes)"
            )

    def _leave_to_jobs(self) -> None:
        self._broker.memory_limit = self.limit - max(self.transit, self._reserve)
