"""A worker's side of MDP/0.2, without a socket and without a clock: time is handed in.

One conversation: READY, then REQUEST, PARTIAL*, FINAL over and over, one job at a time, with HEARTBEATs both
ways beside it. It ends with a DISCONNECT of either side, or when the broker was silent for `liveness`
intervals; after that the owner closes the connection and begins a new conversation on a new one (RFC 18
§Opening and Closing a Connection).

What is to be sent collects here; the owner takes it with `take_output` after every call.
"""

from typing import Final

from polydomo.dialects.mdp.messages import W_02, WORKER_02
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame

_PARTIAL_HEAD: Final = W_02.partial_head or b""


class MdpRequest:
    """A job. `address` stands for its client and must be given back as it is."""

    __slots__ = ("address", "body", "service")

    def __init__(self, service: bytes, address: bytes, body: bytes) -> None:
        self.service = service
        self.address = address
        self.body = body  # canonical (wire.frames)


class MdpWorkerProtocol:
    """See the module's text."""

    def __init__(self, service: bytes, interval: float = 2.5, liveness: int = 4) -> None:
        self.service = service
        self.interval = interval
        self.liveness = liveness
        self.held: MdpRequest | None = None  # the job in hand
        self.closed = False  # a DISCONNECT was sent or received: nothing more may be sent
        self.lost = False  # the broker was silent for too long
        self.invalid = 0  # messages that no broker should have sent
        self.due = 0.0  # when to call `tick` next
        self._out: list[bytes] = []
        self._sent = 0.0
        self._heard = 0.0

    def start(self, now: float) -> None:
        """READY, once per conversation (RFC 18 §Opening and Closing)."""
        self._heard = now
        self._send(W_02.ready_head + frame(self.service), now)
        self._plan()

    def receive(self, message: Message, now: float) -> MdpRequest | None:
        """A message of the broker; gives a job if it is one. All but DISCONNECT are signs of life (RFC 18
        §Heartbeating)."""
        if self.closed:
            return None
        header = message.take()
        command = message.take() if header == WORKER_02 else None
        if command == W_02.disconnect:
            self.closed = True
            return None
        if command == W_02.request:
            return self._request(message, now)
        if command == W_02.heartbeat:
            self._heard = now
        else:
            self.invalid += 1
        return None

    def partial(self, request: MdpRequest, body: bytes, now: float) -> None:
        """One of several answers. Dropped if the job is no longer ours to answer."""
        if request is self.held and not self.closed:
            self._send(_PARTIAL_HEAD + frame(request.address, True) + DELIMITER + (body or EMPTY_BODY), now)

    def final(self, request: MdpRequest, body: bytes, now: float) -> None:
        """The answer; the broker may send the next job. Dropped if the job is no longer ours to answer."""
        if request is self.held and not self.closed:
            self.held = None
            self._send(W_02.final_head + frame(request.address, True) + DELIMITER + (body or EMPTY_BODY), now)

    def disconnect(self) -> None:
        """Say goodbye; nothing follows."""
        if not self.closed:
            self._out.append(W_02.disconnect_message)
            self.closed = True

    def tick(self, now: float) -> None:
        """Called at `due`: a HEARTBEAT if nothing was sent for an interval, and is the broker still there?"""
        if self.closed:
            return
        late = now - self.due
        if late > self.interval:
            # We were stopped ourselves (a suspended machine, a blocked loop): not the broker's silence.
            self._heard += late
        if now >= self._heard + self.interval * self.liveness:
            self.lost = True
            return
        if now >= self._sent + self.interval:
            # RFC 18 §Heartbeating: SHOULD NOT beside other commands, so only after an interval without one.
            self._send(W_02.heartbeat_message, now)
        self._plan()

    def take_output(self) -> bytes:
        """What is to be sent now, as wire bytes."""
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def _request(self, message: Message, now: float) -> MdpRequest | None:
        address = message.take()
        delimiter = message.take()
        body = message.rest()
        if not address or delimiter != b"" or not body or self.held is not None:
            # RFC 18: one address frame, an empty frame, a body; and no second job while one is held.
            self.invalid += 1
            return None
        self._heard = now
        self.held = MdpRequest(self.service, address, body)
        return self.held

    def _send(self, data: bytes, now: float) -> None:
        self._sent = now
        self._out.append(data)

    def _plan(self) -> None:
        """Look again when a heartbeat may be due or the broker's silence is too long, whichever is first."""
        self.due = min(self._sent + self.interval, self._heard + self.interval * self.liveness)
