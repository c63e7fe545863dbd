"""Delays: jobs that are not to run before a time, and pauses between two attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.features.feature import PASS, TAKEN, Feature
from polydomo.core.model import Job
from polydomo.core.states import DELAY
from polydomo.core.timers import CallTimer, Timer
from polydomo.core.tracked_job import TrackedJob, is_durable
from polydomo.core.tracking import Tracking

# No pause between two attempts is longer.
LONGEST_PAUSE: Final = 300.0


class Delay(Feature):
    """Holds jobs until a time."""

    def __init__(self, tracking: Tracking, random: Callable[[], float]) -> None:
        self.held: dict[Job, Timer] = {}
        self._tracking = tracking
        self._random = random

    def on_ready(self, job: TrackedJob) -> int:
        if job.ready <= self._tracking.clock.now:
            return PASS
        self.hold_until(job, job.ready)
        return TAKEN

    def on_retry(self, job: Job) -> int:
        """Pause before the next attempt: exponential back-off, of which up to half is random."""
        if not job.service.policy.backoff:
            return PASS
        pause = min(job.service.policy.backoff * 2.0 ** (job.attempt - 1), LONGEST_PAUSE)
        self.hold_until(job, self._tracking.clock.now + pause * (0.5 + self._random() / 2))
        return TAKEN

    def on_cancel(self, job: Job, failure: Failure) -> int:
        if job not in self.held:
            return PASS
        self.release(job)
        return TAKEN

    def on_close(self) -> None:
        for job in list(self.held):
            if not is_durable(job):
                failure = Failure(reasons.DRAINING, "the broker stopped before its time came")
                self._tracking.cancel(job, failure)

    def hold_until(self, job: Job, when: float) -> None:
        """Hold a job until a time; then it proceeds, or is tried again."""
        self._tracking.hold(job, DELAY)
        timer = self.held[job] = CallTimer(self._due, job)
        self._tracking.timers.set(timer, when)

    def release(self, job: Job) -> None:
        """Hold a job no longer."""
        self._tracking.timers.clear(self.held.pop(job))
        self._tracking.release(job)

    def _due(self, job: Job) -> None:
        """Let a job go on whose time has come."""
        self.release(job)
        if isinstance(job, TrackedJob) and not job.attempt:
            self._tracking.proceed(job)
        else:
            self._tracking.scheduler.place(job, True)
