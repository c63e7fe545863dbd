"""A worker's side of DCP v1, without a socket and without a clock: time is handed in.

It registers each of its services and waits for the echo, answers or passes on what it is given, and pings. A
ping means two things (DCP §Requests & Replies, §Heartbeats): a sign of life, and, from a worker that holds a
job, "give me another". So a worker with room pings when a job arrives, and one without room must not ping at
all. Our own broker can be told how many jobs we can hold (`bounded`): it gives as many without being asked,
and a ping is only a sign of life then.

How many jobs another broker would give us now is never told, so it is reckoned, low rather than high: one when we
hold nothing (the broker forgets what was asked for when it has no more for us), one more for each ping that
asked. What is to be sent collects here; the owner takes it with `take_output` after every call.
"""

from polydomo.dialects.dcp.messages import (
    ONE_BYTE,
    PONG,
    PROTOCOL,
    RECONNECT,
    REGISTER,
    REQUEST,
    Width,
    read_kind,
)
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame


class DcpRequest:
    """A job. `address` and `metadata` belong to its client and must be given back as they are."""

    __slots__ = ("address", "body", "metadata", "service")

    def __init__(self, service: bytes, address: bytes, metadata: bytes, body: bytes) -> None:
        self.service = service
        self.address = address
        self.metadata = metadata  # as wire bytes, without the delimiter
        self.body = body  # canonical (wire.frames)


class DcpWorkerProtocol:
    """One connection's conversation."""

    def __init__(
        self,
        services: list[bytes],
        slots: int = 1,
        interval: float = 2.5,
        liveness: int = 4,
        bounded: bool = False,
        width: Width = ONE_BYTE,
    ) -> None:
        self.services = services
        self.slots = slots
        self.interval = interval
        self.liveness = liveness
        self.bounded = bounded  # the broker knows our `slots`: it gives as many, and never more
        self.width = width
        self.held: dict[bytes, DcpRequest] = {}  # jobs in hand, by address
        self.unconfirmed: dict[bytes, None] = dict.fromkeys(services)  # registered, not echoed yet
        self.closed = False  # nothing more may be sent
        self.lost = False  # the broker was silent for too long
        self.invalid = 0  # messages that no broker should have sent
        self.due = 0.0  # when to call `tick` next
        self._credit = 1  # how many jobs the broker would let us hold, at least
        self._asked = -1.0  # since when a sign of life is owed to us; negative: none is
        self._sent = 0.0
        self._out: list[bytes] = []

    @property
    def confirmed(self) -> bool:
        """Has every registration been echoed?"""
        return not self.unconfirmed

    def start(self, now: float) -> None:
        """Register everything. Also the answer to RECONNECT: "MUST send a registration message"."""
        self.unconfirmed = dict.fromkeys(self.services)
        for service in self.services:
            self._out.append(self.width.register_head + frame(service))
        self._sent = now
        self._expect(now)
        self.due = now + self.interval

    def receive(self, message: Message, now: float) -> DcpRequest | None:
        """A message of the broker; gives a job if it is one."""
        kind = 0
        if message.take() == b"" and message.take() == PROTOCOL:
            known = read_kind(message.take())
            if known is not None:
                kind = known[0]
        if kind == REQUEST:
            return self._request(message, now)
        if kind == PONG:
            self._asked = -1.0
        elif kind == REGISTER:
            self._asked = -1.0
            self.unconfirmed.pop(message.take() or b"", None)
        elif kind == RECONNECT:
            # The broker does not know us: what we hold was given to others, our answers would be strays.
            self.held.clear()
            self._credit = 1
            self._asked = -1.0
            self.start(now)
        else:
            self.invalid += 1
        return None

    def partial(self, request: DcpRequest, body: bytes, now: float) -> None:
        """DCP has one reply per request: there is nothing to send, and nobody who could be told."""

    def final(self, request: DcpRequest, body: bytes, now: float) -> None:
        """The reply, with the client's metadata as it came."""
        if self._release(request):
            self._send(self.width.reply_head + self._envelope(request, body), now)

    def forward(self, request: DcpRequest, service: bytes, body: bytes, now: float) -> None:
        """Pass the job on: a request to another service, for the first client."""
        if self._release(request):
            self._send(self.width.request_head + frame(service, True) + self._envelope(request, body), now)

    def disconnect(self) -> None:
        """DCP has no goodbye but closing the connection."""
        self.closed = True

    def tick(self, now: float) -> None:
        """Called at `due`: a ping if nothing was sent for an interval, and is the broker still there?"""
        late = now - self.due
        if late > self.interval and self._asked >= 0.0:
            # We were stopped ourselves (a suspended machine, a blocked loop): not the broker's silence.
            self._asked += late
        if self._asked >= 0.0 and now >= self._asked + self.interval * self.liveness:
            self.lost = True
            return
        if now >= self._sent + self.interval and (self.bounded or len(self.held) < self.slots):
            self._ping(now)
        self.due = (self._sent if now < self._sent + self.interval else now) + self.interval
        if self._asked >= 0.0:
            self.due = min(self.due, self._asked + self.interval * self.liveness)

    def take_output(self) -> bytes:
        """What is to be sent now, as wire bytes."""
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def _request(self, message: Message, now: float) -> DcpRequest | None:
        service = message.take()
        address = message.take()
        delimiter = message.take()
        start = message.pos
        end = start
        part = message.take()
        while part:
            end = message.pos
            part = message.take()
        if not service or not address or delimiter != b"" or part is None or address in self.held:
            self.invalid += 1
            return None
        self._asked = -1.0
        request = DcpRequest(service, address, message.data[start:end], message.rest())
        self.held[address] = request
        if not self.bounded and self._credit <= len(self.held) < self.slots:
            self._credit += 1
            self._ping(now)
        return request

    def _release(self, request: DcpRequest) -> bool:
        """Is the job still ours to answer?"""
        if self.held.get(request.address) is not request:
            return False
        del self.held[request.address]
        if not self.held:
            self._credit = 1
        return True

    def _envelope(self, request: DcpRequest, body: bytes) -> bytes:
        # The delimiter behind the metadata is the last frame if there is no data at all.
        tail = DELIMITER + body if body else EMPTY_BODY
        return frame(request.address, True) + DELIMITER + request.metadata + tail

    def _ping(self, now: float) -> None:
        self._send(self.width.ping, now)
        self._expect(now)

    def _expect(self, now: float) -> None:
        """The broker owes us a pong or an echo; the oldest debt counts."""
        if self._asked < 0.0:
            self._asked = now

    def _send(self, data: bytes, now: float) -> None:
        self._sent = now
        self._out.append(data)
