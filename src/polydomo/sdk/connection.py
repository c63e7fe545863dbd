"""One connection to a broker: a ZMTP DEALER on asyncio.

Messages go up to the owner's `on_message`, what is sent in one turn of the loop goes down in one write. While
something is awaited (`expect`), a broker that says nothing is pinged (ZMTP PING) and given up if it stays
silent. However a connection ends, the owner's `on_lost` is called once, with the reason, unless it closed it
itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections import deque
from collections.abc import Callable
from typing import cast

from polydomo._version import __version__
from polydomo.dialects.session import NATIVE_PROPERTY
from polydomo.errors import ProtocolError
from polydomo.sdk import local
from polydomo.sdk.clock import Clock, Timer
from polydomo.sdk.url import Place
from polydomo.wire.frames import Message
from polydomo.wire.zmtp.connection import TRAFFIC, Connection, Handler, Limits, Peer

# A broker may answer with anything its own limits allow; this only bounds nonsense.
LIMITS = Limits(message_bytes=1 << 31, frames=1 << 16)

# More than this unsent, and `writable` makes those who send wait.
HIGH_WATER = 4 * 1024 * 1024


# How several errors at once are written in one (a name with several addresses).
_ERRNO = re.compile(r"\[Errno (\d+)\]")

# The context of a PING that asks whether all before it was dealt with.
_SETTLED = b"settled"


class Lost(Exception):
    """The connection broke, or could not be made."""


class Dealer(asyncio.Protocol, Handler):
    """See the module's text; made by `connect`."""

    def __init__(
        self,
        place: Place,
        clock: Clock,
        on_message: Callable[[Message], None],
        on_lost: Callable[[str], None],
        properties: dict[bytes, bytes],
        ping: float,
    ) -> None:
        self.place = place
        self.clock = clock
        self.native = False  # the broker is one of ours
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_lost = on_lost
        self._ping = ping
        self._transport: asyncio.Transport | None = None
        self._connection = Connection(
            self, b"DEALER", False, LIMITS, properties={NATIVE_PROPERTY: __version__.encode(), **properties}
        )
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._out: list[bytes] = []
        self._room: asyncio.Future[None] | None = None  # set while too much is unsent
        self._heard = clock.time()
        self._expected = 0
        self._pinged = False
        self._settling: deque[asyncio.Future[None]] = deque()
        self._watch: Timer | None = None
        self._look_due = 0.0
        self._why = ""

    # The owner's side

    async def ready(self) -> None:
        """Until the handshake is done; Lost if it fails."""
        await self._ready

    def send(self, data: bytes) -> None:
        """One or more whole messages as wire bytes, written at the end of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    async def writable(self) -> None:
        """Until the broker has read enough of what was sent before."""
        while self._room is not None and not self.closed:
            await asyncio.shield(self._room)

    async def settled(self) -> None:
        """Until the broker has dealt with everything sent before: it answers a PING in its turn. At once if
        it knows no PING, or is lost meanwhile."""
        peer = self._connection.peer
        if peer is None or peer.minor < 1 or self.closed:
            return
        answered: asyncio.Future[None] = self._loop.create_future()
        self._settling.append(answered)
        self._flush()
        self._connection.ping(0.0, _SETTLED)
        await answered

    def expect(self, number: int) -> None:
        """So many more (or fewer) answers are awaited: silence is suspicious while there are any."""
        if not self._expected and number > 0:
            self._heard = max(self._heard, self.clock.time())
            if self._watch is None and self._ping > 0:
                self._look_at(self._heard + self._ping)
        self._expected += number

    def close(self) -> None:
        """Write out what was sent, then close. The owner is not called any more."""
        if not self.closed:
            self._flush()
            self._end()
            if self._transport is not None:
                self._transport.close()

    def abort(self, reason: str) -> None:
        """Give the broker up at once."""
        if not self.closed:
            self._why = reason
            if self._transport is not None:
                self._transport.abort()
            self._gone()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self._transport.set_write_buffer_limits(HIGH_WATER)
        if self.closed:  # given up while it was being made
            self._transport.abort()
            return
        self._connection.start()

    def data_received(self, data: bytes) -> None:
        self._heard = self.clock.time()
        self._pinged = False
        self._connection.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._why = self._why or (str(exc) if exc else "the broker closed the connection")
        self._gone()

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._room is not None:
            _release(self._room)
            self._room = None

    # ZMTP's side

    def transmit(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def peer_ready(self, peer: Peer) -> None:
        self.native = NATIVE_PROPERTY.lower() in peer.properties
        # Not before the connection counts itself ready, which is after this call.
        self._loop.call_soon(_release, self._ready)

    def message(self, message: Message) -> None:
        if not self.closed:
            self._on_message(message)

    def ponged(self, context: bytes) -> None:
        if context == _SETTLED and self._settling:
            _release(self._settling.popleft())

    def failed(self, error: ProtocolError) -> None:
        self.abort(error.message)

    # Inside

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None and not self.closed:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        self._out = []

    def _look(self) -> None:
        """Nothing may have been heard for a while: ask, and if that was in vain, give up."""
        self._watch = None
        if self.closed or not self._expected:
            return
        now = self.clock.time()
        peer = self._connection.peer
        stalled = now > self._look_due + self._ping  # we were stopped ourselves: not the broker's silence
        if now < self._heard + self._ping:
            self._look_at(self._heard + self._ping)
        elif self._pinged and not stalled:
            self.abort(f"it was silent for {now - self._heard:.1f} s and did not answer a PING")
        else:
            if peer is not None and peer.minor >= 1 and self._connection.phase == TRAFFIC:
                self._pinged = True
                self._connection.ping(0.0)  # no TTL: it would hold us to pinging for ever
            self._look_at(now + self._ping)

    def _look_at(self, when: float) -> None:
        self._look_due = when
        self._watch = self.clock.call_at(when, self._look)

    def _end(self) -> None:
        self.closed = True
        self._out = []
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self.resume_writing()
        while self._settling:
            _release(self._settling.popleft())

    def _gone(self) -> None:
        if self.closed:
            return
        self._end()
        if not self._ready.done():
            self._ready.set_exception(Lost(self._why))
        else:
            self._on_lost(self._why)


async def connect(
    place: Place,
    on_message: Callable[[Message], None],
    on_lost: Callable[[str], None],
    *,
    clock: Clock,
    properties: dict[bytes, bytes] | None = None,
    ping: float = 5.0,
    timeout: float | None = 5.0,
) -> Dealer:
    """A connection whose handshake is done, or Lost with the reason."""
    dealer = Dealer(place, clock, on_message, on_lost, properties or {}, ping)
    try:
        async with clock.timeout(timeout):
            await _dial(place, dealer)
            await dealer.ready()
    except TimeoutError:
        dealer.close()
        raise Lost(f"no handshake within {timeout:g} s") from None
    except OSError as error:
        dealer.close()
        raise Lost(_words(error)) from error
    except BaseException:
        dealer.close()
        raise
    return dealer


def _words(error: OSError) -> str:
    """The system's own: asyncio has others ("Connect call failed", "Multiple exceptions") with addresses in it."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)  # its numbers are of another kind
    numbers = [error.errno] if error.errno else [int(found) for found in _ERRNO.findall(str(error))]
    return ", ".join(dict.fromkeys(os.strerror(number) for number in numbers)) or str(error)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _dial(place: Place, dealer: Dealer) -> None:
    loop = asyncio.get_running_loop()
    endpoint = place.endpoint
    if endpoint is None:
        await local.dial(place.local, dealer)
    elif endpoint.is_ipc:
        await loop.create_unix_connection(lambda: dealer, endpoint.unix_path)
    else:
        await loop.create_connection(lambda: dealer, endpoint.host, endpoint.port)
