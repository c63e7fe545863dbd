"""NNG peers (MemoDB): an asyncio protocol around a pure SP connection and the dialect's session."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from polydomo.dialects.memo.connection import SpTransport
from polydomo.dialects.memo.reconnect import KEPT_BYTES, InterruptedRequests
from polydomo.dialects.memo.session import MemoContext, MemoSession
from polydomo.errors import ProtocolError
from polydomo.server.log import Log
from polydomo.server.peer_base import TURN, PeerBase
from polydomo.wire.sp.connection import Connection
from polydomo.wire.sp.hello import REP

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.server.settings import Settings

log = Log()

# How long a connection remembers what it answered, at the least; twice that at the most.
MEMORY = 5.0

# The part of limits.memory that answers left by broken connections may take: one in so many.
KEPT_SHARE = 16


class NngListener:
    """All NNG peers of a server."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.bound: list[str] = []
        self.peers: set[NngPeer] = set()
        self.memo = MemoContext(server.broker, server.outbox, os.urandom)
        self._configured: Settings | None = None
        self._aged = 0.0
        self._kept = KeptAnswers(server, self.memo.interrupted)
        self.configure()

    def configure(self) -> None:
        """Take over the settings, if they are new."""
        settings = self.server.settings
        if settings is not self._configured:
            self._configured = settings
            memo = self.memo
            memo.workers.set_heartbeat(settings.memodb.heartbeat, settings.memodb.reply)
            memo.wait = settings.memodb.wait
            memo.retries = settings.memodb.retries
            memo.grace = settings.memodb.grace
            memo.workers.limit = settings.limits.connections
            memo.interrupted.room = min(KEPT_BYTES, settings.limits.memory // KEPT_SHARE)

    def inspect(self, now: float) -> None:
        """Every few seconds: is somebody there who does not read? And what was answered long ago is forgotten."""
        self.configure()
        age = now - self._aged >= MEMORY
        if age:
            self._aged = now
        for peer in list(self.peers):
            peer.inspect(now)
            if age:
                peer.session.connection.forget_older()
        self._kept.report()

    def close(self, hurry: bool = False) -> None:
        """The broker stops."""
        for peer in list(self.peers):
            if hurry:
                peer.transport.abort()
            else:
                peer.outlet.flush()
                peer.transport.close()

    def show(self) -> dict[str, Any]:
        """For people."""
        memo = self.memo
        return {
            "bound": list(self.bound),
            "connections": len(self.peers),
            "workers": len(memo.workers.by_id),
            "parked": sum(len(peer.session.connection.waiting) for peer in self.peers),
            "kept": sum(map(len, memo.interrupted.requests.values())),
            "repeated": memo.repeats,
            "returned": memo.returned,
        }


class KeptAnswers:
    """Replies of broken connections in the memory budget. `InterruptedRequests.room` bounds them between reports."""

    def __init__(self, server: BrokerServer, kept: InterruptedRequests) -> None:
        self.server = server
        self.kept = kept

    def report(self) -> None:
        """Tell the memory budget how many bytes they are."""
        self.server.budget.hold(self, self.kept.size)

    def cut(self, reason: str) -> None:
        log.warning("answers for broken NNG connections dropped", reason=reason)
        self.kept.forget_replies()


class NngPeer(PeerBase, SpTransport):
    """One connection. Messages pass through without stopping."""

    def __init__(self, nng: NngListener, listener: str) -> None:
        super().__init__(nng.server, listener)
        self.nng = nng
        self.session: MemoSession
        self.connection: Connection

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self.server
        self.attach(transport)
        ipc = self.listener.startswith("ipc:")
        host = self.address.rpartition(":")[0]
        self.session = MemoSession(self.nng.memo, self, self.transport.write, host, ipc)
        self.outlet = self.session.connection
        self.session.connection.write_large = self.write_large
        self.parser = self.connection = Connection(
            self.session, REP, server.settings.limits.message_bytes, ipc
        )
        if self.admit():
            self.connection.start()

    def data_received(self, data: bytes) -> None:
        server = self.server
        server.broker.now = server.clock.read()
        self.connection.receive(data)
        if len(data) >= TURN:
            self.end_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.nng.peers.discard(self)
        self.session.lost()

    # The session's side

    def transmit(self, data: bytes) -> None:
        self.transport.write(data)

    def ready(self) -> None:
        self.server.seat(self)
        self.settled()
        self.nng.peers.add(self)

    def failed(self, error: ProtocolError) -> None:
        self.outlet.flush()  # others on this connection have done nothing wrong
        self.refuse(str(error))

    def report_violation(self, reason: str) -> None:
        self.noted(self.session.connection.invalid, reason)

    def works(self) -> bool:
        return self.session.is_worker()

    def remembered(self) -> int:
        return self.session.connection.reply_bytes()
