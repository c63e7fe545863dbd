"""The core's ways out: who gets a job, who gets an answer, who is told what happened.

Dialects implement them for their peers, tests and the simulator with fakes. Calls never come back in an error: a peer
that cannot be reached will be reported lost by whoever owns its connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from collections.abc import Callable

    from polydomo.core.client import Client
    from polydomo.core.gather import Piece
    from polydomo.core.job import Failure, Job
    from polydomo.core.result_history import JobResult
    from polydomo.core.service import Service
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

    def put(self, job: Job, body: bytes) -> bool:
        """Its client has something to add to the job in its hands. False: its dialect has no way to say so."""
        return False

    def share(self, resources: list[bytes]) -> None:  # noqa: B027
        """Of the resources that the broker shares out, it has these now."""

    def reclaim(self, job: Job) -> bool:
        """It may have had this job (`job.token`) when the broker was stopped: ask it what became of it. False: its
        dialect cannot ask. Otherwise it holds the job from now on, until it answers or says that it does not know
        it (`Broker.report_unknown`)."""
        return False

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
        """A job that came with options, or is durable, was taken; if it is durable, it is safe on disk."""

    def assigned(self, job: Job, names: list[bytes]) -> None:  # noqa: B027
        """It is known who will do it: the worker or workers it is addressed to, or the one that gets it first. Told
        once, behind `accepted` and before anything a worker says about it."""

    def taken(self, job: Job, name: bytes, body: bytes) -> None:  # noqa: B027
        """The worker `name` says that it has got it."""

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:  # noqa: B027
        """The worker `name` says how it goes on (one frame, not canonical)."""

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        """A piece of data of the worker `name`: like a partial answer where a dialect knows no difference."""
        self.partial(job, body)

    def gathered(  # noqa: B027
        self, job: Job, name: bytes, body: bytes | None, failure: Failure | None
    ) -> None:
        """One of several workers a job is addressed to has answered or failed; `final` comes behind the last."""

    def resumes(self) -> bool:
        """Does it go on with what a client of its name had under way before the broker was restarted?"""
        return False

    def hold(self) -> None:  # noqa: B027
        """Too much of this client's is unanswered: take nothing more from it for now."""

    def release(self) -> None:  # noqa: B027
        """Go on taking its requests."""

    def stall(self) -> None:
        """Durable jobs come faster than they can be written: take nothing more from this client for a moment. Not its
        fault, so where `hold` refuses requests this should only delay them."""
        self.hold()

    def go_on(self, held: bool) -> None:
        """The writes have caught up. `held`: the client is still to be held for what it has unanswered."""
        if not held:
            self.release()

    def forget(self) -> None:  # noqa: B027
        """The client was away for longer than its grace time; its jobs are gone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class WakeupPort(ABC):
    """Towards workers that fetch their jobs themselves (`Broker.fetch`), and must be told that there are some."""

    @abstractmethod
    def wanted(self, service: Service, job: Job) -> None:
        """This job waits at this service, which has nobody idle."""

    @abstractmethod
    def ready(self) -> int:
        """How many workers would come at once."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Journal(ABC):
    """Who is told what happened: the ledger, the metrics, the log. Must not wait for anything."""

    @abstractmethod
    def finished(self, job: Job) -> None:
        """A job ended, well or not (`job.state`, `job.failure`)."""

    @abstractmethod
    def event(self, kind: str, worker: Worker, reason: str) -> None:
        """A worker joined, left or expired."""

    def attempt(self, job: Job, reason: str) -> None:  # noqa: B027 (not everybody keeps count of attempts)
        """`job.worker` has it no longer, and it has not ended by that; or only because of that."""

    def client(self, kind: str, client: Client, reason: str) -> None:  # noqa: B027
        """A client joined or left."""


@mypyc_attr(allow_interpreted_subclasses=True)
class JobStorePort(ABC):
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
    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        """Something a worker said about it. Not answered."""

    @abstractmethod
    def alias(self, leader: Job, job: Job) -> None:
        """`job` is done as `leader`, which was added before: whoever asks for one may mean the other. Answered with
        `aliased`."""

    @abstractmethod
    def convened(self, job: Job) -> None:
        """A job for all workers has found them (`job.extra.places`). Not answered."""

    @abstractmethod
    def gathered(self, job: Job, index: int, piece: Piece) -> None:
        """One of several workers has ended its part. Answered with `gathers.kept`."""

    @abstractmethod
    def read(self, uid: str, then: Callable[[JobResult | None], None]) -> None:
        """How did the job `uid` end, if it is kept? Answered by `then`."""

    def memo(self, service: bytes, digest: bytes, then: Callable[[bytes | None, float], None]) -> None:
        """Is there an answer to this request, and until when is it good? Answered by `then`, None: no."""
        then(None, 0.0)

    def keep_memo(self, service: bytes, digest: bytes, value: bytes, until: float) -> None:  # noqa: B027
        """An answer that is good until then. Not answered."""

    def forget_memo(self, service: bytes, digest: bytes) -> None:  # noqa: B027
        """It is no longer good; without a digest: all of the service. Not answered."""

    def tell(self, client: Client, uids: list[str]) -> None:  # noqa: B027
        """Tell a client how these jobs of its ended. Answered with `retell`, once for each."""

    def behind(self) -> bool:
        """Is so much waiting to be written that clients should wait, too? Then `Broker.unstall` is called later."""
        return False

    @abstractmethod
    def look_up(self, job: Job) -> None:
        """Has a job with this service and key ended before? Answered with `looked_up`."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher(ABC):
    """Who hears what workers say, beside the client concerned."""

    @abstractmethod
    def published(self, service: bytes, worker: bytes, kind: str, body: bytes) -> None:
        """An event of a worker."""
