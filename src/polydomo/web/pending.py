"""Jobs that a request waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from polydomo.core.model import Job
from polydomo.core.result_history import JobResult
from polydomo.web.job_events import FAILED, RESULT, JobEvent, JobEventQueue
from polydomo.web.waiting import Wakeup


class PendingOwner(Protocol):
    """The client that submitted or watches a job."""

    loop: asyncio.AbstractEventLoop

    def detach(self, pending: PendingJob, cancel: bool) -> None:
        """Stop notifying `pending`; with `cancel`, drop a job that lives in memory and has no other waiter."""


class PendingJob:
    """One job of one request. A wait costs one future; there is no task and no queue unless `listen` is called."""

    __slots__ = (
        "_owner",
        "_wakeup",
        "_wants_end",
        "accepted",
        "detached",
        "ended",
        "job",
        "listener",
        "on_end",
        "uid",
        "watched",
    )

    def __init__(self, owner: PendingOwner, uid: str) -> None:
        self._owner = owner
        self.uid = uid
        self.job: Job | None = None  # None: refused, or ended within `submit`
        self.watched: Job | None = None  # the job of another client that this one only watches
        self.detached = False  # no further notifications
        self.accepted = False  # the core has accepted the job; a durable one is on disk
        self.ended: JobResult | None = None
        self.listener: JobEventQueue | None = None
        self.on_end: Callable[[PendingJob], None] | None = None  # cheaper than a waiting task per job
        self._wakeup = Wakeup(owner.loop)
        self._wants_end = True

    async def outcome(self, timeout: float) -> JobResult | None:
        """Return the job's result; None if it has not ended within `timeout` seconds or was detached."""
        if self.ended is None and not self.detached:
            self._wants_end = True
            await self._wakeup.wait(timeout)
        return self.ended

    async def acceptance(self, timeout: float) -> bool:
        """Wait until the job is accepted, refused or ended (see `ended`); return False after the timeout."""
        if not self.accepted and self.ended is None and not self.detached:
            self._wants_end = False
            await self._wakeup.wait(timeout)
        return self.accepted or self.ended is not None

    def listen(self) -> JobEventQueue:
        """Return the queue of the job's events. Call it right after `submit`: earlier events are not repeated."""
        if self.listener is None:
            self.listener = JobEventQueue(self._owner.loop)
            if self.ended is not None:
                self.listener.add(last_event(self.ended))
        return self.listener

    def detach(self, cancel: bool = False) -> None:
        """Stop waiting; the job continues, or is cancelled with `cancel` if nothing else needs its result."""
        self.detached = True
        self.wake()
        self._owner.detach(self, cancel)

    def abandon(self) -> None:
        """Stop waiting because the peer disconnected."""
        self.detach(cancel=True)

    def wake(self) -> None:
        """Let a wait return now."""
        self._wakeup.wake()

    def accept(self) -> None:
        """Record that the core has accepted the job."""
        self.accepted = True
        if not self._wants_end:
            self.wake()

    def end(self, result: JobResult) -> None:
        """Record the job's result and notify waiters."""
        self.ended = result
        self.wake()
        if self.listener is not None:
            self.listener.add(last_event(result))
        if self.on_end is not None:
            self.on_end(self)


def last_event(result: JobResult) -> JobEvent:
    """Return a job's result as its last event."""
    if result.failure is not None:
        return JobEvent(FAILED, failure=result.failure)
    return JobEvent(RESULT, result.worker, result.body or b"", gathered=result.gathered)
