"""One connected ZeroMQ peer: an asyncio protocol around a pure ZMTP connection and the dialect's link."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from polydomo._version import __version__
from polydomo.dialects.session import NATIVE_PROPERTY, PeerConnection, Transport
from polydomo.errors import ProtocolError
from polydomo.server.peer_base import TURN, PeerBase
from polydomo.wire.zmtp.connection import TRAFFIC, Connection, PeerInfo

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Seconds in which a peer answers that is asked if it is there.
PONG = 2.0


class ZmqPeer(PeerBase, Transport):
    """See the module's text. Messages pass through without stopping."""

    def __init__(self, server: BrokerServer, listener: str) -> None:
        super().__init__(server, listener)
        self.link: PeerConnection
        self.connection: Connection
        self.heard = server.clock.read()
        self.pinged = False
        self._asked = 0.0  # when it was last asked if it is there

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self.server
        self.attach(transport)
        self.outlet = self.link = PeerConnection(server.context, self, self.transport.write)
        self.link.write_large = self.write_large
        self.parser = self.connection = Connection(
            self.link, b"ROUTER", True, server.wire_limits, properties={NATIVE_PROPERTY: __version__.encode()}
        )
        if self.admit():
            self.connection.start()

    def data_received(self, data: bytes) -> None:
        server = self.server
        self.heard = server.broker.now = server.clock.read()
        self.connection.receive(data)
        if len(data) >= TURN:
            self.end_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        server = self.server
        server.peers.discard(self)
        if server.named.get(self.link.identity) is self:
            del server.named[self.link.identity]
        server.part(self)

    # The link's side

    def transmit(self, data: bytes) -> None:
        if self.connection.phase == TRAFFIC:
            self.link.flush()  # a PONG says that all before the PING was dealt with: what that led to comes first
        self.link.write(data)  # bounded like answers are: PONGs to a peer that never reads pile up too

    def ready(self, peer: PeerInfo) -> None:
        self.link.native = NATIVE_PROPERTY.lower() in peer.properties
        self.server.welcome(self, peer.identity)
        self.settled()

    def failed(self, error: ProtocolError) -> None:
        self.refuse(str(error))

    def complain(self, reason: str) -> None:
        self.noted(self.link.invalid, reason)

    def forget(self) -> None:
        """Nobody is waited for while the connection lives."""

    def is_there(self) -> bool:
        now = self.server.clock.read()
        if self.heard > self._asked:
            self._asked = now
            self.connection.ping(0.0)
        return now - self._asked < PONG

    # The server's side

    def yields_to(self, newer: PeerConnection) -> bool:
        """Does a newer connection with its identity take over?"""
        if newer.instance and newer.instance == self.link.instance:
            return True  # the same worker is back, before its old connection ended
        if self.server.settings.zmq.duplicate_identity == "refuse":
            return False
        return not self.link.keeps_name(newer)

    def inspect(self, now: float) -> None:
        """Is it still there, does it read?"""
        super().inspect(now)
        if self.backlog is not None:
            return
        silence = now - self.heard
        ping = self.server.settings.zmq.ping
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

    def works(self) -> bool:
        return any(session.is_worker() for session in self.link.sessions())

    def deafen(self, reading_paused: bool) -> None:
        for session in self.link.sessions():
            session.set_deaf(reading_paused)
