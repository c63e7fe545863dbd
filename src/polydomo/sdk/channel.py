"""The way of a client's requests to its broker and back, whatever the dialect.

A channel carries one call at a time per connection, or many, as its dialect allows. It either brings the
final body or raises Lost; whether the call is sent again is the client's decision, not the channel's.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from polydomo.core.gather import Piece
from polydomo.core.names import parse_name
from polydomo.core.registry import SERVICE_NAME_MAX
from polydomo.sdk.connection import Dealer, Lost
from polydomo.sdk.failover import AnyLink, EndpointSelector
from polydomo.sdk.failures import Account
from polydomo.sdk.transport import PeerTransport
from polydomo.wire.frames import Message


class NoResult(Exception):
    """The broker says, in its dialect's own words, that a job has no result."""

    def __init__(self, account: Account) -> None:
        super().__init__(account.message)
        self.account = account


class Watch:
    """Who wants to know how a job goes on, where a dialect tells it (NFP). Nobody has to."""

    def accepted(self, workers: list[str]) -> None:
        """The broker has taken it; it is on disk there if it is durable. `workers`: whom it is for, if known."""

    def event(self, worker: str, kind: str, body: bytes) -> None:
        """A worker says how it goes on (one frame)."""

    def gathered(self, piece: Piece) -> None:
        """One of several workers has answered or failed."""


class Call:
    """One request as the channels see it."""

    __slots__ = (
        "body",
        "deleted",
        "limit",
        "native",
        "once",
        "partial",
        "request",
        "run_limit",
        "sent",
        "service",
        "target",
        "uid",
        "watch",
        "withdrawn",
    )

    def __init__(
        self,
        service: bytes,
        body: bytes,
        partial: Callable[[bytes], None] | None = None,
        *,
        uid: str = "",
        target: bytes = b"any",
        watch: Watch | None = None,
    ) -> None:
        self.service = service
        self.body = body  # canonical (wire.frames)
        self.partial = partial  # gets the canonical bodies of partial answers; None: nobody wants them
        self.sent = 0  # how often
        self.native = False  # the broker it was sent to is one of ours, so its failures can be believed
        self.uid = uid  # NFP only, as all that follows
        self.target = target
        self.watch = watch
        self.withdrawn = False  # given up by somebody who wants the job itself ended
        self.deleted = False  # and the broker was told
        self.limit: float | None = None  # seconds it may take in all
        self.once = False  # it must not be sent twice
        self.run_limit: float | None = None  # MemoDB only: seconds a worker may take, if fewer
        self.request = b""  # MemoDB only: its ID, the same however often it is sent


def service_name(name: str) -> bytes:
    """A name as the wire wants it; neither MDP nor DCP could tell the sender that it is a bad one."""
    encoded = parse_name(name)
    if not 0 < len(encoded) <= SERVICE_NAME_MAX:
        raise ValueError(f"a service name has 1 to {SERVICE_NAME_MAX} bytes, {name!r} has {len(encoded)}")
    return encoded


class Channel(ABC):
    """One client's connection or connections."""

    def __init__(self, roster: EndpointSelector, connect_timeout: float, ping: float) -> None:
        self.roster = roster
        roster.on_return = self.renew
        self.closed = False
        self._connect_timeout = connect_timeout
        self._ping = ping

    @abstractmethod
    async def exchange(self, call: Call) -> bytes:
        """Send the request and wait for its final body. Lost if the connection breaks meanwhile."""

    @abstractmethod
    def retire(self) -> None:
        """The broker is stopping: new calls go to the next one, those under way may still be answered."""

    @abstractmethod
    def renew(self) -> None:
        """The roster has another broker now: the same for new calls, and for those under way."""

    @abstractmethod
    def close(self) -> None:
        """For good; whoever still waits gets Lost."""

    async def _connect(self, on_message: Callable[[Message], None], on_lost: Callable[[str], None]) -> Dealer:
        self._check()
        dealer = await self.roster.connect(
            on_message, on_lost, patience=self._connect_timeout, ping=self._ping
        )
        return self._keep(dealer)

    def _keep(self, link: AnyLink) -> AnyLink:
        """A connection that was just made, unless the client was closed meanwhile."""
        if self.closed:
            link.close()
        self._check()
        return link

    def _check(self) -> None:
        if self.closed:
            raise Lost("the client was closed")


class Multiplexer(ABC):
    """One connection and the calls on it, many at a time."""

    link: PeerTransport

    @abstractmethod
    def retire(self) -> None:
        """Close when the calls that are on it have been answered."""

    @abstractmethod
    def lost(self, reason: str) -> None:
        """The connection broke, with or without calls on it."""


AnyPipe = TypeVar("AnyPipe", bound=Multiplexer)


class MultiplexedChannel(Channel, Generic[AnyPipe]):
    """One pipe, opened when it is first needed and again after it was lost."""

    def __init__(self, roster: EndpointSelector, connect_timeout: float, ping: float) -> None:
        super().__init__(roster, connect_timeout, ping)
        self._opening = asyncio.Lock()
        self._pipe: AnyPipe | None = None
        self._retired: set[AnyPipe] = set()  # with calls under way

    def retire(self) -> None:
        if self._pipe is not None:
            self.roster.failed(self._pipe.link.place)
        self.renew()

    def renew(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self._retired.add(pipe)
            pipe.retire()

    def close(self) -> None:
        self.closed = True
        self.roster.close()
        for pipe in [*self._retired, *([self._pipe] if self._pipe is not None else [])]:
            pipe.lost("the client was closed")
            pipe.link.close()

    def drop(self, pipe: AnyPipe) -> None:
        """It is of no use any more."""
        self._retired.discard(pipe)
        if self._pipe is pipe:
            self._pipe = None

    async def _open(self) -> AnyPipe:
        """Whoever comes first opens it, the others wait."""
        async with self._opening:
            if self._pipe is None:
                self._pipe = await self._dial()
            return self._pipe

    @abstractmethod
    async def _dial(self) -> AnyPipe:
        """A pipe that is connected. Lost if the client is closed, or was meanwhile."""
