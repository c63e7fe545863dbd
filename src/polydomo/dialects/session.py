"""The broker's end of a connection, for all ZeroMQ dialects: a peer connection and the dialect's session on it.

A connection's first message says which dialect its peer speaks; the session of that dialect then receives every
message of the connection. A session has a client, a worker, or both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr, trait

from polydomo.core.broker import Broker
from polydomo.core.policy import Heartbeat
from polydomo.core.principals import ANONYMOUS
from polydomo.errors import ProtocolError
from polydomo.wire.frames import Message
from polydomo.wire.zmtp.connection import ExpectedReceiver, Handler, PeerInfo

# ZMTP metadata property by which our own SDK and broker announce that they understand failure replies
# (dialects/native_failure.py). This property is all that foreign peers see of it.
NATIVE_PROPERTY: Final = b"X-Polydomo"

# Join token of a peer whose key is not accepted yet (`security.invitations`). Only sent in CURVE's INITIATE, encrypted.
JOIN_PROPERTY: Final = b"X-Polydomo-Join"

# Number of jobs that a worker of our own SDK can hold at once, where its dialect allows several (DCP). The worker
# is given as many without asking, and may ping while it is full; any other worker's ping asks for one more job.
SLOTS_PROPERTY: Final = b"X-Polydomo-Slots"

# Unique id of a named worker of our own SDK, the same on all its connections: tells a worker that reconnects from a
# second worker with the same name.
INSTANCE_PROPERTY: Final = b"X-Polydomo-Instance"


@mypyc_attr(allow_interpreted_subclasses=True)
class TransportBase:
    """The socket below a connection on any wire, for everything but writes. The server implements it; this base class
    does nothing, like the transport of a closed connection."""

    def transmit(self, data: bytes) -> None:
        """Send the handshake's bytes at once."""

    def failed(self, error: ProtocolError) -> None:
        """Close the socket of a peer that violated the wire's protocol."""

    def pause(self) -> None:
        """Stop reading from the socket."""

    def resume(self) -> None:
        """Resume reading from the socket."""

    def report_violation(self, reason: str) -> None:
        """Report a dropped message that the peer's protocol does not allow."""

    def buffered(self, size: int) -> None:
        """Account for `size` bytes of an unfinished message; 0 when the message is complete."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Transport(TransportBase):
    """The socket of a ZeroMQ peer."""

    def ready(self, peer: PeerInfo) -> None:
        """Set the link's identity after the handshake. Raise ProtocolError to refuse the peer."""

    def forget(self) -> None:
        """Discard the state of a client that did not return within its grace period."""

    def is_alive(self) -> bool:
        """Ping the peer and return whether it is alive: True until its answer is overdue."""
        return False


# A link that kept the real transport after its end would keep all of the connection in memory.
CLOSED_TRANSPORT: Final = Transport()


# A turn of the loop that writes to at least BUSY_TURN peers is a busy one, and replies may be deferred for up to
# DEFERRED_TURNS busy turns in a row: while jobs wait for workers, dispatches keep the workers busy, and replies to one
# client can share a write with those of the next turns. In any other turn every reply is written at once.
BUSY_TURN: Final = 8
DEFERRED_TURNS: Final = 3

# Larger writes go through `write_large`, which accounts for the memory that they take until all is sent.
LARGE_WRITE: Final = 256 * 1024


@trait
class Flushable:
    """A connection with collected output, on any wire."""

    @abstractmethod
    def flush(self) -> None:
        """Write the collected output."""


