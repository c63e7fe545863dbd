"""Common part of all connections, independent of their protocol.

A handshake has a time limit, reading pauses while a client has too much unanswered, slow readers are detected, and the
bytes that are buffered in either direction are reported to the memory budget.
"""

from __future__ import annotations

import asyncio
import socket
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from polydomo.core.principals import ANONYMOUS, Principal
from polydomo.errors import ProtocolError
from polydomo.server import endpoints
from polydomo.server.admission import Admission, site_of
from polydomo.server.auditing import Auditing
from polydomo.server.backlog import Backlog
from polydomo.server.identification import BY_KEY, Identification
from polydomo.server.listeners import Listeners
from polydomo.server.memory_budget import MemoryBudget
from polydomo.server.pace import Pace
from polydomo.server.peer_log import address_of
from polydomo.server.peer_security import PeerSecurity
from polydomo.server.tls import TlsHost, accepting
from polydomo.wire.stream import GREETING, HANDSHAKE
from polydomo.wire.zmtp.connection import ConnectionLimits

# Seconds that a peer that broke the protocol has to read its pending output, which ends with the reason.
LINGER = 1.0

# With more unsent bytes than this, a peer counts as a slow reader until it has read everything; requests of its clients
# are not read in that time. Fewer bytes are first reported by the next inspection.
HIGH_WATER = 256 * 1024

# A read of this size ends its peer's turn: libuv would read 32 times from a socket that has more data, which is 8 MB of
# one peer before the next peer's first byte.
TURN = 64 * 1024

# Reason if a peer with a key to show disconnects before it has.
ABANDONED = "the peer disconnected in its handshake; does it use CURVE, with this broker's key?"

PeerT = TypeVar("PeerT", bound="PeerBase")


class PeerHost(TlsHost, Protocol):
    """Server as its peers see it: the limits that all connections share, and the log of peers."""

    wire_limits: ConnectionLimits
    seats: Admission[PeerBase]  # connections after it
    budget: MemoryBudget
    security: PeerSecurity | None  # None: without CURVE
    audit: Auditing
    violations: int  # invalid messages of all peers


class PeerOutput(Protocol):
    """Buffer of a peer's output: `flush` passes the collected bytes to `write`."""

    write: Callable[[bytes], object]

    def flush(self) -> None:
        """Write the collected bytes."""


