"""NNG peers (MemoDB): asyncio protocols around a pure SP connection and the dialect's session."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

from polydomo.dialects.memo.connection import SpTransport
from polydomo.dialects.memo.reconnect import KEPT_BYTES
from polydomo.dialects.memo.session import MemoContext, MemoSession
from polydomo.dialects.session import Outbox
from polydomo.errors import ProtocolError
from polydomo.server.identification import BY_KEY, Identification
from polydomo.server.log import Log
from polydomo.server.peer_base import PeerBase, PeerGroup, PeerHost
from polydomo.server.settings import Settings
from polydomo.wire.sp.connection import Connection
from polydomo.wire.sp.hello import REP

log = Log()

# Seconds for which a connection keeps its answers, at least; at most twice as long.
MEMORY = 5.0

# Answers kept for broken connections may take this fraction of limits.memory: one part in so many.
KEPT_SHARE = 16


class NngPeers(PeerGroup["NngPeer"]):
    """All NNG peers of a server.

    It is also the holder of the answers that are kept for broken connections. `InterruptedRequests.room` limits them
    between two reports to the memory budget.
    """

    def __init__(self, server: PeerHost, outbox: Outbox) -> None:
        super().__init__(server, partial(NngPeer, self))
        self.memo = MemoContext(server.broker, outbox, os.urandom)
        self._aged = 0.0  # when old answers were last dropped
        self.configure(server.settings)

    def configure(self, settings: Settings) -> None:
        """Apply new settings to all peers."""
        memo = self.memo
        memo.workers.set_heartbeat(settings.memodb.heartbeat, settings.memodb.reply)
        memo.wait = settings.memodb.wait
        memo.retries = settings.memodb.retries
        memo.grace = settings.memodb.grace
        memo.workers.limit = settings.limits.connections
        memo.interrupted.room = min(KEPT_BYTES, settings.limits.memory // KEPT_SHARE)

    def inspect(self, now: float) -> None:
        """Check all peers for slow reading, and drop old answers."""
        super().inspect(now)
        if now - self._aged >= MEMORY:
            self._aged = now
            for peer in self.peers:
                peer.session.connection.forget_older()
        self.server.budget.hold(self, self.memo.interrupted.size)

    def cut(self, reason: str) -> None:
        """Drop the answers that are kept for broken connections."""
        log.warning("answers for broken NNG connections dropped", reason=reason)
        self.memo.interrupted.forget_replies()

    def show(self) -> dict[str, Any]:
        """Describe the peers for `show_broker`."""
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


class NngPeer(PeerBase, SpTransport):
    """One connection. Messages pass through without being queued."""

    def __init__(self, nng: NngPeers, listener: str, identification: Identification = BY_KEY) -> None:
        super().__init__(nng, listener, identification)
        self.nng = nng
        self.session: MemoSession

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.attach(transport)
        ipc = self.listener.startswith("ipc:")
        host = self.address.rpartition(":")[0]
        self.session = MemoSession(self.nng.memo, self, self.transport.write, host, ipc)
        self.session.connection.principal = self.principal
        self.output = self.session.connection
        self.session.connection.write_large = self.write_large
        self.parser = Connection(self.session, REP, self.server.settings.limits.message_bytes, ipc)
        self.begin_handshake()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.session.lost()

    # The session's side

    def transmit(self, data: bytes) -> None:
        self.transport.write(data)

    def ready(self) -> None:
        self.take_seat()
        self.end_handshake()
        self.nng.peers.add(self)

    def failed(self, error: ProtocolError) -> None:
        self.output.flush()  # answers to the other requests of this connection
        self.refuse(str(error))

    def report_violation(self, reason: str) -> None:
        self.count_violation(self.session.connection.invalid, reason)

    def has_worker(self) -> bool:
        return self.session.is_worker()

    def remembered(self) -> int:
        return self.session.connection.reply_bytes()
