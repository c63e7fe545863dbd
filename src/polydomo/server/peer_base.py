"""What all connections have in common, whatever is spoken on them: a handshake with a time limit, reading that stops
while a client has too much unanswered, writing that notices a peer which does not read, and an account of the bytes
that wait in either direction."""

from __future__ import annotations

import asyncio
import socket
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from polydomo.server.admission import site_of
from polydomo.server.backlog import Backlog
from polydomo.server.pace import Pace

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# How long a peer that broke the protocol may take to read what was sent before, the reason among it.
LINGER = 1.0

# Above this much unsent, a peer counts as a slow reader until it has read everything; its client's requests are not
# read meanwhile. Less than this is not accounted for before the next inspection.
HIGH_WATER = 256 * 1024


# A read of so many bytes ends its peer's turn: libuv would read 32 times from a socket that has more, which is 8 MB of
# one peer before the next peer's first byte.
TURN = 64 * 1024


class PeerOutput(Protocol):
    """Where a peer's answers are collected: `write` takes what `flush` writes out."""

    write: Callable[[bytes], object]

    def flush(self) -> None:
        """Write out what was collected."""


class Parser(Protocol):
    """The pure connection, which can be told to keep what it has."""

    spanned: int  # messages handed on that came in more than one chunk

    def pause(self) -> None:
        """Hand on no more messages."""

    def resume(self) -> None:
        """Go on."""

    def kept(self) -> int:
        """Bytes received and not yet handed on."""

    def close(self) -> None:
        """Drop them and take nothing more."""


