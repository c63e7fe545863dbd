"""MDP channel: one request at a time per connection, so concurrent calls need connections of their own.

Connections are opened as needed, up to a bound; further calls wait for one. The connection of a cancelled call is
closed, because the reply to that call would be taken for the next one's.
"""

from __future__ import annotations

import asyncio

from polydomo.dialects.mdp.client import MdpClientProtocol
from polydomo.sdk.channel import CLOSED, Channel, ClientCall
from polydomo.sdk.connection import Dealer
from polydomo.sdk.failover import EndpointSelector
from polydomo.sdk.transport import ConnectionLost
from polydomo.wire.frames import Message


class MdpChannel(Channel):
    """A pool of connections."""

    def __init__(
        self, selector: EndpointSelector, connect_timeout: float, ping: float, connections: int
    ) -> None:
        super().__init__(selector, connect_timeout, ping)
        self._slots = asyncio.Semaphore(connections)
        self._reusable: set[MdpConnection] = set()
        self._idle: list[MdpConnection] = []
        self._busy: set[MdpConnection] = set()

    async def exchange(self, call: ClientCall) -> bytes:
        async with self._slots:
            connection = self._idle.pop() if self._idle else await self._open()
            self._busy.add(connection)
            try:
                body = await connection.exchange(call)
            except BaseException:
                self.drop(connection)
                connection.dealer.close()
                raise
            finally:
                self._busy.discard(connection)
            if connection in self._reusable:
                self._idle.append(connection)
            else:
                connection.dealer.close()
            return body

    def retire(self) -> None:
        for connection in self._reusable:
            self.selector.failed(connection.dealer.address)
        self.renew()

    def renew(self) -> None:
        for connection in self._idle:
            connection.dealer.close()
        self._idle.clear()
        self._reusable.clear()  # busy connections are closed when their call ends

    def close(self) -> None:
        self.closed = True
        self.selector.close()
        for connection in self._reusable | self._busy:
            connection.lost(CLOSED)
            connection.dealer.close()

    def drop(self, connection: MdpConnection) -> None:
        """Do not use the connection for another call."""
        self._reusable.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _open(self) -> MdpConnection:
        connection = MdpConnection(self)
        connection.dealer = await self._connect(connection.received, connection.lost)
        self._reusable.add(connection)
        return connection


class MdpConnection:
    """One connection and the call on it."""

    def __init__(self, channel: MdpChannel) -> None:
        self.dealer: Dealer
        self._channel = channel
        self._protocol = MdpClientProtocol()
        self._call: ClientCall | None = None
        self._reply: asyncio.Future[bytes] | None = None

    async def exchange(self, call: ClientCall) -> bytes:
        """Send the request and return its final body. The pool makes sure that there is one call at a time."""
        dealer = self.dealer
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._reply = reply
        self._call = call
        call.native = dealer.native
        call.sent += 1
        dealer.send(self._protocol.request(call.service, call.body))
        dealer.expect(1)
        try:
            return await reply
        finally:
            dealer.expect(-1)
            self._reply = self._call = None

    def received(self, message: Message) -> None:
        found = self._protocol.receive(message)
        reply = self._reply
        if found is None or reply is None or reply.done():
            return
        if found.final:
            reply.set_result(found.body)
        elif self._call is not None and self._call.partial is not None:
            self._call.partial(found.body)

    def lost(self, reason: str) -> None:
        """Fail the outstanding call, if any, after the connection broke."""
        self._channel.selector.failed(self.dealer.address)
        self._channel.drop(self)
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionLost(reason))
