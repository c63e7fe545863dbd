"""DCP's way: one connection, many requests outstanding, told apart by a metadata part.

A broker stops reading from a client that has too much unanswered, and then it answers no PING either. So the
number outstanding is bounded here, below the broker's own bound (`limits.client_jobs`, 1,000 unless
configured); calls beyond it wait their turn.
"""

from __future__ import annotations

import asyncio

from polydomo.dialects.dcp.client import DcpClientProtocol
from polydomo.sdk.channel import Call, MultiplexedChannel, Multiplexer
from polydomo.sdk.connection import Dealer, Lost
from polydomo.sdk.failover import EndpointSelector
from polydomo.wire.frames import Message


class DcpChannel(MultiplexedChannel["DcpMultiplexer"]):
    """See the module's text."""

    def __init__(self, roster: EndpointSelector, connect_timeout: float, ping: float, window: int) -> None:
        super().__init__(roster, connect_timeout, ping)
        self._turns = asyncio.Semaphore(window)

    async def exchange(self, call: Call) -> bytes:
        async with self._turns:
            pipe = self._pipe or await self._open()
            return await pipe.exchange(call)

    async def _dial(self) -> DcpMultiplexer:
        pipe = DcpMultiplexer(self)
        pipe.link = await self._connect(pipe.received, pipe.lost)
        return pipe


class DcpMultiplexer(Multiplexer):
    """Calls are told apart by their marks."""

    def __init__(self, channel: DcpChannel) -> None:
        self.link: Dealer
        self._channel = channel
        self._side = DcpClientProtocol()
        self._number = 0
        self._retired = False
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}

    async def exchange(self, call: Call) -> bytes:
        dealer = self.link
        await dealer.writable()
        if dealer.closed:
            raise Lost("the connection broke before the request was sent")
        self._number += 1
        mark = b"%x" % self._number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[mark] = answer
        call.native = dealer.native
        call.sent += 1
        dealer.send(self._side.request(call.service, mark, call.body))
        dealer.expect(1)
        try:
            return await answer
        finally:
            dealer.expect(-1)
            self._waiting.pop(mark, None)
            if self._retired and not self._waiting:
                self._end()

    def retire(self) -> None:
        self._retired = True
        if not self._waiting:
            self._end()

    def received(self, message: Message) -> None:
        reply = self._side.receive(message)
        if reply is None or not reply.metadata:
            return
        answer = self._waiting.get(reply.metadata[0])
        if answer is not None and not answer.done():
            answer.set_result(reply.body)

    def lost(self, reason: str) -> None:
        self._channel.roster.failed(self.link.place)
        self._channel.drop(self)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Lost(reason))

    def _end(self) -> None:
        self.link.close()
        self._channel.drop(self)
