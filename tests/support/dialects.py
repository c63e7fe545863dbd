"""The broker without sockets: real connections, sessions, core and management, connected in memory.

A `Seat` is one connected peer: it sends frames or raw bytes and has the messages it received. `Desk.settle` is the
end of a turn of the loop: replies are flushed, and peers whose reading is no longer paused are read again.
"""

from __future__ import annotations

from polydomo.core.policy import BrokerLimits, Heartbeat, Policy
from polydomo.dialects.registry import SESSION_FACTORIES
from polydomo.dialects.session import (
    NATIVE_PROPERTY,
    Outbox,
    PeerConnection,
    Session,
    SessionContext,
    Transport,
)
from polydomo.errors import ProtocolError
from polydomo.services.management import ManagementService
from polydomo.wire.frames import measure, split
from polydomo.wire.stream import TRAFFIC
from polydomo.wire.zmtp.connection import Connection, ConnectionLimits, PeerInfo
from tests.support import zmtp
from tests.support.core import make_broker

HANDSHAKE_SENT = 64 + len(zmtp.ready(b"ROUTER", **{"X-Polydomo": b"test"}))


class Desk:
    """A server in memory: its broker and its peers."""

    def __init__(
        self,
        *,
        bounds: BrokerLimits | None = None,
        policy: Policy | None = None,
        beat: Heartbeat | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.broker = make_broker(bounds, policy)
        self.broker.advance(1000.0)
        self.limits = limits or ConnectionLimits()
        self.context = SessionContext(self.broker, Outbox(), SESSION_FACTORIES, beat or Heartbeat(1.0, 3), 4)
        self.management = ManagementService(self.broker, "desk")
        self.seats: list[Seat] = []
        self.parked: dict[bytes, tuple[Seat, list[Session]]] = {}
        self._anonymous = 0

    def seat(
        self, identity: bytes = b"", *, native: bool = False, greet: bool = True, instance: bytes = b""
    ) -> Seat:
        """Connect a peer; `greet` does its handshake."""
        seat = Seat(self)
        self.seats.append(seat)
        if greet:
            properties = {"X-Polydomo": b"1"} if native else {}
            if instance:
                properties["X-Polydomo-Instance"] = instance
            seat.feed(zmtp.greeting() + zmtp.ready(b"DEALER", identity, **properties))
            assert seat.connection.phase == TRAFFIC
        return seat

    def name(self, identity: bytes) -> bytes:
        if identity:
            return identity
        self._anonymous += 1
        return b"\0" + self._anonymous.to_bytes(4, "big")

    def settle(self) -> None:
        """Run until there is nothing left to do in this turn."""
        outbox = self.context.outbox
        while True:
            while outbox.dirty or outbox.deferrable:
                outbox.flush()
            released = [seat for seat in self.seats if seat.connection.paused and not seat.held]
            if not released:
                return
            for seat in released:
                for session in seat.link.sessions():
                    session.set_reading_paused(False)
                seat.connection.resume()

    def wait(self, seconds: float) -> None:
        """Advance the time and fire due timers."""
        self.broker.advance(self.broker.now + seconds)
        self.broker.tick()
        self.settle()


class Seat(Transport):
    """One peer and its connection."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.alive = True
        self.raw = b""
        self.handshake = b""
        self.held = False
        self.closed = False
        self.complaints: list[str] = []
        self.errors: list[str] = []
        self.link = PeerConnection(desk.context, self, self._write)
        self.connection = Connection(
            self.link, b"ROUTER", True, desk.limits, properties={NATIVE_PROPERTY: b"test"}
        )
        self.connection.start()

    # What the peer does

    def feed(self, data: bytes) -> None:
        """Send raw bytes to the broker."""
        if not self.closed:
            self.connection.receive(data)
        self.desk.settle()

    def send(self, *frames: bytes) -> None:
        """Send one message to the broker."""
        self.feed(zmtp.message(*frames))

    def take(self) -> list[list[bytes]]:
        """Return the messages received since the last call; they must be whole and well-formed."""
        raw, self.raw = self.raw, b""
        found = []
        buffer = bytearray(raw)
        pos = 0
        while pos < len(raw):
            end, missing, _ = measure(buffer, pos)
            assert not missing, f"cut short: {raw[pos:]!r}"
            flags = raw[pos]
            assert flags in (0, 1, 2, 3), f"flags {flags}"
            found.append(split(raw[pos:end]))
            pos = end
        return found

    def call(self, *frames: bytes) -> list[list[bytes]]:
        """Send a message and return the immediate replies."""
        self.take()
        self.send(*frames)
        return self.take()

    def drop(self) -> None:
        """Break the connection."""
        if self.closed:
            return
        self.closed = True
        self.desk.seats.remove(self)
        kept = [session for session in self.link.sessions() if session.lost()]
        self.link.session = None
        self.link.others = []
        if kept:
            self.desk.parked[self.link.identity] = (self, kept)
        self.desk.settle()

    # The session's side

    def transmit(self, data: bytes) -> None:
        self.handshake += data

    def ready(self, peer: PeerInfo) -> None:
        for other in list(self.desk.seats):
            if other is not self and peer.identity and other.link.identity == peer.identity:
                other.drop()  # taken over
        link = self.link
        link.native = NATIVE_PROPERTY.lower() in peer.properties
        link.named = bool(peer.identity)
        link.identity = self.desk.name(peer.identity)
        parked = self.desk.parked.pop(link.identity, None)
        if parked is not None:
            former, sessions = parked
            for session in sessions:
                link.adopt(session)
            self.raw += former.raw
            former.raw = b""

    def failed(self, error: ProtocolError) -> None:
        self.errors.append(error.message)
        self.drop()

    def pause(self) -> None:
        self.held = True
        for session in self.link.sessions():
            session.set_reading_paused(True)
        self.connection.pause()

    def resume(self) -> None:
        self.held = False

    def report_violation(self, reason: str) -> None:
        self.complaints.append(reason)

    def forget(self) -> None:
        self.desk.parked.pop(self.link.identity, None)

    def is_alive(self) -> bool:
        return self.alive

    def _write(self, data: bytes) -> None:
        self.raw += data
