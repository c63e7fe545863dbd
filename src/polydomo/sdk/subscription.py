"""Everybody's events: a ZeroMQ SUB connection to the broker's PUB socket (NFP/Broker-PUB), by topic.

    async with client.events(service="backup") as events:
        async for event in events:
            print(event.worker, event.kind, event.body)

A subscription hears what is said while it is there, and nothing of what was said before. When the connection is lost it
is made again by itself; what was said meanwhile is lost. One that is read too slowly loses the oldest (`lost`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, cast

from polydomo._version import __version__
from polydomo.core.names import parse_name, printable
from polydomo.dialects.session import NATIVE_PROPERTY
from polydomo.errors import ConfigError, ProtocolError
from polydomo.sdk.clock import Clock
from polydomo.sdk.connection import LIMITS
from polydomo.sdk.failover import HANDSHAKE, Backoff
from polydomo.sdk.handle import Event, event_body
from polydomo.server import endpoints
from polydomo.server.endpoints import Endpoint
from polydomo.wire.frames import Message
from polydomo.wire.zmtp.connection import Connection, Handler, PeerInfo

# Events nobody has read yet.
MOST: Final = 100_000

# Seconds of silence before the publisher is asked whether it is there; and as many before it is given up.
PING: Final = 10.0

_ANYWHERE: Final = ("", "*", "0.0.0.0", "::")


class Subscription:
    """Given by `Client.events`. An async iterator; `async with` begins to listen when the block is entered, a bare
    `async for` when it is first asked. `close` ends it."""

    def __init__(
        self,
        find: Callable[[], Awaitable[list[Endpoint]]],
        clock: Clock,
        service: str | None,
        worker: str | None,
        kind: str | None,
    ) -> None:
        self.lost = 0  # events that were not read in time
        self.service = service
        self.worker = worker
        self.kind = kind
        self._find = find
        self._clock = clock
        self._prefix = prefix_of(service, worker, kind)
        self._kept: deque[Event] = deque()
        self._news = asyncio.Event()
        self._ear: SubConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._listening: asyncio.Future[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Until the broker knows that we listen. Errors about finding it are raised here."""
        if self._task is None:
            self._listening = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._listening))
        assert self._listening is not None
        await asyncio.shield(self._listening)

    def close(self) -> None:
        """Listen no more; whoever iterates is through."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._ear is not None:
            self._ear.close()
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        await self.start()
        try:
            while not self._closed:
                while self._kept:
                    yield self._kept.popleft()
                self._news.clear()
                if not self._closed:
                    await self._news.wait()
        finally:
            self.close()

    async def __aenter__(self) -> Subscription:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    async def _run(self, listening: asyncio.Future[None]) -> None:
        """Keep one connection, whatever happens to it."""
        backoff = Backoff()
        try:
            places = await self._find()
        except BaseException as error:
            if not listening.done():
                listening.set_exception(error)
                listening.exception()  # looked at, in case nobody does
            return
        while True:
            for place in places:
                ear = self._ear = SubConnection(self._prefix, self._heard)
                try:
                    async with self._clock.timeout(HANDSHAKE):
                        await _dial(place, ear)
                        await ear.ready
                    backoff.reset()
                    if not listening.done():
                        listening.set_result(None)
                    await self._listen(ear)
                except (OSError, TimeoutError):
                    pass
                finally:
                    ear.close()
            await self._clock.sleep(backoff.pause())

    async def _listen(self, ear: SubConnection) -> None:
        """Until the connection is over, or the publisher leaves a PING unanswered."""
        asked = False
        while not ear.over.done():
            before = ear.received
            try:
                async with self._clock.timeout(PING):
                    await asyncio.shield(ear.over)
            except TimeoutError:
                if ear.received != before:
                    asked = False
                elif asked:
                    return
                else:
                    asked = True
                    ear.ping()

    def _heard(self, topic: bytes, body: bytes) -> None:
        found = parse_topic(topic, self.service, self.worker)
        if found is None or (self.worker not in (None, found[1])) or (self.kind not in (None, found[2])):
            return
        if len(self._kept) >= MOST:
            self._kept.popleft()
            self.lost += 1
        self._kept.append(Event(*found, event_body(body)))
        self._news.set()


class SubConnection(asyncio.Protocol, Handler):
    """One SUB connection. `ready`: the publisher has our subscription; `over`: the connection has ended."""

    def __init__(self, prefix: bytes, heard: Callable[[bytes, bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self.received = 0  # how often something came
        self._prefix = prefix
        self._heard = heard
        self._transport: asyncio.Transport | None = None
        self._connection = Connection(
            self, b"SUB", False, LIMITS, properties={NATIVE_PROPERTY: __version__.encode()}
        )

    def close(self) -> None:
        """For good."""
        if self._transport is not None:
            self._transport.abort()
        self._end("it was closed")

    def ping(self) -> None:
        """Is it still there? (One of ZMTP 3.0 cannot be asked, and is believed.)"""
        peer = self._connection.peer
        if peer is not None and peer.minor >= 1:
            self._connection.ping(0.0)
        else:
            self.received += 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.over.done():
            self._transport.abort()
            return
        self._connection.start()

    def data_received(self, data: bytes) -> None:
        self.received += 1
        self._connection.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection broke")

    def transmit(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def peer_ready(self, peer: PeerInfo) -> None:
        # Not before the connection counts itself ready, which is after this call.
        self._loop.call_soon(self._subscribe, peer)

    def message(self, message: Message) -> None:
        topic = message.take()
        body = message.take()
        if topic is not None and not self.over.done():
            self._heard(topic, body or b"")

    def ponged(self, context: bytes) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def failed(self, error: ProtocolError) -> None:
        self.close()

    def _subscribe(self, peer: PeerInfo) -> None:
        if self.over.done():
            return
        self._connection.subscribe(self._prefix)
        if peer.minor >= 1:
            self._connection.ping(0.0)  # answered in its turn: the subscription was dealt with then
        elif not self.ready.done():
            self.ready.set_result(None)

    def _end(self, reason: str) -> None:
        if not self.over.done():
            self.over.set_result(None)
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(reason))
            self.ready.exception()  # looked at, in case nobody does


def prefix_of(service: str | None, worker: str | None, kind: str | None) -> bytes:
    """What to subscribe to; what a prefix cannot say is sorted out afterwards."""
    if service is None:
        return b""
    if worker is None:
        return parse_name(service) + b"."
    return parse_name(service) + b"." + parse_name(worker) + b"." + (kind or "").encode()


def parse_topic(topic: bytes, service: str | None, worker: str | None) -> tuple[str, str, str] | None:
    """Service, worker and kind. All may have dots: what is known is taken off first, and kinds have none."""
    if service is None:
        parts = topic.rsplit(b".", 2)
        return (printable(parts[0]), printable(parts[1]), _kind(parts[2])) if len(parts) == 3 else None
    known = prefix_of(service, worker, None)
    if topic.startswith(known) and worker is not None:
        return service, worker, _kind(topic[len(known) :])
    known = prefix_of(service, None, None)
    name, dot, kind = topic[len(known) :].rpartition(b".")
    return (service, printable(name), _kind(kind)) if dot and topic.startswith(known) else None


def _kind(kind: bytes) -> str:
    return kind.decode(errors="replace")


def places_of(said: object, host: str) -> list[Endpoint]:
    """Where events are published, as the broker or the user says. A broker that listens everywhere is reached where
    it was reached before."""
    listed = [said] if isinstance(said, str) else said if isinstance(said, list | tuple) else []
    places = []
    for text in listed:
        place = endpoints.parse(str(text), binding=True)
        if not place.is_ipc and place.host in _ANYWHERE:
            place = place._replace(host=host or "127.0.0.1")
        places.append(place)
    if not places:
        raise ConfigError(
            "the broker publishes no events",
            hint="start it with --events tcp://HOST:PORT, or give Client(events=…)",
        )
    return places


async def _dial(place: Endpoint, ear: SubConnection) -> None:
    loop = asyncio.get_running_loop()
    if place.is_ipc:
        await loop.create_unix_connection(lambda: ear, place.unix_path)
    else:
        await loop.create_connection(lambda: ear, place.host, place.port)
