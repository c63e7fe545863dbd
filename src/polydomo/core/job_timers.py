"""What rings for a job when its time has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core import job as jobs
from polydomo.core.job import DELAYED, GATHERING, RUNNING, WAITING, Failure, Job
from polydomo.core.timers import Timer

if TYPE_CHECKING:
    from polydomo.core.gathering import Gathers
    from polydomo.core.lifecycle import Lifecycle

# How long to wait before the keeper is told again what it could not write.
TELL_AGAIN: Final = 1.0


class Delayed(Timer):
    """A job whose time has not come."""

    def __init__(self, lifecycle: Lifecycle, job: Job) -> None:
        super().__init__()
        self.lifecycle = lifecycle
        self.job = job

    def fire(self, now: float) -> None:
        self.lifecycle.due(self.job)


class Deadline(Timer):
    """The end of a job's life, however far it has come."""

    def __init__(self, lifecycle: Lifecycle, job: Job) -> None:
        super().__init__()
        self.lifecycle = lifecycle
        self.job = job

    def fire(self, now: float) -> None:
        if self.job.state in (WAITING, RUNNING, DELAYED, GATHERING):
            self.lifecycle.cancel(self.job, Failure(jobs.DEADLINE, "its deadline passed"))


class Again(Timer):
    """An end that could not be recorded."""

    def __init__(self, lifecycle: Lifecycle, job: Job) -> None:
        super().__init__()
        self.lifecycle = lifecycle
        self.job = job
        lifecycle.broker.timers.set(self, lifecycle.broker.now + TELL_AGAIN)

    def fire(self, now: float) -> None:
        if self.lifecycle.keeper is not None:
            self.lifecycle.keeper.finish(self.job)


class Patience(Timer):
    """How long a job waits for the first of all workers."""

    def __init__(self, gathers: Gathers, job: Job) -> None:
        super().__init__()
        self.gathers = gathers
        self.job = job

    def fire(self, now: float) -> None:
        self.gathers.out_of_patience(self.job)


class Convene(Timer):
    """The first worker came a moment ago."""

    def __init__(self, gathers: Gathers, job: Job) -> None:
        super().__init__()
        self.gathers = gathers
        self.job = job

    def fire(self, now: float) -> None:
        self.gathers.convene(self.job)


class KeepAgain(Timer):
    """A piece that could not be recorded."""

    def __init__(self, gathers: Gathers, job: Job, index: int) -> None:
        super().__init__()
        self.gathers = gathers
        self.job = job
        self.index = index
        gathers.broker.timers.set(self, gathers.broker.now + TELL_AGAIN)

    def fire(self, now: float) -> None:
        self.gathers.keep(self.job, self.index)
