"""Choice of the broker to connect to, and the pauses between attempts.

All connections of one client or worker share an endpoint selector. They stay with the broker that worked last; when it
is lost or unreachable, the next in the list is tried. After a round without success there is a pause, longer each time
and partly random, so that a thousand peers of a restarted broker do not return in the same instant.

All peers should meet at the first broker in the list; clients and workers that failed over at different times would
miss each other. So a selector that has moved on checks every few seconds whether an earlier broker is back, without
touching the connections in use. When one answers, it becomes the current broker and the owner is notified.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from polydomo.errors import Unreachable
from polydomo.sdk import inprocess
from polydomo.sdk.clock import REAL_TIME, AsyncClock, TimerHandle
from polydomo.sdk.connection import Dealer
from polydomo.sdk.connection_sp import Req
from polydomo.sdk.transport import HANDSHAKE, PING, AnyTransport, ConnectionLost, open_transport
from polydomo.sdk.url import KEY_VARIABLE, SERVER_KEY_VARIABLE, Address, Url
from polydomo.wire.frames import Message

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


class Backoff:
    """Pauses that double up to a bound, each shortened by up to half at random."""

    def __init__(self, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def pause(self) -> float:
        """Return the next pause in seconds."""
        pause = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._longest)
        return pause

    def reset(self) -> None:
        """Start with short pauses again after a success."""
        self._next = self._first


class EndpointSelector:
    """The brokers of one URL, and which of them is in use."""

    def __init__(self, url: Url, failback: float = 0.0) -> None:
        self.addresses = url.addresses
        self._transport: type[Dealer | Req] = Req if url.dialect == "memo" else Dealer
        self.clock = _clock_of(url.addresses[0])
        self.last_error = ""  # why the last attempt to connect failed; empty after a success
        self.failback = failback  # seconds between two checks of earlier brokers; 0: never
        self.on_return: Callable[[], None] = (
            _ignore  # called when an earlier broker has become the current one
        )
        self._current = 0
        self._timer: TimerHandle | None = None  # until the next check, and while it runs
        self._check: asyncio.Task[None] | None = None

    @property
    def current(self) -> Address:
        """The broker that is tried first."""
        return self.addresses[self._current]

    def failed(self, address: Address) -> None:
        """Move on to the next broker; once only, however many connections report the same failure."""
        if self.current == address:
            self._current = (self._current + 1) % len(self.addresses)

    def is_behind(self, address: Address) -> bool:
        """Return whether the current broker comes before this one in the list."""
        return self._current < self.addresses.index(address)

    def close(self) -> None:
        """Stop checking earlier brokers."""
        self.failback = 0.0
        if self._timer is not None:
            self._timer.cancel()
        if self._check is not None:
            self._check.cancel()

    async def connect(
        self,
        on_message: Callable[[Message], None],
        on_lost: Callable[[str], None],
        *,
        timeout: float | None,
        ping: float = PING,
        properties: dict[bytes, bytes] | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> Dealer:
        """Return a ZMTP connection to the first broker that answers; see `find`."""

        def make(address: Address) -> Dealer:
            return Dealer(address, self.clock, on_message, on_lost, ping=ping, properties=properties)

        return await self.find(make, timeout, on_failure)

    async def find(
        self,
        make: Callable[[Address], AnyTransport],
        timeout: float | None,
        on_failure: Callable[[str], None] | None = None,
    ) -> AnyTransport:
        """Return a connection to the first broker that answers. Raises Unreachable after `timeout` seconds, if any.
        `make` gets a broker's address and returns a transport to open."""
        backoff = Backoff()
        # A broker that swallows every packet must leave time for the others.
        each = HANDSHAKE if timeout is None else max(timeout / len(self.addresses), 0.1)
        clock = self.clock
        end = None if timeout is None else clock.time() + timeout
        while True:
            for _ in self.addresses:
                address = self.current
                try:
                    transport = await open_transport(make(address), each)
                except ConnectionLost as lost:
                    self.last_error = f"{address}: {lost}"
                    self.failed(address)
                    if on_failure is not None:
                        on_failure(self.last_error)
                    continue
                self.last_error = ""
                if self.is_behind(address):  # an earlier broker answered in the meantime
                    transport.close()
                    continue
                self._schedule_check()
                return transport
            pause = backoff.pause()
            if end is not None and clock.time() + pause > end:
                raise Unreachable(f"no broker could be reached ({self.last_error})", hint=self._hint())
            await clock.sleep(pause)

    def _hint(self) -> str | None:
        """Return what to check about keys after a failure; None: nothing."""
        keys = self.current.keys
        if keys is not None:
            return keys.hint
        if "CURVE" in self.last_error:
            return f"the broker requires keys: set {SERVER_KEY_VARIABLE} and {KEY_VARIABLE}"
        return None

    def _schedule_check(self) -> None:
        if self._current and self.failback > 0 and self._timer is None:
            # At random times, or a thousand peers would return in the same instant.
            pause = self.failback * random.uniform(0.75, 1.25)
            self._timer = self.clock.call_later(pause, self._start_check)

    def _start_check(self) -> None:
        self._check = asyncio.create_task(self._check_earlier())

    async def _check_earlier(self) -> None:
        for number, address in enumerate(self.addresses):
            if number < self._current and await self._answers(address) and number < self._current:
                self._current = number
                self.on_return()
        self._timer = None
        self._schedule_check()

    async def _answers(self, address: Address) -> bool:
        try:
            (await open_transport(self._transport(address, self.clock, _ignore, _ignore))).close()
        except ConnectionLost:
            return False
        return True


def _ignore(*args: object) -> None: ...


def _clock_of(address: Address) -> AsyncClock:
    """Return an in-process broker's own clock; else real time."""
    broker = inprocess.find(address.local) if address.endpoint is None else None
    return REAL_TIME if broker is None else broker.clock
