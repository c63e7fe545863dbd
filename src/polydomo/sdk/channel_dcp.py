"""DCP channel: one connection, many requests outstanding, distinguished by a metadata part.

A broker stops reading from a client that has too many requests unanswered, and then answers no PING either. So the
number outstanding is bounded here, below the broker's own bound (`limits.client_jobs`, 1,000 unless configured);
further calls wait for a slot.
"""

from __future__ import annotations

import asyncio

from polydomo.dialects.dcp.client import DcpClientProtocol
from polydomo.sdk.channel import ClientCall, ClientConnection, MultiplexedChannel
from polydomo.sdk.connection import Dealer
from polydomo.wire.frames import Message


class DcpChannel(MultiplexedChannel["DcpConnection"]):
    """Channel with a bounded number of requests on one DCP connection."""

    async def _dial(self) -> DcpConnection:
        connection = DcpConnection(self)
        connection.transport = await self._connect(connection.received, connection.lost)
        return connection


class DcpConnection(ClientConnection):
    """Calls distinguished by a serial number in the metadata part."""

    transport: Dealer

    def __init__(self, channel: DcpChannel) -> None:
        super().__init__(channel)
        self._protocol = DcpClientProtocol()
        self._number = 0
        self._replies: dict[bytes, asyncio.Future[bytes]] = {}

    async def exchange(self, call: ClientCall) -> bytes:
        await self._writable()
        self._number += 1
        mark = b"%x" % self._number
        reply = self._replies[mark] = asyncio.get_running_loop().create_future()
        call.native = self.transport.native
        call.sent += 1
        self.transport.send(self._protocol.request(call.service, mark, call.body))
        try:
            return await self._wait(reply)
        finally:
            del self._replies[mark]

    def received(self, message: Message) -> None:
        found = self._protocol.receive(message)
        if found is None or not found.metadata:
            return
        reply = self._replies.get(found.metadata[0])
        if reply is not None and not reply.done():
            reply.set_result(found.body)
