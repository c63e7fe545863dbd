"""A worker's place at a broker: keeps one conversation going, through lost brokers and restarts, and works on
the jobs that come in it.

MDP knows one service and one job at a time per worker, so there a Worker has many stations; DCP's one station has all
services and several slots; NFP has one for each service, with several slots (`sdk.worker_session_nfp`); MemoDB's is
like DCP's, but for its conversations, which outlive connections (`sdk.worker_session_memo`); WMP's has all its managers
at once (`sdk.worker_session_wmp`). What a handler began is finished even if its conversation ends meanwhile; the answer
is dropped then (the broker has given the job to another), and the slot is not offered again before.

When an earlier broker is back, a station moves there as soon as it has room. It registers there first, and
goes on serving the one it leaves until nobody has asked there for a while: that broker's clients move, too,
each in its own time, and no job must be on its way to us when we say goodbye.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from polydomo.dialects.session import NAME_TAKEN
from polydomo.sdk.failover import Backoff, EndpointSelector
from polydomo.sdk.naming import PAUSE, Naming
from polydomo.sdk.transport import PeerTransport
from polydomo.sdk.worker_connection import ReplySink, Request, WorkerConnection, WorkerProtocol
from polydomo.sdk.worker_log import WorkerLog

log = logging.getLogger("polydomo.sdk")

# How long nobody must have asked at a broker that we move away from, in units of `failback`: more than its
# clients take to see what we have seen.
LINGER: Final = 2.0

Perform = Callable[[ReplySink, Request], Awaitable[None]]


class WorkerSession:
    """See the module's text."""

    def __init__(
        self,
        roster: EndpointSelector,
        slots: int,
        make_side: Callable[[PeerTransport], WorkerProtocol],
        perform: Perform,
        properties: dict[bytes, bytes],
        notices: WorkerLog,
    ) -> None:
        self.registered = asyncio.Event()
        self.clock = roster.clock
        self._roster = roster
        self._make_side = make_side
        self._perform = perform
        self._properties = properties
        self._notices = notices
        self._room = asyncio.Semaphore(slots)
        self._conversation: WorkerConnection | None = None
        self._better: asyncio.Future[None]  # than the broker of this conversation
        self._lingering: dict[WorkerConnection, asyncio.Task[None]] = {}  # those we move away from
        self._jobs: dict[asyncio.Task[None], WorkerConnection | None] = {}
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self.naming = Naming("")  # where workers have names, their worker's

    async def run(self) -> None:
        """Until `stop`."""
        self._task = asyncio.current_task()
        backoff = Backoff()
        try:
            try:
                while not self._stopping:
                    await self._one_conversation(backoff)
            except asyncio.CancelledError:
                if not self._stopping:
                    raise
            await asyncio.gather(*self._lingering.values())
        finally:
            self.abandon()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def stop(self) -> None:
        """Finish the jobs in hand, say goodbye, end."""
        self._stopping = True
        if self._conversation is None and self._task is not None:
            self._task.cancel()  # it is looking for a broker or pausing
        if not self._jobs:
            self._say_goodbye()

    def abandon(self) -> None:
        """Do not wait for the jobs in hand any longer."""
        for job in self._jobs:
            job.cancel()
        self._say_goodbye()

    def hang_up(self, reason: str) -> None:
        """End the conversation; another one begins with the same broker."""
        if self._conversation is not None:
            self._conversation.dismissed = True
            self._conversation.finish(reason)

    def reconsider(self) -> None:
        """An earlier broker is back: perhaps earlier than ours."""
        ours, better = self._conversation, self._better
        if ours is not None and not better.done() and self._roster.is_behind(ours.dealer.place):
            better.set_result(None)

    async def _one_conversation(self, backoff: Backoff) -> None:
        await self._until_free()
        conversation, dealer = await self._connect()
        self._conversation = conversation
        self._better = asyncio.get_running_loop().create_future()
        moving = False
        try:
            await conversation.begin(dealer, self._make_side(dealer))
            if not conversation.over.done():
                self._begun(conversation)
                self.naming.accepted()
                self.registered.set()
                self._notices.registered(self, dealer.place)
            ends: set[asyncio.Future[Any]] = {conversation.over, self._better}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            moving = not conversation.over.done()
        finally:
            self.registered.clear()
            self._conversation = None
            if moving:
                self._lingering[conversation] = asyncio.create_task(self._linger(conversation))
            else:
                conversation.finish("the worker stopped")
        if moving:
            self._notices.moving(self)
        elif not self._stopping:
            reason = conversation.over.result()
            self._notices.lost(self, dealer.place, reason)
            if NAME_TAKEN in reason:
                self.naming.refused(self.clock.time())
                await self.clock.sleep(PAUSE)
                return
            if conversation.heard:
                backoff.reset()
            if not conversation.dismissed:
                self._roster.failed(dealer.place)
            await self.clock.sleep(backoff.pause())

    async def _connect(self) -> tuple[WorkerConnection, PeerTransport]:
        """Somebody to talk to; nothing has been said yet."""
        conversation = WorkerConnection(self._job_came)
        dealer = await self._roster.connect(
            conversation.received,
            conversation.lost,
            patience=None,
            properties=self._properties | self.naming.properties,
            on_failure=self._notices.unreachable,
        )
        return conversation, dealer

    def _begun(self, conversation: WorkerConnection) -> None:
        """It is registered."""

    async def _linger(self, conversation: WorkerConnection) -> None:
        """Serve on until it is quiet there."""
        asked = -1
        try:
            while not conversation.over.done() and self._is_used(conversation, asked):
                asked = conversation.asked
                try:
                    async with self.clock.timeout(self._roster.failback * LINGER):
                        await asyncio.shield(conversation.over)
                except TimeoutError:
                    continue
        finally:
            conversation.finish("the worker moved to another broker")
            del self._lingering[conversation]

    def _is_used(self, conversation: WorkerConnection, asked: int) -> bool:
        """Has it brought a job since `asked` was counted, or is one in hand?"""
        return conversation.asked != asked or conversation in self._jobs.values()

    async def _until_free(self) -> None:
        """With all slots still busy from the last conversation, offering them again would be a lie."""
        async with self._room:
            pass

    def _job_came(self, conversation: WorkerConnection, request: Request) -> None:
        job = asyncio.create_task(self._work(conversation, request))
        self._jobs[job] = conversation
        job.add_done_callback(self._job_ended)

    async def _work(self, conversation: WorkerConnection, request: Request) -> None:
        async with self._room:
            # Not begun when we stop, it goes to another worker as soon as the connection is closed.
            if not self._stopping and not conversation.over.done():
                await self._perform(conversation, request)

    def _job_ended(self, job: asyncio.Task[None]) -> None:
        del self._jobs[job]
        if not job.cancelled() and job.exception() is not None:
            log.error("a job could not be dealt with", exc_info=job.exception())
        if self._stopping and not self._jobs:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        for conversation in [self._conversation, *self._lingering]:
            if conversation is not None:
                conversation.finish("the worker stopped")
