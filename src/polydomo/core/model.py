"""The broker's nouns: jobs, clients, workers, services, and the ports to the peers behind them.

They are one module because each of them names the others. They hold state and answer questions about it; what happens
to them is decided by the parts of the broker (`scheduler`, `workers`, `clients`, …). Dialects and web read them, only
the core changes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.core.counts import Counts
from polydomo.core.failure import Failure
from polydomo.core.policy import FOREVER, Heartbeat, Policy
from polydomo.core.principals import Principal
from polydomo.core.queue import FairQueue, PinnedQueue, QueueEntry, Submitter
from polydomo.core.states import READY
from polydomo.core.timers import NEVER, Timer, TimerHeap

# Bytes that a job takes beside its body and envelope: its own object, its token or place in a queue, the bodies'
# headers. Growth of the broker's resident memory per waiting job of one byte: 297 compiled, 359 not (150,000 jobs over
# MDP, CPython 3.11, Linux).
JOB_COST: Final = 330


class Job(QueueEntry):
    """One request of one client, from its arrival to its reply or failure.

    `token` names the current attempt towards its worker. It is new for each dispatch, so a reply to a superseded
    attempt carries an old token and finds no job (fencing).
    """

    __slots__ = (
        "attempt_deadline",
        "attempt_timeout",
        "body",
        "client",
        "dispatched",
        "envelope",
        "failure",
        "finished",
        "first_partial",
        "hops",
        "id",
        "partials",
        "queued_at",
        "requested_service",
        "service",
        "size",
        "size_out",
        "started",
        "state",
        "token",
        "worker",
    )

    def __init__(
        self,
        id: int,
        client: Client,
        service: Service,
        body: bytes,
        envelope: bytes,
        submitted: float,
        tracked: bool = False,
    ) -> None:
        # What `QueueEntry.__init__` does, without its call: there is one such object per message.
        self.submitted = submitted
        self.attempt = 0
        self.expires = 0.0
        self.tracked = tracked
        self.id = id
        self.client = client
        self.service = service  # where it is now; changes when the job is forwarded
        self.requested_service = service.name  # what its client asked for
        self.body = body  # canonical frames (wire.frames); dropped when the job has ended
        self.envelope = envelope  # the client's dialect's own matter, kept for the reply and no longer
        self.state = READY
        self.queued_at = submitted  # when it could be dispatched, at the service it is at now
        self.size = len(body) + len(envelope)
        self.size_out = 0
        self.partials = 0
        self.hops = 0  # how often it was forwarded
        self.token = b""
        self.worker: Worker | None = None
        self.attempt_timeout = 0.0  # from dispatch; 0: the service's
        self.attempt_deadline = 0.0  # running longer than this loses the attempt
        self.started = 0.0  # its first dispatch at the service it is at now
        self.dispatched = 0.0
        self.first_partial = 0.0
        self.finished = 0.0
        self.failure: Failure | None = None


class Client(Submitter):
    """A peer with unanswered jobs. As a timer it is due when its grace period is over: `on_grace_over`."""

    def __init__(
        self,
        name: bytes,
        dialect: str,
        port: ClientPort,
        principal: Principal,
        since: float,
        on_grace_over: Callable[[Client], None],
    ) -> None:
        super().__init__(principal)
        self.name = name  # its ZeroMQ identity, or what its dialect calls it
        self.dialect = dialect
        self.form = ""  # of its dialect, if that has several: what its replies look like after a restart
        self.port = port
        self.since = since
        self.jobs = 0  # unanswered
        self.size = 0  # bytes of their bodies
        self.total = 0  # ever submitted
        self.questions = 0  # of these, answered by the broker itself
        self.wait = -1.0  # how long its jobs may wait for a worker; below 0: as their service says
        self.retries = -1  # further attempts after a worker was lost; below 0: as their service says
        self.held = False  # no longer read from until some jobs are answered
        self.throttled = False  # held for its principal's quota, perhaps among other reasons
        self.stalled = False  # no longer read from until the store has caught up
        self.gone = False  # for good: replies are dropped
        # Has those durable jobs that this client will not be told of unasked. They count for its `client_bytes`.
        self.shadow: Client | None = None
        self.casts: Client | None = None  # whose shadow this is
        self.gathers: dict[Job, None] = {}  # its jobs for several workers
        self.mark = -1  # its place in the ledger's columns (`core.job_columns`)
        self._on_grace_over = on_grace_over

    def fire(self, now: float) -> None:
        self._on_grace_over(self)


class Worker(Timer):
    """A peer that offers services. As a timer it is due when it has to be checked: `on_check`.

    `running` maps the token of each attempt it holds to the job. Liveness: any command is a sign of life. An idle
    worker that shows none for `heartbeat.liveness` intervals is expired. A busy one is only held to that if it has
    shown that it beats while busy; a worker whose implementation cannot (many have one thread) is given its job's own
    time instead, unless the service asks for more (`Policy.liveness_busy`).
    """

    def __init__(
        self,
        name: bytes,
        dialect: str,
        port: WorkerPort,
        principal: Principal,
        heartbeat: Heartbeat,
        since: float,
        on_check: Callable[[Worker], None],
    ) -> None:
        super().__init__()
        self.name = name
        self.principal = principal
        self.dialect = dialect
        self.port = port
        self.heartbeat = heartbeat
        self.services: list[Service] = []
        self.turn = 0  # which of several services is looked at first when it becomes free
        self.base_credit = 1  # how many jobs it may hold at once without asking
        self.credit = 1  # how many it may hold now; asking for more raises it until the worker is idle again
        self.parallel = False  # one job that takes too long does not keep it from others
        self.running: dict[bytes, Job] = {}
        self.revoked: dict[bytes, float] = {}  # tokens of attempts taken from it that it may still answer
        self.since = since
        self.last_seen = since
        self.last_sent = since
        self.steady = False  # wants heartbeats also while other things are sent to it
        self.last_beat = since
        self.beats_busy = False  # it has been heard while it held a job for longer than an interval
        self.must_beat = True  # its protocol has heartbeats for workers that hold jobs
        self.beats_sent = 0
        self.beats_seen = 0
        self.reading_paused = (
            False  # its connection is not being read (back-pressure): silence proves nothing
        )
        self.done = 0
        self.internal = False  # part of the broker itself: no liveness
        self.instance = b""  # the same for all workers that are known to be one peer; empty: nothing is known
        self.relay = False  # another broker: it has jobs of our own clients only, never another broker's
        self.anonymous = False  # its name is made up: it cannot come back under it
        self.pinned_next = (
            True  # a job for it alone comes before one for any worker, if both wait; then the other way
        )
        self.resources: list[bytes] = []  # what it declared to have
        self.mark = -1  # its place in the ledger's columns (`core.job_columns`)
        self._on_check = on_check

    def free(self) -> int:
        """Return how many more jobs it may be given now.

        With a reply to a revoked attempt outstanding that is none, unless its jobs do not hinder each other: then the
        revoked one only keeps its place.
        """
        if self.revoked:
            return self.credit - len(self.running) - len(self.revoked) if self.parallel else 0
        return self.credit - len(self.running)

    def silent_until(self) -> float:
        """Return until when it may be silent. A service's own limit for busy workers counts from the dispatch."""
        interval = self.heartbeat.interval
        if self.running and (self.must_beat or self.beats_busy):
            policies = [job.service.policy for job in self.running.values()]
            strict = [policy.liveness_busy for policy in policies if policy.liveness_busy]
            if strict:
                return max(self.last_seen, self.busy_since()) + interval * min(strict)
        if self.running and not self.beats_busy:
            return FOREVER
        return self.last_seen + interval * self.heartbeat.liveness

    def busy_since(self) -> float:
        """Return when the oldest job it holds was dispatched; NEVER if it holds none."""
        for job in self.running.values():
            return job.dispatched
        return NEVER

    def fire(self, now: float) -> None:
        self._on_check(self)


