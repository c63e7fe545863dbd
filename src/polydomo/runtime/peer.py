"""One connected ZeroMQ peer: an asyncio protocol around a pure ZMTP connection and the dialect's link."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

from polydomo._version import __version__
from polydomo.dialects.session import NATIVE_PROPERTY, Link, Wire
from polydomo.errors import ProtocolError
from polydomo.wire.zmtp.connection import TRAFFIC, Connection, Peer

if TYPE_CHECKING:
    from polydomo.runtime.house import House

# How long a peer that broke the protocol may take to read what was sent before, the reason among it.
LINGER = 1.0

# Above this much unsent, a peer counts as a slow reader; its client's requests are not read until it catches up.
HIGH_WATER = 1024 * 1024


class ZmqPeer(asyncio.Protocol, Wire):
    """See the module's text. Everything rare about a connection is here; messages pass through without stopping."""

    def __init__(self, house: House, listener: str) -> None:
        self.house = house
        self.listener = listener
        self.transport: asyncio.Transport
        self.link: Link
        self.connection: Connection
        self.address = ""
        self.heard = house.clock.read()
        self.pinged = False
        self.congested = 0.0  # since when; 0: it keeps up
        self._unsent = 0  # when last looked at while congested
        self._reading = True
        self._held = False  # its client has too much unanswered
        self._limiter: asyncio.TimerHandle | None = None

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        house = self.house
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self.address = address_of(transport)
        keep_alive(transport)
        self.transport.set_write_buffer_limits(HIGH_WATER)
        self.link = Link(house.context, self, self.transport.write)
        self.connection = Connection(
            self.link, b"ROUTER", True, house.wire_limits, properties={NATIVE_PROPERTY: __version__.encode()}
        )
        limits = house.settings.limits
        if len(house.strangers) >= limits.unauthenticated:
            house.note("connection refused", self, reason="too many handshakes at once")
            self.transport.abort()
            return
        house.strangers.add(self)
        self._limiter = house.loop.call_later(limits.handshake, self._too_slow)
        self.connection.start()

    def data_received(self, data: bytes) -> None:
        house = self.house
        self.heard = house.broker.now = house.clock.read()
        self.connection.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        house = self.house
        house.broker.now = house.clock.read()
        self._settled()
        house.peers.discard(self)
        if house.named.get(self.link.identity) is self:
            del house.named[self.link.identity]
        house.part(self)

    def pause_writing(self) -> None:
        self.congested = self.house.clock.read()
        self._unsent = self.transport.get_write_buffer_size()
        self.link.write = self._write_congested
        self._adjust_reading()

    def resume_writing(self) -> None:
        self.congested = 0.0
        self.link.write = self.transport.write
        self._adjust_reading()

    # The link's side

    def transmit(self, data: bytes) -> None:
        self.link.write(data)  # bounded like answers are: PONGs to a peer that never reads pile up too

    def ready(self, peer: Peer) -> None:
        self.link.native = NATIVE_PROPERTY.lower() in peer.properties
        self.house.welcome(self, peer.identity)
        self._settled()

    def failed(self, error: ProtocolError) -> None:
        self.house.note("peer refused", self, reason=str(error))
        self.transport.close()
        self.house.loop.call_later(LINGER, self.transport.abort)

    def pause(self) -> None:
        self._held = True
        self._adjust_reading()

    def resume(self) -> None:
        self._held = False
        self._adjust_reading()

    def complain(self, reason: str) -> None:
        house = self.house
        house.complaints += 1
        if (
            self.link.invalid == 1
        ):  # one line per peer: a flood of bad messages must not become a flood of lines
            house.note("message dropped", self, reason=reason)
        if self.link.invalid == house.settings.limits.invalid:
            # At the end of the turn, so that it still hears what its protocol says about the last one.
            house.loop.call_soon(self._dismiss, f"{self.link.invalid} invalid messages")

    def forget(self) -> None:
        self.house.parked.pop(self.link.identity, None)

    # The house's side

    def cut(self, reason: str) -> None:
        """Close at once; what was unsent is lost."""
        if not self.transport.is_closing():
            self.house.note("peer cut", self, reason=reason)
            self.transport.abort()

    def inspect(self, now: float) -> None:
        """Looked at every few seconds: is it still there, does it read?"""
        if self.congested:
            unsent = self.transport.get_write_buffer_size()
            if unsent < self._unsent:
                self._unsent = unsent
                self.congested = now
            elif now - self.congested > self.house.settings.limits.stalled:
                self.cut(
                    f"it has read nothing for {now - self.congested:.0f} s while {unsent} bytes wait for it"
                )
            return
        silence = now - self.heard
        ping = self.house.settings.zmq.ping
        if self.connection.ttl and silence > self.connection.ttl and not self._held:
            self.cut("silent for longer than the TTL of its own PING")
        elif ping and self.connection.phase == TRAFFIC and not self._held:
            peer = self.connection.peer
            if silence <= ping:
                self.pinged = False
            elif silence > 3 * ping and self.pinged:
                self.cut(f"silent for {silence:.0f} s and did not answer PING")
            elif peer is not None and peer.minor >= 1:
                self.connection.ping(3 * ping)
                self.pinged = True

    def _dismiss(self, reason: str) -> None:
        """Close after what it is owed."""
        if not self.transport.is_closing():
            self.house.note("peer cut", self, reason=reason)
            self.link.flush()
            self.transport.close()

    def _write_congested(self, data: bytes) -> None:
        """A slow reader's answers are kept up to a bound."""
        limit = self.house.settings.limits.output_bytes
        if self.transport.get_write_buffer_size() + len(data) > limit:
            self.cut(f"it does not read its answers: more than {limit} bytes wait for it")
        else:
            self.transport.write(data)

    def _adjust_reading(self) -> None:
        """Read unless its client has too much unanswered or does not read its answers. A worker is always read from:
        it may be unable to read its next job before its last answer is out, and what its own requests wait for may be
        that answer."""
        working = any(session.is_worker() for session in self.link.sessions())
        stop = (self._held or self.congested > 0) and not working
        if stop != self._reading or self.transport.is_closing():
            return
        self._reading = not stop
        for session in self.link.sessions():
            session.set_deaf(stop)
        if stop:
            self.connection.pause()
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
            # Not from here: this may be deep inside the handling of another peer's message.
            self.house.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._reading and not self.transport.is_closing():
            self.house.broker.now = self.house.clock.read()
            self.connection.resume()

    def _too_slow(self) -> None:
        self.cut(f"no handshake within {self.house.settings.limits.handshake:g} s")

    def _settled(self) -> None:
        """The handshake is over, one way or the other."""
        self.house.strangers.discard(self)
        if self._limiter is not None:
            self._limiter.cancel()
            self._limiter = None


def address_of(transport: asyncio.BaseTransport) -> str:
    """Where the peer is, for people."""
    peername = transport.get_extra_info("peername")
    if isinstance(peername, tuple):
        return f"{peername[0]}:{peername[1]}"
    return "ipc"


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """A peer whose machine vanished says nothing and answers no PING if it is an old one: let the kernel notice."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