class Outbox:
    """The connections with output. The owner calls `flush` once per turn of its loop: one system call per connection
    and turn costs far less than one per message. `wake` schedules that call."""

    def __init__(self, wake: Callable[[], object] | None = None) -> None:
        self.wake = wake
        self.dirty: list[Flushable] = []
        self.deferrable: list[Flushable] = []  # connections that only have replies
        self._scheduled = False
        self._deferred = 0  # turns for which replies have been deferred

    def add(self, link: Flushable) -> None:
        """Flush `link` at the end of this turn."""
        self.dirty.append(link)
        if not self._scheduled:
            self._schedule()

    def add_deferrable(self, link: Flushable) -> None:
        """Flush `link`, which only has replies, at the end of this turn or of one of the next."""
        self.deferrable.append(link)
        if not self._scheduled:
            self._schedule()

    def flush(self) -> None:
        """Write what the connections collected."""
        self._scheduled = False
        links = self.dirty
        self.dirty = []
        for link in links:
            link.flush()
        if not self.deferrable:
            return
        if len(links) >= BUSY_TURN and self._deferred < DEFERRED_TURNS:
            self._deferred += 1
            self._schedule()
            return
        self._deferred = 0
        links = self.deferrable
        self.deferrable = []
        for link in links:
            link.flush()

    def _schedule(self) -> None:
        if self.wake is not None:
            self._scheduled = True
            self.wake()


class SessionContext:
    """The server's services and settings for sessions."""

    def __init__(
        self,
        broker: Broker,
        outbox: Outbox,
        factories: dict[bytes, SessionFactory],
        beat: Heartbeat,
        credit_max: int = 64,
    ) -> None:
        self.broker = broker
        self.outbox = outbox
        self.factories = factories  # by protocol header
        self.fallback: SessionFactory | None = None  # for messages with any other header
        self.beat = beat
        self.credit_max = credit_max  # jobs that a worker may hold at once by asking for more
        self.events: list[str] = []  # endpoints at which the broker publishes workers' events
        self.nfp_durable = True  # whether NFP jobs are durable unless their client says otherwise
        self.nfp_credit = 32  # jobs that a norfab worker may hold at once: its protocol cannot tell
        self.broker_name = "polydomo"  # for display
        self.broker_id = b"polydomo"  # unique among brokers
        self.wmp_workers = 10_000  # limit per connection


