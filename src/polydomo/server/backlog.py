"""Backlog: how much memory a peer's unread output takes.

A transport knows how many bytes it has still to send. That is not what they cost: a body of 60 MiB is freed as a whole,
when its last byte is sent. A peer that reads all but the end of each would hide most of what it holds.
"""

from __future__ import annotations

from collections import deque


class Backlog:
    """Writes that have not been sent to their end. `unsent` is always what the transport says; at first it is of one
    write of `size` bytes, if that is known."""

    def __init__(self, unsent: int, size: int = 0) -> None:
        self.held = max(unsent, size)  # bytes of all of them
        self.unsent = unsent  # when last looked at
        self._sizes = deque((self.held,))

    def add(self, size: int) -> None:
        """Record another write."""
        self._sizes.append(size)
        self.held += size
        self.unsent += size

    def update(self, unsent: int) -> int:
        """Forget the writes that are done, and return how many bytes were sent since the last look."""
        sent = self.unsent - unsent
        self.unsent = unsent
        while self._sizes and self.held - self._sizes[0] >= unsent:
            self.held -= self._sizes.popleft()
        return sent
