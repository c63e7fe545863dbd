"""MDP's way: one request at a time per connection, so calls at the same time need connections of their own.

Connections are opened as they are needed, up to a bound; calls beyond it wait their turn. A connection whose
call was given up is closed, because the answer to that call would be taken for the next one's.
"""

from __future__ import annotations

import asyncio

from polydomo.dialects.mdp.client import MdpClientProtocol
from polydomo.sdk.channel import Call, Channel
from polydomo.sdk.connection import Dealer, Lost
from polydomo.sdk.failover import EndpointSelector
from polydomo.wire.frames import Message


class MdpChannel(Channel):
    """A pool of lines."""

    def __init__(
        self, roster: EndpointSelector, connect_timeout: float, ping: float, connections: int
    ) -> None:
        super().__init__(roster, connect_timeout, ping)
        self._turns = asyncio.Semaphore(connections)
        self._lines: set[MdpConnection] = set()  # all that may be used again
        self._idle: list[MdpConnection] = []
        self._busy: set[MdpConnection] = set()

    async def exchange(self, call: Call) -> bytes:
        async with self._turns:
            line = self._idle.pop() if self._idle else await self._open()
            self._busy.add(line)
            try:
                body = await line.exchange(call)
            except BaseException:
                self.drop(line)
                line.dealer.close()
                raise
            finally:
                self._busy.discard(line)
            if line in self._lines:
                self._idle.append(line)
            else:
                line.dealer.close()
            return body

    def retire(self) -> None:
        for line in self._lines:
            self.roster.failed(line.dealer.place)
        self.renew()

    def renew(self) -> None:
        for line in self._idle:
            line.dealer.close()
        self._idle.clear()
        self._lines.clear()  # those in use are closed when their call is over

    def close(self) -> None:
        self.closed = True
        self.roster.close()
        for line in self._lines | self._busy:
            line.lost("the client was closed")
            line.dealer.close()

    def drop(self, line: MdpConnection) -> None:
        """It will not be used again."""
        self._lines.discard(line)
        if line in self._idle:
            self._idle.remove(line)

    async def _open(self) -> MdpConnection:
        line = MdpConnection(self)
        line.dealer = await self._connect(line.received, line.lost)
        self._lines.add(line)
        return line


class MdpConnection:
    """One connection and the call on it."""

    def __init__(self, channel: MdpChannel) -> None:
        self.dealer: Dealer
        self._channel = channel
        self._side = MdpClientProtocol()
        self._call: Call | None = None
        self._answer: asyncio.Future[bytes] | None = None

    async def exchange(self, call: Call) -> bytes:
        """Only one at a time: the pool sees to it."""
        dealer = self.dealer
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._call = call
        call.native = dealer.native
        call.sent += 1
        dealer.send(self._side.request(call.service, call.body))
        dealer.expect(1)
        try:
            return await answer
        finally:
            dealer.expect(-1)
            self._answer = self._call = None

    def received(self, message: Message) -> None:
        found = self._side.receive(message)
        answer = self._answer
        if found is None or answer is None or answer.done():
            return
        if found.final:
            answer.set_result(found.body)
        elif self._call is not None and self._call.partial is not None:
            self._call.partial(found.body)

    def lost(self, reason: str) -> None:
        """The connection broke, with or without a call on it."""
        self._channel.roster.failed(self.dealer.place)
        self._channel.drop(self)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Lost(reason))
