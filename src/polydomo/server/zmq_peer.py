"""ZeroMQ peers: asyncio protocols around a pure ZMTP connection and the connection's dialect sessions."""

from __future__ import annotations

import asyncio
import os
from functools import partial

from polydomo._version import __version__
from polydomo.dialects.registry import RESUMED
from polydomo.dialects.session import (
    CLOSED_TRANSPORT,
    NAME_TAKEN,
    NATIVE_PROPERTY,
    PeerConnection,
    SessionContext,
    Transport,
)
from polydomo.errors import ProtocolError
from polydomo.server.disconnected import Disconnected, discard
from polydomo.server.peer_base import PeerBase, PeerGroup, PeerHost
from polydomo.server.ping import SilenceCheck
from polydomo.wire.zmtp.connection import Connection, PeerInfo

# Seconds that a peer has to answer a PING that checks its presence.
PONG = 2.0


class ZmqPeers(PeerGroup["ZmqPeer"]):
    """All ZeroMQ peers of a server, and the disconnected clients that may return within their grace period."""

    def __init__(self, server: PeerHost, context: SessionContext) -> None:
        super().__init__(server, partial(ZmqPeer, self))
        self.context = context
        self.named: dict[bytes, ZmqPeer] = {}  # by the identity that the peer chose
        self.suspended: dict[bytes, Disconnected] = {}  # by identity
        self._next_identity = int.from_bytes(os.urandom(3), "big")

    def admit(self, peer: ZmqPeer, identity: bytes) -> None:
        """Register a peer after its handshake and give it its identity, and its jobs if it was here before.

        If another connection has the same identity, the newer one takes over and the older is closed: mostly it is
        the peer's own connection whose end was not noticed. The newer one is refused if the older is known to be
        another peer, which it is if it has another key, or if the configuration says so.
        """
        link = peer.link
        old = self.named.get(identity)
        suspended = self.suspended.get(identity)
        if suspended is not None and suspended.key != peer.key:
            raise ProtocolError(NAME_TAKEN, hint="a client with another key may still return")
        if old is not None:
            if old.key != peer.key or not old.yields_to(link):
                raise ProtocolError(NAME_TAKEN, hint="see zmq.duplicate_identity")
            self.server.seats.leave(old)
        peer.take_seat()
        if identity:
            if old is not None:
                self.peers.discard(old)
                self._suspend(old)
                old.cut("its identity was taken over by a newer connection")
            self.named[identity] = peer
            link.named = True
        else:
            # RFC 37: an identity that the router makes up begins with a zero byte.
            self._next_identity = (self._next_identity + 1) & 0xFFFFFFFF
            identity = b"\0" + self._next_identity.to_bytes(4, "big")
        link.identity = identity
        self.peers.add(peer)
        if link.named and self.server.broker.store_events.expected_clients():
            self._resume(link)
        suspended = self.suspended.get(identity)
        if suspended is not None:
            suspended.hand_over(link)

    def detach(self, peer: ZmqPeer) -> None:
        """Remove a peer whose connection is lost; keep the sessions of clients that may return."""
        if self.named.get(peer.link.identity) is peer:
            del self.named[peer.link.identity]
        self._suspend(peer)

    def resume_all(self) -> None:
        """Give the connected clients their recovered jobs, if the store was opened after they connected."""
        for peer in list(self.named.values()):
            self._resume(peer.link)

    def _suspend(self, peer: ZmqPeer) -> None:
        link = peer.link
        sessions = [session for session in link.sessions() if session.lost()]
        if sessions:
            server = self.server
            limit = server.settings.limits.output_bytes
            disconnected = Disconnected(link, sessions, server.budget, limit, self._forget)
            disconnected.key = peer.key
            self.suspended[link.identity] = disconnected
        else:
            link.replace_transport(CLOSED_TRANSPORT, discard)

    def _forget(self, identity: bytes) -> None:
        self.suspended.pop(identity, None)

    def _resume(self, link: PeerConnection) -> None:
        """Give a client the jobs that it had before the broker was restarted."""
        for dialect, resumption in RESUMED.items():
            client = self.server.broker.store_events.expected_clients().get(
                (link.identity, dialect, link.principal)
            )
            if client is not None:
                link.adopt(resumption.open(self.context, link, dialect, client.form))


class ZmqPeer(PeerBase, Transport):
    """One connection. Messages pass through without being queued."""

    def __init__(self, zmq: ZmqPeers, listener: str) -> None:
        super().__init__(zmq, listener)
        self.zmq = zmq
        self.link: PeerConnection
        self.connection: Connection
        self._silence = SilenceCheck()
        self._asked = 0.0  # time of the last PING that checks the peer's presence

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.attach(transport)
        self.output = self.link = PeerConnection(self.zmq.context, self, self.transport.write)
        self.link.write_large = self.write_large
        properties = {NATIVE_PROPERTY: __version__.encode()}
        security = self.server.security
        mechanism = None if security is None else security.new_mechanism()
        self.parser = self.connection = Connection(
            self.link, b"ROUTER", True, self.server.wire_limits, properties=properties, mechanism=mechanism
        )
        if mechanism is not None:
            self.authenticating = True
            self.link.seal = self.connection.seal
        self.begin_handshake()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.zmq.detach(self)

    # The sessions' side

    def transmit(self, data: bytes) -> None:
        self.link.write(data)  # bounded like answers: the PONGs to a peer that never reads pile up too

    def ready(self, peer: PeerInfo) -> None:
        self.link.native = NATIVE_PROPERTY.lower() in peer.properties
        security = self.server.security
        if security is None or security.admits(self, peer):
            self.link.principal = self.principal
            self.zmq.admit(self, peer.identity)
            self.end_handshake()

    def failed(self, error: ProtocolError) -> None:
        self.refuse(str(error))

    def report_violation(self, reason: str) -> None:
        self.count_violation(self.link.invalid, reason)

    def forget(self) -> None:
        """Do nothing: the connection is open."""

    def is_alive(self) -> bool:
        now = self.server.clock.read()
        if self.heard > self._asked:
            self._asked = now
            self.connection.ping(0.0)
        return now - self._asked < PONG

    # The server's side

    def yields_to(self, newer: PeerConnection) -> bool:
        """Return whether a newer connection with the same identity takes over."""
        if newer.instance and newer.instance == self.link.instance:
            return True  # the same worker has reconnected before its old connection ended
        if self.server.settings.zmq.duplicate_identity == "refuse":
            return False
        return not self.link.keeps_name(newer)

    def inspect(self, now: float) -> None:
        super().inspect(now)
        if self.backlog is None and not self._held:
            ping = self.server.settings.zmq.ping
            reason = self._silence.check(self.connection, now - self.heard, ping)
            if reason:
                self.cut(reason)

    def has_worker(self) -> bool:
        return any(session.is_worker() for session in self.link.sessions())

    def set_reading_paused(self, paused: bool) -> None:
        for session in self.link.sessions():
            session.set_reading_paused(paused)
