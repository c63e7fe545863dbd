"""Permanent connections: made again, with growing pauses, each time they are lost. For owners that need several at
once, such as WMP's workers and devices."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

from polydomo.sdk.clock import AsyncClock
from polydomo.sdk.connection import Dealer
from polydomo.sdk.failover import Backoff
from polydomo.sdk.transport import ConnectionLost, open_transport
from polydomo.sdk.url import Address
from polydomo.wire.frames import Message


class ConnectionOwner(ABC):
    """The owner of permanent connections, each known by its `number`."""

    identity = b""  # the routing id that the peer sees; empty: the peer makes one up
    properties: Mapping[bytes, bytes] = {}  # further properties of the handshake

    @abstractmethod
    def on_connected(self, number: int, dealer: Dealer) -> None:
        """Handle a new connection."""

    @abstractmethod
    def on_disconnected(self, number: int, reason: str) -> None:
        """Handle the loss of a connection."""

    @abstractmethod
    def on_message(self, number: int, message: Message) -> None:
        """Handle a message from the peer."""

    def on_settled(self, number: int) -> None:  # noqa: B027
        """Continue after the peer has processed everything sent by `on_connected`."""

    def on_unreachable(self, number: int, reason: str) -> None:  # noqa: B027
        """Handle a failed attempt to connect; it will be repeated."""


class PermanentConnections:
    """A connection to each address, numbered in their order, from `open` to `close`."""

    def __init__(self, owner: ConnectionOwner, addresses: Sequence[Address], clock: AsyncClock) -> None:
        self.dealers: dict[int, Dealer] = {}  # those that are connected
        self._owner = owner
        self._addresses = addresses
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Begin to connect to all addresses, and again to each that is lost."""
        self._tasks = [
            asyncio.create_task(self._maintain(number, address))
            for number, address in enumerate(self._addresses)
        ]

    async def close(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _maintain(self, number: int, address: Address) -> None:
        """Keep one connection until cancelled."""
        owner, clock = self._owner, self._clock
        on_message = partial(owner.on_message, number)
        backoff = Backoff()
        while True:
            lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            def on_lost(reason: str, lost: asyncio.Future[str] = lost) -> None:
                if not lost.done():
                    lost.set_result(reason)

            identity, properties = owner.identity, owner.properties
            dealer = Dealer(address, clock, on_message, on_lost, properties=properties, identity=identity)
            try:
                await open_transport(dealer)
            except ConnectionLost as error:
                owner.on_unreachable(number, str(error))
                await clock.sleep(backoff.pause())
                continue
            backoff.reset()
            dealer.expect(1)  # messages may come at any time, so silence is checked
            reason = "closed"
            self.dealers[number] = dealer
            owner.on_connected(number, dealer)
            try:
                await dealer.settled()
                if not lost.done():
                    owner.on_settled(number)
                reason = await lost
            finally:
                del self.dealers[number]
                owner.on_disconnected(number, reason)
                dealer.close()
            await clock.sleep(backoff.pause())
