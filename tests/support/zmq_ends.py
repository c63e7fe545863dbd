"""Connections of ours on real sockets, for tests with libzmq as the peer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import zmq.asyncio

from polydomo.errors import ProtocolError
from polydomo.wire.frames import Message, join
from polydomo.wire.zmtp.connection import Connection, ConnectionLimits, Handler, PeerInfo
from polydomo.wire.zmtp.mechanism import Mechanism
from polydomo.wire.zmtp.pubsub import Subscriptions

PATIENCE = 20.0
SIZES = (0, 1, 255, 256, 70_000, 1_000_000)  # of bodies


def patient(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """A test that hangs fails."""

    @functools.wraps(test)
    async def limited(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            await test(*args, **kwargs)

    return limited


class End(asyncio.Protocol, Handler):
    """One of our connections on a socket."""

    def __init__(
        self,
        role: bytes,
        *,
        server: bool,
        identity: bytes = b"",
        refuse: str = "",
        mechanism: Mechanism | None = None,
    ) -> None:
        self.connection = Connection(self, role, server, ConnectionLimits(), identity, mechanism=mechanism)
        self.refuse = refuse
        self.ready: asyncio.Future[PeerInfo] = asyncio.get_running_loop().create_future()
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.messages: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self.subscriptions = Subscriptions()
        self.changed = asyncio.Event()
        self.pongs: asyncio.Queue[bytes] = asyncio.Queue()
        self.heard = asyncio.Event()
        self.transport: asyncio.Transport
        self.echo = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.connection.start()

    def data_received(self, data: bytes) -> None:
        self.connection.receive(data)
        self.heard.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result("")

    def transmit(self, data: bytes) -> None:
        self.transport.write(data)

    def peer_ready(self, peer: PeerInfo) -> None:
        if self.refuse:
            raise ProtocolError(self.refuse)
        self.ready.set_result(peer)

    def message(self, message: Message) -> None:
        frames = message.frames()
        self.messages.put_nowait(frames)
        if self.echo:
            self.send(*frames)

    def failed(self, error: ProtocolError) -> None:
        if not self.closed.done():
            self.closed.set_result(error.message)
        self.transport.close()

    def subscription(self, topic: bytes, wanted: bool) -> None:
        self.subscriptions.change(topic, wanted)
        self.changed.set()

    def ponged(self, context: bytes) -> None:
        self.pongs.put_nowait(context)

    def send(self, *frames: bytes) -> None:
        self.transport.write(self.connection.seal(join(frames)))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.changed.wait()
            self.changed.clear()


@asynccontextmanager
async def listening(
    role: bytes, mechanism: Callable[[], Mechanism] | None = None, **options: Any
) -> AsyncIterator[tuple[str, asyncio.Queue[End]]]:
    """Our end listens; every peer that connects gives an End. `mechanism` makes the one of each connection."""
    ends: asyncio.Queue[End] = asyncio.Queue()
    made: list[End] = []

    def new() -> End:
        end = End(role, server=True, mechanism=mechanism() if mechanism else None, **options)
        made.append(end)
        ends.put_nowait(end)
        return end

    server = await asyncio.get_running_loop().create_server(new, "127.0.0.1", 0)
    try:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}", ends
    finally:
        server.close()
        for end in made:
            end.transport.abort()
        await server.wait_closed()


@asynccontextmanager
async def zmq_socket(kind: int, **options: object) -> AsyncIterator[zmq.asyncio.Socket]:
    context = zmq.asyncio.Context()
    socket = context.socket(kind)
    socket.linger = 0
    for name, value in options.items():
        setattr(socket, name, value)
    try:
        yield socket
    finally:
        socket.close()
        context.term()


@asynccontextmanager
async def connected(role: bytes, port: int, **options: Any) -> AsyncIterator[End]:
    """Our end connects."""
    loop = asyncio.get_running_loop()
    _, end = await loop.create_connection(lambda: End(role, server=False, **options), "127.0.0.1", port)
    try:
        yield end
    finally:
        end.transport.abort()
