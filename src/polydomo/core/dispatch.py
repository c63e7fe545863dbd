"""Who gets which job next: idle workers, waiting lines, lost jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core import job as jobs
from polydomo.core.answers import ANSWERED, STRAY
from polydomo.core.books import Books
from polydomo.core.job import RUNNING, WAITING, Failure, Job
from polydomo.core.policy import BrokerLimits, Policy
from polydomo.core.queue import FairQueue
from polydomo.core.service import Service
from polydomo.core.worker import Worker

if TYPE_CHECKING:
    from polydomo.core.lifecycle import Lifecycle
    from polydomo.core.resources import Resources

# Tokens are eight hex digits: dialects have their length in prepared heads. When one is used again, four billion
# jobs later, nobody holds it any more.
TOKEN_MASK: Final = 0xFFFF_FFFF

# Why an attempt did not end its job. Stable words: they stand in the ledger.
WORKER_LOST: Final = "worker-lost"
OVERRUN: Final = "overrun"  # it ran for too long
DISOWNED: Final = "disowned"  # after a restart, its worker did not know it
CALLED_BACK: Final = "called-back"  # the job was cancelled, or its deadline had come
DECLINED: Final = "declined"  # it had no room for it after all


class Dispatch(Books):
    """The part of the broker that gives jobs to workers."""

    lifecycle: Lifecycle
    resources: Resources

    def __init__(self, bounds: BrokerLimits, policy: Policy, first_token: int) -> None:
        super().__init__(bounds, policy)
        self._token = first_token  # random in a real broker: no answer of before a restart fits a new job
        self.era = first_token  # so this, too, tells this start of the broker from others

    # For the lifecycle of jobs that are more than a queue's entry

    def place(self, job: Job, first: bool) -> None:
        """Dispatch or queue a job that nobody has; `first`: it has waited already."""
        if job.client.gone and not self.lifecycle.survives_client(job):
            self._fail(job, Failure(jobs.CLIENT_GONE, "its client went away"))
            return
        if not job.attempt:
            job.queued = self.now
        service = job.service
        self.keep_service(service)
        if job.extra is not None and (job.extra.worker or job.extra.resource):
            self._place_named(service, job, first)
        elif service.idle:
            self._dispatch(service.idle.popitem(False)[0], job)
        elif first:
            self._queue_first(service, job)
        else:
            job.state = WAITING
            self._queue(service, job)

    def enqueue(self, job: Job) -> None:
        """A job for anybody, at a service that has nobody idle."""
        self.keep_service(job.service)
        job.state = WAITING
        self._queue(job.service, job)

    def revoke(self, job: Job) -> None:
        """Take a running job from its worker, whose answer will come too late."""
        worker = job.worker
        if worker is not None and worker.running.pop(job.token, None) is not None:
            worker.late[job.token] = self.now
            worker.last_seen = self.now  # it was allowed to be silent until now
            job.service.running -= 1
            if self.journal is not None:
                self.journal.attempt(job, CALLED_BACK)
            job.worker = None
            self._not_idle(worker)
            worker.port.cancel(job)

    def offer(self, worker: Worker) -> None:
        """It may have something to do."""
        self._offer(worker)

    def reattach(self, worker: Worker, job: Job) -> None:
        """It has had this job since before the restart."""
        job.worker = worker
        job.service.running += 1
        job.dispatched = self.now
        job.due = self.now + (job.limit or job.service.policy.timeout)
        worker.running[job.token] = job
        self.timers.set(worker, job.due)

    def service_called(self, name: bytes) -> Service:
        """The service of this name, whether it is known or not; `place` keeps it."""
        return self.services.get(name) or self._open(name)

    def move(self, job: Job, name: bytes) -> None:
        """It belongs to this service, not to the one it was submitted to."""
        left = job.service
        job.service = self.service_called(name)
        self._sweep(left)

    def fail_job(self, job: Job, failure: Failure) -> None:
        """It will have no result."""
        self._fail(job, failure)

    def end_job(self, job: Job, failure: Failure | None) -> None:
        """Its client has been told; close the books."""
        self._end(job, failure)

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
        if job.attempt == 1:
            job.started = now
        job.dispatched = now
        service = job.service
        service.running += 1
        due = now + (job.limit or service.policy.timeout)
        job.due = due
        if job.extra is not None:
            self.lifecycle.dispatched(job)
        running = worker.running
        running[token] = job
        worker.last_sent = now
        if due < worker.fires_at and not worker.internal:
            self.timers.set(worker, due)
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

    def _not_idle(self, worker: Worker) -> None:
        """It owes a late answer now."""
        if worker.free() <= 0:
            for service in worker.services:
                service.idle.pop(worker, None)

    def _offer(self, worker: Worker) -> None:
        """`worker` may have room: give it what waits at its services, each in turn, or note it as idle."""
        services = worker.services
        while worker.free() > 0:
            found: FairQueue | None = None
            count = len(services)
            for step in range(count):
                index = (worker.turn + step) % count
                service = services[index]
                if service.paused:
                    continue
                if service.named:
                    found = self._own_line(worker, service)
                if found is None and service.waiting:
                    found = service
                if found is not None:
                    worker.turn = index + 1
                    break
            if found is None:
                if not worker.running and not worker.late:
                    worker.credit = worker.base_credit
                for service in services:
                    if worker not in service.idle and not service.paused:
                        service.idle[worker] = None
                return
            for service in services:
                service.idle.pop(worker, None)
            self._dispatch(worker, found.next())

    def fetch(self, worker: Worker, services: list[Service]) -> bool:
        """A worker that is given nothing unasked (its credit is 0) asks for one job of these services. False: there is
        none for it."""
        count = len(services)
        for step in range(count):
            index = (worker.turn + step) % count
            service = services[index]
            if service.paused or worker not in service.workers:
                continue
            found: FairQueue | None = self._own_line(worker, service) if service.named else None
            if found is None and service.waiting:
                found = service
            if found is not None:
                # Another broker's job is not for a third one: so none can go from broker to broker for ever.
                job = found.next_of_ours() if worker.relay else found.next()
                if job is not None:
                    worker.turn = index + 1
                    self._dispatch(worker, job)
                    return True
        return False

    def decline(self, worker: Worker, token: bytes) -> int:
        """It was given a job for which it has no room after all, and has not begun it: that was no attempt."""
        job = worker.running.pop(token, None)
        if job is None:
            return STRAY
        job.attempt -= 1
        self._lost([job], DECLINED)
        return ANSWERED

    def _own_line(self, worker: Worker, service: Service) -> FairQueue | None:
        """Jobs for it alone, if it is their turn: they alternate with those for anybody."""
        own = service.named.get(worker.name)
        if own is None:
            return None
        worker.own_turn = not worker.own_turn
        return own if not worker.own_turn or not service.waiting else None

    def _place_named(self, service: Service, job: Job, first: bool) -> None:
        """A job for one worker only."""
        worker = service.names.get(self._line_name(service, job))
        if worker is not None and worker in service.idle:
            service.idle.pop(worker)
            self._dispatch(worker, job)
        elif first:
            self._queue_first(service, job)
        else:
            job.state = WAITING
            self._queue(service, job)

    def _line(self, service: Service, job: Job) -> FairQueue:
        """Where it waits."""
        name = self._line_name(service, job)
        return service.line_of(name) if name else service

    def _line_name(self, service: Service, job: Job) -> bytes:
        """The worker it is for; empty: anybody."""
        extra = job.extra
        if extra is None or not extra.resource:
            return b"" if extra is None else extra.worker
        service.wanted.setdefault(extra.resource, {})[job] = None
        holder = self.resources.pick(service, extra.resource)
        # Nobody has it: no worker's name begins with a zero byte and goes on as a resource's.
        return b"\0resource:" + extra.resource if holder is None else holder.name

    def _fail_pinned(self, service: Service, name: bytes) -> None:
        """Jobs for a worker that cannot come back."""
        for job in service.named[name].jobs():
            if job.extra is None or not job.extra.resource:
                self.lifecycle.cancel(job, Failure(jobs.WORKER_GONE, "the worker it was for is gone"))

    def _take_all(self, service: Service) -> list[Job]:
        """Everything that waits, in order."""
        taken: list[Job] = []
        lines: list[FairQueue] = [service, *service.named.values()]
        for line in lines:
            while line.waiting:
                taken.append(line.next())
        return taken

    def _queue(self, service: Service, job: Job) -> None:
        line = service if job.extra is None else self._line(service, job)
        job.expires = self._expiry(service, job)
        line.add(job)
        if job.expires < line.fires_at:
            self.timers.set(line, job.expires)
        if service.wakeup is not None:
            service.wakeup.wanted(service, job)

    def _queue_first(self, service: Service, job: Job) -> None:
        """For a job that has waited already."""
        line = service if job.extra is None else self._line(service, job)
        job.state = WAITING
        job.expires = self._expiry(service, job)
        line.add_first(job)
        self.timers.set(line, job.expires)
        if service.wakeup is not None:
            service.wakeup.wanted(service, job)

    def _expiry(self, service: Service, job: Job) -> float:
        """When waiting that begins now ends."""
        return self.now + self.patience(job) if job.extra is None else self.lifecycle.expiry(job)

    def patience(self, job: Job) -> float:
        """How long it may wait for a worker, if nothing keeps it for ever."""
        extra = job.extra
        if extra is not None and extra.wait >= 0:
            return extra.wait
        return job.client.wait if job.client.wait >= 0 else job.service.policy.wait

    def _retries(self, job: Job) -> int:
        """Further attempts after the first. Clients that ask again by themselves need none, but what is on disk is no
        longer their matter."""
        retries = job.client.retries
        return job.service.policy.retries if retries < 0 or self.lifecycle.kept(job) else retries

    def _lost(self, held: list[Job], reason: str) -> None:
        """Their worker vanished, froze or took too long. All are put back in order before any goes out again."""
        for job in reversed(held):  # each goes to the front, so the oldest must be last
            service = job.service
            service.running -= 1
            if self.closing and self.lifecycle.kept(job):
                continue  # the store knows who has it; after the restart it goes on from there
            if self.journal is not None:
                self.journal.attempt(job, reason)
            job.worker = None
            if job.client.gone and not self.lifecycle.survives_client(job):
                self._fail(job, Failure(jobs.CLIENT_GONE, "its client went away"))
            elif job.attempt > self._retries(job):
                self._fail(
                    job, Failure(jobs.EXHAUSTED, f"{job.attempt} workers were lost or took too long with it")
                )
            else:
                service.counts.retried += 1
                self.retried += 1
                if service.policy.backoff > 0:
                    self.lifecycle.pause_before_retry(job)
                else:
                    self._queue_first(service, job)
        for job in held:
            service = job.service
            while service.waiting and service.idle and not service.paused:
                self._dispatch(service.idle.popitem(False)[0], service.next())
            if service.named:
                self._offer_named(service)

    def _offer_named(self, service: Service) -> None:
        """Jobs for one worker came back to their lines; it may be idle."""
        for name in list(service.named):
            worker = service.names.get(name)
            if worker is not None and worker in service.idle:
                self._offer(worker)

    def _fail(self, job: Job, failure: Failure) -> None:
        if job.extra is not None:
            self.lifecycle.failed(job, failure)
            return
        if not job.client.gone:
            job.client.port.failed(job, failure)
        self._end(job, failure)
