"""The broker: who gets which job next, and what happens when somebody is lost.

A job's life: `submit` → dispatched at once or queued → its worker answers (`partial`*, `final`), fails it (`fail`),
passes it on (`forward`), or loses it (gone, expired, too slow) → it is dispatched to another, up to the service's
retries → its client is answered or told why not. Everything here runs to its end without waiting; `now` is set by
the owner before each call.
"""

from __future__ import annotations

from typing import Final

from polydomo.core import job as jobs
from polydomo.core.books import Books
from polydomo.core.client import Client
from polydomo.core.extras import Options
from polydomo.core.job import DONE, FAILED, RUNNING, WAITING, Failure, Job
from polydomo.core.lifecycle import Lifecycle
from polydomo.core.policy import FOREVER, Bounds, Policy
from polydomo.core.ports import ClientPort
from polydomo.core.registry import RESERVED
from polydomo.core.service import Service
from polydomo.core.worker import Worker

# What became of an answer.
ANSWERED: Final = 0
LATE: Final = 1  # the attempt had been taken from this worker; its answer is dropped and it may work again
STRAY: Final = 2  # this worker never had such an attempt

# Tokens are eight hex digits: dialects have their length in prepared heads. When one is used again, four billion
# jobs later, nobody holds it any more.
TOKEN_MASK: Final = 0xFFFF_FFFF