class PeerBase(asyncio.Protocol):
    """One connection, from asyncio's side and the server's. `outlet` and `parser` are set by `connection_made` of the
    wire's own class."""

    def __init__(self, server: BrokerServer, listener: str) -> None:
        self.server = server
        self.listener = listener
        self.transport: asyncio.Transport
        self.outlet: PeerOutput
        self.parser: Parser
        self.address = ""
        self.site = ""  # what counts as one address
        self.high_water = HIGH_WATER
        self.backlog: Backlog | None = (
            None  # while it is congested: it does not read as fast as it is written to
        )
        self._output_pace: Pace
        self._large = 0  # bytes of the large write that is being made
        self._input_pace: Pace | None = None  # while a message is unfinished
        self._input = 0  # bytes of it
        self._inspected = 0  # bytes of it when last inspected
        self._spanned = 0  # messages before it
        self._reported = 0  # bytes that the memory budget knows of
        self._reading = True
        self._held = False  # its clients have too much unanswered
        self._limiter: asyncio.TimerHandle | None = None

    @abstractmethod
    def works(self) -> bool:
        """Does a worker speak here? It is always read from: it may be unable to read its next job before its last
        answer is out, and what its clients wait for may be that answer."""

    def deafen(self, reading_paused: bool) -> None:
        """It is (not) being read from."""

    def remembered(self) -> int:
        """Return how many bytes of its answers are kept beside what is on the way."""
        return 0

    # asyncio's side

    def attach(self, transport: asyncio.BaseTransport) -> None:
        """The first part of `connection_made`."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self.address = address_of(transport)
        self.site = site_of(transport.get_extra_info("peername"), self.listener)
        keep_alive(transport)
        self.transport.set_write_buffer_limits(self.high_water, 0)

    def admit(self) -> bool:
        """The second part: it has so much time for its handshake. False: there was no room for it."""
        server = self.server
        server.handshakes.enter(self, self.site)
        self._limiter = server.loop.call_later(server.settings.limits.handshake, self._too_slow)
        server.descriptors.check(self.transport)
        return not self.transport.is_closing()

    def end_turn(self) -> None:
        """Read no more from this peer before the others had their turn. It has sent a lot at once."""
        if self._reading and not self.transport.is_closing():
            self.transport.pause_reading()
            self.server.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._reading and not self.transport.is_closing():
            self.transport.resume_reading()

    def settled(self) -> None:
        """The handshake is over, one way or the other."""
        self.server.handshakes.leave(self)
        if self._limiter is not None:
            self._limiter.cancel()
            self._limiter = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.broker.now = self.server.clock.read()
        self.settled()
        self.parser.close()
        self.server.seats.leave(self)
        self.server.budget.release(self)

    def pause_writing(self) -> None:
        now = self.server.clock.read()
        self.backlog = Backlog(self.transport.get_write_buffer_size(), self._large)
        self._output_pace = Pace(self.server.settings.limits.stalled, now)
        self.outlet.write = self._write_congested
        self._adjust_reading()
        self._report()

    def resume_writing(self) -> None:
        self.backlog = None
        self.transport.set_write_buffer_limits(self.high_water, 0)
        self.outlet.write = self.transport.write
        self._adjust_reading()
        self._report()

    # The session's side

    def buffered(self, size: int) -> None:
        """An unfinished message has grown to `size` bytes; 0: it is whole."""
        self._input = size
        self._report()

    def pause(self) -> None:
        """Its clients have too much unanswered."""
        self._held = True
        self._adjust_reading()

    def resume(self) -> None:
        """No longer."""
        self._held = False
        self._adjust_reading()

    def noted(self, invalid: int, reason: str) -> None:
        """It sent its `invalid`th bad message: one line per peer, as a flood of them must not become a flood of lines,
        and too many end it."""
        server = self.server
        server.complaints += 1
        if invalid == 1:
            server.note("message dropped", self, reason=reason)
        if invalid == server.settings.limits.invalid:
            # At the end of the turn, so that it still hears what its protocol says about the last one.
            server.loop.call_soon(self._dismiss, f"{invalid} invalid messages")

    def refuse(self, reason: str) -> None:
        """It broke the protocol: close after what it is owed, the reason among it."""
        self.server.note("peer refused", self, reason=reason)
        self._close()

    # The server's side

    def cut(self, reason: str) -> None:
        """Close at once; what was unsent is lost."""
        if not self.transport.is_closing():
            self.server.note("peer cut", self, reason=reason)
        self.parser.close()
        self.transport.abort()  # also if it is closing already, and waits for somebody who does not read

    def inspect(self, now: float) -> None:
        """Look every few seconds whether it goes on with what it has begun to send or to read."""
        patience = self.server.settings.limits.stalled
        backlog = self.backlog
        if backlog is not None:
            sent = backlog.update(self.transport.get_write_buffer_size())
            if not self._output_pace.keeps_up(patience, now, sent):
                self.cut(f"it reads too slowly: {backlog.unsent} bytes wait for it")
                return
        size = self.parser.kept()
        if not size or not self._reading:
            self._input_pace = None  # what is not read cannot go on
        elif self._input_pace is None or self._spanned != self.parser.spanned:
            self._input_pace = Pace(patience, now)
            self._spanned = self.parser.spanned
        elif not self._input_pace.keeps_up(patience, now, size - self._inspected):
            self.cut(f"it sends too slowly: a message of which {size} bytes are here does not go on")
            return
        self._input = self._inspected = size
        self._report()

    def _report(self) -> None:
        """Tell the memory budget what is held for this peer, which may be cut for it."""
        if self.transport.is_closing():
            return
        size = (
            self._input * 9 // 8 + self.remembered()
        )  # a bytearray that grows takes an eighth more than it has
        size += self.transport.get_write_buffer_size() if self.backlog is None else self.backlog.held
        if size != self._reported:
            self._reported = size
            self.server.budget.hold(self, size)

    def _dismiss(self, reason: str) -> None:
        """Close after what it is owed."""
        if not self.transport.is_closing():
            self.server.note("peer cut", self, reason=reason)
            self.outlet.flush()
            self._close()

    def _close(self) -> None:
        self.transport.close()
        self.server.loop.call_later(LINGER, self.transport.abort)

    def _write_congested(self, data: bytes) -> None:
        """A slow reader's answers are kept up to a bound."""
        limit = self.server.settings.limits.output_bytes
        unsent = self.transport.get_write_buffer_size()
        if unsent + len(data) > limit:
            self.cut(f"it does not read its answers: more than {limit} bytes wait for it")
            return
        self.transport.write(data)
        if self.backlog is not None:
            self.backlog.add(len(data))
            self._report()

    def write_large(self, data: bytes) -> None:
        """Write, and count all of `data` as held while any of it is unsent, however little."""
        if self.backlog is None:
            self.transport.set_write_buffer_limits(
                0, 0
            )  # congested from the first byte that cannot be sent at once
        if self.backlog is not None:
            self._write_congested(data)
            return
        self._large = len(data)
        self.transport.write(data)
        self._large = 0
        if self.backlog is None:
            self.transport.set_write_buffer_limits(self.high_water, 0)

    def _adjust_reading(self) -> None:
        """Read unless its clients have too much unanswered or do not read their answers, and no worker is here."""
        stop = (self._held or self.backlog is not None) and not self.works()
        if stop != self._reading or self.transport.is_closing():
            return
        self._reading = not stop
        self.deafen(stop)
        if stop:
            self.parser.pause()
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
            # Not from here: this may be deep inside the handling of another peer's message.
            self.server.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._reading and not self.transport.is_closing():
            self.server.broker.now = self.server.clock.read()
            self.parser.resume()

    def _too_slow(self) -> None:
        self.cut(f"no handshake within {self.server.settings.limits.handshake:g} s")


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
