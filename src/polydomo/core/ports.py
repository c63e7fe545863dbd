"""The core's ways out that are not to a peer: the store, the ledger, publish-subscribe.

The ways to peers are in `model` (`ClientPort`, `WorkerPort`, `WakeupPort`). Tests and the simulator implement all of
them with fakes. No call waits for anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from mypy_extensions import mypyc_attr

from polydomo.core.model import Client, Job, Worker
from polydomo.core.pieces import Piece
from polydomo.core.result_history import JobResult
from polydomo.core.tracked_job import TrackedJob


@mypyc_attr(allow_interpreted_subclasses=True)
class Journal(ABC):
    """The listener of the ledger, the metrics and the log."""

    @abstractmethod
    def finished(self, job: Job) -> None:
        """Hear that a job ended (`job.state`, `job.failure`)."""

    @abstractmethod
    def event(self, kind: str, worker: Worker, reason: str) -> None:
        """Hear that a worker joined, left or expired."""

    def attempt(self, job: Job, reason: str) -> None:  # noqa: B027 (not every journal counts attempts)
        """Hear that `job.worker` has lost its attempt, which did not end the job, or only by being the last."""

    def client(self, kind: str, client: Client, reason: str) -> None:  # noqa: B027
        """Hear that a client joined or left."""


@mypyc_attr(allow_interpreted_subclasses=True)
class JobStorePort(ABC):
    """Keeps durable jobs. Each call is in order and returns at once.

    The store answers later, by a call on `Broker.store_events`, when what it was told is safe on disk or cannot be.
    """

    @abstractmethod
    def add(self, job: TrackedJob) -> None:
        """Store a new job. Answered with `stored`."""

    @abstractmethod
    def attempt(self, job: TrackedJob) -> None:
        """Store that the job is given to a worker, as attempt `job.number`. Not answered."""

    @abstractmethod
    def partial(self, job: TrackedJob, body: bytes) -> None:
        """Store one of several replies. Not answered."""

    @abstractmethod
    def finish(self, job: TrackedJob) -> None:
        """Store that the job has ended with `job.result`, or with `job.failure`. Answered with `recorded`."""

    @abstractmethod
    def event(self, job: TrackedJob, name: bytes, kind: str, body: bytes) -> None:
        """Store an event of the worker `name`. Not answered."""

    @abstractmethod
    def alias(self, leader: TrackedJob, job: TrackedJob) -> None:
        """Store that the id of `job` leads to `leader`, which was added before. Answered with `aliased`."""

    @abstractmethod
    def convened(self, job: TrackedJob) -> None:
        """Store which workers a job for all of them has found (`job.assignments`). Not answered."""

    @abstractmethod
    def gathered(self, job: TrackedJob, index: int, piece: Piece) -> None:
        """Store that one of several workers has ended its part. Answered with `piece_stored`."""

    @abstractmethod
    def read(self, uid: str, then: Callable[[JobResult | None], None]) -> None:
        """Call `then` with how the job `uid` ended; None if that is not on disk."""

    @abstractmethod
    def look_up(self, job: TrackedJob) -> None:
        """Look for an ended job with this service and key. Answered with `looked_up`."""

    def memo(self, service: bytes, digest: bytes, then: Callable[[bytes | None, float], None]) -> None:
        """Call `then` with the cached result of a request and the time until which it is good; None: there is none."""
        then(None, 0.0)

    def keep_memo(self, service: bytes, digest: bytes, value: bytes, until: float) -> None:  # noqa: B027
        """Store a result that is good until then. Not answered."""

    def forget_memo(self, service: bytes, digest: bytes) -> None:  # noqa: B027
        """Drop a cached result; without a digest all of the service. Not answered."""

    def tell(self, client: Client, uids: list[str]) -> None:  # noqa: B027
        """Read how these jobs of a client ended. Answered with `retell`, once for each."""

    def behind(self) -> bool:
        """Return whether so much waits to be written that clients should wait. `Accounting.unstall` is called later."""
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class ActLog(ABC):
    """The log of administrative acts, and of what is done to jobs of others."""

    @abstractmethod
    def record(
        self, principal: str, verb: str, action: str, target: str, address: str, then: Callable[[str], None]
    ) -> None:
        """Record an act before it is done. Call `then` with why that failed (empty: it is recorded), at once or later,
        with the core's time set. An act that is not recorded must not be done.

        `action`: the task, route or command. `target`: the service, worker or job concerned.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher(ABC):
    """The listener of workers' events, beside the client concerned."""

    @abstractmethod
    def published(self, service: bytes, worker: bytes, kind: str, body: bytes) -> None:
        """Hear an event of a worker."""
