"""MemoDB's way: one connection, many requests outstanding, told apart by NNG's request IDs.

A request that was lost with its connection is sent again under the same ID, so a broker that still has the job goes on
with it. One that has had no answer for long is sent again as well, because brokers say nothing of jobs that they gave
up. How many are outstanding follows the rate of the answers (`sdk.congestion`): a broker that has too many unanswered
stops reading, and one that has them waiting for too long gives them up.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from typing import Final

from polydomo.dialects.memo.client import MemoClientProtocol
from polydomo.sdk.channel import Call, MultiplexedChannel, Multiplexer
from polydomo.sdk.clock import Timer
from polydomo.sdk.congestion import CongestionWindow
from polydomo.sdk.connection_sp import Req, connect
from polydomo.sdk.failover import EndpointSelector
from polydomo.sdk.transport import Lost
from polydomo.sdk.url import Address

# Seconds after which a request without an answer is sent again for the first time: as long as brokers let it wait for
# a worker.
RESEND: Final = 10.0


class MemoChannel(MultiplexedChannel["MemoMultiplexer"]):
    """See the module's text."""

    def __init__(
        self, roster: EndpointSelector, connect_timeout: float, ping: float, window: int, resend: float
    ) -> None:
        super().__init__(roster, connect_timeout, ping)
        self.side = MemoClientProtocol(secrets.randbits(31))
        self.resend = resend
        self.window = CongestionWindow(window, roster.clock)

    async def exchange(self, call: Call) -> bytes:
        call.request = call.request or self.side.next_id()
        answered = False
        await self.window.enter()
        try:
            pipe = self._pipe or await self._open()
            body = await pipe.exchange(call)
            answered = True
        finally:
            self.window.leave(answered)
        return body

    async def _dial(self) -> MemoMultiplexer:
        self._check()
        pipe = MemoMultiplexer(self)

        def dial(place: Address, timeout: float) -> Awaitable[Req]:
            clock = self.roster.clock
            return connect(place, pipe.received, pipe.lost, clock=clock, ping=self._ping, timeout=timeout)

        pipe.link = self._keep(await self.roster.find(dial, self._connect_timeout))
        return pipe


class Waiting:
    """A call on a pipe."""

    __slots__ = ("answer", "call", "due", "pause")

    def __init__(self, call: Call, answer: asyncio.Future[bytes], pause: float, now: float) -> None:
        self.call = call
        self.answer = answer
        self.pause = pause  # until it is sent again; infinity: never
        self.due = now + pause


class MemoMultiplexer(Multiplexer):
    """Calls are told apart by their request IDs, and sent again if they have no answer for long."""

    def __init__(self, channel: MemoChannel) -> None:
        self.link: Req
        self._channel = channel
        self._side = channel.side
        self._clock = channel.roster.clock
        self._waiting: dict[bytes, Waiting] = {}
        self._retired = False
        self._timer: Timer | None = None

    async def exchange(self, call: Call) -> bytes:
        link = self.link
        await link.writable()
        if link.closed:
            raise Lost("the connection broke before the request was sent")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        pause = float("inf") if call.once or self._channel.resend <= 0 else self._channel.resend
        self._waiting[call.request] = Waiting(call, answer, pause, self._clock.time())
        call.sent += 1
        self._send(call)
        link.expect(1)
        if self._timer is None and pause < float("inf"):
            self._timer = self._clock.call_later(pause / 2, self._look)
        try:
            return await answer
        finally:
            link.expect(-1)
            self._waiting.pop(call.request, None)
            if self._retired and not self._waiting:
                self._end()

    def retire(self) -> None:
        self._retired = True
        if not self._waiting:
            self._end()

    def received(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        """A reply. One to a call that was given up is dropped."""
        waiting = self._waiting.get(stack)
        if waiting is None or waiting.answer.done():
            return
        body = self._side.receive(data, start, end)
        if body is not None:
            waiting.answer.set_result(body)

    def lost(self, reason: str) -> None:
        self._channel.roster.failed(self.link.place)
        self._channel.drop(self)
        self._stop()
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(Lost(reason))

    def _send(self, call: Call) -> None:
        limit = call.limit if call.run_limit is None else call.run_limit
        self.link.send(self._side.request(call.request, call.service, limit, call.body, self.link.ipc))

    def _look(self) -> None:
        """Who has had no answer for long?"""
        self._timer = None
        if self.link.closed or not self._waiting:
            return
        now = self._clock.time()
        late = [waiting for waiting in self._waiting.values() if waiting.due <= now]
        if self.link.congested:
            late = []  # what is to be repeated may not even have left
        if late:
            self._channel.window.shrink()
        for waiting in late:
            waiting.pause *= 2
            waiting.due = now + waiting.pause
            self._send(waiting.call)
        self._timer = self._clock.call_later(self._channel.resend / 2, self._look)

    def _end(self) -> None:
        self._stop()
        self.link.close()
        self._channel.drop(self)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
