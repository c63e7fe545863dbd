"""A worker's side of DCP v1, without a socket or a clock: the caller passes the time.

The worker registers each of its services and waits for the echoes, replies to or forwards its jobs, and pings. A ping
means two things (DCP §Requests & Replies, §Heartbeats): the worker is alive, and, if it holds a job, it asks for
another. So a worker with free slots pings when a job arrives, and a full one must not ping at all. Our own broker can
be told the number of slots (`bounded`): it fills them without being asked, and a ping is a mere heartbeat then.

No other broker tells how many jobs it would send, so the worker keeps a lower bound: one when it holds no job (the
broker forgets earlier requests when it has no more jobs for the worker), plus one per ping that asked for more. The
caller sends `take_output()` after every call.
"""

from polydomo.dialects.dcp.messages import (
    ONE_BYTE,
    PONG,
    PROTOCOL,
    RECONNECT,
    REGISTER,
    REQUEST,
    close_metadata,
    read_kind,
    take_metadata,
)
from polydomo.dialects.worker_protocol import WorkerProtocol
from polydomo.wire.frames import DELIMITER, Message, frame


class DcpRequest:
    """A job. `address` and `metadata` are its client's and must be returned unchanged."""

    __slots__ = ("address", "body", "metadata", "service")

    def __init__(self, service: bytes, address: bytes, metadata: bytes, body: bytes) -> None:
        self.service = service
        self.address = address
        self.metadata = metadata  # as wire bytes, without the delimiter
        self.body = body  # canonical (wire.frames)


class DcpWorkerProtocol(WorkerProtocol):
    """One connection to a broker."""

    def __init__(
        self,
        services: list[bytes],
        slots: int = 1,
        interval: float = 2.5,
        liveness: int = 4,
        bounded: bool = False,
    ) -> None:
        super().__init__(interval, liveness)
        self.services = services
        self.slots = slots
        self.bounded = bounded  # the broker knows `slots` and sends no more jobs than that
        self.held: dict[bytes, DcpRequest] = {}  # current jobs by address
        self.unconfirmed: dict[bytes, None] = dict.fromkeys(services)  # registered, not echoed yet
        self._credit = 1  # lower bound of the jobs that the broker lets this worker hold
        self._waiting_since = -1.0  # time of the oldest unanswered ping or registration; negative: none
        self._last_sent = 0.0

    @property
    def confirmed(self) -> bool:
        """True when every registration has been echoed."""
        return not self.unconfirmed

    def start(self, now: float) -> None:
        """Register all services. Also the response to RECONNECT: "MUST send a registration message"."""
        self.unconfirmed = dict.fromkeys(self.services)
        for service in self.services:
            self._out.append(ONE_BYTE.register_head + frame(service))
        self._last_sent = now
        self._expect_response(now)
        self.due = now + self.interval

    def receive(self, message: Message, now: float) -> DcpRequest | None:
        """Process a message from the broker and return its job, if it has one."""
        kind = 0
        if message.take() == b"" and message.take() == PROTOCOL:
            known = read_kind(message.take())
            if known is not None:
                kind = known[0]
        if kind == REQUEST:
            return self._request(message, now)
        if kind == PONG:
            self._waiting_since = -1.0
        elif kind == REGISTER:
            self._waiting_since = -1.0
            self.unconfirmed.pop(message.take() or b"", None)
            refusal = message.take()
            if refusal is not None:  # from our own broker: the service was refused
                self.farewell = refusal.decode("utf-8", "replace")
                self.closed = True
        elif kind == RECONNECT:
            # The broker does not know this worker: its jobs went to others, and its replies would be refused.
            self.held.clear()
            self._credit = 1
            self._waiting_since = -1.0
            self.start(now)
        return None

    def final(self, request: DcpRequest, body: bytes, now: float) -> None:
        """Send the reply, with the client's metadata unchanged."""
        if self._release(request):
            self._send(ONE_BYTE.reply_head + self._envelope(request, body), now)

    def forward(self, request: DcpRequest, service: bytes, body: bytes, now: float) -> None:
        """Forward the job: a request to another service, on behalf of the first client."""
        if self._release(request):
            self._send(ONE_BYTE.request_head + frame(service, True) + self._envelope(request, body), now)

    def tick(self, now: float) -> None:
        """Send a ping after an interval without output, and detect a silent broker."""
        late = now - self.due
        if late > self.interval and self._waiting_since >= 0.0:
            # This process was stopped (a suspended machine, a blocked loop): that is not the broker's silence.
            self._waiting_since += late
        if self._waiting_since >= 0.0 and now >= self._waiting_since + self.interval * self.liveness:
            self.lost = True
            return
        if now >= self._last_sent + self.interval and (self.bounded or len(self.held) < self.slots):
            self._ping(now)
        self.due = (self._last_sent if now < self._last_sent + self.interval else now) + self.interval
        if self._waiting_since >= 0.0:
            self.due = min(self.due, self._waiting_since + self.interval * self.liveness)

    def _request(self, message: Message, now: float) -> DcpRequest | None:
        service = message.take()
        address = message.take()
        delimiter = message.take()
        metadata = take_metadata(message)
        if not service or not address or delimiter != b"" or metadata is None or address in self.held:
            return None
        self._waiting_since = -1.0
        request = DcpRequest(service, address, metadata, message.rest())
        self.held[address] = request
        if not self.bounded and self._credit <= len(self.held) < self.slots:
            self._credit += 1
            self._ping(now)
        return request

    def _release(self, request: DcpRequest) -> bool:
        """Drop the job from `held`. Return False if it was not there: it is no longer this worker's."""
        if self.held.get(request.address) is not request:
            return False
        del self.held[request.address]
        if not self.held:
            self._credit = 1
        return True

    def _envelope(self, request: DcpRequest, body: bytes) -> bytes:
        return frame(request.address, True) + DELIMITER + request.metadata + close_metadata(body)

    def _ping(self, now: float) -> None:
        self._send(ONE_BYTE.ping, now)
        self._expect_response(now)

    def _expect_response(self, now: float) -> None:
        """Wait for a pong or an echo; the oldest wait counts."""
        if self._waiting_since < 0.0:
            self._waiting_since = now

    def _send(self, data: bytes, now: float) -> None:
        self._last_sent = now
        self._out.append(data)
