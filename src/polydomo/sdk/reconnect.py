"""A connection that is kept: made again, with growing pauses, however often it is lost. For those who have several at
once and need them all, as WMP's workers and devices do."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping

from polydomo.sdk.clock import Clock
from polydomo.sdk.connection import Dealer, connect
from polydomo.sdk.failover import HANDSHAKE, Backoff
from polydomo.sdk.transport import Lost
from polydomo.sdk.url import Address
from polydomo.wire.frames import Message


class Above(ABC):
    """Who has uplinks: `number` says which of them it is about."""

    identity = b""  # what the other side knows us by; empty: it makes something up
    properties: Mapping[bytes, bytes] = {}  # further words of the handshake

    @abstractmethod
    def up(self, number: int, dealer: Dealer) -> None:
        """It is connected."""

    @abstractmethod
    def down(self, number: int, reason: str) -> None:
        """It was, and is not any more."""

    @abstractmethod
    def said(self, number: int, message: Message) -> None:
        """Something came."""

    def settled(self, number: int) -> None:  # noqa: B027
        """The other side has dealt with all that was said to it in `up`."""

    def unreachable(self, number: int, reason: str) -> None:  # noqa: B027
        """It could not be connected; it is tried again."""


async def keep(number: int, place: Address, owner: Above, clock: Clock) -> None:
    """Until it is cancelled."""
    backoff = Backoff()
    while True:
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_message(message: Message) -> None:
            owner.said(number, message)

        def on_lost(reason: str, lost: asyncio.Future[str] = lost) -> None:
            if not lost.done():
                lost.set_result(reason)

        try:
            dealer = await connect(
                place,
                on_message,
                on_lost,
                clock=clock,
                properties=dict(owner.properties),
                identity=owner.identity,
                timeout=HANDSHAKE,
            )
        except Lost as error:
            owner.unreachable(number, str(error))
            await clock.sleep(backoff.pause())
            continue
        backoff.reset()
        dealer.expect(1)  # something may come at any time, so silence is asked about
        reason = "closed"
        owner.up(number, dealer)
        try:
            await dealer.settled()
            if not lost.done():
                owner.settled(number)
            reason = await lost
        finally:
            owner.down(number, reason)
            dealer.close()
        await clock.sleep(backoff.pause())
