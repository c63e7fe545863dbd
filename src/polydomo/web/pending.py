"""Tickets: what a request holds while its job is under way, and how the job ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from polydomo.core import job as jobs
from polydomo.core.gather import Piece, unpack
from polydomo.core.job import Failure, Job
from polydomo.web.job_events import FAILED, RESULT, JobEvent, Listener

if TYPE_CHECKING:
    from polydomo.web.clients import WebClient


class Outcome:
    """How a job ended: with a `body`, or with a `failure`. `gathered`: the body is several workers' (`pieces`)."""

    __slots__ = ("body", "failure", "gathered", "worker")

    def __init__(
        self, body: bytes | None, failure: Failure | None, gathered: bool = False, worker: bytes = b""
    ) -> None:
        self.body = body  # canonical
        self.failure = failure
        self.gathered = gathered
        self.worker = worker  # who did it; empty for a gathered one

    @property
    def pieces(self) -> list[Piece] | None:
        """The answers of several workers; None where one worker's answer is the result."""
        return unpack(self.body) if self.gathered and self.body is not None else None


class PendingJob:
    """One job of one request."""

    __slots__ = (
        "_future",
        "_wants_end",
        "accepted",
        "client",
        "ended",
        "job",
        "left",
        "listener",
        "on_end",
        "uid",
        "watched",
    )

    def __init__(self, client: WebClient, uid: str) -> None:
        self.client = client
        self.uid = uid
        self.job: Job | None = None  # None: it was refused, or has ended before there was time to look
        self.watched: Job | None = None  # somebody's job that is only listened to
        self.left = False  # nobody waits for it, and nothing more is heard of it here
        self.accepted = False  # the core has taken it; if it is durable, it is on disk
        self.ended: Outcome | None = None
        self.listener: Listener | None = None
        self.on_end: Callable[[PendingJob], None] | None = None  # called with it, for whoever has very many
        self._future: asyncio.Future[None] | None = None
        self._wants_end = True

    async def outcome(self, timeout: float) -> Outcome | None:
        """Its end, within `timeout` seconds. None: not yet, or nobody waits any more (`let_go`)."""
        if self.ended is None and not self.left:
            await self._wait(timeout, True)
        return self.ended

    async def acceptance(self, timeout: float) -> bool:
        """Until it is safe (or has ended at once, or was refused: see `ended`). False: not in time."""
        if not self.accepted and self.ended is None and not self.left:
            await self._wait(timeout, False)
        return self.accepted or self.ended is not None

    def listen(self) -> Listener:
        """What happens to it from now on; to be called right after `submit`, or something may be missed."""
        if self.listener is None:
            self.listener = Listener(self.client.loop)
            if self.ended is not None:
                self.listener.add(last_of(self.ended))
        return self.listener

    def let_go(self) -> None:
        """Nobody waits for it here any more; it goes on."""
        self.left = True
        self.wake()
        self.client.drop(self)

    def abandon(self) -> None:
        """Whoever asked for it is gone: what lives in memory, and is wanted by nobody else, is not done."""
        job = self.job
        self.left = True
        self.wake()
        self.client.drop(self)
        if job is None or self.ended is not None or self.client.broker.closing:
            return
        extra = job.extra
        wanted = extra is not None and (
            extra.durable or extra.followers or extra.watchers or extra.leader is not None
        )
        if not wanted:
            self.client.clients.server.advance()
            self.client.broker.lifecycle.cancel(job, Failure(jobs.CLIENT_GONE, "its client went away"))

    async def _wait(self, timeout: float, end: bool) -> None:
        loop = self.client.loop
        future: asyncio.Future[None] = loop.create_future()
        self._future = future
        self._wants_end = end
        timer = loop.call_later(timeout, expire, future)
        try:
            await future
        finally:
            timer.cancel()
            self._future = None

    def wake(self) -> None:
        """Whoever waits goes on with what is known."""
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    def accept(self) -> None:
        """From the client's port."""
        self.accepted = True
        if not self._wants_end:
            self.wake()

    def end(self, outcome: Outcome) -> None:
        """From the client's port."""
        self.ended = outcome
        self.wake()
        if self.listener is not None:
            self.listener.add(last_of(outcome))
        if self.on_end is not None:
            self.on_end(self)


def last_of(outcome: Outcome) -> JobEvent:
    """A job's end as the last thing that happens to it."""
    if outcome.failure is not None:
        return JobEvent(FAILED, failure=outcome.failure)
    return JobEvent(RESULT, outcome.worker, outcome.body or b"", gathered=outcome.gathered)


def expire(future: asyncio.Future[None]) -> None:
    """Whoever waits for it goes on."""
    if not future.done():
        future.set_result(None)
