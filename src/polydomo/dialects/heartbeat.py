"""The heartbeat rules that our SDK's MDP and NFP workers share, without a socket or a clock.

Both sides of a connection send a heartbeat when they have sent nothing else for an interval, and give the other side up
after `liveness` intervals of silence (RFC 18 §Heartbeating, NFP §Keepaliving). The caller passes the time, calls `tick`
at `due`, and sends `take_output()` after every call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class HeartbeatingWorker(ABC):
    """A worker's connection to a broker. It ends with a DISCONNECT of either side or the broker's silence."""

    def __init__(self, service: bytes, interval: float, liveness: int) -> None:
        self.service = service
        self.interval = interval
        self.liveness = liveness
        self.closed = False  # after a DISCONNECT of either side: nothing more may be sent
        self.lost = False  # the broker was silent for too long
        self.invalid = 0  # messages dropped as no valid broker message
        self.due = 0.0  # time of the next `tick`
        self._out: list[bytes] = []
        self._last_sent = 0.0
        self._last_received = 0.0

    def tick(self, now: float) -> None:
        """Send a heartbeat after an interval without output, and detect a silent broker."""
        if self.closed:
            return
        late = now - self.due
        if late > self.interval:
            # This process was stopped (a suspended machine, a blocked loop): that is not the broker's silence.
            self._last_received += late
        if now >= self._last_received + self.interval * self.liveness:
            self.lost = True
            return
        if now >= self._last_sent + self.interval:
            # SHOULD NOT be sent beside other commands, so only after an interval without one (both specifications).
            self.send_heartbeat(now)
        self.schedule()

    @abstractmethod
    def send_heartbeat(self, now: float) -> None:
        """Send the protocol's heartbeat."""

    def send(self, data: bytes, now: float) -> None:
        """Add one whole message, as wire bytes, to the output."""
        self._last_sent = now
        self._out.append(data)

    def take_output(self) -> bytes:
        """Return the bytes to send now, and clear them."""
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def schedule(self) -> None:
        """Set `due` to when a heartbeat or the broker's silence may be due, whichever is first."""
        self.due = min(self._last_sent + self.interval, self._last_received + self.interval * self.liveness)