class Service:
    """A name that clients ask for, its waiting jobs, and its workers, the least recently used first.

    It exists while it has workers or jobs (`services.Services`).
    """

    def __init__(
        self,
        name: bytes,
        policy: Policy,
        counts: Counts,
        timers: TimerHeap,
        on_expiry: Callable[[FairQueue[Job]], None],
        internal: bool,
    ) -> None:
        self.name = name
        self.policy = policy
        self.counts = counts
        self.internal = internal  # the broker's own: what is asked there is no job
        self.tracked = False  # all its jobs are `TrackedJob`s, because a feature applies to the service
        self.queue: FairQueue[Job] = FairQueue(on_expiry, policy.ageing)  # for any of its workers
        self.pinned: dict[bytes, PinnedQueue[Job]] = {}  # for one worker each; those that have jobs
        self.pinned_jobs = 0  # in them
        self.workers: dict[Worker, None] = {}
        self.idle: OrderedDict[Worker, None] = OrderedDict()
        self.names: dict[bytes, Worker] = {}  # its workers; of two connections of one peer the newer
        self.running = 0
        self.held = 0  # jobs that a feature holds: in no queue, but the service is needed
        self.paused = False
        self.wakeup: WakeupPort | None = None  # tells workers that fetch their jobs when there are some
        self.mark = -1  # its place in the ledger's columns (`core.job_columns`)
        self._timers = timers
        self._on_expiry = on_expiry

    def waiting(self) -> int:
        """Return how many jobs are queued."""
        return self.queue.waiting + self.pinned_jobs

    def queues(self) -> list[FairQueue[Job]]:
        """Return the queue for any worker and those for one."""
        return [self.queue, *self.pinned.values()]

    def jobs(self) -> list[Job]:
        """Return all queued jobs."""
        return [job for queue in self.queues() for job in queue.jobs()]

    def pin(self, name: bytes) -> PinnedQueue[Job]:
        """Return the queue of jobs that only the worker `name` may do."""
        queue = self.pinned.get(name)
        if queue is None:

            def shrunk(shorter: PinnedQueue[Job], count: int) -> None:
                self.pinned_jobs -= count
                if not shorter.waiting:
                    self.pinned.pop(name, None)
                    self._timers.clear(shorter)

            queue = self.pinned[name] = PinnedQueue(self._on_expiry, self.policy.ageing, shrunk)
        return queue

    def set_policy(self, policy: Policy) -> None:
        """Treat jobs by `policy` from now on."""
        self.policy = policy
        for queue in self.queues():
            queue.ageing = policy.ageing

    def is_used(self) -> bool:
        """Return whether anything needs it."""
        return bool(self.workers or self.queue.waiting or self.pinned_jobs or self.running or self.held)


