"""What every dialect's broker side has in common: a session on a connection, and the link it speaks through.

A connection's first message says which dialect its peer speaks; that dialect's session then gets every message of
the connection. A session may hold a client, a worker, or both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr, trait

from polydomo.core.broker import Broker
from polydomo.core.policy import Heartbeat
from polydomo.errors import ProtocolError
from polydomo.wire.frames import Message
from polydomo.wire.zmtp.connection import Handler, PeerInfo

# A ZMTP metadata property with which our own SDK and broker tell each other that they understand failure answers
# (see dialects/native_failure.py). Foreign peers neither send nor see anything of it but this one property.
NATIVE_PROPERTY: Final = b"X-Polydomo"

# How many jobs a worker of our own SDK can hold at once, where its dialect allows several (DCP): it is given as many
# without asking, and may beat while it is full, which from others would ask for one more.
SLOTS_PROPERTY: Final = b"X-Polydomo-Slots"

# Which one a named worker of our own SDK is: the same on all connections that it ever makes, and nobody else's. So one
# that comes back can be told from a second one with the same name.
INSTANCE_PROPERTY: Final = b"X-Polydomo-Instance"

# What the second one is told. Our own SDK looks for these words.
NAME_TAKEN: Final = "name-taken: another worker has this name"


@mypyc_attr(allow_interpreted_subclasses=True)
class Transport(ABC):
    """What a link needs of the socket under it, for what happens rarely. The server implements it."""

    @abstractmethod
    def transmit(self, data: bytes) -> None:
        """Send at once: the handshake's bytes."""

    @abstractmethod
    def ready(self, peer: PeerInfo) -> None:
        """The handshake is done; sets the link's identity. Raises ProtocolError to refuse the peer."""

    @abstractmethod
    def failed(self, error: ProtocolError) -> None:
        """The peer broke ZMTP: close the socket."""

    @abstractmethod
    def pause(self) -> None:
        """Read no more."""

    @abstractmethod
    def resume(self) -> None:
        """Read again."""

    @abstractmethod
    def complain(self, reason: str) -> None:
        """The peer sent something its protocol does not allow; it was dropped."""

    @abstractmethod
    def forget(self) -> None:
        """A client that was kept for its grace time did not come back."""

    @abstractmethod
    def is_there(self) -> bool:
        """Is the peer alive? It is asked; until its answer is overdue it is believed to be."""

    def buffered(self, size: int) -> None:  # noqa: B027 (only those who watch their memory care)
        """An unfinished message has grown to `size` bytes; 0: it is whole."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ClosedTransport(Transport):
    """Wire of a link whose connection is gone. A link that kept the real one would keep all of the connection."""

    def transmit(self, data: bytes) -> None:
        """Nobody is there."""

    def ready(self, peer: PeerInfo) -> None:
        """Nobody is there."""

    def failed(self, error: ProtocolError) -> None:
        """Nobody is there."""

    def pause(self) -> None:
        """Nothing is read anyway."""

    def resume(self) -> None:
        """Nothing can be read."""

    def complain(self, reason: str) -> None:
        """Nobody is there."""

    def forget(self) -> None:
        """Nobody is waited for."""

    def is_there(self) -> bool:
        """Nobody is there."""
        return False


UNPLUGGED: Final = ClosedTransport()


# A turn that gave at least this many peers something to do is a busy one, and answers may be held back for so many
# busy turns: while jobs wait for workers it is dispatches that keep everybody working, and answers to one client can
# share a write with those of the next turns. In a turn that is not busy every answer goes out at once.
BUSY_TURN: Final = 8
PATIENCE: Final = 3


# A write larger than this goes by a way of its own, on which its size is known: it takes memory until all is sent.
LARGE_WRITE: Final = 256 * 1024


@trait
class Flushable:
    """A link as the outbox sees it, whatever wire is under it."""

    @abstractmethod
    def flush(self) -> None:
        """Write out what was collected."""


class Outbox:
    """The links that have something to send. Their owner calls `flush` once per turn of its loop: one system call per
    connection and turn costs far less than one per message. `wake` is called when `flush` must be called."""

    def __init__(self, wake: Callable[[], object] | None = None) -> None:
        self.wake = wake
        self.dirty: list[Flushable] = []
        self.patient: list[Flushable] = []  # these only have answers
        self._awake = False
        self._held = 0  # turns for which answers have been held back

    def add(self, link: Flushable) -> None:
        """`link` has something to send."""
        self.dirty.append(link)
        if not self._awake:
            self._rouse()

    def add_patient(self, link: Flushable) -> None:
        """`link` has answers, which may share a write with those of the next turns."""
        self.patient.append(link)
        if not self._awake:
            self._rouse()

    def flush(self) -> None:
        """Write out what the links collected."""
        self._awake = False
        links = self.dirty
        self.dirty = []
        for link in links:
            link.flush()
        if not self.patient:
            return
        if len(links) >= BUSY_TURN and self._held < PATIENCE:
            self._held += 1
            self._rouse()
            return
        self._held = 0
        links = self.patient
        self.patient = []
        for link in links:
            link.flush()

    def _rouse(self) -> None:
        if self.wake is not None:
            self._awake = True
            self.wake()


class Context:
    """What sessions need of the server."""

    def __init__(
        self,
        broker: Broker,
        outbox: Outbox,
        openers: dict[bytes, SessionFactory],
        beat: Heartbeat,
        credit_max: int = 64,
    ) -> None:
        self.broker = broker
        self.outbox = outbox
        self.openers = openers  # protocol header → opens a session of that dialect
        self.fallback: SessionFactory | None = None  # for messages of no protocol among them
        self.beat = beat
        self.credit_max = credit_max  # jobs a worker may hold at once by asking for more
        self.events: list[str] = []  # where the broker publishes workers' events
        self.nfp_durable = True  # NFP's jobs are durable unless their client says otherwise
        self.nfp_credit = 32  # jobs a worker of norfab's may hold at once: it cannot say how many it likes
        self.broker_name = "polydomo"  # what peers are told that ask
        self.broker_id = b"polydomo"  # the name that no other broker has
        self.wmp_workers = 10_000  # behind one connection


class PeerConnection(Handler, Flushable):
    """The middle of one connection: messages from the wire go to the dialect's session, its answers are collected
    here until the outbox is flushed. `write` takes the joined bytes, `write_large` more than `LARGE_WRITE` of them."""

    def __init__(self, context: Context, wire: Transport, write: Callable[[bytes], object]) -> None:
        self.context = context
        self.outbox = context.outbox
        self.wire = wire
        self.write = write
        self.write_large = write
        self.identity = b""
        self.named = False  # the peer chose its identity, so it may come back under it
        self.native = False  # the peer is our own SDK
        self.slots = 0  # jobs it said it can hold at once; 0: it did not say
        self.instance = b""  # which one it is, if it is a named worker of our own SDK
        self.out: list[bytes] = []
        self.patient = False  # what is in `out` may be held back for a few turns
        self.session: Session | None = None
        self.others: list[Session] = []  # further dialects on the same connection, which is allowed but rare
        self.invalid = 0

    def name(self, dialect: str) -> bytes:
        """What its peer is called as a worker: its identity, or, if it chose none, a printable text made of ours."""
        return self.identity if self.named else f"{dialect}-{self.identity[1:].hex()}".encode()

    def expect(self, session: Session, head: bytes) -> None:
        """`session` will probably get a message that begins with `head` next (`b""`: it cannot say). Only the first
        session of a connection is asked."""
        if session is self.session:
            self.expected = head

    def expected_message(self, data: bytes, rest: int, end: int) -> None:
        session = self.session
        if session is not None:
            session.receive_expected(data[rest:end])

    def message(self, message: Message) -> None:
        session = self.session
        if session is None or not session.receive(message):
            self._other(message)

    def send(self, data: bytes) -> None:
        """One or more whole messages in wire bytes, at the end of this turn."""
        out = self.out
        if not out or self.patient:
            self.patient = False
            self.outbox.add(self)
        out.append(data)

    def answer(self, data: bytes) -> None:
        """The same for a client's answers, which are worth collecting in busy turns."""
        out = self.out
        if not out:
            self.patient = True
            self.outbox.add_patient(self)
        out.append(data)

    def flush(self) -> None:
        """Write out what was collected."""
        out = self.out
        if out:
            self.out = []
            data = out[0] if len(out) == 1 else b"".join(out)
            if len(data) > LARGE_WRITE:
                self.write_large(data)
            else:
                self.write(data)

    def sessions(self) -> list[Session]:
        """All sessions of this connection."""
        return [] if self.session is None else [self.session, *self.others]

    def adopt(self, session: Session) -> None:
        """A session whose client came back on this connection."""
        if self.session is None:
            self.session = session
        else:
            self.others.append(session)
        session.reattach(self)

    def transmit(self, data: bytes) -> None:
        self.wire.transmit(data)

    def peer_ready(self, peer: PeerInfo) -> None:
        slots = peer.properties.get(SLOTS_PROPERTY.lower(), b"")
        self.slots = int(slots) if slots.isdigit() and len(slots) < 6 else 0
        self.instance = peer.properties.get(INSTANCE_PROPERTY.lower(), b"")
        self.wire.ready(peer)

    def failed(self, error: ProtocolError) -> None:
        self.wire.failed(error)

    def buffered(self, size: int) -> None:
        self.wire.buffered(size)

    def unplug(self, wire: Transport, write: Callable[[bytes], object]) -> None:
        """Let go of the connection: `wire` and `write` stand in for it from now on."""
        self.session = None
        self.others = []
        self.wire = wire
        self.write = self.write_large = write

    def pause(self) -> None:
        """Take no more messages from the peer for now (back-pressure)."""
        self.wire.pause()

    def resume(self) -> None:
        """Go on."""
        self.wire.resume()

    def complain(self, reason: str) -> None:
        """The peer sent something its protocol does not allow; it was dropped."""
        self.invalid += 1
        self.wire.complain(reason)

    def forget(self) -> None:
        """Nobody will come back for this link's sessions."""
        self.wire.forget()

    def keeps_name(self, other: PeerConnection) -> bool:
        """Does its peer keep its name from the one at `other`, who claims it too? Peers that do not say which one they
        are do not: the older is mostly a connection whose death has not been noticed."""
        is_another = len(self.instance) > 0 and len(other.instance) > 0 and self.instance != other.instance
        return is_another and self.wire.is_there()

    def _other(self, message: Message) -> None:
        """The first message, or one of another dialect than the last."""
        for session in self.others:
            if session.receive(message):
                return
        opener = self.context.openers.get(header(message), self.context.fallback)
        if opener is None:
            self.complain("a message of no protocol that is known here")
            return
        opened = opener(self.context, self)
        if self.session is None:
            self.session = opened
        else:
            self.others.append(opened)
        opened.receive(message)


