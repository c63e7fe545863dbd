"""One connection to a broker on asyncio, whatever it speaks: what ZeroMQ's and NNG's have in common.

What is sent in one turn of the loop goes down in one write. While something is awaited (`expect`), a broker that says
nothing is asked whether it is there (`_ask`, in its own way) and given up if it stays silent. However a connection
ends, the owner's `on_lost` is called once, with the reason, unless it closed it itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, cast

from polydomo.sdk import inprocess
from polydomo.sdk.clock import Clock, Timer
from polydomo.sdk.url import Address

# More than this unsent, and `writable` makes those who send wait.
HIGH_WATER: Final = 4 * 1024 * 1024

# How several errors at once are written in one (a name with several addresses).
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")


class Lost(Exception):
    """The connection broke, or could not be made."""


class PeerTransport(asyncio.Protocol):
    """See the module's text."""

    speaks_sp = False  # NNG's wire, where a broker of this process must know before the first byte

    def __init__(self, place: Address, clock: Clock, on_lost: Callable[[str], None], ping: float) -> None:
        self.place = place
        self.clock = clock
        self.native = False  # the broker is one of ours
        self.closed = False
        self._owned = False  # whoever opened it knows of it, and must be told when it is lost
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._ping = ping
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._out: list[bytes] = []
        self._room: asyncio.Future[None] | None = None  # set while too much is unsent
        self._heard = clock.time()
        self._expected = 0
        self._asked = False  # and not heard since
        self._watch: Timer | None = None
        self._look_due = 0.0
        self._why = ""

    # The owner's side

    async def ready(self) -> None:
        """Until the handshake is done; Lost if it fails, or the connection broke right behind it. From then on
        `on_lost` tells."""
        await self._ready
        if self.closed:
            raise Lost(self._why)
        self._owned = True

    def send(self, data: bytes) -> None:
        """One or more whole messages as wire bytes, written at the end of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    @property
    def congested(self) -> bool:
        """So much is unsent that more should wait."""
        return self._room is not None

    async def writable(self) -> None:
        """Until the broker has read enough of what was sent before."""
        while self._room is not None and not self.closed:
            await asyncio.shield(self._room)

    async def settled(self) -> None:
        """Until the broker has dealt with everything sent before, where there is a way to know."""

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
        self._begin()

    def data_received(self, data: bytes) -> None:
        self._heard = self.clock.time()
        self._asked = False
        self._receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._why = self._why or (str(exc) if exc else "the broker closed the connection")
        self._gone()

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._room is not None:
            release(self._room)
            self._room = None

    # What each wire does in its own way

    @abstractmethod
    def _begin(self) -> None:
        """The connection is there: the handshake."""

    @abstractmethod
    def _receive(self, data: bytes) -> None:
        """Bytes from the broker."""

    @abstractmethod
    def _ask(self) -> bool:
        """Is it there? Anything it says is an answer. False: it cannot be asked."""

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
        stalled = now > self._look_due + self._ping  # we were stopped ourselves: not the broker's silence
        if now < self._heard + self._ping:
            self._look_at(self._heard + self._ping)
        elif self._asked and not stalled:
            self.abort(f"it was silent for {now - self._heard:.1f} s and did not answer a PING")
        else:
            self._asked = self._ask()
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

    def _gone(self) -> None:
        if self.closed:
            return
        self._end()
        if not self._ready.done():
            self._ready.set_exception(Lost(self._why))
        elif self._owned:
            self._on_lost(self._why)


async def open_link(link: PeerTransport, timeout: float | None) -> None:
    """Connect it and do its handshake, or Lost with the reason."""
    try:
        async with link.clock.timeout(timeout):
            await _dial(link.place, link)
            await link.ready()
    except TimeoutError:
        link.close()
        raise Lost(f"no handshake within {timeout:g} s") from None
    except OSError as error:
        link.close()
        raise Lost(_words(error)) from error
    except BaseException:
        link.close()
        raise


def release(future: asyncio.Future[None]) -> None:
    """Let go on who waits for it."""
    if not future.done():
        future.set_result(None)


def _words(error: OSError) -> str:
    """The system's own: asyncio has others ("Connect call failed", "Multiple exceptions") with addresses in it."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)  # its numbers are of another kind
    numbers = [error.errno] if error.errno else [int(found) for found in _ERRNO.findall(str(error))]
    return ", ".join(dict.fromkeys(os.strerror(number) for number in numbers)) or str(error)


async def _dial(place: Address, link: PeerTransport) -> None:
    loop = asyncio.get_running_loop()
    endpoint = place.endpoint
    if endpoint is None:
        await inprocess.dial(place.local, link, link.speaks_sp)
    elif endpoint.is_ipc:
        await loop.create_unix_connection(lambda: link, endpoint.unix_path)
    else:
        await loop.create_connection(lambda: link, endpoint.host, endpoint.port)
