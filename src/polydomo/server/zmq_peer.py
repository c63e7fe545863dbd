"""ZeroMQ peers: asyncio protocols around a pure ZMTP connection and the connection's dialect sessions."""

from __future__ import annotations

import asyncio
import os
from functools import partial

from polydomo._version import __version__
from polydomo.core.workers import NAME_TAKEN
from polydomo.dialects.registry import RESUMED
from polydomo.dialects.session import (
    CLOSED_TRANSPORT,
    NATIVE_PROPERTY,
    PeerConnection,
    SessionContext,
    Transport,
)
from polydomo.errors import ProtocolError
from polydomo.server.disconnected import Disconnected, discard, same_owner
from polydomo.server.identification import BY_KEY, Identification
from polydomo.server.peer_base import PeerBase, PeerGroup, PeerHost
from polydomo.server.ping import SilenceCheck
from polydomo.server.presence import HERE, UNKNOWN, Presence, hung_up
from polydomo.wire.zmtp.connection import Connection, PeerInfo

# Seconds between two looks at a peer whose identity is claimed.
STEP = 0.05


class ZmqPeers(PeerGroup["ZmqPeer"]):
    """All ZeroMQ peers of a server, and the disconnected clients that may return within their grace period."""

    def __init__(self, server: PeerHost, context: SessionContext) -> None:
        super().__init__(server, partial(ZmqPeer, self))
        self.context = context
        self.named: dict[bytes, ZmqPeer] = {}  # by the identity that the peer chose
        self.suspended: dict[bytes, Disconnected] = {}  # by identity
        self._next_identity = int.from_bytes(os.urandom(3), "big")

    def enter(self, peer: ZmqPeer, identity: bytes) -> None:
        """Admit a peer after its handshake, or raise ProtocolError.

        If another connection has the same identity, the peer waits until it is known whether that one's peer is there:
        only a peer that is gone without notice is replaced. Its own old connection is replaced at once.
        """
        holder = self.named.get(identity) if identity else None
        if holder is None:
            self._admit(peer, identity)
        elif not same_owner(holder, peer):
            raise ProtocolError(NAME_TAKEN, hint="it belongs to another key or principal")
        elif holder.is_same_instance(peer.link) or hung_up(holder.transport):
            self._replace(holder, peer, identity)
        elif self.server.settings.zmq.duplicate_identity == "refuse":
            raise ProtocolError(NAME_TAKEN, hint="see zmq.duplicate_identity")
        else:
            holder.presence.ask(holder, self.server.clock.read(), self._patience())
            peer.connection.defer()
            peer.suspend_reading()
            self.server.loop.call_later(STEP, self._decide, peer, identity)

    def _decide(self, peer: ZmqPeer, identity: bytes) -> None:
        """Admit a peer that claims the identity of another, refuse it, or look again later."""
        if peer.transport.is_closing():
            return
        if hung_up(peer.transport):
            peer.cut("left while its identity was another's")
            return
        self.server.advance()
        holder = self.named.get(identity)
        try:
            if holder is None:
                self._admit(peer, identity)
            elif not same_owner(holder, peer):
                raise ProtocolError(NAME_TAKEN, hint="it belongs to another key or principal")
            else:
                state = holder.presence.state(holder, self.server.clock.read(), self._patience())
                if state == UNKNOWN:
                    self.server.loop.call_later(STEP, self._decide, peer, identity)
                    return
                if state == HERE:
                    raise ProtocolError(NAME_TAKEN, hint="the peer that has it is alive")
                self._replace(holder, peer, identity)
        except ProtocolError as error:
            peer.connection.fail(error)
            return
        if not peer.transport.is_closing():
            peer.resume_reading()
            peer.connection.admit()

    def _replace(self, holder: ZmqPeer, peer: ZmqPeer, identity: bytes) -> None:
        """Admit a peer in place of a connection that is lost, or its own older one."""
        self.server.seats.leave(holder)
        peer.take_seat()
        self.peers.discard(holder)
        del self.named[identity]
        self._suspend(holder)
        holder.cut("its identity was taken over by a newer connection")
        self._admit(peer, identity, seated=True)

    def _admit(self, peer: ZmqPeer, identity: bytes, seated: bool = False) -> None:
        """Register a peer and give it its identity, and its jobs if it was here before."""
        link = peer.link
        suspended = self.suspended.get(identity)
        if suspended is not None and not suspended.may_continue(peer, link.instance):
            if peer.key or suspended.key:
                raise ProtocolError(NAME_TAKEN, hint="the client that had it may still return")
            # Without ERROR, so that libzmq tries again: it may be the client, at another address, and its grace ends.
            peer.connection.close()
            peer.refuse(f"{NAME_TAKEN}, or had it at another address and may still return")
            return
        if not seated:
            peer.take_seat()
        if identity:
            self.named[identity] = peer
            link.named = True
        else:
            # RFC 37: an identity that the router makes up begins with a zero byte.
            self._next_identity = (self._next_identity + 1) & 0xFFFFFFFF
            identity = b"\0" + self._next_identity.to_bytes(4, "big")
        link.identity = identity
        self.peers.add(peer)
        peer.end_handshake()
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
        if link.transport is not peer:  # it was replaced before its connection was lost
            return
        sessions = [session for session in link.sessions() if session.lost()]
        if sessions:
            server = self.server
            limit = server.settings.limits.output_bytes
            disconnected = Disconnected(link, sessions, server.budget, limit, self._forget)
            disconnected.key = peer.key
            disconnected.site = peer.site
            self.suspended[link.identity] = disconnected
        else:
            link.replace_transport(CLOSED_TRANSPORT, discard)

    def _patience(self) -> float:
        return self.server.settings.zmq.probe

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

    def __init__(self, zmq: ZmqPeers, listener: str, identification: Identification = BY_KEY) -> None:
        super().__init__(zmq, listener, identification)
        self.zmq = zmq
        self.link: PeerConnection
        self.connection: Connection
        self.presence = Presence()
        self._silence = SilenceCheck()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.attach(transport)
        self.output = self.link = PeerConnection(self.zmq.context, self, self.transport.write)
        self.link.write_large = self.write_large
        properties = {NATIVE_PROPERTY: __version__.encode()}
        security = self.security
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
        security = self.security
        if security is None or security.admits(self, peer):
            self.link.principal = self.principal
            self.zmq.enter(self, peer.identity)

    def failed(self, error: ProtocolError) -> None:
        self.refuse(str(error))

    def report_violation(self, reason: str) -> None:
        self.count_violation(self.link.invalid, reason)

    def forget(self) -> None:
        """Do nothing: the connection is open."""

    def is_alive(self) -> bool:
        return self.presence.is_alive(self, self.server.clock.read(), self.server.settings.zmq.probe)

    # The server's side

    def is_same_instance(self, newer: PeerConnection) -> bool:
        """Return whether a newer connection is from the same worker of our own SDK, which has reconnected."""
        return newer.instance != b"" and newer.instance == self.link.instance

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
