"""The heartbeat rules that our SDK's MDP and NFP workers share, without a socket or a clock.

Both sides of a connection send a heartbeat when they have sent nothing else for an interval, and give the other side up
after `liveness` intervals of silence (RFC 18 §Heartbeating, NFP §Keepaliving).
"""

from __future__ import annotations

from abc import abstractmethod

from polydomo.dialects.worker_protocol import WorkerProtocol


class HeartbeatingWorker(WorkerProtocol):
    """A worker's connection to a broker. It ends with a DISCONNECT of either side or the broker's silence."""

    def __init__(self, service: bytes, interval: float, liveness: int, goodbye: bytes) -> None:
        super().__init__(interval, liveness)  # `closed` after a DISCONNECT of either side
        self.service = service
        self._goodbye = goodbye  # the protocol's DISCONNECT
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

    def disconnect(self) -> None:
        """Send DISCONNECT; nothing follows it."""
        if not self.closed:
            self._out.append(self._goodbye)
            self.closed = True

    @abstractmethod
    def send_heartbeat(self, now: float) -> None:
        """Send the protocol's heartbeat."""

    def send(self, data: bytes, now: float) -> None:
        """Add one whole message, as wire bytes, to the output."""
        self._last_sent = now
        self._out.append(data)

    def schedule(self) -> None:
        """Set `due` to when a heartbeat or the broker's silence may be due, whichever is first."""
        self.due = min(self._last_sent + self.interval, self._last_received + self.interval * self.liveness)
