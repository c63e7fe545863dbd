"""The scheduler: which worker gets which job next, where jobs wait, and what happens to jobs that lose their worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from polydomo.core import failure as reasons
from polydomo.core.accounting import Accounting
from polydomo.core.failure import Failure
from polydomo.core.model import Job, Service, Worker
from polydomo.core.policy import FOREVER
from polydomo.core.queue import FairQueue
from polydomo.core.services import Services
from polydomo.core.states import DISPATCHED, NEXT, QUEUED, RELEASE
from polydomo.core.timers import Clock, TimerHeap
from polydomo.core.tracked_job import TrackedJob, is_durable, survives_client

# Tokens are eight hex digits: dialects have their length in prepared heads. When one is used again, four billion
# jobs later, no worker holds it any more.
TOKEN_MASK: Final = 0xFFFF_FFFF

# Why an attempt did not end its job. Stable words: they stand in the ledger.
WORKER_LOST: Final = "worker-lost"
OVERRUN: Final = "overrun"  # it ran for too long
DISOWNED: Final = "disowned"  # after a restart, its worker did not know it
CALLED_BACK: Final = "called-back"  # the job was cancelled, or its deadline had come
DECLINED: Final = "declined"  # its worker had no room for it after all

CLIENT_WENT: Final = "its client went away"


class JobHooks(ABC):
    """Decisions that the scheduler leaves to features."""

    @abstractmethod
    def dispatched(self, job: TrackedJob) -> None:
        """Hear that a job goes to `job.worker`."""

    @abstractmethod
    def failed(self, job: TrackedJob, failure: Failure) -> None:
        """End a job without a result."""

    @abstractmethod
    def held_before_retry(self, job: Job) -> bool:
        """Hold a job that lost its attempt, if its service wants a pause. False: it may be queued at once."""

    @abstractmethod
    def holder_of(self, job: TrackedJob) -> bytes:
        """Return the worker that has the resource which a job needs, or a name that no worker has."""


class Scheduler:
    """Gives jobs to workers."""

    def __init__(
        self,
        clock: Clock,
        timers: TimerHeap,
        services: Services,
        accounting: Accounting,
        hooks: JobHooks,
        first_token: int,
    ) -> None:
        self.closing = False  # jobs on disk are left to the next start
        self._clock = clock
        self._timers = timers
        self._services = services
        self._accounting = accounting
        self._hooks = hooks
        self._token = first_token

    # Giving out

    def place(self, job: Job, first: bool) -> None:
        """Dispatch or queue a job that no worker has. `first`: it has waited already."""
        if job.client.gone and not survives_client(job):
            self.fail(job, Failure(reasons.CLIENT_GONE, CLIENT_WENT))
            return
        if not job.attempt:
            job.queued_at = self._clock.now
        service = job.service
        self._services.keep(service)
        if isinstance(job, TrackedJob) and (job.pinned_worker or job.resource):
            worker = service.names.get(self._pin_name(job))
            if worker is not None and worker in service.idle:
                service.idle.pop(worker)
                self.dispatch(worker, job)
                return
        elif service.idle:
            self.dispatch(service.idle.popitem(False)[0], job)
            return
        self.queue(service, job, first)

    def dispatch(self, worker: Worker, job: Job) -> None:
        """Give `job` to `worker`, which has room and was just taken out of every idle list that it was first in."""
        now = self._clock.now
        self._token = (self._token + 1) & TOKEN_MASK
        token = b"%08x" % self._token
        job.token = token
        job.worker = worker
        job.state = DISPATCHED[job.state]
        job.attempt += 1
        if job.attempt == 1:
            job.started = now
        job.dispatched = now
        service = job.service
        service.running += 1
        deadline = now + (job.attempt_timeout or service.policy.timeout)
        job.attempt_deadline = deadline
        if job.tracked and isinstance(job, TrackedJob):
            self._hooks.dispatched(job)
        worker.running[token] = job
        worker.last_sent = now
        if deadline < worker.fires_at and not worker.internal:
            self._timers.set(worker, deadline)
        if worker.credit != 1 or len(worker.services) != 1:
            self._reseat(worker)
        worker.port.dispatch(job)

    def offer(self, worker: Worker) -> None:
        """Give `worker` what waits at its services, each in turn, as far as it has room; then it is idle."""
        services = worker.services
        while worker.free() > 0:
            found: FairQueue[Job] | None = None
            count = len(services)
            for step in range(count):
                index = (worker.turn + step) % count
                found = self._next_queue(worker, services[index])
                if found is not None:
                    worker.turn = index + 1
                    break
            if found is None:
                if not worker.running and not worker.revoked:
                    worker.credit = worker.base_credit
                for service in services:
                    if worker not in service.idle and not service.paused:
                        service.idle[worker] = None
                return
            for service in services:
                service.idle.pop(worker, None)
            self.dispatch(worker, found.next(self._clock.now))

    def fetch(self, worker: Worker, services: list[Service]) -> bool:
        """Give one job of these services to a worker that asks for it, as its credit is 0. False: there is none."""
        count = len(services)
        for step in range(count):
            index = (worker.turn + step) % count
            service = services[index]
            found = self._next_queue(worker, service) if worker in service.workers else None
            if found is not None:
                # Another broker's job is not for a third one: so none can go from broker to broker for ever.
                now = self._clock.now
                job = found.next_of_ours(now) if worker.relay else found.next(now)
                if job is not None:
                    worker.turn = index + 1
                    self.dispatch(worker, job)
                    return True
        return False

    def set_busy(self, worker: Worker) -> None:
        """Take a worker without room out of its services' idle lists."""
        if worker.free() <= 0:
            for service in worker.services:
                service.idle.pop(worker, None)

    # Taking back

    def revoke(self, job: Job) -> None:
        """Take a running job from its worker, whose reply will come too late."""
        worker = job.worker
        if worker is not None and worker.running.pop(job.token, None) is not None:
            now = self._clock.now
            worker.revoked[job.token] = now
            worker.last_seen = now  # it was allowed to be silent until now
            job.service.running -= 1
            if self._accounting.journal is not None:
                self._accounting.journal.attempt(job, CALLED_BACK)
            job.worker = None
            self.set_busy(worker)
            worker.port.cancel(job)

    def reattach(self, worker: Worker, job: Job) -> None:
        """Note that `worker` has had this job since before the restart."""
        now = self._clock.now
        job.worker = worker
        job.service.running += 1
        job.dispatched = now
        job.attempt_deadline = now + (job.attempt_timeout or job.service.policy.timeout)
        worker.running[job.token] = job
        self._timers.set(worker, job.attempt_deadline)

    def requeue(self, lost: list[Job], reason: str) -> None:
        """Requeue jobs whose worker vanished, froze or took too long.

        All are put back in order before any is dispatched again.
        """
        for job in reversed(lost):  # each goes to the front, so the oldest must be last
            service = job.service
            service.running -= 1
            if self.closing and is_durable(job):
                continue  # the store knows which worker has it; after the restart it goes on from there
            if self._accounting.journal is not None:
                self._accounting.journal.attempt(job, reason)
            job.worker = None
            if job.client.gone and not survives_client(job):
                self.fail(job, Failure(reasons.CLIENT_GONE, CLIENT_WENT))
            elif job.attempt > self._retries(job):
                text = f"{job.attempt} workers were lost or took too long with it"
                self.fail(job, Failure(reasons.EXHAUSTED, text))
            else:
                self._accounting.retried(job)
                if not self._hooks.held_before_retry(job):
                    self.queue(service, job, True)
        for job in lost:
            service = job.service
            while service.queue.waiting and service.idle and not service.paused:
                self.dispatch(service.idle.popitem(False)[0], service.queue.next(self._clock.now))
            for name in list(service.pinned):
                worker = service.names.get(name)
                if worker is not None and worker in service.idle:
                    self.offer(worker)

    # Waiting

    def queue(self, service: Service, job: Job, first: bool = False) -> None:
        """Queue a job after its client's others; before all others if it has waited already (`first`)."""
        job.state = QUEUED[job.state]
        if job.tracked:
            queue = self._queue_of(service, job)
            job.expires = self.expiry(job)
        else:  # without the calls of `expiry`
            queue = service.queue
            wait = job.client.wait
            job.expires = self._clock.now + (wait if wait >= 0 else service.policy.wait)
        if first:
            queue.add_first(job, job.client)
        else:
            queue.add(job, job.client)
        if job.expires < queue.fires_at:
            self._timers.set(queue, job.expires)
        if service.wakeup is not None:
            service.wakeup.wanted(service, job)

    def unqueue(self, job: Job) -> None:
        """Take a waiting job out of its queue."""
        queue = job.queue if isinstance(job, TrackedJob) else None
        (queue or job.service.queue).remove(job, job.client)
        job.state = NEXT[job.state][RELEASE]

    def take_all(self, service: Service) -> list[Job]:
        """Take out all waiting jobs of a service, in order."""
        now = self._clock.now
        taken: list[Job] = []
        for queue in service.queues():
            while queue.waiting:
                taken.append(queue.next(now))
        return taken

    def expire_queue(self, queue: FairQueue[Job]) -> None:
        """Fail the jobs that have waited too long."""
        now = self._clock.now
        expired = queue.take_expired(now)
        for job in expired:
            self.fail(
                job, Failure(reasons.EXPIRED, f"no worker took it within {self.queue_timeout(job):g} s")
            )
        if queue.waiting:
            self._timers.set(queue, max(queue.next_expiry(), now + expiry_pause(queue)))
        for service in dict.fromkeys(job.service for job in expired):
            self._services.drop_if_unused(service)

    def queue_timeout(self, job: Job) -> float:
        """Return how long a job may wait for a worker, unless it is durable."""
        if isinstance(job, TrackedJob) and job.own_wait >= 0:
            return job.own_wait
        return job.client.wait if job.client.wait >= 0 else job.service.policy.wait

    def expiry(self, job: Job) -> float:
        """Return when waiting that begins now ends.

        A durable job waits for ever unless its client said otherwise; its deadline has a timer of its own.
        """
        if isinstance(job, TrackedJob) and job.own_wait < 0 and job.is_durable():
            return FOREVER
        return self._clock.now + self.queue_timeout(job)

    def pinned_to(self, service: Service, name: bytes) -> list[Job]:
        """Return the waiting jobs that only the worker `name` may do, other than for its resources."""
        queue = service.pinned.get(name)
        if queue is None:
            return []
        return [job for job in queue.jobs() if not (isinstance(job, TrackedJob) and job.resource)]

    def fail(self, job: Job, failure: Failure) -> None:
        """End a job without a result."""
        if isinstance(job, TrackedJob):
            self._hooks.failed(job, failure)
            return
        if not job.client.gone:
            job.client.port.failed(job, failure)
        self._accounting.ended(job, failure)

    # Inside

    def _next_queue(self, worker: Worker, service: Service) -> FairQueue[Job] | None:
        """Return where `worker` takes its next job of `service` from. Jobs for it alone alternate with the others."""
        if service.paused:
            return None
        if service.pinned:
            own = service.pinned.get(worker.name)
            if own is not None:
                worker.pinned_next = not worker.pinned_next
                if not worker.pinned_next or not service.queue.waiting:
                    return own
        return service.queue if service.queue.waiting else None

    def _reseat(self, worker: Worker) -> None:
        """After a dispatch: a worker of several services or jobs is still idle, or idle at none of them."""
        if worker.free() > 0:
            for service in worker.services:
                if not service.paused:
                    service.idle[worker] = None
                    service.idle.move_to_end(worker)
        else:
            for service in worker.services:
                service.idle.pop(worker, None)

    def _queue_of(self, service: Service, job: Job) -> FairQueue[Job]:
        if not isinstance(job, TrackedJob) or not (job.pinned_worker or job.resource):
            return service.queue
        service.pinned_jobs += 1
        return service.pin(self._pin_name(job))

    def _pin_name(self, job: TrackedJob) -> bytes:
        """Return the only worker that may do a pinned job."""
        return self._hooks.holder_of(job) if job.resource else job.pinned_worker

    def _retries(self, job: Job) -> int:
        """Return how many attempts a job has after the first. Clients that ask again by themselves need none, but what
        is on disk is no longer their matter."""
        retries = job.client.retries
        return job.service.policy.retries if retries < 0 or is_durable(job) else retries


def expiry_pause(queue: FairQueue[Job]) -> float:
    """Return the seconds before looking for expired jobs again.

    Each look goes through all clients that wait there, so jobs of many clients that expire one by one must be taken out
    in batches.
    """
    return 0.05 + 0.00002 * len(queue.client_queues)
