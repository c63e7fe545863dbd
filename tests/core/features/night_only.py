"""A worked example of a feature: jobs of some services run only between 22:00 and 06:00 (UTC)."""

from __future__ import annotations

from polydomo.core.failure import Failure
from polydomo.core.features.feature import PASS, TAKEN, Feature
from polydomo.core.model import Job, Service
from polydomo.core.states import DELAY
from polydomo.core.timers import CallTimer
from polydomo.core.tracked_job import TrackedJob
from polydomo.core.tracking import Tracking

MORNING, EVENING, DAY = 6 * 3600.0, 22 * 3600.0, 24 * 3600.0


class NightOnly(Feature):
    def __init__(self, tracking: Tracking, names: set[bytes]) -> None:
        self._tracking = tracking
        self._names = names
        self._held: dict[Job, CallTimer] = {}
        self._mornings: dict[Service, CallTimer] = {}

    def applies(self, service: Service) -> bool:
        return service.name in self._names

    def on_ready(self, job: TrackedJob) -> int:
        return self._hold_until_night(job)

    def on_retry(self, job: Job) -> int:
        return self._hold_until_night(job)

    def on_cancel(self, job: Job, failure: Failure) -> int:
        if job not in self._held:
            return PASS
        self._release(job)
        return TAKEN

    def _hold_until_night(self, job: Job) -> int:
        clock, timers = self._tracking.clock, self._tracking.timers
        time_of_day = clock.wall(clock.now) / 1_000_000 % DAY
        if not self.applies(job.service):
            return PASS
        if not MORNING <= time_of_day < EVENING:
            morning = self._mornings.setdefault(job.service, CallTimer(self._morning, job.service))
            timers.set(morning, clock.now + (MORNING - time_of_day) % DAY)
            return PASS
        self._tracking.hold(job, DELAY)
        timer = self._held[job] = CallTimer(self._evening, job)
        timers.set(timer, clock.now + EVENING - time_of_day)
        return TAKEN

    def _morning(self, service: Service) -> None:
        """Hold the jobs that no worker took during the night."""
        del self._mornings[service]
        for job in service.jobs():
            self._tracking.scheduler.unqueue(job)
            self._hold_until_night(job)

    def _evening(self, job: TrackedJob) -> None:
        self._release(job)
        self._tracking.scheduler.place(job, job.attempt > 0)

    def _release(self, job: Job) -> None:
        self._tracking.timers.clear(self._held.pop(job))
        self._tracking.release(job)
