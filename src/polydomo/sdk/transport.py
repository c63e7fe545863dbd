"""Connections to a broker on asyncio: the part that ZeroMQ's and NNG's have in common.

Everything sent in one turn of the loop goes out in one write. While a reply is awaited (`expect`), a silent broker is
checked (`_check_peer`, a PING or its equivalent) and the connection aborted if the silence continues. At the end of a
connection the owner's `on_lost` is called once, with the reason, unless the owner closed the connection.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, cast

from polydomo.errors import ProtocolError
from polydomo.sdk import inprocess
from polydomo.sdk.clock import AsyncClock, TimerHandle
from polydomo.sdk.url import Address

# Seconds for a handshake, and of silence before the peer is checked, unless the owner sets others.
HANDSHAKE: Final = 5.0
PING: Final = 5.0

# Unsent bytes above which `writable` waits.
HIGH_WATER: Final = 4 * 1024 * 1024

# asyncio joins the errors of a host name with several addresses in one message.
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")


class ConnectionLost(Exception):
    """A connection that broke or could not be made."""


class WireConnection(Protocol):
    """The common part of ZMTP's and SP's connections."""

    def start(self) -> None: ...
    def receive(self, data: bytes) -> None: ...


class PeerTransport(asyncio.Protocol):
    """One connection to a broker: sending, flow control and liveness. Subclasses set the wire's `_connection`."""

    _connection: WireConnection
    speaks_sp = False  # NNG's wire; an in-process broker must know before the first byte

    def __init__(
        self, address: Address, clock: AsyncClock, on_lost: Callable[[str], None], ping: float
    ) -> None:
        self.address = address
        self.clock = clock
        self.native = False  # the peer is a Polydomo broker
        self.closed = False
        self._owned = False  # the handshake is done and reported, so `on_lost` must be called
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._ping = ping
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._out: list[bytes] = []
        self._seal: Callable[[bytes], bytes] | None = None  # encryption, in the order of writes
        self._drained: asyncio.Future[None] | None = None  # set while too much is unsent
        self._last_received = clock.time()
        self._expected = 0
        self._checking = False  # the peer was checked and has been silent since
        self._timer: TimerHandle | None = None
        self._timer_due = 0.0
        self._reason = ""

    # For the owner

    async def ready(self) -> None:
        """Wait for the handshake. Raises ConnectionLost if it fails or the connection breaks directly after it; later
        losses are reported to `on_lost`."""
        await self._ready
        if self.closed:
            raise ConnectionLost(self._reason)
        self._owned = True

    def send(self, data: bytes) -> None:
        """Send one or more whole messages (wire bytes) at the end of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    @property
    def congested(self) -> bool:
        """True while more than `HIGH_WATER` bytes are unsent."""
        return self._drained is not None

    async def writable(self) -> None:
        """Wait while the connection is congested."""
        while self._drained is not None and not self.closed:
            await asyncio.shield(self._drained)

    async def settled(self) -> None:
        """Wait until the broker has processed everything sent before, if the protocol can tell."""

    def expect(self, number: int) -> None:
        """Add to the number of awaited replies. Silence is checked only while it is not zero."""
        if not self._expected and number > 0:
            self._last_received = max(self._last_received, self.clock.time())
            if self._timer is None and self._ping > 0:
                self._check_at(self._last_received + self._ping)
        self._expected += number

    def close(self) -> None:
        """Write everything sent so far, then close without calling `on_lost`."""
        if not self.closed:
            self._flush()
            self._end()
            if self._transport is not None:
                self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once and report the connection as lost."""
        if not self.closed:
            self._reason = reason
            if self._transport is not None:
                self._transport.abort()
            self._fail()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self._transport.set_write_buffer_limits(HIGH_WATER)
        if self.closed:  # while connecting
            self._transport.abort()
            return
        self._connection.start()

    def data_received(self, data: bytes) -> None:
        self._heard()
        self._connection.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._reason = self._reason or (str(exc) if exc else "the broker closed the connection")
        self._fail()

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._drained is not None:
            release(self._drained)
            self._drained = None

    # For the wire's connection, whose handler the subclass is

    def transmit(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def failed(self, error: ProtocolError) -> None:
        self.abort(error.message)

    # Implemented for each wire

    @abstractmethod
    def _check_peer(self) -> bool:
        """Provoke a sign of life; any received byte counts. Return False if the peer cannot be checked."""

    def _heard(self) -> None:
        self._last_received = self.clock.time()
        self._checking = False

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None and not self.closed:
            data = out[0] if len(out) == 1 else b"".join(out)
            self._transport.write(data if self._seal is None else self._seal(data))
        self._out = []

    def _check_silence(self) -> None:
        """Check the peer after `ping` seconds of silence; abort if the last check had no answer."""
        self._timer = None
        if self.closed or not self._expected:
            return
        now = self.clock.time()
        stalled = now > self._timer_due + self._ping  # this process was stopped, not the broker
        if now < self._last_received + self._ping:
            self._check_at(self._last_received + self._ping)
        elif self._checking and not stalled:
            self.abort(f"it was silent for {now - self._last_received:.1f} s and did not answer a PING")
        else:
            self._checking = self._check_peer()
            self._check_at(now + self._ping)

    def _check_at(self, when: float) -> None:
        self._timer_due = when
        self._timer = self.clock.call_at(when, self._check_silence)

    def _end(self) -> None:
        self.closed = True
        self._out = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.resume_writing()

    def _fail(self) -> None:
        if self.closed:
            return
        self._end()
        if not self._ready.done():
            self._ready.set_exception(ConnectionLost(self._reason))
        elif self._owned:
            self._on_lost(self._reason)


AnyTransport = TypeVar("AnyTransport", bound=PeerTransport)


async def open_transport(transport: AnyTransport, timeout: float | None = HANDSHAKE) -> AnyTransport:
    """Connect, complete the handshake and return the transport. Raises ConnectionLost with the reason."""
    try:
        async with transport.clock.timeout(timeout):
            await _dial(transport.address, transport)
            await transport.ready()
    except TimeoutError:
        transport.close()
        raise ConnectionLost(f"no handshake within {timeout:g} s") from None
    except OSError as error:
        transport.close()
        raise ConnectionLost(_os_message(error)) from error
    except BaseException:
        transport.close()
        raise
    return transport


def release(future: asyncio.Future[None]) -> None:
    """Complete a future unless it is done."""
    if not future.done():
        future.set_result(None)


def _os_message(error: OSError) -> str:
    """Return the system's message, without asyncio's own text ("Connect call failed", "Multiple exceptions")."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)  # its numbers are no errno
    numbers = [error.errno] if error.errno else [int(found) for found in _ERRNO.findall(str(error))]
    return ", ".join(dict.fromkeys(os.strerror(number) for number in numbers)) or str(error)


async def _dial(address: Address, transport: PeerTransport) -> None:
    loop = asyncio.get_running_loop()
    endpoint = address.endpoint
    if endpoint is None:
        await inprocess.dial(address.local, transport, transport.speaks_sp)
    elif address.tls is not None:
        from polydomo.sdk import tls  # here, because most programs do not need it

        await tls.connect(endpoint, address.tls, transport)
    elif endpoint.is_ipc:
        await loop.create_unix_connection(lambda: transport, endpoint.unix_path)
    else:
        await loop.create_connection(lambda: transport, endpoint.host, endpoint.port)
