"""A worker's place at a MemoDB broker: one connection, all services, several workers on it.

There a worker is known by an ID that survives its connection. So a conversation outlives it, too: it connects again at
once and repeats what was not answered, jobs in hand go on meanwhile, and their results are sent on the new connection.
Only when the broker stays away is the conversation over, and another one begins, perhaps with another broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from polydomo.dialects.memo.worker import MemoRequest, MemoWorkerProtocol
from polydomo.sdk import failures
from polydomo.sdk.connection_sp import Req, connect
from polydomo.sdk.failover import Backoff
from polydomo.sdk.failures import Account
from polydomo.sdk.transport import Lost, PeerTransport
from polydomo.sdk.url import Address
from polydomo.sdk.worker_connection import WorkerConnection, WorkerProtocol
from polydomo.sdk.worker_session import WorkerSession

# Seconds that a broker may be away before the conversation is over: where there is another to go to, and where not.
AWAY: Final = 0.5
AWAY_ALONE: Final = 3.0


class MemoWorkerConnection(WorkerConnection):
    """See the module's text."""

    leaving = False  # the answers in hand are the last
    silence = 10.0  # seconds without a word after which we look if the broker is there
    away = AWAY_ALONE
    _returning: asyncio.Task[None] | None = None

    async def begin(self, dealer: PeerTransport, side: WorkerProtocol) -> None:
        """memo01 has no word for "registered": what was sent is all that is known."""
        dealer.expect(1)
        await super().begin(dealer, side)

    def replied(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        """From the connection."""
        if not self.over.done():
            self._heard_of(self._memo.answer(stack, data, start, end, self._now()))

    def final(self, request: object, body: bytes) -> None:
        assert isinstance(request, MemoRequest)
        self._memo.final(request, body, self._now(), self.leaving)
        self._pump()

    def failed(self, request: object, account: Account) -> None:
        """There is no answer, and why: in an answer that any client can read. Nothing tells us if the broker is ours,
        so it is never more than that."""
        self.final(request, failures.body_of(account, False))

    def lost(self, reason: str) -> None:
        """The connection broke: connect again."""
        if not self.over.done():
            self._returning = asyncio.create_task(self._return(reason))

    async def _return(self, reason: str) -> None:
        backoff = Backoff()
        clock = self.dealer.clock
        end = clock.time() + self.away
        while not self.over.done():
            try:
                link = await connect(
                    self.place, self.replied, self.lost, clock=clock, ping=self.silence, timeout=self.away
                )
            except Lost:
                pause = backoff.pause()
                if clock.time() + pause > end:
                    self._end(reason)
                    return
                await clock.sleep(pause)
                continue
            self.dealer = link
            link.expect(1)
            self._memo.resume(link.ipc, self._now())
            self._pump()
            return

    def _end(self, reason: str) -> None:
        super()._end(reason)
        if self._returning is not None and self._returning is not asyncio.current_task():
            self._returning.cancel()

    @property
    def _memo(self) -> MemoWorkerProtocol:
        assert isinstance(self.side, MemoWorkerProtocol)
        return self.side


class MemoWorkerSession(WorkerSession):
    """See the module's text."""

    silence = 10.0

    def stop(self) -> None:
        """The jobs in hand are the last: their results say so."""
        for conversation in [self._conversation, *self._lingering]:
            if isinstance(conversation, MemoWorkerConnection):
                conversation.leaving = True
        super().stop()

    async def _connect(self) -> tuple[WorkerConnection, PeerTransport]:
        conversation = MemoWorkerConnection(self._job_came)
        conversation.silence = self.silence
        if len(self._roster.places) > 1:
            conversation.away = AWAY

        def dial(place: Address, timeout: float) -> Awaitable[Req]:
            return connect(
                place,
                conversation.replied,
                conversation.lost,
                clock=self.clock,
                ping=self.silence,
                timeout=timeout,
            )

        return conversation, await self._roster.find(dial, None, self._notices.unreachable)