class PeerConnection(Handler, Flushable):
    """One connection between wire and sessions: passes messages to the dialect's session and collects its output until
    the outbox is flushed. `write` takes the joined bytes, `write_large` those above `LARGE_WRITE`."""

    def __init__(
        self, context: SessionContext, transport: Transport, write: Callable[[bytes], object]
    ) -> None:
        self.context = context
        self.outbox = context.outbox
        self.transport = transport
        self.write = write
        self.write_large = write
        self.seal: Callable[[bytes], bytes] | None = None  # encryption, in the order of writes
        self.identity = b""
        self.principal = ANONYMOUS  # on whose behalf the peer acts
        self.named = False  # the peer chose its identity and may reconnect with it
        self.native = False  # the peer is our own SDK
        self.slots = 0  # jobs that the peer can hold at once; 0: unknown
        self.instance = b""  # unique id of a named worker of our own SDK
        self.out: list[bytes] = []
        self.deferrable = False  # `out` only has replies
        self.session: Session | None = None
        self.others: list[Session] = []  # of further dialects on the same connection: allowed but rare
        self.invalid = 0  # protocol violations so far
        # Set here, too, so that Python keeps the attributes of all connections in one layout.
        self.expected = b""
        self.expected_receiver = None

    def name(self, dialect: str) -> bytes:
        """Return the peer's name as a worker: its own identity, or a printable form of the one assigned to it."""
        return self.identity if self.named else f"{dialect}-{self.identity[1:].hex()}".encode()

    def peer_id(self) -> bytes:
        """Return what all connections of this peer have in common, and no other living peer has."""
        return b"instance " + self.instance if self.instance else b"identity " + self.identity

    def expect(self, session: Session, head: bytes) -> None:
        """Pass the next message to `receive_expected` if it begins with `head`; `b""` matches none. Only the first
        session of a connection can expect messages."""
        if session is self.session:
            self.expected = head

    def message(self, message: Message) -> None:
        session = self.session
        if session is None or not session.receive(message):
            self._route(message)

    def send(self, data: bytes) -> None:
        """Send one or more whole messages, as wire bytes, at the end of this turn."""
        out = self.out
        if not out or self.deferrable:
            self.deferrable = False
            self.outbox.add(self)
        out.append(data)

    def answer(self, data: bytes) -> None:
        """Send replies to a client, which may be deferred in busy turns."""
        out = self.out
        if not out:
            self.deferrable = True
            self.outbox.add_deferrable(self)
        out.append(data)

    def flush(self) -> None:
        """Write the collected output."""
        out = self.out
        if out:
            self.out = []
            data = out[0] if len(out) == 1 else b"".join(out)
            if self.seal is not None:
                data = self.seal(data)
            if len(data) > LARGE_WRITE:
                self.write_large(data)
            else:
                self.write(data)

    def sessions(self) -> list[Session]:
        """Return all sessions of this connection."""
        return [] if self.session is None else [self.session, *self.others]

    def adopt(self, session: Session) -> None:
        """Continue a session whose client has reconnected."""
        self._add(session)
        session.reattach(self)

    def transmit(self, data: bytes) -> None:
        self.transport.transmit(data)

    def peer_ready(self, peer: PeerInfo) -> None:
        slots = peer.properties.get(SLOTS_PROPERTY.lower(), b"")
        self.slots = int(slots) if slots.isdigit() and len(slots) < 6 else 0
        self.instance = peer.properties.get(INSTANCE_PROPERTY.lower(), b"")
        self.transport.ready(peer)

    def failed(self, error: ProtocolError) -> None:
        self.transport.failed(error)

    def buffered(self, size: int) -> None:
        self.transport.buffered(size)

    def replace_transport(self, transport: Transport, write: Callable[[bytes], object]) -> None:
        """Release the closed connection's socket and sessions; `transport` and `write` replace the socket."""
        self.session = self.expected_receiver = None
        self.others = []
        self.transport = transport
        self.write = self.write_large = write
        self.seal = None  # a disconnected client's answers are kept as they are, for its next connection

    def pause(self) -> None:
        """Stop taking messages from the peer (back-pressure)."""
        self.transport.pause()

    def resume(self) -> None:
        """Resume taking messages from the peer."""
        self.transport.resume()

    def report_violation(self, reason: str) -> None:
        """Report a dropped message that the peer's protocol does not allow."""
        self.invalid += 1
        self.transport.report_violation(reason)

    def forget(self) -> None:
        """Discard this connection's suspended sessions: the client did not return."""
        self.transport.forget()

    def _route(self, message: Message) -> None:
        """Pass on the connection's first message, or one in another dialect than the last."""
        for session in self.others:
            if session.receive(message):
                return
        factory = self.context.factories.get(header(message), self.context.fallback)
        if factory is None:
            self.report_violation("message of an unknown protocol")
            return
        opened = factory(self.context, self)
        self._add(opened)
        opened.receive(message)

    def _add(self, session: Session) -> None:
        if self.session is None:
            self.session = self.expected_receiver = session
        else:
            self.others.append(session)


@mypyc_attr(allow_interpreted_subclasses=True)
class Session(ExpectedReceiver):
    """One dialect on one connection."""

    def __init__(self, context: SessionContext, link: PeerConnection) -> None:
        self.broker = context.broker
        self.context = context
        self.link = link

    def receive_expected(self, body: bytes) -> None:
        """Process a message that began with the head given to `PeerConnection.expect`."""

    @abstractmethod
    def receive(self, message: Message) -> bool:
        """Process a message. Return False and leave it untouched if it is not of this dialect."""

    @abstractmethod
    def lost(self) -> bool:
        """Handle the end of the connection. Return True if the session must be kept for its client's grace period."""

    def reattach(self, link: PeerConnection) -> None:
        """Continue on the client's new connection."""

    def abandon(self) -> None:
        """Drop a client that was kept for its grace period."""

    @abstractmethod
    def is_worker(self) -> bool:
        """Return whether a worker is registered on this connection."""

    def set_reading_paused(self, reading_paused: bool) -> None:
        """Record whether the connection is read: the silence of a worker that is not read proves nothing."""


SessionFactory = Callable[[SessionContext, PeerConnection], Session]


def header(message: Message) -> bytes:
    """Return the frame that names the protocol, without taking it: the first, or the second after an empty one."""
    peek = Message(message.data, message.pos, message.end)
    first = peek.take()
    if not first:
        first = peek.take()
    return first or b""
