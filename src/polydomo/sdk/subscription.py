"""Subscriptions to all jobs' events: a ZeroMQ SUB connection to the broker's PUB socket (NFP/Broker-PUB), by topic.

    async with client.events(service="backup") as events:
        async for event in events:
            print(event.worker, event.kind, event.body)

A subscription gets the events published while it is connected, and none from before. A lost connection is made again;
events published in between are missed. A subscription that is read too slowly drops the oldest events (`lost`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

from polydomo.core.names import parse_name, printable
from polydomo.errors import ConfigError
from polydomo.sdk.clock import AsyncClock
from polydomo.sdk.connection import ZmtpTransport
from polydomo.sdk.failover import Backoff
from polydomo.sdk.handle import Event, event_body
from polydomo.sdk.transport import HANDSHAKE, ConnectionLost, open_transport, release
from polydomo.sdk.url import Address
from polydomo.server import endpoints
from polydomo.server.endpoints import Endpoint
from polydomo.wire.frames import Message

if TYPE_CHECKING:
    from polydomo.sdk.curve_keys import CurveKeys

# Unread events kept.
MOST: Final = 100_000

# Seconds of silence before the publisher is checked with a PING, and as many again before it is given up.
PING: Final = 10.0

_ANY_HOST: Final = ("", "*", "0.0.0.0", "::")


class SubTransport(ZmtpTransport):
    """A SUB socket with one connection."""

    socket_type = b"SUB"

    def subscribe(self, prefix: bytes) -> None:
        """Subscribe to all topics that begin with `prefix`."""
        self._connection.subscribe(prefix)


class Subscription:
    """An async iterator of events, returned by `Client.events`. `async with` connects when the block is entered, a bare
    `async for` at its first step. End it with `close`."""

    def __init__(
        self,
        find: Callable[[], Awaitable[list[Endpoint]]],
        clock: AsyncClock,
        keys: CurveKeys | None,
        service: str | None,
        worker: str | None,
        kind: str | None,
    ) -> None:
        self.lost = 0  # events dropped because they were not read in time
        self.service = service
        self.worker = worker
        self.kind = kind
        self._find = find
        self._clock = clock
        self._keys = keys
        self._unread: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._transport: SubTransport | None = None
        self._task: asyncio.Task[None] | None = None
        self._listening: asyncio.Future[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Wait until the broker has processed the subscription. Raises if the broker's endpoint cannot be found."""
        if self._task is None:
            self._listening = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._listening))
        assert self._listening is not None
        await asyncio.shield(self._listening)

    def close(self) -> None:
        """Disconnect and end all iterations."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.close()
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        await self.start()
        try:
            while not self._closed:
                while self._unread:
                    yield self._unread.popleft()
                self._changed.clear()
                if not self._closed:
                    await self._changed.wait()
        finally:
            self.close()

    async def __aenter__(self) -> Subscription:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    async def _run(self, listening: asyncio.Future[None]) -> None:
        """Keep a connection to one of the endpoints."""
        backoff = Backoff()
        try:
            found = await self._find()
        except BaseException as error:
            if not listening.done():
                listening.set_exception(error)
                listening.exception()  # retrieved, or asyncio would log it if `start` was cancelled
            return
        while True:
            for endpoint in found:
                try:
                    await self._listen(Address(endpoint, keys=self._keys), listening, backoff)
                except (ConnectionLost, TimeoutError):
                    pass
            await self._clock.sleep(backoff.pause())

    async def _listen(self, address: Address, listening: asyncio.Future[None], backoff: Backoff) -> None:
        """Connect, subscribe, and wait until the connection is lost."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        transport = SubTransport(address, self._clock, self._received, lambda _: release(over), ping=PING)
        self._transport = transport
        try:
            async with self._clock.timeout(HANDSHAKE):
                await open_transport(transport, None)
                transport.subscribe(topic_prefix(self.service, self.worker, self.kind))
                transport.expect(1)
                await transport.settled()
            if not over.done():
                backoff.reset()
                if not listening.done():
                    listening.set_result(None)
            await over
        finally:
            transport.close()

    def _received(self, message: Message) -> None:
        topic, body = message.take(), message.take()
        found = None if topic is None else parse_topic(topic, self.service, self.worker)
        if found is None or (self.worker not in (None, found[1])) or (self.kind not in (None, found[2])):
            return
        if len(self._unread) >= MOST:
            self._unread.popleft()
            self.lost += 1
        self._unread.append(Event(*found, event_body(body or b"")))
        self._changed.set()


def topic_prefix(service: str | None, worker: str | None, kind: str | None) -> bytes:
    """Return the topic prefix to subscribe to; the rest of the filter is applied to received events."""
    if service is None:
        return b""
    if worker is None:
        return parse_name(service) + b"."
    return parse_name(service) + b"." + parse_name(worker) + b"." + (kind or "").encode()


def parse_topic(topic: bytes, service: str | None, worker: str | None) -> tuple[str, str, str] | None:
    """Split a topic into service, worker and kind. Names may contain dots, kinds may not; known names are removed
    first."""
    if service is None:
        parts = topic.rsplit(b".", 2)
        return (printable(parts[0]), printable(parts[1]), _kind(parts[2])) if len(parts) == 3 else None
    known = topic_prefix(service, worker, None)
    if topic.startswith(known) and worker is not None:
        return service, worker, _kind(topic[len(known) :])
    known = topic_prefix(service, None, None)
    name, dot, kind = topic[len(known) :].rpartition(b".")
    return (service, printable(name), _kind(kind)) if dot and topic.startswith(known) else None


def _kind(kind: bytes) -> str:
    return kind.decode(errors="replace")


def event_endpoints(announced: object, host: str) -> list[Endpoint]:
    """Return the endpoints at which events are published, as announced by the broker or given by the user. A broker
    that listens on all interfaces is reached at `host`."""
    listed = [announced] if isinstance(announced, str) else announced
    found = []
    for text in listed if isinstance(listed, list | tuple) else []:
        endpoint = endpoints.parse(str(text), binding=True)
        if not endpoint.is_ipc and endpoint.host in _ANY_HOST:
            endpoint = endpoint._replace(host=host or "127.0.0.1")
        found.append(endpoint)
    if not found:
        raise ConfigError(
            "the broker publishes no events",
            hint="start it with --events tcp://HOST:PORT, or give Client(events=…)",
        )
    return found
