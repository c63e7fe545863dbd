"""MemoDB channel: one connection, many requests outstanding, distinguished by NNG's request IDs.

A request that was lost with its connection is sent again under the same ID, so a broker that still has the job
continues it. A request without a reply for long is sent again as well, because brokers do not report jobs that they
dropped. The number outstanding follows the rate of the replies (`sdk.congestion`): a broker with too many unanswered
requests stops reading, and one whose requests wait for too long drops them.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Final

from polydomo.dialects.memo.client import MemoClientProtocol
from polydomo.sdk.channel import ClientCall, ClientConnection, MultiplexedChannel
from polydomo.sdk.clock import TimerHandle
from polydomo.sdk.congestion import CongestionWindow
from polydomo.sdk.connection_sp import Req
from polydomo.sdk.failover import EndpointSelector

# Seconds after which a request without a reply is first sent again: as long as brokers let it wait for a worker.
RESEND: Final = 10.0


class MemoChannel(MultiplexedChannel["MemoConnection"]):
    """Channel with a congestion window on one MemoDB connection."""

    def __init__(
        self, selector: EndpointSelector, connect_timeout: float, ping: float, window: int, resend: float
    ) -> None:
        super().__init__(selector, connect_timeout, ping, window)
        self.protocol = MemoClientProtocol(secrets.randbits(31))
        self.resend = resend
        self.window = CongestionWindow(window, selector.clock)
        self._slots = self.window

    async def _dial(self) -> MemoConnection:
        connection = MemoConnection(self)
        received, lost = connection.received, connection.lost
        clock, ping = self.selector.clock, self._ping
        connection.transport = await self._find(lambda address: Req(address, clock, received, lost, ping))
        return connection


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request without a reply yet."""

    call: ClientCall
    reply: asyncio.Future[bytes]
    interval: float  # until the next repetition; infinity: never
    resend_at: float


class MemoConnection(ClientConnection):
    """Calls distinguished by their request IDs, and repeated while they have no reply."""

    transport: Req

    def __init__(self, channel: MemoChannel) -> None:
        super().__init__(channel)
        self._protocol = channel.protocol
        self._resend = channel.resend
        self._window = channel.window
        self._clock = channel.selector.clock
        self._requests: dict[bytes, PendingRequest] = {}
        self._timer: TimerHandle | None = None

    async def exchange(self, call: ClientCall) -> bytes:
        await self._writable()
        call.request_id = call.request_id or self._protocol.next_id()
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        interval = float("inf") if call.retries == 0 or self._resend <= 0 else self._resend
        self._requests[call.request_id] = PendingRequest(call, reply, interval, self._clock.time() + interval)
        call.sent += 1
        self._send(call)
        if self._timer is None and interval < float("inf"):
            self._timer = self._clock.call_later(interval / 2, self._resend_overdue)
        try:
            return await self._wait(reply)
        finally:
            del self._requests[call.request_id]

    def received(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        """Deliver a reply; one to a cancelled call is dropped."""
        request = self._requests.get(stack)
        if request is None or request.reply.done():
            return
        body = self._protocol.receive(data, start, end)
        if body is not None:
            request.reply.set_result(body)

    def _send(self, call: ClientCall) -> None:
        timeout = call.timeout if call.run_timeout is None else call.run_timeout
        self.transport.send(
            self._protocol.request(call.request_id, call.service, timeout, call.body, self.transport.ipc)
        )

    def _resend_overdue(self) -> None:
        """Repeat the requests that have had no reply for long. Nothing is repeated after the connection is closed."""
        self._timer = None
        if self.transport.closed or not self._requests:
            return
        now = self._clock.time()
        # While output is congested, the overdue requests may not even have been written.
        overdue = [
            request
            for request in self._requests.values()
            if request.resend_at <= now and not self.transport.congested
        ]
        if overdue:
            self._window.shrink()
        for request in overdue:
            request.interval *= 2
            request.resend_at = now + request.interval
            self._send(request.call)
        self._timer = self._clock.call_later(self._resend / 2, self._resend_overdue)
