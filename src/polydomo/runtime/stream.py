"""What all connections have in common, whatever is spoken on them: a handshake with a time limit, reading that stops
while a client has too much unanswered, writing that notices a peer which does not read."""

from __future__ import annotations

import asyncio
import socket
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from polydomo.runtime.house import House

# How long a peer that broke the protocol may take to read what was sent before, the reason among it.
LINGER = 1.0

# Above this much unsent, a peer counts as a slow reader; its client's requests are not read until it catches up.
HIGH_WATER = 1024 * 1024


class Outlet(Protocol):
    """Where a peer's answers are collected: `write` takes what `flush` writes out."""

    write: Callable[[bytes], object]

    def flush(self) -> None:
        """Write out what was collected."""


class Parser(Protocol):
    """The pure connection, which can be told to keep what it has."""

    def pause(self) -> None:
        """Hand on no more messages."""

    def resume(self) -> None:
        """Go on."""


class StreamPeer(asyncio.Protocol):
    """One connection, from asyncio's side and the house's. `outlet` and `parser` are set by `connection_made` of the
    wire's own class."""

    def __init__(self, house: House, listener: str, strangers: set[Any]) -> None:
        self.house = house
        self.listener = listener
        self.transport: asyncio.Transport
        self.outlet: Outlet
        self.parser: Parser
        self.address = ""
        self.congested = 0.0  # since when; 0: it keeps up
        self._strangers = strangers  # those still in their handshake
        self._unsent = 0  # when last looked at while congested
        self._reading = True
        self._held = False  # its clients have too much unanswered
        self._limiter: asyncio.TimerHandle | None = None

    @abstractmethod
    def works(self) -> bool:
        """Does a worker speak here? It is always read from: it may be unable to read its next job before its last
        answer is out, and what its clients wait for may be that answer."""

    def deafen(self, deaf: bool) -> None:
        """It is (not) being read from."""

    # asyncio's side

    def attach(self, transport: asyncio.BaseTransport) -> None:
        """The first part of `connection_made`."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self.address = address_of(transport)
        keep_alive(transport)
        self.transport.set_write_buffer_limits(HIGH_WATER)

    def admit(self, strangers: int) -> bool:
        """The second part: it has so much time for its handshake. False: too many are at it."""
        limits = self.house.settings.limits
        if strangers >= limits.unauthenticated:
            self.house.note("connection refused", self, reason="too many handshakes at once")
            self.transport.abort()
            return False
        self._strangers.add(self)
        self._limiter = self.house.loop.call_later(limits.handshake, self._too_slow)
        return True

    def settled(self) -> None:
        """The handshake is over, one way or the other."""
        self._strangers.discard(self)
        if self._limiter is not None:
            self._limiter.cancel()
            self._limiter = None

    def pause_writing(self) -> None:
        self.congested = self.house.clock.read()
        self._unsent = self.transport.get_write_buffer_size()
        self.outlet.write = self._write_congested
        self._adjust_reading()

    def resume_writing(self) -> None:
        self.congested = 0.0
        self.outlet.write = self.transport.write
        self._adjust_reading()

    # The session's side

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
        house = self.house
        house.complaints += 1
        if invalid == 1:
            house.note("message dropped", self, reason=reason)
        if invalid == house.settings.limits.invalid:
            # At the end of the turn, so that it still hears what its protocol says about the last one.
            house.loop.call_soon(self._dismiss, f"{invalid} invalid messages")

    # The house's side

    def cut(self, reason: str) -> None:
        """Close at once; what was unsent is lost."""
        if not self.transport.is_closing():
            self.house.note("peer cut", self, reason=reason)
            self.transport.abort()

    def inspect(self, now: float) -> None:
        """Looked at every few seconds: does it read?"""
        if not self.congested:
            return
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._unsent = unsent
            self.congested = now
        elif now - self.congested > self.house.settings.limits.stalled:
            self.cut(f"it has read nothing for {now - self.congested:.0f} s while {unsent} bytes wait for it")

    def _dismiss(self, reason: str) -> None:
        """Close after what it is owed."""
        if not self.transport.is_closing():
            self.house.note("peer cut", self, reason=reason)
            self.outlet.flush()
            self.transport.close()

    def _write_congested(self, data: bytes) -> None:
        """A slow reader's answers are kept up to a bound."""
        limit = self.house.settings.limits.output_bytes
        if self.transport.get_write_buffer_size() + len(data) > limit:
            self.cut(f"it does not read its answers: more than {limit} bytes wait for it")
        else:
            self.transport.write(data)

    def _adjust_reading(self) -> None:
        """Read unless its clients have too much unanswered or do not read their answers, and no worker is here."""
        stop = (self._held or self.congested > 0) and not self.works()
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
            self.house.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._reading and not self.transport.is_closing():
            self.house.broker.now = self.house.clock.read()
            self.parser.resume()

    def _too_slow(self) -> None:
        self.cut(f"no handshake within {self.house.settings.limits.handshake:g} s")


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
