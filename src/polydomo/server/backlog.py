"""Memory of a peer's unread output.

A transport only knows the number of unsent bytes. But a body of 60 MiB is freed as a whole when its last byte is sent,
so a peer that reads all but the end of each write would hide most of the memory that it takes.
"""

from __future__ import annotations

from collections import deque


class Backlog:
    """Writes that are not completely sent. `unsent` is the transport's number, at first of one write of `size`
    bytes."""

    def __init__(self, unsent: int, size: int = 0) -> None:
        self.held = max(unsent, size)  # bytes of all these writes
        self.unsent = unsent  # at the last update
        self._sizes = deque((self.held,))

    def add(self, size: int) -> None:
        """Record another write."""
        self._sizes.append(size)
        self.held += size
        self.unsent += size

    def update(self, unsent: int) -> int:
        """Remove completed writes, and return the number of bytes sent since the last update."""
        sent = self.unsent - unsent
        self.unsent = unsent
        while self._sizes and self.held - self._sizes[0] >= unsent:
            self.held -= self._sizes.popleft()
        return sent
