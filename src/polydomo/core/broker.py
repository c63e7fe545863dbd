"""The broker: who gets which job next, and what happens when somebody is lost.

A job's life: `submit` → dispatched at once or queued → its worker answers (`partial`*, `final`), fails it (`fail`),
passes it on (`forward`), or loses it (gone, expired, too slow) → it is dispatched to another, up to the service's
retries → its client is answered or told why not. Everything here runs to its end without waiting; `now` is set by
the owner before each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.core import job as jobs
from polydomo.core.answers import ANSWERED, LATE, STRAY
from polydomo.core.attendance import Attendance
from polydomo.core.client import Client
from polydomo.core.dispatch import DISOWNED
from polydomo.core.extras import Options
from polydomo.core.job import JOB_COST, RUNNING, WAITING, Failure, Job
from polydomo.core.lifecycle import Lifecycle
from polydomo.core.policy import BrokerLimits, Policy
from polydomo.core.ports import ClientPort, Publisher
from polydomo.core.queue import FairQueue
from polydomo.core.resources import Resources
from polydomo.core.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from polydomo.core.result_history import JobResult
    from polydomo.core.service import Service


class Broker(Attendance):
    """See the module's text.

    - `first_token`: where the tokens of attempts begin; random in production, so that an answer from before a restart
      fits no job of this start.
    - `new_uid`: makes the unique IDs of jobs whose clients give none.
    - `random`: gives numbers from 0 up to 1, for back-off and load balancing.
    """

    def __init__(
        self,
        bounds: BrokerLimits | None = None,
        policy: Policy | None = None,
        *,
        first_token: int,
        new_uid: Callable[[], str],
        random: Callable[[], float],
    ) -> None:
        super().__init__(bounds or BrokerLimits(), policy or Policy(), first_token)
        self.new_uid = new_uid
        self.random = random
        self.clients: dict[Client, None] = {}
        self.lifecycle = Lifecycle(self)
        self.memos = self.lifecycle.memos
        self.resources = Resources(self)
        self.publisher: Publisher | None = None
        self.on_failure: Callable[[Failure], None] | None = (
            None  # may change what a worker says of its failure
        )

    # Clients

    def join_client(self, name: bytes, dialect: str, port: ClientPort) -> Client:
        """A client that may submit jobs from now on. One that had some before the broker's restart goes on with them,
        if its dialect can."""
        client = self.lifecycle.returned(name, dialect, port) if port.resumes() else None
        if client is None:
            client = Client(self, name, dialect, port)
        self.clients[client] = None
        if self.journal is not None:
            self.journal.client("joined", client, "")
        return client

    def client_away(self, client: Client) -> None:
        """It dropped off but has a name of its own: keep its jobs for a while."""
        self.timers.set(client, self.now + self.bounds.client_grace)

    def client_back(self, client: Client) -> None:
        """It is back in time."""
        self.timers.clear(client)

    def client_gone(self, client: Client) -> None:
        """For good: its waiting jobs are dropped, the answers of its running ones will be."""
        client.gone = True
        client.stalled = False
        self.stalled.pop(client, None)
        self.timers.clear(client)
        if self.journal is not None and client in self.clients:
            self.journal.client("left", client, "")
        self.clients.pop(client, None)
        for line in list(client.lanes):
            service = line.top().service()
            dropped: list[Job] = []
            for job in line.drop_lane(client):
                if self.lifecycle.survives_client(job):
                    self.place(job, False)
                else:
                    dropped.append(job)
            for job in dropped:
                self._fail(job, Failure(jobs.CLIENT_GONE, "its client went away"))
            self._sweep(service)
        for job in list(client.gathers):
            if not self.lifecycle.survives_client(job):
                self.lifecycle.cancel(job, Failure(jobs.CLIENT_GONE, "its client went away"))

    def submit(
        self,
        client: Client,
        name: bytes,
        body: bytes,
        envelope: bytes,
        options: Options | None = None,
        limit: float = 0.0,
    ) -> Job | None:
        """A request; `limit`: how long one attempt may run, if its client says so without further options. None means
        refused; the client has been told then, if its dialect can."""
        service = self.services.get(name)
        if service is None:
            service = self._open(name)
        self.numbered += 1
        job = Job(self.numbered, client, service, body, envelope, self.now)
        job.limit = limit
        if (
            # The broker's own services are answered at once and in every state: people want to see why it is full.
            ((self.draining or self.memory > self.memory_limit) and not service.internal)
            or (
                service.waiting + service.targeted >= service.policy.queue
                and (not service.idle or (options is not None and options.target is not None))
            )
            or (not service.workers and not self._may_open(service))
        ):
            self._refuse(job)
            return None
        self.active += 1
        self.memory += job.size + JOB_COST
        client.total += 1
        client.jobs += 1
        client.size += job.size
        if client.jobs > self.bounds.client_jobs or client.size > self.bounds.client_bytes:
            client.held = True
            client.port.hold()
        if service.internal:
            self._ask(service, job)
        elif options is not None or service.policy.durable or service.policy.memo:
            self.lifecycle.begin(job, options)
        elif service.idle:
            worker = service.idle.popitem(False)[0]
            self._dispatch(worker, job)
        else:
            self._queue(service, job)
        return job

    # Answers

    def partial(self, worker: Worker, token: bytes, body: bytes) -> int:
        """One of several answers."""
        job = worker.running.get(token)
        if job is None:
            return self._stray(worker, token, False)
        worker.last_seen = self.now
        job.partials += 1
        if job.partials == 1:
            job.first_partial = self.now
        job.size_out += len(body)
        if job.extra is not None:
            self.lifecycle.partial(job, body)
        elif not job.client.gone:
            job.client.port.partial(job, body)
        return ANSWERED

    def taken(self, worker: Worker, token: bytes, body: bytes) -> int:
        """It says that it has got the job."""
        job = worker.running.get(token)
        if job is None:
            return self._stray(worker, token, False)
        worker.last_seen = self.now
        for one in self.lifecycle.subscribers(job):
            one.client.port.taken(one, worker.name, body)
        return ANSWERED

    def stream(self, worker: Worker, token: bytes, body: bytes) -> int:
        """A piece of data that belongs to the job."""
        job = worker.running.get(token)
        if job is None:
            return self._stray(worker, token, False)
        worker.last_seen = self.now
        job.size_out += len(body)
        for one in self.lifecycle.subscribers(job):
            one.client.port.stream(one, worker.name, body)
        return ANSWERED

    def event(self, worker: Worker, token: bytes, kind: str, body: bytes) -> int:
        """It says how the job goes on, or (without a token) how it goes itself."""
        job = worker.running.get(token)
        if job is None and token:
            return self._stray(worker, token, False)
        worker.last_seen = self.now
        if job is not None:
            self.lifecycle.event(job, worker.name, kind, body)
        if self.publisher is not None and worker.services:
            service = worker.services[0] if job is None else job.service
            self.publisher.published(service.name, worker.name, kind, body)
        return ANSWERED

    def put(self, job: Job, names: list[bytes], body: bytes) -> int:
        """Its client has something to add: for these workers, or for all that have it. How many were reached."""
        gather = None if job.extra is None else job.extra.gather
        parts = [job] if gather is None else list(gather.parts.values())
        reached = 0
        for part in parts:
            worker = part.worker
            if part.state == RUNNING and worker is not None and (not names or worker.name in names):
                reached += worker.port.put(part, body)
        return reached

    def report_unknown(self, worker: Worker, token: bytes) -> int:
        """It does not know the job it was asked about: others may have it."""
        job = worker.running.pop(token, None)
        if job is None:
            return self._stray(worker, token, True)
        self._lost([job], DISOWNED)
        self._offer(worker)
        return ANSWERED

    def final(self, worker: Worker, token: bytes, body: bytes) -> int:
        """The answer. Its client gets it, the worker gets its next job."""
        job = worker.running.pop(token, None)
        if job is None:
            return self._claimed(worker, token, body)
        worker.last_seen = self.now
        worker.done += 1
        service = job.service
        service.running -= 1
        job.size_out += len(body)
        if job.extra is not None:
            self.lifecycle.answered(job, body)
        else:
            client = job.client
            if not client.gone:
                client.port.final(job, body)
            self._end(job, None)
        if (
            service.waiting
            and not service.paused
            and len(worker.services) == 1
            and not worker.late
            and not service.named
            and worker.credit > len(worker.running)
        ):
            self._dispatch(worker, service.next())  # the usual case of _offer, without the calls
        else:
            self._offer(worker)
        return ANSWERED

    def fail(self, worker: Worker, token: bytes, failure: Failure) -> int:
        """The worker says it could not do it. Not tried again: its code decided, nothing was lost."""
        job = worker.running.pop(token, None)
        if job is None:
            return self._stray(worker, token, True)
        worker.last_seen = self.now
        worker.done += 1
        job.service.running -= 1
        if self.on_failure is not None:
            self.on_failure(failure)
        self._fail(job, failure)
        self._offer(worker)
        return ANSWERED

    def forward(self, worker: Worker, token: bytes, name: bytes, body: bytes) -> int:
        """The worker did its part and passes the job on to another service; the answer goes to the first client."""
        job = worker.running.pop(token, None)
        if job is None:
            return self._stray(worker, token, True)
        worker.last_seen = self.now
        worker.done += 1
        left = job.service
        left.running -= 1
        self.forwarded += 1
        left.counts.forwarded += 1
        service = self.services.get(name) or self._open(name)
        job.service = service
        size = len(body) + len(job.envelope)
        self.memory += size - job.size
        job.client.size += size - job.size
        if job.client.held:
            self._ease(job.client)
        job.size = size
        job.body = body
        job.hops += 1
        job.attempt = 0
        job.queued = self.now
        job.worker = None
        if job.extra is not None:
            job.extra.worker = job.extra.resource = b""  # whom it was for at the service it leaves
        if job.client.gone and not self.lifecycle.survives_client(job):
            self._fail(job, Failure(jobs.CLIENT_GONE, "its client went away"))
        elif job.hops > self.bounds.hops:
            self._fail(job, Failure(jobs.TOO_MANY_HOPS, f"passed on more than {self.bounds.hops} times"))
        elif service.idle:
            self._dispatch(service.idle.popitem(False)[0], job)
        elif service.waiting >= service.policy.queue or (not service.workers and not self._may_open(service)):
            self._fail(job, self._why_not_queued(service))
        else:
            job.state = WAITING
            self._queue(service, job)
        self._offer(worker)
        self._sweep(left)
        return ANSWERED

    # Time

    def tick(self) -> float:
        """Do what is due; returns when to come again."""
        self.timers.fire(self.now)
        return self.timers.next()

    def expire_queue(self, line: FairQueue) -> None:
        """Its alarm rang: jobs may have waited too long."""
        service = line.service()
        for job in line.take_expired(self.now):
            waited = self.patience(job)
            self._fail(job, Failure(jobs.EXPIRED, f"no worker took it within {waited:g} s"))
        if line.waiting:
            self.timers.set(line, max(line.next_expiry(), self.now + self.expiry_pause(line)))
        else:
            self._sweep(service)

    def expiry_pause(self, line: FairQueue) -> float:
        """Seconds before looking for expired jobs again. Each look goes through all clients that wait there, so jobs
        of many clients that expire one by one must be taken out in batches."""
        return 0.05 + 0.00002 * len(line.rotation)

    def drain(self) -> None:
        """Take no new jobs; finish those that are here."""
        self.draining = True

    def busy(self) -> bool:
        """Is there a job that may still be finished: running, or waiting for a worker that is here?"""
        lifecycle = self.lifecycle
        return lifecycle.writing + lifecycle.gathers.writing > 0 or any(
            service.running
            or (service.waiting and service.workers)
            or (service.targeted and any(name in service.names for name in service.named))
            for service in self.services.values()
        )

    def close(self) -> int:
        """The end: workers are dismissed, and whoever still waits is told. Returns how many jobs that were."""
        self.draining = True
        self.closing = True
        unfinished = self.active
        leaving = [worker for worker in self.workers if not worker.internal]
        for worker in leaving:
            for service in worker.services:
                service.idle.pop(worker, None)  # what the others held is not for those that leave next
        for worker in leaving:
            worker.port.dismiss("the broker stops")
            self.leave(worker, "the broker stops")
        for service in list(self.services.values()):
            for job in self._take_all(service):
                if not self.lifecycle.kept(job):
                    self._fail(job, Failure(jobs.DRAINING, "the broker stopped before a worker took it"))
        self.lifecycle.close()
        return unfinished

    def configure(self, bounds: BrokerLimits, policy: Policy, policies: dict[bytes, Policy]) -> None:
        """New settings, for what comes from now on; a shorter wait also for what waits, counted from now."""
        self.bounds = bounds
        self.memory_limit = bounds.memory
        self.default_policy = policy
        self.policies = policies
        for service in self.services.values():
            service.policy = self.policy_of(service.name)
            if service.waiting:
                service.shorten(self.now + service.policy.wait)
                self.timers.set(service, service.next_expiry())
        for client in self.clients:
            if client.held:
                self._ease(client)

    # For the lifecycle of jobs that are more than a queue's entry

    def find(self, uid: str) -> Job | None:
        """A job that has not ended, by its id."""
        return self.lifecycle.jobs.get(uid)

    def recall(self, uid: str, then: Callable[[JobResult | None], None]) -> None:
        """How a job ended, now or when the disk has been read."""
        self.lifecycle.recall(uid, then)

    def watch(self, client: Client, job: Job) -> Job:
        """`client`, whose job it is not, hears what becomes of it; returns what stands for it in those calls."""
        return self.lifecycle.watch(client, job)

    def unwatch(self, watching: Job) -> None:
        """It has heard enough."""
        self.lifecycle.unwatch(watching)

    def set_resources(self, worker: Worker, names: list[bytes]) -> None:
        """A worker declares what it has."""
        self.resources.declare(worker, names)

    def share_out(self, service: bytes, names: list[bytes]) -> None:
        """Share these out among the service's workers."""
        self.resources.share_out(service, names)

    def resources_of(self, worker: Worker) -> list[bytes]:
        """What a worker has now."""
        return self.resources.of(worker)

    def holders(self, service: bytes, resource: bytes) -> list[Worker]:
        """Who has a resource now."""
        return self.resources.holders(service, resource)

    def revive(self, client: Client, name: bytes, body: bytes, envelope: bytes) -> Job:
        """A job of before the restart: accepted then, so no limit refuses it now."""
        service = self.services.get(name) or self._open(name)
        self.numbered += 1
        job = Job(self.numbered, client, service, body, envelope, self.now)
        self.active += 1
        self.memory += job.size + JOB_COST
        client.jobs += 1
        client.size += job.size
        return job

    # Inside

    def _ask(self, service: Service, job: Job) -> None:
        """A question to the broker itself: its own services have an idle worker at all times."""
        self.questions += 1
        self.asked += 1
        job.client.questions += 1
        if service.idle:
            self._dispatch(service.idle.popitem(False)[0], job)
        else:
            self._queue(service, job)

    def _claimed(self, worker: Worker, token: bytes, body: bytes) -> int:
        """An answer to an attempt this worker does not hold, unless it held it before the broker was restarted."""
        job = self.lifecycle.claim(token) if self.lifecycle.orphans else None
        if job is None:
            return self._stray(worker, token, True)
        worker.last_seen = self.now
        worker.done += 1
        job.worker = worker
        job.size_out += len(body)
        self.lifecycle.answered(job, body)
        return ANSWERED

    def _stray(self, worker: Worker, token: bytes, ended: bool) -> int:
        """An answer to an attempt this worker does not hold."""
        if token in worker.late:
            worker.last_seen = self.now
            if ended:
                del worker.late[token]
                self._offer(worker)
            return LATE
        self.strays += 1
        return STRAY
