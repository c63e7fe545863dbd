"""The part that our SDK's workers of MDP, DCP, NFP and MemoDB share, without a socket or a clock.

The caller passes the time, calls `tick` at `due`, and sends `take_output()` after every call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class WorkerProtocol(ABC):
    """A worker's side of a protocol. `request` is always one of the protocol's own."""

    def __init__(self, interval: float, liveness: int) -> None:
        self.interval = interval
        self.liveness = liveness
        self.closed = False  # nothing more may be sent
        self.farewell = ""  # the reason that the broker gave, if it did, when it ended the conversation
        self.lost = False  # the broker was silent for too long
        self.due = 0.0  # time of the next `tick`
        self._out: list[bytes] = []

    @abstractmethod
    def start(self, now: float) -> None:
        """Send the messages that register the worker at the broker."""

    def partial(self, request: Any, body: bytes, now: float) -> None:  # noqa: B027 (optional)
        """Send one of several replies. Dropped where the protocol has one reply per request."""

    @abstractmethod
    def final(self, request: Any, body: bytes, now: float) -> None:
        """Send the final reply."""

    @abstractmethod
    def tick(self, now: float) -> None:
        """Send what is due, and detect a silent broker."""

    def disconnect(self) -> None:
        """Stop sending: without a message for it, the end of the connection says so."""
        self.closed = True

    def take_output(self) -> bytes:
        """Return the bytes to send now, and clear them."""
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)