class Broker(Books):
    """See the module's text."""

    def __init__(
        self, bounds: Bounds | None = None, policy: Policy | None = None, first_token: int = 0
    ) -> None:
        super().__init__(bounds or Bounds(), policy or Policy())
        self.workers: dict[Worker, None] = {}
        self.clients: dict[Client, None] = {}
        self.lifecycle = Lifecycle(self)
        self._token = first_token  # random in a real broker: no answer of before a restart fits a new job

    # Clients

    def join_client(self, name: bytes, dialect: str, port: ClientPort) -> Client:
        """A client that may submit jobs from now on."""
        client = Client(self, name, dialect, port)
        self.clients[client] = None
        return client

    def client_away(self, client: Client) -> None:
        """It dropped off but has a name of its own: keep its jobs for a while."""
        self.alarms.set(client, self.now + self.bounds.client_grace)

    def client_back(self, client: Client) -> None:
        """It is back in time."""
        self.alarms.clear(client)

    def client_gone(self, client: Client) -> None:
        """For good: its waiting jobs are dropped, the answers of its running ones will be."""
        client.gone = True
        self.alarms.clear(client)
        self.clients.pop(client, None)
        for service in list(client.lanes):
            dropped: list[Job] = []
            for job in service.drop_lane(client):
                if self.lifecycle.outlives(job):
                    service.add(job)
                else:
                    dropped.append(job)
            for job in dropped:
                self._fail(job, Failure(jobs.CLIENT_GONE, "its client went away"))
            self._sweep(service)

    def submit(
        self, client: Client, name: bytes, body: bytes, envelope: bytes, options: Options | None = None
    ) -> Job | None:
        """A request. None means refused; the client has been told then, if its dialect can."""
        service = self.services.get(name)
        if service is None:
            service = self._open(name)
        self.accepted += 1
        job = Job(self.accepted, client, service, body, envelope, self.now)
        if (
            # The broker's own services are answered at once and in every state: people want to see why it is full.
            ((self.draining or self.memory > self.bounds.memory) and not name.startswith(RESERVED))
            or (service.waiting >= service.policy.queue and not service.idle)
            or (not service.workers and not self._may_open(service))
        ):
            self._refuse(job)
            return None
        self.active += 1
        self.memory += job.size
        client.total += 1
        client.jobs += 1
        client.size += job.size
        if client.jobs > self.bounds.client_jobs or client.size > self.bounds.client_bytes:
            client.held = True
            client.port.hold()
        if (options is not None or service.policy.durable) and not name.startswith(RESERVED):
            self.lifecycle.begin(job, options)
        elif service.idle:
            worker = service.idle.popitem(False)[0]
            self._dispatch(worker, job)
        else:
            self._queue(service, job)
        return job

    # Workers

    def may_register(self, worker: Worker, name: bytes) -> bool:
        """May `worker` offer the service `name`? Not a reserved or impossible one, nor one too many."""
        if worker.internal:
            return True
        if not self._good_name(name) or name.startswith(RESERVED):
            return False
        return name in self.services or len(self.services) < self.bounds.services

    def register(self, worker: Worker, name: bytes) -> bool:
        """`worker` offers the service `name` from now on, and gets what waits there. False: it may not."""
        if not self.may_register(worker, name):
            return False
        service = self.services.get(name)
        if service is None:
            service = self._open(name)
        self.services[name] = service
        if worker in service.workers:
            worker.late.clear()  # registering again is a fresh start
            self._offer(worker)
            return True
        if worker not in self.workers:
            self.workers[worker] = None
            if not worker.internal:
                self.alarms.set(worker, self.now + worker.beat.interval)
                if self.journal is not None:
                    self.journal.event("joined", worker, "")
        service.workers[worker] = None
        worker.services.append(service)
        self._offer(worker)
        return True

    def leave(self, worker: Worker, reason: str) -> None:
        """It is gone: what it held goes to others."""
        if worker not in self.workers:
            return
        del self.workers[worker]
        self.alarms.clear(worker)
        services = worker.services
        worker.services = []
        for service in services:
            del service.workers[worker]
            service.idle.pop(worker, None)
        held = list(worker.running.values())
        worker.running.clear()
        worker.late.clear()
        self._lost(held)
        for service in services:
            self._sweep(service)
        if self.journal is not None and not worker.internal:
            self.journal.event("left", worker, reason)

    def seen(self, worker: Worker) -> None:
        """A sign of life that is no answer. One that comes while it has held a job for more than an interval proves
        that it beats while busy (an earlier one may have crossed the job on its way)."""
        worker.last_seen = self.now
        if worker.running and self.now - worker.held_longest() > worker.beat.interval:
            worker.beats_busy = True

    def ask_for_more(self, worker: Worker, bound: int) -> None:
        """It can take one more job at once, up to `bound` in all."""
        if worker.credit < bound and worker.credit == len(worker.running):
            worker.credit += 1
            self._offer(worker)

    # Answers

    def partial(self, worker: Worker, token: bytes, body: bytes) -> int:
        """One of several answers."""
        job = worker.running.get(token)
        if job is None:
            return self._stray(worker, token, False)
        worker.last_seen = self.now
        job.partials += 1
        job.size_out += len(body)
        if job.extra is not None:
            self.lifecycle.partial(job, body)
        if not job.client.gone:
            job.client.port.partial(job, body)
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
            self._end(job, DONE, None)
        if service.waiting and not service.paused and len(worker.services) == 1 and not worker.late:
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
        left.done += 1
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
        job.worker = None
        if job.client.gone and not self.lifecycle.outlives(job):
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
        self.alarms.ring(self.now)
        return self.alarms.next()

    def look_at_worker(self, worker: Worker) -> None:
        """Its alarm rang: jobs that ran too long, signs of life overdue, a heartbeat to send."""
        now = self.now
        beat = worker.beat
        overrun = [job for job in worker.running.values() if job.due <= now]
        if overrun:
            for job in overrun:
                del worker.running[job.token]
                worker.late[job.token] = now
            worker.last_seen = now  # it was allowed to be silent until now
            for service in worker.services:
                service.idle.pop(worker, None)
            self._lost(overrun)
        silent_until = worker.last_seen + beat.interval * beat.liveness
        if worker.running and not worker.beats_busy:
            silent_until = FOREVER
        if silent_until <= now and not worker.deaf:
            worker.port.dismiss("expired")
            if self.journal is not None:
                self.journal.event("expired", worker, "no sign of life")
            self.leave(worker, "expired")
            return
        if worker.last_sent + beat.interval <= now:
            worker.port.beat()
            worker.last_sent = now
        wake = worker.last_sent + beat.interval
        if now < silent_until < wake:
            wake = silent_until
        for job in worker.running.values():
            wake = min(wake, job.due)
        self.alarms.set(worker, wake)

    def look_at_service(self, service: Service) -> None:
        """Its alarm rang: jobs may have waited too long."""
        for job in service.take_expired(self.now):
            self._fail(job, Failure(jobs.EXPIRED, f"no worker took it within {service.policy.wait:g} s"))
        if service.waiting:
            self.alarms.set(service, max(service.next_expiry(), self.now + self.expiry_pause(service)))
        else:
            self._sweep(service)

    def expiry_pause(self, service: Service) -> float:
        """Seconds before looking for expired jobs again. Each look goes through all clients that wait there, so jobs
        of many clients that expire one by one must be taken out in batches."""
        return 0.05 + 0.00002 * len(service.ring_of_lanes)

    def drain(self) -> None:
        """Take no new jobs; finish those that are here."""
        self.draining = True

    def busy(self) -> bool:
        """Is there a job that may still be finished: running, or waiting for a worker that is here?"""
        return self.lifecycle.writing > 0 or any(
            service.running or (service.waiting and service.workers) for service in self.services.values()
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
            while service.waiting:
                job = service.next()
                if not self.lifecycle.kept(job):
                    self._fail(job, Failure(jobs.DRAINING, "the broker stopped before a worker took it"))
        self.lifecycle.close()
        return unfinished

    def configure(self, bounds: Bounds, policy: Policy, policies: dict[bytes, Policy]) -> None:
        """New settings, for what comes from now on; a shorter wait also for what waits, counted from now."""
        self.bounds = bounds
        self.default_policy = policy
        self.policies = policies
        for service in self.services.values():
            service.policy = self.policy_of(service.name)
            if service.waiting:
                service.shorten(self.now + service.policy.wait)
                self.alarms.set(service, service.next_expiry())
        for client in self.clients:
            if client.held:
                self._ease(client)

    # For the lifecycle of jobs that are more than a queue's entry

    def place(self, job: Job, first: bool) -> None:
        """Dispatch or queue a job that nobody has; `first`: it has waited already."""
        if job.client.gone and not self.lifecycle.outlives(job):
            self._fail(job, Failure(jobs.CLIENT_GONE, "its client went away"))
            return
        service = job.service
        self.keep_service(service)
        if service.idle:
            self._dispatch(service.idle.popitem(False)[0], job)
        elif first:
            self._queue_first(service, job)
        else:
            job.state = WAITING
            self._queue(service, job)

    def fail_job(self, job: Job, failure: Failure) -> None:
        """It will have no result."""
        self._fail(job, failure)

    def end_job(self, job: Job, state: int, failure: Failure | None) -> None:
        """Its client has been told; close the books."""
        self._end(job, state, failure)

    def take_back(self, job: Job) -> None:
        """Take a running job from its worker, whose answer will come too late."""
        worker = job.worker
        if worker is not None and worker.running.pop(job.token, None) is not None:
            worker.late[job.token] = self.now
            worker.last_seen = self.now  # it was allowed to be silent until now
            job.service.running -= 1
            job.worker = None
            for service in worker.services:
                service.idle.pop(worker, None)
            worker.port.cancel(job)

    def offer(self, worker: Worker) -> None:
        """It may have something to do."""
        self._offer(worker)

    def revive(self, client: Client, name: bytes, body: bytes, envelope: bytes) -> Job:
        """A job of before the restart: accepted then, so no limit refuses it now."""
        service = self.services.get(name) or self._open(name)
        self.accepted += 1
        job = Job(self.accepted, client, service, body, envelope, self.now)
        self.active += 1
        self.memory += job.size
        client.jobs += 1
        client.size += job.size
        return job

    # Inside

    def _dispatch(self, worker: Worker, job: Job) -> None:
        """Give `job` to `worker`, which has room and has just been taken out of every idle list it was first in."""
        now = self.now
        self._token = (self._token + 1) & TOKEN_MASK
        token = b"%08x" % self._token
        job.token = token
        job.worker = worker
        job.state = RUNNING
        job.attempt += 1
        job.dispatched = now
        service = job.service
        service.running += 1
        due = now + service.policy.timeout
        job.due = due
        if job.extra is not None:
            self.lifecycle.dispatched(job)
            due = job.due
        running = worker.running
        running[token] = job
        worker.last_sent = now
        if due < worker.alarm and not worker.internal:
            self.alarms.set(worker, due)
        if worker.credit != 1 or len(worker.services) != 1:
            self._reseat(worker)
        worker.port.dispatch(job)

    def _reseat(self, worker: Worker) -> None:
        """After a dispatch: a worker of several services or jobs is idle elsewhere too, or still here."""
        if worker.free() > 0:
            for service in worker.services:
                if not service.paused:
                    service.idle[worker] = None
                    service.idle.move_to_end(worker)
        else:
            for service in worker.services:
                service.idle.pop(worker, None)

    def _offer(self, worker: Worker) -> None:
        """`worker` may have room: give it what waits at its services, each in turn, or note it as idle."""
        services = worker.services
        while worker.free() > 0:
            found: Service | None = None
            count = len(services)
            for step in range(count):
                index = (worker.turn + step) % count
                if services[index].waiting and not services[index].paused:
                    found = services[index]
                    worker.turn = index + 1
                    break
            if found is None:
                if not worker.running:
                    worker.credit = worker.base_credit
                for service in services:
                    if worker not in service.idle and not service.paused:
                        service.idle[worker] = None
                return
            for service in services:
                service.idle.pop(worker, None)
            self._dispatch(worker, found.next())

    def _queue(self, service: Service, job: Job) -> None:
        job.expires = self._expiry(service, job)
        service.add(job)
        if job.expires < service.alarm:
            self.alarms.set(service, job.expires)

    def _queue_first(self, service: Service, job: Job) -> None:
        """For a job that has waited already."""
        job.state = WAITING
        job.expires = self._expiry(service, job)
        service.add_first(job)
        self.alarms.set(service, job.expires)

    def _expiry(self, service: Service, job: Job) -> float:
        """When waiting that begins now ends."""
        return self.now + service.policy.wait if job.extra is None else self.lifecycle.expiry(job)

    def _lost(self, held: list[Job]) -> None:
        """Their worker vanished, froze or took too long. All are put back in order before any goes out again."""
        for job in reversed(held):  # each goes to the front, so the oldest must be last
            service = job.service
            service.running -= 1
            if self.closing and self.lifecycle.kept(job):
                continue  # the store knows who has it; after the restart it goes on from there
            job.worker = None
            if job.client.gone and not self.lifecycle.outlives(job):
                self._fail(job, Failure(jobs.CLIENT_GONE, "its client went away"))
            elif job.attempt > service.policy.retries:
                self._fail(
                    job, Failure(jobs.EXHAUSTED, f"{job.attempt} workers were lost or took too long with it")
                )
            else:
                service.retried += 1
                self.retried += 1
                if service.policy.backoff > 0:
                    self.lifecycle.pause_before_retry(job)
                else:
                    self._queue_first(service, job)
        for job in held:
            service = job.service
            while service.waiting and service.idle and not service.paused:
                self._dispatch(service.idle.popitem(False)[0], service.next())

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

    def _fail(self, job: Job, failure: Failure) -> None:
        if job.extra is not None:
            self.lifecycle.failed(job, failure)
            return
        if not job.client.gone:
            job.client.port.failed(job, failure)
        self._end(job, FAILED, failure)
