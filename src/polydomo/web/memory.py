"""What one HTTP connection keeps in memory, as the memory budget sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from polydomo.server.memory_budget import MemoryBudget

# Less than this is not reported: most requests are small, and the number of connections is bounded.
SMALL: Final = 16 * 1024

# What bytes take in memory beside themselves, as one part in so many: pieces that are copied, gaps in the heap.
OVERHEAD: Final = 16


class ConnectionMemory:
    """Bytes of a connection, by kind; a `Holder` of the budget. `on_cut` ends the connection."""

    __slots__ = ("_budget", "_on_cut", "_reported", "body", "kept", "unread")

    def __init__(self, budget: MemoryBudget, on_cut: Callable[[str], None]) -> None:
        self.body = 0  # of request bodies, until their handlers have passed them on
        self.unread = 0  # of responses that the peer does not read
        self.kept = 0  # whatever else a handler keeps for the peer
        self._budget = budget
        self._on_cut: Callable[[str], None] | None = on_cut
        self._reported = 0

    def report(self) -> None:
        """Tell the budget; to be called after a change. The connection may have been cut when this returns."""
        total = self.body + self.unread + self.kept
        total = total + total // OVERHEAD if total >= SMALL else 0
        if total != self._reported and self._on_cut is not None:
            self._reported = total
            self._budget.hold(self, total)

    def cut(self, reason: str) -> None:
        """From the budget, which has forgotten this holder."""
        on_cut = self._on_cut
        self.close()
        if on_cut is not None:
            on_cut(reason)

    def close(self) -> None:
        """Report nothing any more."""
        self._on_cut = None
        if self._reported:
            self._reported = 0
            self._budget.release(self)