@mypyc_attr(allow_interpreted_subclasses=True)
class WorkerPort(ABC):
    """The way out to one worker. Calls never fail: a peer that cannot be reached is reported lost by its connection."""

    @abstractmethod
    def dispatch(self, job: Job) -> None:
        """Give the worker this job. Its replies must carry `job.token`."""

    def heartbeat(self) -> None:  # noqa: B027 (not every dialect has heartbeats from the broker)
        """Show that the broker is alive: nothing was sent to the worker for an interval."""

    def cancel(self, job: Job) -> None:  # noqa: B027 (not every dialect can say it)
        """Tell the worker that a job it holds is not wanted any more."""

    def put(self, job: Job, body: bytes) -> bool:
        """Hand on input that the client added to a running job. False: the dialect has no way to do so."""
        return False

    def share(self, resources: list[bytes]) -> None:  # noqa: B027
        """Tell the worker which of the resources that the broker shares out it has now."""

    def reclaim(self, job: Job) -> bool:
        """Ask the worker about a job (`job.token`) that it may have had before the broker's restart.

        False: the dialect cannot ask. Otherwise the worker holds the job from now on, until it replies or reports that
        it does not know the job (`Broker.report_unknown`).
        """
        return False

    def is_alive(self) -> bool:
        """Return whether the worker is there, because another one claims its name.

        A worker that has to be probed first counts as alive until its answer is overdue.
        """
        return True

    def dismiss(self, reason: str) -> None:  # noqa: B027
        """Tell the worker that it is no worker here any more: it expired, or the broker stops."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientPort(ABC):
    """The way out to one client. Calls never fail."""

    def partial(self, job: Job, body: bytes) -> None:  # noqa: B027 (not every dialect can say it)
        """Send one of several replies; more will come."""

    @abstractmethod
    def final(self, job: Job, body: bytes) -> None:
        """Send the last reply; the job has ended."""

    @abstractmethod
    def failed(self, job: Job, failure: Failure) -> None:
        """Tell the client that there will be no reply, and why."""

    def accepted(self, job: Job) -> None:  # noqa: B027 (not every dialect can say it)
        """Tell the client that a tracked job was accepted; a durable one is safe on disk."""

    def assigned(self, job: Job, names: list[bytes]) -> None:  # noqa: B027
        """Tell the client once which workers do the job, after `accepted` and before anything a worker says of it."""

    def acknowledged(self, job: Job, name: bytes, body: bytes) -> None:  # noqa: B027
        """Tell the client that the worker `name` has received the job."""

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:  # noqa: B027
        """Hand on an event of the worker `name` (one frame, not canonical)."""

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        """Hand on a piece of data of the worker `name`: a partial reply where a dialect knows no difference."""
        self.partial(job, body)

    def gathered(  # noqa: B027
        self, job: Job, name: bytes, body: bytes | None, failure: Failure | None
    ) -> None:
        """Tell the client that one of several workers has ended its part; `final` comes after the last."""

    def resumes(self) -> bool:
        """Return whether the client goes on with the jobs that its name had before the broker's restart."""
        return False

    def hold(self) -> None:  # noqa: B027
        """Read no more requests for now: too much of this client's is unanswered."""

    def release(self) -> None:  # noqa: B027
        """Read its requests again."""

    def stall(self) -> None:
        """Read no more requests for a moment: durable jobs come faster than they can be written.

        That is not the client's fault, so where `hold` refuses requests this should only delay them.
        """
        self.hold()

    def go_on(self, held: bool) -> None:
        """End `stall`. `held`: the client is still to be held for what it has unanswered."""
        if not held:
            self.release()

    def forget(self) -> None:  # noqa: B027
        """Drop what is kept of a client whose grace period is over."""


class NullClientPort(ClientPort):
    """The port of a client that is not connected."""

    def final(self, job: Job, body: bytes) -> None:
        pass

    def failed(self, job: Job, failure: Failure) -> None:
        pass


@mypyc_attr(allow_interpreted_subclasses=True)
class WakeupPort(ABC):
    """The way out to workers that fetch their jobs (`Broker.fetch`) and must be told that there are some."""

    @abstractmethod
    def wanted(self, service: Service, job: Job) -> None:
        """Hear that this job waits at this service, which has no idle worker."""

    @abstractmethod
    def ready(self) -> int:
        """Return how many workers would come at once."""