class Parser(Protocol):
    """Pure protocol connection that a peer feeds."""

    phase: int  # of `wire.stream`
    spanned: int  # messages that arrived in more than one chunk

    def start(self) -> None:
        """Send this side's first bytes of the handshake."""

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer and pass on the messages in them."""

    def pause(self) -> None:
        """Stop passing on messages."""

    def resume(self) -> None:
        """Pass on messages again."""

    def kept(self) -> int:
        """Return the bytes that were received and not passed on."""

    def close(self) -> None:
        """Drop the received bytes and ignore further ones."""


class PeerGroup(Generic[PeerT]):
    """All peers of one kind. `new_peer` makes one for a connection to a listener, whose text it is given."""

    def __init__(self, server: PeerHost, new_peer: Callable[[str, Identification], PeerT]) -> None:
        self.server = server
        self.new_peer = new_peer
        self.bound: list[str] = []
        self.peers: set[PeerT] = set()

    async def listen(self, text: str, listeners: Listeners) -> None:
        """Listen on an endpoint, or raise ConfigError."""
        endpoint, identification = endpoints.parse_listener(text, tls=True)
        new_peer: Callable[[], asyncio.Protocol] = partial(self.new_peer, text, identification)
        if endpoint.tls:
            new_peer = accepting(self.server, text, new_peer)
        self.bound.append(await listeners.listen(text, endpoint, new_peer))

    def inspect(self, now: float) -> None:
        """Check all peers for silence and slow reading."""
        for peer in list(self.peers):
            peer.inspect(now)

    def close(self, *, hurry: bool = False) -> None:
        """Close all connections after their pending output, or at once."""
        for peer in list(self.peers):
            if hurry:
                peer.transport.abort()
            else:
                peer.output.flush()
                peer.transport.close()


class PeerBase(asyncio.Protocol):
    """One connection. `connection_made` of the subclass sets `output` and `parser`."""

    def __init__(self, group: PeerGroup[Any], listener: str, identification: Identification = BY_KEY) -> None:
        self.group = group
        self.server = group.server
        self.listener = listener
        self.identification = identification
        # The keys that the peer must have one of; None: it needs no key.
        self.security = None if identification.is_given else self.server.security
        self.transport: asyncio.Transport
        self.output: PeerOutput
        self.parser: Parser
        self.address = ""
        self.site = ""  # group of addresses that counts as one
        self.key = b""  # the peer's public key; empty: it has none
        self.principal = ANONYMOUS  # on whose behalf the peer acts
        self.authenticating = False  # the handshake, which has not ended, is to show who the peer is
        self._counted: Principal | None = None  # the principal whose connections this one is among
        self.high_water = HIGH_WATER
        self.heard = self.server.clock.read()  # when the last bytes arrived
        self.backlog: Backlog | None = None  # while the peer reads slower than it is written to
        self._output_pace: Pace
        self._large = 0  # size of the large write that is in progress
        self._input_pace: Pace | None = None  # while a message is unfinished
        self._input = 0  # bytes of the unfinished message
        self._inspected = 0  # the same at the last inspection
        self._spanned = 0  # `Parser.spanned` at the last inspection
        self._reported = 0  # bytes last reported to the memory budget
        self._reading = True
        self._held = False  # the peer's clients have too much unanswered
        self._handshake_timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def has_worker(self) -> bool:
        """Return whether a worker uses this connection.

        Reading from a worker never pauses: it may be unable to read its next job before its last answer is sent, and
        its clients may be waiting for that answer.
        """

    def set_reading_paused(self, paused: bool) -> None:
        """Tell the sessions whether reading is paused."""

    def remembered(self) -> int:
        """Return the bytes of answers that are kept for repetition."""
        return 0

    # asyncio's side

    def attach(self, transport: asyncio.BaseTransport) -> None:
        """Set up the transport; the first step of `connection_made`."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports have other base classes
        self.address = address_of(transport)
        self.principal = self.identification.principal_of(transport)
        self.site = site_of(transport.get_extra_info("peername"), self.listener)
        keep_alive(transport)
        self.transport.set_write_buffer_limits(self.high_water, 0)

    def begin_handshake(self) -> None:
        """Begin the handshake and its timeout, unless the connection is cut for lack of room."""
        server = self.server
        server.handshakes.enter(self, self.site)
        self._handshake_timer = server.loop.call_later(
            server.settings.limits.handshake, self._handshake_expired
        )
        server.descriptors.check(self.transport)
        if not self.transport.is_closing():
            self.parser.start()

    def end_handshake(self) -> None:
        """Stop the handshake's timeout, after success or failure."""
        self.authenticating = False
        self.server.handshakes.leave(self)
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def take_seat(self) -> None:
        """Enter the established connections, or raise ProtocolError.

        When all seats are taken, the site with the most seats gets no more, and a site with fewer takes one from it.
        A principal gets no more than its quota.
        """
        principal = self.server.broker.principals.get(self.principal)
        quota = principal.quota
        if quota is not None and principal.connections >= quota.connections:
            raise ProtocolError(
                f"{principal.name} has {principal.connections} connections and may have {quota.connections}",
                hint="raise the principal's quota",
            )
        if self.server.seats.is_full_for(self.site):
            raise ProtocolError(
                "too many connections", hint="raise limits.connections if this many are expected"
            )
        self.server.seats.enter(self, self.site)
        principal.connections += 1
        self._counted = principal

    def data_received(self, data: bytes) -> None:
        server = self.server
        self.heard = server.clock.read()
        server.broker.advance(self.heard)  # hot path: `advance` without the wall time
        self.parser.receive(data)
        if len(data) >= TURN:
            self._end_turn()

    def _end_turn(self) -> None:
        """Pause reading until the next turn of the event loop, because the peer has sent a lot at once."""
        if self._reading and not self.transport.is_closing():
            self.transport.pause_reading()
            self.server.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._reading and not self.transport.is_closing():
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.advance()
        if self.authenticating and _has_begun(self.parser):
            # libzmq sends no ERROR and no reason if the mechanisms differ.
            self.server.log_peer("handshake not finished", self, ABANDONED)
            self._audit_refusal(ABANDONED)
        self.end_handshake()
        self.parser.close()
        self.server.seats.leave(self)
        if self._counted is not None:
            self._counted.connections -= 1
            self._counted = None
        self.server.budget.release(self)
        self.group.peers.discard(self)

    def pause_writing(self) -> None:
        now = self.server.clock.read()
        self.backlog = Backlog(self.transport.get_write_buffer_size(), self._large)
        self._output_pace = Pace(self.server.settings.limits.stalled, now)
        self.output.write = self._write_congested
        self._adjust_reading()
        self._report()

    def resume_writing(self) -> None:
        self.backlog = None
        self.transport.set_write_buffer_limits(self.high_water, 0)
        self.output.write = self.transport.write
        self._adjust_reading()
        self._report()

    # The session's side

    def buffered(self, size: int) -> None:
        """Record that an unfinished message has `size` bytes; 0 means that it is complete."""
        self._input = size
        self._report()

    def pause(self) -> None:
        """Pause reading, because the peer's clients have too much unanswered."""
        self._held = True
        self._adjust_reading()

    def resume(self) -> None:
        """End the pause that `pause` began."""
        self._held = False
        self._adjust_reading()

    def suspend_reading(self) -> None:
        """Read nothing until `resume_reading`: it is not decided yet whether the peer is admitted."""
        self._reading = False
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """End what `suspend_reading` began."""
        self._reading = True
        self.transport.resume_reading()

    def is_read(self) -> bool:
        """Return whether the peer's bytes are read, so that its silence means something."""
        return self._reading and self.backlog is None

    def count_violation(self, invalid: int, reason: str) -> None:
        """Record the peer's `invalid`th invalid message: the first is logged, `limits.invalid` of them cut the peer."""
        server = self.server
        server.violations += 1
        if invalid == 1:
            server.log_peer("message dropped", self, reason)
        if invalid == server.settings.limits.invalid:
            # At the end of the turn, so that the protocol's answer to this message is still sent.
            server.loop.call_soon(self._dismiss, f"{invalid} invalid messages")

    def refuse(self, reason: str) -> None:
        """Close after a breach of the protocol; pending output is sent first."""
        self.server.log_peer("peer refused", self, reason)
        self._audit_refusal(reason)
        _close(self)

    # The server's side

    def cut(self, reason: str) -> None:
        """Close at once; unsent output is lost."""
        if not self.transport.is_closing():
            self.server.log_peer("peer cut", self, reason)
        self.parser.close()
        self.transport.abort()  # even if it is closing: the peer may never read the rest

    def inspect(self, now: float) -> None:
        """Cut the peer if it is too slow in the middle of a message that it sends or reads."""
        limit = self.server.settings.limits.stalled
        backlog = self.backlog
        if backlog is not None:
            sent = backlog.update(self.transport.get_write_buffer_size())
            if not self._output_pace.keeps_up(limit, now, sent):
                self.cut(f"reads too slowly: {backlog.unsent} bytes are unsent")
                return
        size = self.parser.kept()
        if not size or not self._reading:
            self._input_pace = None  # paused reading is no fault of the peer
        elif self._input_pace is None or self._spanned != self.parser.spanned:
            self._input_pace = Pace(limit, now)
            self._spanned = self.parser.spanned
        elif not self._input_pace.keeps_up(limit, now, size - self._inspected):
            self.cut(f"sends too slowly: {size} bytes of an unfinished message have arrived")
            return
        self._input = self._inspected = size
        self._report()

    def _report(self) -> None:
        """Report the bytes held for this peer to the memory budget, which may cut the peer."""
        if self.transport.is_closing():
            return
        # A growing bytearray takes an eighth more than its size.
        size = self._input * 9 // 8 + self.remembered()
        size += self.transport.get_write_buffer_size() if self.backlog is None else self.backlog.held
        if size != self._reported:
            self._reported = size
            self.server.budget.hold(self, size)

    def _dismiss(self, reason: str) -> None:
        """Close after the pending output."""
        if not self.transport.is_closing():
            self.server.log_peer("peer cut", self, reason)
            self.output.flush()
            _close(self)

    def _write_congested(self, data: bytes) -> None:
        """Write to a slow reader; cut it if more than `limits.output_bytes` would be unsent."""
        limit = self.server.settings.limits.output_bytes
        unsent = self.transport.get_write_buffer_size()
        if unsent + len(data) > limit:
            self.cut(f"does not read its answers: more than {limit} bytes are unsent")
            return
        self.transport.write(data)
        if self.backlog is not None:
            self.backlog.add(len(data))
            self._report()

    def write_large(self, data: bytes) -> None:
        """Write, and count all of `data` as held until its last byte is sent."""
        if self.backlog is None:
            self.transport.set_write_buffer_limits(0, 0)  # `pause_writing` is called if any byte is left
        if self.backlog is not None:
            self._write_congested(data)
            return
        self._large = len(data)
        self.transport.write(data)
        self._large = 0
        if self.backlog is None:
            self.transport.set_write_buffer_limits(self.high_water, 0)

    def _adjust_reading(self) -> None:
        """Pause or resume reading: clients pause that have too much unanswered or do not read their answers."""
        stop = (self._held or self.backlog is not None) and not self.has_worker()
        if stop != self._reading or self.transport.is_closing():
            return
        self._reading = not stop
        self.set_reading_paused(stop)
        if stop:
            self.parser.pause()
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
            # Not at once: the caller may be in the middle of another peer's message.
            self.server.loop.call_soon(self._resume_parser)

    def _resume_parser(self) -> None:
        if self._reading and not self.transport.is_closing():
            self.server.advance()
            self.parser.resume()

    def _handshake_expired(self) -> None:
        reason = f"no handshake within {self.server.settings.limits.handshake:g} s"
        self._audit_refusal(reason)
        self.cut(reason)

    def _audit_refusal(self, reason: str) -> None:
        """Record that the peer could not show who it is, once."""
        if self.authenticating:
            self.authenticating = False
            self.server.audit.refused(self.address, reason)


def _has_begun(parser: Parser) -> bool:
    """Return whether a peer has sent a part of its handshake: a probe of the port has not."""
    return parser.phase == HANDSHAKE or (parser.phase == GREETING and parser.kept() > 0)


def _close(peer: PeerBase) -> None:
    """Close after the pending output, but soon."""
    peer.transport.close()
    peer.server.loop.call_later(LINGER, peer.transport.abort)


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let the kernel detect a peer whose machine vanished: old peers answer no PING."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
