"""Deadlines: a job ends at its deadline, however far it has come, unless its end is being recorded."""

from __future__ import annotations

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.features.feature import PASS, TAKEN, Feature
from polydomo.core.policy import FOREVER
from polydomo.core.states import DELAYED, GATHERING, REMEMBERING, RUNNING, WAITING
from polydomo.core.timers import CallTimer
from polydomo.core.tracked_job import TrackedJob
from polydomo.core.tracking import Tracking


class Deadline(Feature):
    """Ends jobs at their deadlines."""

    def __init__(self, tracking: Tracking) -> None:
        self._tracking = tracking

    def on_submit(self, job: TrackedJob) -> int:
        if job.deadline < FOREVER:
            self.on_restore(job)
        return PASS

    def on_ready(self, job: TrackedJob) -> int:
        if job.deadline > self._tracking.clock.now:
            return PASS
        self._tracking.scheduler.fail(job, _passed())  # while the disk was written
        return TAKEN

    def on_end(self, job: TrackedJob, body: bytes | None, failure: Failure | None) -> None:
        if job.deadline_timer is not None:
            self._tracking.timers.clear(job.deadline_timer)
            job.deadline_timer = None

    def on_restore(self, job: TrackedJob) -> None:
        if job.deadline < FOREVER:
            job.deadline_timer = CallTimer(self._expire, job)
            self._tracking.timers.set(job.deadline_timer, job.deadline)

    def _expire(self, job: TrackedJob) -> None:
        if job.state in (WAITING, RUNNING, DELAYED, GATHERING, REMEMBERING):
            self._tracking.cancel(job, _passed())


def _passed() -> Failure:
    return Failure(reasons.DEADLINE, "its deadline passed")
