"""A worker's side of MDP/0.2, without a socket or a clock: the caller passes the time.

One conversation is READY, then REQUEST, PARTIAL*, FINAL repeated, one job at a time, with HEARTBEATs both ways
(dialects/heartbeat.py). After its end the caller closes the connection and starts a new conversation on a new one
(RFC 18 §Opening and Closing a Connection).
"""

from typing import Final

from polydomo.dialects.heartbeat import HeartbeatingWorker
from polydomo.dialects.mdp.messages import W_02, WORKER_02
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame

_PARTIAL_HEAD: Final = W_02.partial_head or b""


class MdpRequest:
    """A job. `address` identifies its client and must be returned unchanged."""

    __slots__ = ("address", "body", "service")

    def __init__(self, service: bytes, address: bytes, body: bytes) -> None:
        self.service = service
        self.address = address
        self.body = body  # canonical (wire.frames)


class MdpWorkerProtocol(HeartbeatingWorker):
    """One conversation with a broker."""

    def __init__(self, service: bytes, interval: float = 2.5, liveness: int = 4) -> None:
        super().__init__(service, interval, liveness, W_02.disconnect_message)
        self.held: MdpRequest | None = None  # the current job

    def start(self, now: float) -> None:
        """Send READY, once per conversation (RFC 18 §Opening and Closing a Connection)."""
        self._last_received = now
        self.send(W_02.ready_head + frame(self.service), now)
        self.schedule()

    def receive(self, message: Message, now: float) -> MdpRequest | None:
        """Process a message from the broker and return its job, if it has one. Any command but DISCONNECT shows that
        the broker is alive (RFC 18 §Heartbeating)."""
        if self.closed:
            return None
        header = message.take()
        command = message.take() if header == WORKER_02 else None
        if command == W_02.disconnect:
            self.closed = True
            self.farewell = (message.take() or b"").decode("utf-8", "replace")  # from our own broker
            return None
        if command == W_02.request:
            return self._request(message, now)
        if command == W_02.heartbeat:
            self._last_received = now
        return None

    def partial(self, request: MdpRequest, body: bytes, now: float) -> None:
        """Send one of several replies. Dropped if the job is no longer this worker's."""
        if request is self.held and not self.closed:
            self.send(_PARTIAL_HEAD + frame(request.address, True) + DELIMITER + (body or EMPTY_BODY), now)

    def final(self, request: MdpRequest, body: bytes, now: float) -> None:
        """Send the final reply; the broker may send the next job. Dropped if the job is no longer this worker's."""
        if request is self.held and not self.closed:
            self.held = None
            self.send(W_02.final_head + frame(request.address, True) + DELIMITER + (body or EMPTY_BODY), now)

    def send_heartbeat(self, now: float) -> None:
        self.send(W_02.heartbeat_message, now)

    def _request(self, message: Message, now: float) -> MdpRequest | None:
        address = message.take()
        delimiter = message.take()
        body = message.rest()
        if not address or delimiter != b"" or not body or self.held is not None:
            # RFC 18: one address frame, an empty frame, a body; and no second job while one is held.
            return None
        self._last_received = now
        self.held = MdpRequest(self.service, address, body)
        return self.held
