"""Memory of one HTTP connection, as reported to the memory budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from polydomo.server.memory_budget import MemoryBudget

# Less than this is not reported: most requests are small, and the number of connections is bounded.
SMALL: Final = 16 * 1024

# Bytes per byte of overhead: copied chunks, gaps in the heap.
OVERHEAD: Final = 16


class ConnectionMemory:
    """Bytes of a connection, by kind; a `Holder` of the budget. `on_cut` ends the connection."""

    __slots__ = ("_budget", "_on_cut", "_reported", "body", "kept", "unread")

    def __init__(self, budget: MemoryBudget, on_cut: Callable[[str], None]) -> None:
        self.body = 0  # request bodies, until their handlers have passed them on
        self.unread = 0  # responses that the peer has not read
        self.kept = 0  # other data that a handler holds for the peer
        self._budget = budget
        self._on_cut: Callable[[str], None] | None = on_cut
        self._reported = 0

    def report(self) -> None:
        """Report a change to the budget. The connection may have been cut when this returns."""
        total = self.body + self.unread + self.kept
        total = total + total // OVERHEAD if total >= SMALL else 0
        if total != self._reported and self._on_cut is not None:
            self._reported = total
            self._budget.hold(self, total)

    def cut(self, reason: str) -> None:
        """End the connection; called by the budget, which has already released this holder."""
        on_cut = self._on_cut
        self.close()
        if on_cut is not None:
            on_cut(reason)

    def close(self) -> None:
        """Release the reported memory and report no more."""
        self._on_cut = None
        if self._reported:
            self._reported = 0
            self._budget.release(self)
