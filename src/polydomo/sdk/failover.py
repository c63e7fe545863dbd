"""Which broker to talk to, and how long to wait before trying again.

All connections of one client or worker share a roster. They stay with the broker that worked last; when it is
lost or cannot be reached, the next in the list is tried, and after a round in vain a pause, longer each time,
with a random part so that a thousand peers of a restarted broker do not come back in the same instant.

The first in the list is where all should meet, or clients and workers that failed over at different times
would miss each other. So a roster that has moved on looks every few seconds whether an earlier broker is back,
beside the connections in use, which notice nothing of it; once there is one, it is the current one and the
owner is told.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from polydomo.errors import Unreachable
from polydomo.sdk import inprocess
from polydomo.sdk.clock import REAL_TIME, Clock, Timer
from polydomo.sdk.connection import Dealer, connect
from polydomo.sdk.connection_sp import knock
from polydomo.sdk.transport import Lost, PeerTransport
from polydomo.sdk.url import Address, Url
from polydomo.wire.frames import Message

AnyLink = TypeVar("AnyLink", bound=PeerTransport)

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0

# How long one broker may take to answer where others can be tried.
HANDSHAKE = 5.0


class Backoff:
    """Pauses that double up to a bound, each shortened by up to half at random."""

    def __init__(self, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def pause(self) -> float:
        """How long to wait this time."""
        pause = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._longest)
        return pause

    def reset(self) -> None:
        """It worked: begin with short pauses again."""
        self._next = self._first


class EndpointSelector:
    """The brokers of one URL."""

    def __init__(self, url: Url, failback: float = 0.0) -> None:
        self.places = url.places
        self._speaks_sp = url.dialect == "memo"
        self.clock = _clock_of(url.places[0])
        self.trouble = ""  # why the last attempt to connect failed; empty: it did not
        self.failback = failback  # seconds between two looks at earlier brokers; 0: never
        self.on_return: Callable[[], None] = _nobody  # an earlier broker is back, and the current one now
        self._current = 0
        self._timer: Timer | None = None  # until the next look, and while it lasts
        self._looking: asyncio.Task[None] | None = None

    @property
    def current(self) -> Address:
        """The one that is tried first."""
        return self.places[self._current]

    def failed(self, place: Address) -> None:
        """This one is of no use now. Those who find out one after the other move on only once."""
        if self.current == place:
            self._current = (self._current + 1) % len(self.places)

    def is_behind(self, place: Address) -> bool:
        """Is there an earlier broker than this one, as far as we know?"""
        return self._current < self.places.index(place)

    def close(self) -> None:
        """Look for nobody any more."""
        self.failback = 0.0
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    async def connect(
        self,
        on_message: Callable[[Message], None],
        on_lost: Callable[[str], None],
        *,
        patience: float | None,
        ping: float = 5.0,
        properties: dict[bytes, bytes] | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> Dealer:
        """A ZMTP connection to the first broker that answers; see `find`."""

        def dial(place: Address, timeout: float) -> Awaitable[Dealer]:
            return connect(
                place,
                on_message,
                on_lost,
                clock=self.clock,
                properties=properties,
                ping=ping,
                timeout=timeout,
            )

        return await self.find(dial, patience, on_failure)

    async def find(
        self,
        dial: Callable[[Address, float], Awaitable[AnyLink]],
        patience: float | None,
        on_failure: Callable[[str], None] | None = None,
    ) -> AnyLink:
        """A connection to the first broker that answers; Unreachable after `patience` seconds, if any. `dial` is given
        a broker and the seconds it may take."""
        backoff = Backoff()
        # One that swallows every packet must leave time for the others.
        each = HANDSHAKE if patience is None else max(patience / len(self.places), 0.1)
        clock = self.clock
        end = None if patience is None else clock.time() + patience
        while True:
            for _ in self.places:
                place = self.current
                try:
                    link = await dial(place, each)
                except Lost as lost:
                    self.trouble = f"{place}: {lost}"
                    self.failed(place)
                    if on_failure is not None:
                        on_failure(self.trouble)
                    continue
                self.trouble = ""
                if self.is_behind(place):  # found while we were connecting
                    link.close()
                    continue
                self._look_back()
                return link
            pause = backoff.pause()
            if end is not None and clock.time() + pause > end:
                raise Unreachable(f"no broker could be reached ({self.trouble})")
            await clock.sleep(pause)

    def _look_back(self) -> None:
        """In a while, if there is anybody to look for and nobody looks yet."""
        if self._current and self.failback > 0 and self._timer is None:
            # At different times, or a thousand peers would come back in the same instant.
            pause = self.failback * random.uniform(0.75, 1.25)
            self._timer = self.clock.call_later(pause, self._look)

    def _look(self) -> None:
        self._looking = asyncio.create_task(self._look_at_earlier())

    async def _look_at_earlier(self) -> None:
        for number, place in enumerate(self.places):
            if number < self._current and await self._answers(place) and number < self._current:
                self._current = number
                self.on_return()
        self._timer = None
        self._look_back()

    async def _answers(self, place: Address) -> bool:
        try:
            if self._speaks_sp:
                await knock(place, self.clock, HANDSHAKE)
            else:
                (await connect(place, _ignore, _ignore, clock=self.clock, timeout=HANDSHAKE)).close()
        except Lost:
            return False
        return True


def _nobody() -> None:
    """Nobody wants to know."""


def _ignore(anything: object) -> None:
    """A connection that only shows that somebody is there."""


def _clock_of(place: Address) -> Clock:
    """A broker in this process may bring its own time."""
    listener = inprocess.find(place.local) if place.endpoint is None else None
    return REAL_TIME if listener is None else listener.clock
