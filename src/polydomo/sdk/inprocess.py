"""Connections to a broker in the same process: bytes go from one end to the other without a socket.

Both ends may run on the same event loop or on two (a sync twin's and the test's own). Bytes arrive in a later
turn of the receiving loop, as from a socket, so nothing is ever called back from inside its own call.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from polydomo.sdk.clock import Clock

_brokers: dict[str, Listener] = {}


class Listener(ABC):
    """A broker that can be reached under a name."""

    clock: Clock

    @abstractmethod
    async def accept(self, sp: bool) -> tuple[asyncio.AbstractEventLoop, asyncio.Protocol]:
        """The broker's end of a new connection (of NNG's wire, or ZeroMQ's), and its loop. ConnectionRefusedError if it
        is down."""

    def worker_failed(self, address: bytes, error: BaseException) -> None:  # noqa: B027 (only some care)
        """A worker of this process raised while it worked on the attempt `address`."""


def listen(name: str, listener: Listener) -> None:
    """From now on `…+local://name` leads here."""
    _brokers[name] = listener


def unlisten(name: str) -> None:
    """It does not any more."""
    _brokers.pop(name, None)


def find(name: str) -> Listener | None:
    """Who listens under this name."""
    return _brokers.get(name)


async def dial(name: str, protocol: asyncio.Protocol, sp: bool = False) -> None:
    """Connect a client's protocol to the broker called `name`. `sp`: it speaks NNG's wire."""
    loop = asyncio.get_running_loop()
    listener = find(name)
    if listener is None:
        raise ConnectionRefusedError(f"no broker called {name!r} in this process")
    their_loop, theirs = await listener.accept(sp)
    near = LocalTransport(loop, protocol)
    far = LocalTransport(their_loop, theirs)
    near.peer, far.peer = far, near
    far.soon(theirs.connection_made, far)
    protocol.connection_made(near)


class LocalTransport(asyncio.Transport):
    """One end. Everything here is called on its own loop, except `soon`."""

    traffic = 0  # grows with every call from one end to the other: if it stands still, all is quiet

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.peer: LocalTransport
        self._loop = loop
        self._protocol = protocol
        self._closing = False
        self._reading = True
        self._frozen = False
        self._held: list[bytes] = []  # arrived while not reading

    def soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Call on this end's loop, from whichever loop."""
        LocalTransport.traffic += 1
        if asyncio.get_running_loop() is self._loop:
            self._loop.call_soon(callback, *args)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *args)

    def freeze(self) -> None:
        """From now on this end neither hears nor says anything."""
        self._frozen = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and not self._frozen:
            self.peer.soon(self.peer._receive, bytes(data))

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        held, self._held = self._held, []
        for data in held:
            self._receive(data)

    def is_reading(self) -> bool:
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever kept on this side."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.peer.soon(self.peer._hang_up)
            self.soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def _receive(self, data: bytes) -> None:
        if not self._reading:
            self._held.append(data)
        elif not self._closing and not self._frozen:
            self._protocol.data_received(data)

    def _hang_up(self) -> None:
        """The other end closed."""
        if not self._closing:
            self._closing = True
            self._protocol.connection_lost(None)
