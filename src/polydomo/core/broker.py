"""The broker: the one object that dialects, server and web call.

It has parts, each with its own state: `services`, `workers`, `clients`, `jobs`, `accounting`, the scheduler, and the
tracking of jobs that features apply to. This file wires them together and holds the path of a plain job: `submit` →
dispatched at once or queued → its worker replies (`partial`*, `final`), fails it (`fail`), forwards it (`forward`), or
loses it (gone, expired, too slow) → another worker gets it, up to the service's retries → its client is answered or
told why not.

Every call runs to its end without waiting for anything. The owner moves the time (`advance`) before each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.core import failure as reasons
from polydomo.core.accounting import Accounting
from polydomo.core.clients import Clients
from polydomo.core.control import Control
from polydomo.core.failure import Failure
from polydomo.core.features.cache import Cache
from polydomo.core.features.deadline import Deadline
from polydomo.core.features.dedup import Dedup
from polydomo.core.features.delay import Delay
from polydomo.core.features.durability import Durability
from polydomo.core.features.fanout import Fanout
from polydomo.core.features.feature import Feature, Features
from polydomo.core.features.recovery import Recovery
from polydomo.core.features.resources import Resources
from polydomo.core.jobs import Jobs
from polydomo.core.model import Client, ClientPort, Job, Service, Worker, WorkerPort
from polydomo.core.names import printable
from polydomo.core.policy import BrokerLimits, Heartbeat, Policy
from polydomo.core.ports import ActLog, JobStorePort, Publisher
from polydomo.core.principals import ANONYMOUS, CALL, DELEGATE, Principals
from polydomo.core.quotas import Quotas
from polydomo.core.scheduler import CLIENT_WENT, DECLINED, DISOWNED, Scheduler
from polydomo.core.services import Services
from polydomo.core.states import NEXT, RELEASE, RUNNING
from polydomo.core.store_events import StoreEvents
from polydomo.core.targets import NAMES
from polydomo.core.timers import Clock, TimerHeap
from polydomo.core.tracked_job import Options, TrackedJob, is_durable, survives_client
from polydomo.core.tracking import Tracking
from polydomo.core.workers import Workers

# Status of a worker's reply.
ANSWERED: Final = 0
LATE: Final = 1  # the attempt had been taken from this worker; its reply is dropped and it may work again
STRAY: Final = 2  # this worker never had such an attempt


class Broker:
    """The core's façade.

    - `first_token`: where the tokens of attempts begin; random in production, so that a reply from before a restart
      fits no job of this start.
    - `new_uid`: makes the unique ids of jobs whose clients give none.
    - `random`: gives numbers from 0 up to 1, for back-off and load balancing.
    """

    def __init__(
        self,
        limits: BrokerLimits | None = None,
        policy: Policy | None = None,
        *,
        first_token: int,
        new_uid: Callable[[], str],
        random: Callable[[], float],
    ) -> None:
        self.random = random
        self.start_id = first_token  # tells this start of the broker from others
        self.clock = clock = Clock()
        self.timers = timers = TimerHeap()
        self.services = services = Services(limits or BrokerLimits(), policy or Policy(), timers)
        self.principals = principals = Principals()
        self.quotas = quotas = Quotas(clock, timers)
        self.accounting = accounting = Accounting(clock, services, principals, quotas)
        self._tracking = tracking = Tracking(clock, timers, services, accounting, principals, new_uid)
        self._scheduler = scheduler = Scheduler(clock, timers, services, accounting, tracking, first_token)
        tracking.scheduler = scheduler
        services.on_expiry = scheduler.expire_queue
        services.applies = tracking.applies
        self._dedup = Dedup(tracking)
        self._resources = Resources(tracking)
        self._fanout = Fanout(tracking, self._resources)
        self._cache = Cache(tracking)
        self._delay = Delay(tracking, random)
        durability = Durability(tracking)
        self._recovery = Recovery(tracking, self._fanout)
        tracking.features = Features(
            [
                self._dedup,
                Deadline(tracking),
                self._cache,
                self._resources,
                self._fanout,
                self._delay,
                self._recovery,
                durability,  # the last one before a job is accepted
            ]
        )
        self.workers = Workers(tracking)
        self.clients = Clients(tracking, self._recovery, quotas)
        self._recovery.on_grace_over = self.clients.grace_over
        self.jobs = Jobs(tracking, self._dedup, self._recovery)
        self.store_events = StoreEvents(tracking, durability, self._dedup, self._fanout, self._recovery)
        self.control = Control(tracking, self.clients, self._cache, self._resources)
        self.publisher: Publisher | None = None
        self.acts: ActLog | None = None
        self.on_failure: Callable[[Failure], None] | None = (
            None  # may change a worker's report of its failure
        )

    def add_feature(self, make: Callable[[Tracking], Feature]) -> None:
        """Add a feature, for services that are opened from now on. Jobs pass it before they are written to disk."""
        self._tracking.features.insert(-1, make(self._tracking))

    def use_store(self, store: JobStorePort) -> None:
        """Keep durable jobs in `store`."""
        self._tracking.store = store

    # Time

    @property
    def now(self) -> float:
        """Return the core's time."""
        return self.clock.now

    def advance(self, now: float) -> None:
        """Set the core's time; the owner does so before each call."""
        self.clock.now = now

    def tick(self) -> float:
        """Do what is due. Return when to call this again."""
        self.timers.fire(self.clock.now)
        return self.timers.next()

    # Clients

    def join_client(self, name: bytes, dialect: str, port: ClientPort, principal: str = ANONYMOUS) -> Client:
        """Return a client that may submit jobs on behalf of a principal."""
        return self.clients.join(name, dialect, port, self.principals.get(principal))

    def client_disconnected(self, client: Client) -> None:
        """Keep a disconnected client's jobs for the grace period."""
        self.clients.disconnected(client)

    def client_reconnected(self, client: Client) -> None:
        """End the grace period: the client is back."""
        self.clients.reconnected(client)

    def client_gone(self, client: Client) -> None:
        """Drop a client for good."""
        self.clients.gone(client)

    def submit(
        self,
        client: Client,
        name: bytes,
        body: bytes,
        envelope: bytes,
        options: Options | None = None,
        attempt_timeout: float = 0.0,
    ) -> Job | None:
        """Take a request. None: it is refused, and the client has been told, if its dialect can.

        `attempt_timeout`: how long one attempt may run, if the client says so without further options.
        """
        services = self.services
        service = services.known.get(name)
        if service is None:
            service = services.open(name)
        accounting = self.accounting
        accounting.numbered += 1
        denial = None if self.principals.authority is None else self._denial(client, service, options)
        if (options is not None or service.tracked) and not service.internal:
            return self._tracking.submit(client, service, body, envelope, options, attempt_timeout, denial)
        job = Job(accounting.numbered, client, service, body, envelope, self.clock.now)
        job.attempt_timeout = attempt_timeout
        if not accounting.admit(job, False, denial):
            return None
        if service.internal:
            accounting.asked(job)
        if service.idle:
            self._scheduler.dispatch(service.idle.popitem(False)[0], job)
        else:
            self._scheduler.queue(service, job)
        return job

    def put(self, job: Job, names: list[bytes], body: bytes) -> int:
        """Forward input to the workers that run a job, all or those named. Return how many were reached."""
        parts: list[Job] = [job]
        if isinstance(job, TrackedJob) and job.is_gathered():
            parts = list(self._fanout.parts_of(job))
        reached = 0
        for part in parts:
            worker = part.worker
            if part.state == RUNNING and worker is not None and (not names or worker.name in names):
                reached += worker.port.put(part, body)
        return reached

    def cancel(self, job: Job, failure: Failure | None = None) -> bool:
        """End a job that is not wanted any more. False: it is too late."""
        return self._tracking.cancel(job, failure)

    # Workers

    def make_worker(
        self,
        name: bytes,
        dialect: str,
        port: WorkerPort,
        heartbeat: Heartbeat,
        principal: str = ANONYMOUS,
    ) -> Worker:
        """Return a worker that may register on behalf of a principal."""
        return self.workers.create(name, dialect, port, heartbeat, self.principals.get(principal))

    def may_register(self, worker: Worker, name: bytes) -> bool:
        """Return whether `worker` may offer the service `name`."""
        return self.workers.may_register(worker, name)

    def is_name_taken(self, worker: Worker) -> bool:
        """Return whether another peer has the name of `worker`, and keeps it: it is alive, or another principal's."""
        return self.workers.rival(worker) is not None

    def why_refused(self, worker: Worker, name: bytes) -> str:
        """Return why `worker` may not offer the service `name`."""
        return self.workers.why_refused(worker, name)

    def register(self, worker: Worker, name: bytes) -> bool:
        """Let `worker` offer the service `name`, and give it what waits there. False: it may not."""
        return self.workers.register(worker, name)

    def withdraw(self, worker: Worker, service: Service) -> None:
        """Let `worker` offer a service no longer. It stays, and may finish what it holds."""
        self.workers.withdraw(worker, service)

    def leave(self, worker: Worker, reason: str) -> None:
        """Remove a worker and requeue its jobs."""
        self.workers.leave(worker, reason)

    def seen(self, worker: Worker) -> None:
        """Note a sign of life that is no reply."""
        self.workers.seen(worker)

    def set_reading_paused(self, worker: Worker, paused: bool) -> None:
        """Note whether the worker's connection is being read."""
        self.workers.set_reading_paused(worker, paused)

    def ask_for_more(self, worker: Worker, bound: int) -> None:
        """Let `worker` hold one more job at once, up to `bound` in all."""
        self.workers.ask_for_more(worker, bound)

    def set_credit(self, worker: Worker, credit: int) -> None:
        """Let `worker` hold so many jobs at once."""
        self.workers.set_credit(worker, credit)

    def set_resources(self, worker: Worker, names: list[bytes]) -> None:
        """Note which resources a worker declares to have."""
        self._resources.declare(worker, names)

    def fetch(self, worker: Worker, services: list[Service]) -> bool:
        """Give one job of these services to a worker that asks for it. False: there is none."""
        return self._scheduler.fetch(worker, services)

    # Replies

    def partial(self, worker: Worker, token: bytes, body: bytes) -> int:
        """Take one of several replies."""
        job = worker.running.get(token)
        if job is None:
            return self._stray(worker, token, False)
        now = self.clock.now
        worker.last_seen = now
        job.partials += 1
        if job.partials == 1:
            job.first_partial = now
        job.size_out += len(body)
        if isinstance(job, TrackedJob):
            self._tracking.partial(job, body)
        elif not job.client.gone:
            job.client.port.partial(job, body)
        return ANSWERED

    def acknowledged(self, worker: Worker, token: bytes, body: bytes) -> int:
        """Take a worker's word that it has received the job."""
        job = worker.running.get(token)
        if job is None:
            return self._stray(worker, token, False)
        worker.last_seen = self.clock.now
        for one in _subscribers(job):
            one.client.port.acknowledged(one, worker.name, body)
        return ANSWERED

    def stream(self, worker: Worker, token: bytes, body: bytes) -> int:
        """Take a piece of data that belongs to the job."""
        job = worker.running.get(token)
        if job is None:
            return self._stray(worker, token, False)
        worker.last_seen = self.clock.now
        job.size_out += len(body)
        for one in _subscribers(job):
            one.client.port.stream(one, worker.name, body)
        return ANSWERED

    def event(self, worker: Worker, token: bytes, kind: str, body: bytes) -> int:
        """Take a report of the job's progress, or (without a token) of the worker's own state."""
        job = worker.running.get(token)
        if job is None and token:
            return self._stray(worker, token, False)
        worker.last_seen = self.clock.now
        if isinstance(job, TrackedJob):
            self._tracking.event(job, worker.name, kind, body)
        elif job is not None and not job.client.gone:
            job.client.port.event(job, worker.name, kind, body)
        if self.publisher is not None and worker.services:
            service = worker.services[0] if job is None else job.service
            self.publisher.published(service.name, worker.name, kind, body)
        return ANSWERED

    def final(self, worker: Worker, token: bytes, body: bytes) -> int:
        """Take the last reply. The client gets it, the worker gets its next job."""
        job = worker.running.pop(token, None)
        if job is None:
            return self._late_final(worker, token, body)
        now = self.clock.now
        worker.last_seen = now
        worker.done += 1
        service = job.service
        service.running -= 1
        job.size_out += len(body)
        if not job.tracked:
            client = job.client
            if not client.gone:
                client.port.final(job, body)
            self.accounting.ended(job, None)
        elif isinstance(job, TrackedJob):
            self._tracking.replied(job, body)
        queue = service.queue
        if (
            queue.waiting
            and not service.paused
            and len(worker.services) == 1
            and not worker.revoked
            and not service.pinned
            and worker.credit > len(worker.running)
        ):
            self._scheduler.dispatch(worker, queue.next(now))  # the usual case of `offer`, without its calls
        else:
            self._scheduler.offer(worker)
        return ANSWERED

    def fail(self, worker: Worker, token: bytes, failure: Failure) -> int:
        """Take a worker's report that the job failed. It is not tried again: the worker's code decided so."""
        job = worker.running.pop(token, None)
        if job is None:
            return self._stray(worker, token, True)
        worker.last_seen = self.clock.now
        worker.done += 1
        job.service.running -= 1
        if self.on_failure is not None:
            self.on_failure(failure)
        self._scheduler.fail(job, failure)
        self._scheduler.offer(worker)
        return ANSWERED

    def forward(self, worker: Worker, token: bytes, name: bytes, body: bytes) -> int:
        """Pass a job on to another service, as its worker wants. The reply goes to the same client."""
        job = worker.running.pop(token, None)
        if job is None:
            return self._stray(worker, token, True)
        worker.last_seen = self.clock.now
        worker.done += 1
        left = job.service
        left.running -= 1
        self.accounting.forwarded(job)
        job.state = NEXT[job.state][RELEASE]
        service = job.service = self.services.find(name)
        self.accounting.resized(job, len(body) + len(job.envelope))
        job.body = body
        job.hops += 1
        job.attempt = 0
        job.queued_at = self.clock.now
        job.worker = None
        if isinstance(job, TrackedJob):
            job.pinned_worker = job.resource = b""  # of the service that it leaves
        hops = self.services.limits.hops
        if not self._may_forward(worker, job, service):
            denial = f"{worker.principal.name}, which forwarded the job, may not call this service"
            self._scheduler.fail(job, Failure(reasons.DENIED, denial))
        elif job.client.gone and not survives_client(job):
            self._scheduler.fail(job, Failure(reasons.CLIENT_GONE, CLIENT_WENT))
        elif job.hops > hops:
            self._scheduler.fail(job, Failure(reasons.TOO_MANY_HOPS, f"passed on more than {hops} times"))
        elif service.idle:
            self._scheduler.dispatch(service.idle.popitem(False)[0], job)
        elif service.queue.waiting >= service.policy.queue or (
            not service.workers and not self.services.may_wait(service)
        ):
            self._scheduler.fail(job, self.accounting.why_not_queued(service))
        else:
            self._scheduler.queue(service, job)
        self._scheduler.offer(worker)
        self.services.drop_if_unused(left)
        return ANSWERED

    def report_unknown(self, worker: Worker, token: bytes) -> int:
        """Requeue a job that its worker was asked about (`WorkerPort.reclaim`) and does not know."""
        job = worker.running.pop(token, None)
        if job is None:
            return self._stray(worker, token, True)
        self._scheduler.requeue([job], DISOWNED)
        self._scheduler.offer(worker)
        return ANSWERED

    def decline(self, worker: Worker, token: bytes) -> int:
        """Requeue a job for which its worker had no room after all. It was not begun, so that was no attempt."""
        job = worker.running.pop(token, None)
        if job is None:
            return STRAY
        job.attempt -= 1
        self._scheduler.requeue([job], DECLINED)
        return ANSWERED

    def orphans(self) -> dict[bytes, TrackedJob]:
        """Return the jobs that were running before the restart and whose workers may come back, by token."""
        return self._recovery.orphans

    def take_up(self, worker: Worker, token: bytes) -> bool:
        """Let `worker` go on with a job that it had before the restart. False: it is too late, or was another's."""
        job = self._recovery.claim(worker, token)
        if job is None:
            return False
        self._scheduler.reattach(worker, job)
        return True

    # Stopping

    def busy(self) -> bool:
        """Return whether a job may still be finished: it is running, or waits for a worker that is here."""
        return self._tracking.is_writing() or any(
            service.running
            or (service.queue.waiting and service.workers)
            or any(name in service.names for name in service.pinned)
            for service in self.services.values()
        )

    def close(self) -> int:
        """Dismiss all workers, and tell all clients that wait. Return how many jobs were unfinished."""
        self.accounting.draining = True
        self._scheduler.closing = True
        unfinished = self.accounting.active
        leaving = [worker for worker in self.workers if not worker.internal]
        for worker in leaving:
            for service in worker.services:
                service.idle.pop(worker, None)  # what the others held is not for those that leave next
        for worker in leaving:
            worker.port.dismiss("the broker stops")
            self.workers.leave(worker, "the broker stops")
        for service in list(self.services.values()):
            for job in self._scheduler.take_all(service):
                if not is_durable(job):
                    failure = Failure(reasons.DRAINING, "the broker stopped before a worker took it")
                    self._scheduler.fail(job, failure)
        self._tracking.close()
        return unfinished

    # Inside

    def _denial(self, client: Client, service: Service, options: Options | None) -> Failure | None:
        """Return why a client may not call a service; None: it may.

        What the broker's own services allow is decided by each of their tasks.
        """
        principal = client.principal
        if service.name in principal.callable or service.internal:
            return None
        target = None if options is None else options.target
        if target is not None and target.everywhere:
            return None  # it goes to those services that the principal may call
        names = target.names if target is not None and target.kind == NAMES else [b""]
        if all(self.principals.may(principal, CALL, service.name, name) for name in names):
            return None
        return Failure(reasons.DENIED, f"{principal.name} may not call {printable(service.name)}")

    def _may_forward(self, worker: Worker, job: Job, service: Service) -> bool:
        """Return whether a worker may forward a job to a service.

        The broker's own services do what the job's client may do, so the worker, which wrote the body, must be allowed
        to act for other principals.
        """
        if service.internal:
            return worker.principal is job.client.principal or self.principals.may(
                worker.principal, DELEGATE, service.name
            )
        return self.principals.may(worker.principal, CALL, service.name)

    def _late_final(self, worker: Worker, token: bytes, body: bytes) -> int:
        """Take a reply to an attempt that this worker does not hold, unless it held it before the restart."""
        job = self._recovery.claim(worker, token) if self._recovery.orphans else None
        if job is None:
            return self._stray(worker, token, True)
        worker.last_seen = self.clock.now
        worker.done += 1
        job.worker = worker
        job.size_out += len(body)
        self._tracking.replied(job, body)
        return ANSWERED

    def _stray(self, worker: Worker, token: bytes, ended: bool) -> int:
        """Drop a reply to an attempt that this worker does not hold."""
        if token in worker.revoked:
            worker.last_seen = self.clock.now
            if ended:
                del worker.revoked[token]
                self._scheduler.offer(worker)
            return LATE
        self.accounting.strays += 1
        return STRAY


def _subscribers(job: Job) -> list[TrackedJob] | list[Job]:
    if isinstance(job, TrackedJob):
        return job.subscribers()
    return [] if job.client.gone else [job]
