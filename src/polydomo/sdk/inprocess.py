"""Connections to a broker in the same process: bytes pass between the two ends without a socket.

Both ends may run on the same event loop or on two (a sync twin's and the test's own). Bytes arrive in a later turn of
the receiving loop, as from a socket, so no callback runs inside the call that caused it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from polydomo.sdk.clock import AsyncClock

_brokers: dict[str, InProcessBroker] = {}


class InProcessBroker(ABC):
    """A broker that accepts in-process connections under a name."""

    clock: AsyncClock

    @abstractmethod
    async def accept(self, sp: bool) -> tuple[asyncio.AbstractEventLoop, asyncio.Protocol]:
        """Return the broker's loop and its protocol for a new connection (of NNG's wire, or ZeroMQ's). Raises
        ConnectionRefusedError if the broker is down."""

    def worker_failed(self, address: bytes, error: BaseException) -> None:  # noqa: B027 (optional)
        """Record an exception that a worker of this process raised in the attempt `address`."""


def listen(name: str, broker: InProcessBroker) -> None:
    """Accept connections to `…+local://name` at this broker."""
    _brokers[name] = broker


def unlisten(name: str) -> None:
    """Remove the broker of this name, if any."""
    _brokers.pop(name, None)


def find(name: str) -> InProcessBroker | None:
    """Return the broker of this name."""
    return _brokers.get(name)


async def dial(name: str, protocol: asyncio.Protocol, sp: bool = False) -> None:
    """Connect a client's protocol (of NNG's wire, if `sp`) to the broker called `name`."""
    broker = find(name)
    if broker is None:
        raise ConnectionRefusedError(f"no broker called {name!r} in this process")
    broker_loop, broker_protocol = await broker.accept(sp)
    near = LocalTransport(asyncio.get_running_loop(), protocol)
    far = LocalTransport(broker_loop, broker_protocol)
    near.peer, far.peer = far, near
    far.call_soon(broker_protocol.connection_made, far)
    protocol.connection_made(near)


class LocalTransport(asyncio.Transport):
    """One end of a connection. All methods except `call_soon` must be called on its own loop."""

    traffic = 0  # counts all calls between two ends: while it does not change, no bytes are in transit

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.peer: LocalTransport
        self._loop = loop
        self._protocol = protocol
        self._closing = False
        self._reading = True
        self._frozen = False
        self._unread: list[bytes] = []  # arrived while not reading

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a call on this end's loop, from any loop."""
        LocalTransport.traffic += 1
        if asyncio.get_running_loop() is self._loop:
            self._loop.call_soon(callback, *args)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *args)

    def freeze(self) -> None:
        """Drop all further input and output of this end."""
        self._frozen = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and not self._frozen:
            self.peer.call_soon(self.peer._receive, bytes(data))

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        unread, self._unread = self._unread, []
        for data in unread:
            self._receive(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: this end never buffers output."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.peer.call_soon(self.peer._peer_closed)
            self.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def _receive(self, data: bytes) -> None:
        if not self._reading:
            self._unread.append(data)
        elif not self._closing and not self._frozen:
            self._protocol.data_received(data)

    def _peer_closed(self) -> None:
        if not self._closing:
            self._closing = True
            self._protocol.connection_lost(None)
