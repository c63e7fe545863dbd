"""Transfer of a client's requests to its broker, in any dialect.

A channel carries one call at a time per connection, or many, as its dialect allows. It returns the final body or
raises ConnectionLost; whether the call is sent again is the client's decision, not the channel's.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from polydomo.core.names import parse_name
from polydomo.core.pieces import Piece
from polydomo.core.services import SERVICE_NAME_MAX
from polydomo.sdk.codecs import Codec
from polydomo.sdk.connection import Dealer
from polydomo.sdk.failover import EndpointSelector
from polydomo.sdk.failures import FailureInfo
from polydomo.sdk.transport import AnyTransport, ConnectionLost, PeerTransport
from polydomo.sdk.url import Address
from polydomo.wire.frames import Message

T = TypeVar("T")

CLOSED = "the client was closed"


class NoResult(Exception):
    """A broker's report, in its dialect's own terms, that a job has no result."""

    def __init__(self, info: FailureInfo) -> None:
        super().__init__(info.message)
        self.info = info


class JobObserver(NamedTuple):
    """Callbacks about a job's progress, for dialects that report it (NFP)."""

    accepted: Callable[
        [list[str]], None
    ]  # the workers the job is for, if known; a durable job is on disk by now
    event: Callable[[str, str, bytes], None]  # worker, kind, body (one frame)
    gathered: Callable[[Piece], None]  # the reply or failure of one of several workers


@dataclass(slots=True, eq=False)
class ClientCall:
    """One request as the channels see it."""

    service: bytes
    body: bytes  # canonical (wire.frames)
    name: str  # the service's, for records and messages
    codec: Codec
    timeout: float | None  # seconds for the whole call
    retries: int
    partial: Callable[[bytes], None] | None = None  # called with the canonical body of each partial reply
    sent: int = 0  # how many times
    native: bool = False  # sent to a Polydomo broker, so marked failures can be trusted

    # NFP only
    uid: str = ""
    target: bytes = b"any"
    observer: JobObserver | None = None
    cancelled: bool = False  # by a caller that wants the job itself ended
    delete_sent: bool = False

    # MemoDB only
    run_timeout: float | None = None  # seconds for one worker, if fewer than `timeout`
    request_id: bytes = b""  # the same for every repetition


def service_name(name: str) -> bytes:
    """Encode a service's name. Checked here because neither MDP nor DCP can report a bad one to its sender."""
    encoded = parse_name(name)
    if not 0 < len(encoded) <= SERVICE_NAME_MAX:
        raise ValueError(f"a service name has 1 to {SERVICE_NAME_MAX} bytes, {name!r} has {len(encoded)}")
    return encoded


class Channel(ABC):
    """The connections of one client."""

    def __init__(self, selector: EndpointSelector, connect_timeout: float, ping: float) -> None:
        self.selector = selector
        selector.on_return = self.renew
        self.closed = False
        self._connect_timeout = connect_timeout
        self._ping = ping
        self._connections: set[ClientConnection] = set()  # for new calls
        self._retired: set[ClientConnection] = set()  # with calls outstanding

    @abstractmethod
    async def exchange(self, call: ClientCall) -> bytes:
        """Send the request and return its final body. Raises ConnectionLost if the connection breaks first."""

    def retire(self) -> None:
        """Send new calls to the next broker because this one is stopping; outstanding calls may still be answered."""
        current = self.selector.current
        if any(connection.transport.address == current for connection in self._connections):
            self.selector.failed(current)
        self.renew()

    def renew(self) -> None:
        """Send new calls to the selector's current broker; outstanding calls may still be answered."""
        connections, self._connections = self._connections, set()
        self._retired |= connections
        for connection in connections:
            connection.retire()

    def close(self) -> None:
        """Close all connections; outstanding calls raise ConnectionLost."""
        self.closed = True
        self.selector.close()
        for connection in self._connections | self._retired:
            connection.lost(CLOSED)
            connection.close()

    def drop(self, connection: ClientConnection) -> None:
        """Forget a connection that is closed or lost."""
        self._connections.discard(connection)
        self._retired.discard(connection)

    async def _connect(self, on_message: Callable[[Message], None], on_lost: Callable[[str], None]) -> Dealer:
        clock, ping = self.selector.clock, self._ping
        return await self._find(lambda address: Dealer(address, clock, on_message, on_lost, ping=ping))

    async def _find(self, make: Callable[[Address], AnyTransport]) -> AnyTransport:
        """Return a new connection. Raises ConnectionLost if the client is closed before it is ready."""
        self._check_open()
        transport = await self.selector.find(make, self._connect_timeout)
        if self.closed:
            transport.close()
        self._check_open()
        return transport

    def _check_open(self) -> None:
        if self.closed:
            raise ConnectionLost(CLOSED)


class ClientConnection(ABC):
    """One connection and the calls outstanding on it."""

    transport: PeerTransport

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._retired = False
        self._pending: set[asyncio.Future[Any]] = set()

    @abstractmethod
    async def exchange(self, call: ClientCall) -> bytes:
        """Send the request and return its final body. Raises ConnectionLost if the connection breaks first."""

    def retire(self) -> None:
        """Close the connection as soon as no call is outstanding."""
        self._retired = True
        if not self._pending:
            self.close()

    def close(self) -> None:
        """Close the connection at once."""
        self.transport.close()
        self._channel.drop(self)

    def lost(self, reason: str) -> None:
        """Fail the outstanding calls after the connection broke."""
        self._channel.selector.failed(self.transport.address)
        self._channel.drop(self)
        for reply in self._pending:
            if not reply.done():
                reply.set_exception(ConnectionLost(reason))

    async def _writable(self) -> None:
        await self.transport.writable()
        if self.transport.closed:
            raise ConnectionLost("the connection broke before the request was sent")

    async def _wait(self, reply: asyncio.Future[T]) -> T:
        """Wait for the reply to a request that was sent."""
        self._pending.add(reply)
        self.transport.expect(1)
        try:
            return await reply
        finally:
            self.transport.expect(-1)
            self._pending.discard(reply)
            if self._retired and not self._pending:
                self.close()


AnyConnection = TypeVar("AnyConnection", bound=ClientConnection)


class MultiplexedChannel(Channel, Generic[AnyConnection]):
    """A channel with one multiplexed connection, opened on first use and again after it was lost. At most `window`
    calls are outstanding; further ones wait."""

    def __init__(self, selector: EndpointSelector, connect_timeout: float, ping: float, window: int) -> None:
        super().__init__(selector, connect_timeout, ping)
        self._slots: AbstractAsyncContextManager[object] = asyncio.Semaphore(window)
        self._opening = asyncio.Lock()
        self._connection: AnyConnection | None = None

    async def exchange(self, call: ClientCall) -> bytes:
        async with self._slots:
            connection = self._current or await self._open()
            return await connection.exchange(call)

    @property
    def _current(self) -> AnyConnection | None:
        """The connection for new calls."""
        return self._connection if self._connection in self._connections else None

    async def _open(self) -> AnyConnection:
        """Return the connection. The first caller opens it while the others wait."""
        async with self._opening:
            connection = self._current
            if connection is None:
                connection = self._connection = await self._dial()
                self._connections.add(connection)
            return connection

    @abstractmethod
    async def _dial(self) -> AnyConnection:
        """Return a new connection. Raises ConnectionLost if the client is closed before it is ready."""
