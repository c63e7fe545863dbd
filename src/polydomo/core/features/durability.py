"""Durable jobs: on disk before they are accepted, and their ends on disk before their clients are told.

A durable job does not need its client: the result is in the store for later. What the store cannot write
now it is told again, so a full disk delays results and loses none.
"""

from __future__ import annotations

from typing import Final

from polydomo.core.failure import Failure
from polydomo.core.features.feature import LATER, PASS, TAKEN, Feature
from polydomo.core.model import Job, Service
from polydomo.core.states import RECORD, STORE, STORING
from polydomo.core.timers import CallTimer
from polydomo.core.tracked_job import TrackedJob
from polydomo.core.tracking import Tracking

# Seconds before the store is told again what it could not write.
TELL_AGAIN: Final = 1.0


class Durability(Feature):
    """Writes jobs and their ends to the store."""

    def __init__(self, tracking: Tracking) -> None:
        self._tracking = tracking

    def applies(self, service: Service) -> bool:
        return service.policy.durable

    def on_submit(self, job: TrackedJob) -> int:
        store = self._tracking.store
        if not job.durable or store is None:
            return PASS
        self._tracking.hold(job, STORE)
        job.added = True
        store.add(job)
        if store.behind():
            self._tracking.accounting.stall(job.client)
        for follower in list(job.followers):
            if follower.unsafe:
                store.alias(job, follower)
        return TAKEN

    def on_ready(self, job: TrackedJob) -> int:
        if job.cancelled is None:
            return PASS
        self._tracking.scheduler.fail(job, job.cancelled)
        return TAKEN

    def on_dispatch(self, job: TrackedJob) -> None:
        if job.durable and self._tracking.store is not None:
            job.number += 1
            self._tracking.store.attempt(job)

    def on_partial(self, job: TrackedJob, body: bytes) -> None:
        if job.durable and self._tracking.store is not None:
            self._tracking.store.partial(job, body)

    def on_event(self, job: TrackedJob, name: bytes, kind: str, body: bytes) -> None:
        if job.durable and self._tracking.store is not None:
            self._tracking.store.event(job, name, kind, body)

    def on_conclude(self, job: TrackedJob) -> int:
        if not job.durable:
            return PASS
        job.answered = self._tracking.clock.now
        self._tracking.hold(job, RECORD)
        if self._tracking.store is not None:
            self._tracking.store.finish(job)
        return TAKEN

    def on_cancel(self, job: Job, failure: Failure) -> int:
        if job.state != STORING or not isinstance(job, TrackedJob) or job.leader is not None:
            return PASS
        job.cancelled = failure  # it ends as soon as it is on disk: what was promised of it is true by then
        return LATER

    def stored(self, job: TrackedJob, failure: Failure | None) -> None:
        """Let a job go on that is on disk, or refuse it because it cannot be."""
        self._tracking.release(job)
        if failure is not None:
            job.durable = False  # there is nothing on disk to be changed
            self._tracking.scheduler.fail(job, failure)
        else:
            self._tracking.proceed(job)

    def recorded(self, job: TrackedJob, failure: Failure | None) -> None:
        """Tell the client of a job whose end is on disk, or try again later if it cannot be written at the moment."""
        if failure is not None:
            timer = CallTimer(self._record_again, job)
            self._tracking.timers.set(timer, self._tracking.clock.now + TELL_AGAIN)
            return
        self._tracking.release(job)
        self._tracking.finish(job)

    def _record_again(self, job: TrackedJob) -> None:
        """Tell the store of an end that it could not write."""
        if self._tracking.store is not None:
            self._tracking.store.finish(job)