@mypyc_attr(allow_interpreted_subclasses=True)
class Session(ABC):
    """One dialect on one connection."""

    def __init__(self, context: Context, link: PeerConnection) -> None:
        self.broker = context.broker
        self.context = context
        self.link = link

    @abstractmethod
    def receive_expected(self, body: bytes) -> None:
        """A message that began with what this session told its link to expect; `body` is what followed."""

    @abstractmethod
    def receive(self, message: Message) -> bool:
        """Take a message. False: it is not of this dialect, and untouched."""

    @abstractmethod
    def lost(self) -> bool:
        """The connection is gone. True: a client's jobs are kept for its grace time, hold on to this session."""

    @abstractmethod
    def reattach(self, link: PeerConnection) -> None:
        """Its client is back on a new connection."""

    @abstractmethod
    def abandon(self) -> None:
        """Its client will not come back after all."""

    @abstractmethod
    def is_worker(self) -> bool:
        """Does a registered worker speak here?"""

    @abstractmethod
    def set_deaf(self, reading_paused: bool) -> None:
        """The connection is (not) being read: whether a worker's silence means anything."""


SessionFactory = Callable[[Context, PeerConnection], Session]


def header(message: Message) -> bytes:
    """The frame that names the protocol: the first, or the second behind an empty one. Takes nothing."""
    peek = Message(message.data, message.pos, message.end)
    first = peek.take()
    if not first:
        first = peek.take()
    return first or b""
