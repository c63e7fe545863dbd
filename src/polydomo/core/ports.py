"""The core's ways out: who gets a job, who gets an answer, who is told what happened.

Dialects implement them for their peers, tests and the simulator with fakes. Calls never come back in an error: a peer
that cannot be reached will be reported lost by whoever owns its connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from polydomo.core.job import Failure, Job
    from polydomo.core.worker import Worker


@mypyc_attr(allow_interpreted_subclasses=True)
class WorkerPort(ABC):
    """Towards one worker."""

    @abstractmethod
    def dispatch(self, job: Job) -> None:
        """Give it this job; answers must carry `job.token`."""

    def beat(self) -> None:  # noqa: B027 (not every dialect has heartbeats from the broker)
        """Nothing was sent to it for an interval: show that the broker is alive."""

    def cancel(self, job: Job) -> None:  # noqa: B027 (not every dialect can say it)
        """The job in its hands is not wanted any more."""

    def dismiss(self, reason: str) -> None:  # noqa: B027
        """It is no longer a worker here (expired, or the broker stops): tell it, if its dialect can."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientPort(ABC):
    """Towards one client."""

    @abstractmethod
    def partial(self, job: Job, body: bytes) -> None:
        """One of several answers; more will come."""

    @abstractmethod
    def final(self, job: Job, body: bytes) -> None:
        """The answer."""

    @abstractmethod
    def failed(self, job: Job, failure: Failure) -> None:
        """There will be no answer, and why."""

    def accepted(self, job: Job) -> None:  # noqa: B027 (not every dialect can say it)
        """A durable job is safe on disk."""

    def hold(self) -> None:  # noqa: B027
        """Too much of this client's is unanswered: take nothing more from it for now."""

    def release(self) -> None:  # noqa: B027
        """Go on taking its requests."""

    def forget(self) -> None:  # noqa: B027
        """The client was away for longer than its grace time; its jobs are gone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Journal(ABC):
    """Who is told what happened: the ledger, the metrics, the log. Must not wait for anything."""

    @abstractmethod
    def finished(self, job: Job) -> None:
        """A job ended, well or not (`job.state`, `job.failure`)."""

    @abstractmethod
    def event(self, kind: str, worker: Worker, reason: str) -> None:
        """A worker joined, left or expired."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Keeper(ABC):
    """Keeps durable jobs. Each call is in order and returns at once; the keeper answers later, by a call on
    `broker.lifecycle`, when what it was told is safe on disk or cannot be."""

    @abstractmethod
    def add(self, job: Job) -> None:
        """Answered with `stored`."""

    @abstractmethod
    def attempt(self, job: Job) -> None:
        """It is given to a worker, as attempt `job.extra.number`. Not answered."""

    @abstractmethod
    def partial(self, job: Job, body: bytes) -> None:
        """One of several answers. Not answered."""

    @abstractmethod
    def finish(self, job: Job) -> None:
        """It has ended: with `job.extra.result`, or with `job.failure`. Answered with `recorded`."""

    @abstractmethod
    def look_up(self, job: Job) -> None:
        """Has a job with this service and key ended before? Answered with `looked_up`."""
