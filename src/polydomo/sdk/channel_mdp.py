"""MDP channel: one request at a time per connection, so concurrent calls need connections of their own.

Connections are opened as needed, up to a bound; further calls wait for one. The connection of a cancelled call is
closed, because the reply to that call would be taken for the next one's.
"""

from __future__ import annotations

import asyncio

from polydomo.dialects.mdp.client import MdpClientProtocol
from polydomo.sdk.channel import Channel, ClientCall, ClientConnection
from polydomo.sdk.connection import Dealer
from polydomo.sdk.failover import EndpointSelector
from polydomo.wire.frames import Message


class MdpChannel(Channel):
    """A pool of connections."""

    def __init__(
        self, selector: EndpointSelector, connect_timeout: float, ping: float, connections: int
    ) -> None:
        super().__init__(selector, connect_timeout, ping)
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[MdpConnection] = []

    async def exchange(self, call: ClientCall) -> bytes:
        async with self._slots:
            connection = self._idle.pop() if self._idle else await self._open()
            try:
                body = await connection.exchange(call)
            except BaseException:
                connection.close()
                raise
            if connection in self._connections:
                self._idle.append(connection)
            return body

    def drop(self, connection: ClientConnection) -> None:
        super().drop(connection)
        self._idle = [idle for idle in self._idle if idle is not connection]

    async def _open(self) -> MdpConnection:
        connection = MdpConnection(self)
        connection.transport = await self._connect(connection.received, connection.lost)
        self._connections.add(connection)
        return connection


class MdpConnection(ClientConnection):
    """One connection and the call on it."""

    transport: Dealer

    def __init__(self, channel: MdpChannel) -> None:
        super().__init__(channel)
        self._protocol = MdpClientProtocol()
        self._call: ClientCall | None = None
        self._reply: asyncio.Future[bytes] | None = None

    async def exchange(self, call: ClientCall) -> bytes:
        """Send the request and return its final body. The pool makes sure that there is one call at a time."""
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._call, self._reply = call, reply
        call.native = self.transport.native
        call.sent += 1
        self.transport.send(self._protocol.request(call.service, call.body))
        try:
            return await self._wait(reply)
        finally:
            self._call = self._reply = None

    def received(self, message: Message) -> None:
        found = self._protocol.receive(message)
        call, reply = self._call, self._reply
        if found is None or call is None or reply is None or reply.done():
            return
        if found.final:
            reply.set_result(found.body)
        elif call.partial is not None:
            call.partial(found.body)
