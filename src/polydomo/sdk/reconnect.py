"""Permanent connections: made again, with growing pauses, each time they are lost. For owners that need several at
once, such as WMP's workers and devices."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping

from polydomo.sdk.clock import AsyncClock
from polydomo.sdk.connection import Dealer, connect
from polydomo.sdk.failover import HANDSHAKE, Backoff
from polydomo.sdk.transport import ConnectionLost
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


async def maintain_connection(
    number: int, address: Address, owner: ConnectionOwner, clock: AsyncClock
) -> None:
    """Keep one connection until cancelled."""
    backoff = Backoff()
    while True:
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_message(message: Message) -> None:
            owner.on_message(number, message)

        def on_lost(reason: str, lost: asyncio.Future[str] = lost) -> None:
            if not lost.done():
                lost.set_result(reason)

        try:
            dealer = await connect(
                address,
                on_message,
                on_lost,
                clock=clock,
                properties=dict(owner.properties),
                identity=owner.identity,
                timeout=HANDSHAKE,
            )
        except ConnectionLost as error:
            owner.on_unreachable(number, str(error))
            await clock.sleep(backoff.pause())
            continue
        backoff.reset()
        dealer.expect(1)  # messages may come at any time, so silence is checked
        reason = "closed"
        owner.on_connected(number, dealer)
        try:
            await dealer.settled()
            if not lost.done():
                owner.on_settled(number)
            reason = await lost
        finally:
            owner.on_disconnected(number, reason)
            dealer.close()
        await clock.sleep(backoff.pause())
