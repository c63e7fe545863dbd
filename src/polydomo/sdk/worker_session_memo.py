"""A worker's session with a MemoDB broker: one connection, all services, several workers on it.

MemoDB knows a worker by an ID that survives its connection, so the session's connection survives its transport, too: it
connects again at once, repeats what was not answered, keeps the running jobs and sends their results on the new
transport. Only when the broker stays away is the connection over; the next one may be to another broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from polydomo.dialects.memo.worker import MemoRequest, MemoWorkerProtocol
from polydomo.dialects.worker_protocol import WorkerProtocol
from polydomo.sdk import failures
from polydomo.sdk.clock import AsyncClock
from polydomo.sdk.connection_sp import Req
from polydomo.sdk.failover import Backoff
from polydomo.sdk.failures import FailureInfo
from polydomo.sdk.transport import ConnectionLost, PeerTransport, open_transport
from polydomo.sdk.url import Address
from polydomo.sdk.worker_connection import WorkerConnection, WorkerRequest
from polydomo.sdk.worker_session import MakeProtocol, SessionSettings, SingleBrokerSession

# Seconds that a broker may be away before the connection is over: with other brokers to try, and without.
AWAY: Final = 0.5
AWAY_ALONE: Final = 3.0


class MemoWorkerConnection(WorkerConnection):
    """A connection that survives its transport for `away` seconds. After `silence` seconds the broker is checked."""

    def __init__(
        self,
        on_job: Callable[[WorkerConnection, WorkerRequest], None],
        clock: AsyncClock,
        silence: float,
        away: float,
    ) -> None:
        super().__init__(on_job)
        self.leaving = False  # no jobs are wanted after the running ones
        self._clock = clock
        self._silence = silence
        self._away = away
        self._returning: asyncio.Task[None] | None = None

    async def begin(self, transport: PeerTransport, protocol: WorkerProtocol) -> None:
        """Register. memo01 has no confirmation, so this does not wait for one."""
        transport.expect(1)
        await super().begin(transport, protocol)

    def make_transport(self, address: Address) -> Req:
        """Return a transport for this connection, not opened yet."""
        return Req(address, self._clock, self.replied, self.lost, self._silence)

    def replied(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        """Process a reply from the transport."""
        if not self.over.done():
            self._handle(self._memo.answer(stack, data, start, end, self._now()))

    def final(self, request: object, body: bytes) -> None:
        assert isinstance(request, MemoRequest)
        self._memo.final(request, body, self._now(), self.leaving)
        self._pump()

    def failed(self, request: object, info: FailureInfo) -> None:
        """Report a failure in a result that any client can read. SP does not tell whether the broker is Polydomo's, so
        the mark of a failure cannot be sent."""
        self.final(request, failures.body_of(info, False))

    def lost(self, reason: str) -> None:
        """Connect again after the transport broke."""
        if not self.over.done():
            self._returning = asyncio.create_task(self._return(reason))

    async def _return(self, reason: str) -> None:
        backoff = Backoff()
        clock = self._clock
        end = clock.time() + self._away
        while not self.over.done():
            try:
                transport = await open_transport(self.make_transport(self.address), self._away)
            except ConnectionLost:
                pause = backoff.pause()
                if clock.time() + pause > end:
                    self._end(reason)
                    return
                await clock.sleep(pause)
                continue
            self.transport = transport
            transport.expect(1)
            self._memo.resume(transport.ipc, self._now())
            self._pump()
            return

    def _end(self, reason: str) -> None:
        super()._end(reason)
        if self._returning is not None and self._returning is not asyncio.current_task():
            self._returning.cancel()

    @property
    def _memo(self) -> MemoWorkerProtocol:
        assert isinstance(self.protocol, MemoWorkerProtocol)
        return self.protocol


class MemoWorkerSession(SingleBrokerSession):
    """A session whose broker is checked after `silence` seconds."""

    def __init__(self, settings: SessionSettings, make_protocol: MakeProtocol, silence: float) -> None:
        super().__init__(settings, make_protocol)
        self._silence = silence

    def stop(self) -> None:
        """Mark the results of the running jobs as the last ones, and end after them."""
        for connection in [self.connection, *self._lingering]:
            if isinstance(connection, MemoWorkerConnection):
                connection.leaving = True
        super().stop()

    async def _connect(self) -> tuple[WorkerConnection, PeerTransport]:
        away = AWAY if len(self._selector.addresses) > 1 else AWAY_ALONE
        connection = MemoWorkerConnection(self._received, self.clock, self._silence, away)
        return connection, await self._selector.find(connection.make_transport, None, self._log.unreachable)
