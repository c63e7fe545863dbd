"""The broker's books: what is alive, what it weighs, what ended how, and what must be refused for that."""

from __future__ import annotations

from collections import deque
from itertools import islice

from polydomo.core import job as jobs
from polydomo.core.client import Client
from polydomo.core.job import (
    DEAD,
    DONE,
    EXTRA_COST,
    FAILED,
    JOB_COST,
    REFUSED,
    WITHDRAWN,
    Failure,
    Job,
)
from polydomo.core.policy import BrokerLimits, Policy
from polydomo.core.ports import Journal
from polydomo.core.registry import SERVICE_NAME_MAX, Registry, is_question
from polydomo.core.service import Service

# How many ended jobs are remembered.
RECENT = 1000


class Books(Registry):
    """The part of the broker that counts."""

    def __init__(self, bounds: BrokerLimits, policy: Policy) -> None:
        super().__init__(bounds, policy)
        self.journal: Journal | None = None
        self.draining = False
        self.closing = False
        self.active = 0  # jobs accepted and not ended
        self.memory = 0  # bytes they take: bodies, envelopes, and about what the objects around them do
        self.memory_limit = bounds.memory  # what they may have; less where the owner needs a part of it
        self.numbered = 0  # requests that ever came, jobs and questions
        self.questions = 0  # of these, for the broker itself: they are in none of the counts below
        self.asked = 0  # of the active ones, the same
        self.undecided = 0  # of the active ones, those that are being stored, so neither accepted nor refused
        self.done = 0
        self.failed = 0
        self.cancelled = 0
        self.dead = 0
        self.refused = 0
        self.repeated = 0
        self.retried = 0  # attempts
        self.forwarded = 0
        self.strays = 0
        self.recent: deque[Job] = deque(maxlen=RECENT)
        self.stalled: dict[Client, None] = {}  # clients that wait for the keeper to catch up

    @property
    def submitted(self) -> int:
        """Jobs that ever came, those recovered at the start among them: accepted + refused + undecided; or, by their
        ends, done + failed + cancelled + dead + repeated + refused + active."""
        return self.numbered - self.questions

    @property
    def accepted(self) -> int:
        """Jobs that were taken."""
        return self.numbered - self.questions - self.refused - self.undecided

    def _end(self, job: Job, failure: Failure | None) -> None:
        """The books, when a job has ended. What is remembered of it keeps no bodies."""
        job.finished = self.now
        job.failure = failure
        state = DONE if failure is None else _outcome(job, failure)
        job.state = state
        extra = job.extra
        if extra is not None and extra.parent is not None:
            self._end_part(job)
            return
        self.active -= 1
        self.memory -= job.size + JOB_COST
        service = job.service
        if extra is not None:
            self.memory -= EXTRA_COST
            if not extra.accepted:
                self.undecided -= 1
        if (service.internal or job.hops) and is_question(job):
            self.asked -= 1
        elif state == DONE and extra is None and not service.internal:
            self.done += 1
            service.counts.done += 1
        else:
            self._count(job, state)
        job.body = job.envelope = b""
        self.recent.append(job)
        if self.journal is not None:
            self.journal.finished(job)
        if failure is not None:
            failure.forget()
        client = job.client
        client.jobs -= 1
        client.size -= job.size
        if client.held:
            self._ease(client)
        if not service.workers:
            self._sweep(service)

    def hand_over(self, job: Job, client: Client) -> None:
        """It is another client's now; only while it is in no line."""
        old = job.client
        old.jobs -= 1
        old.size -= job.size
        client.jobs += 1
        client.size += job.size
        job.client = client
        if old.held:
            self._ease(old)

    def _count(self, job: Job, state: int) -> None:
        """Count a job that ended so; at no service if it was passed on to the broker itself."""
        counts = self.past.others if job.service.internal else job.service.counts
        if state == REFUSED:
            self.refused += 1
            counts.refused += 1
        elif job.extra is not None and job.extra.repeats:
            self.repeated += 1
            counts.repeated += 1
        elif state == DONE:
            self.done += 1
            counts.done += 1
        elif state == WITHDRAWN:
            self.cancelled += 1
            counts.cancelled += 1
        elif state == DEAD:
            self.dead += 1
            counts.dead += 1
        else:
            self.failed += 1
            counts.failed += 1

    def _end_part(self, job: Job) -> None:
        """Of a job for several workers: only the whole is in the books, unless the part became another request."""
        self.memory -= job.size + JOB_COST + EXTRA_COST
        job.body = b""
        if self.journal is not None:
            self.journal.finished(job)
        if not job.service.workers:
            self._sweep(job.service)

    def _ease(self, client: Client) -> None:
        """Let a held client go on if it has little enough unanswered now: half of what it may have."""
        bounds = self.bounds
        if client.jobs * 2 <= bounds.client_jobs and client.size * 2 <= bounds.client_bytes:
            client.held = False
            if not client.stalled:
                client.port.release()

    def stall(self, client: Client) -> None:
        """Take nothing more from a client until `unstall`: what it sends would only wait to be written."""
        if not client.gone:
            client.stalled = True
            self.stalled[client] = None
            client.port.stall()

    def unstall(self, count: int) -> bool:
        """Let so many clients go on, those that have waited longest first. False: none is left."""
        for client in list(islice(self.stalled, count)):
            del self.stalled[client]
            client.stalled = False
            client.port.go_on(client.held)
        return len(self.stalled) > 0

    def _why_refused(self, service: Service) -> Failure:
        if self.draining:
            return Failure(jobs.DRAINING, "the broker is stopping")
        if self.memory > self.memory_limit:
            return Failure(jobs.NO_MEMORY, f"the broker holds more than {self.memory_limit} bytes of jobs")
        return self._why_not_queued(service)

    def _why_not_queued(self, service: Service) -> Failure:
        if service.waiting + service.targeted >= service.policy.queue:
            return Failure(
                jobs.QUEUE_FULL, f"{service.waiting + service.targeted} jobs wait for this service already"
            )
        if not self._good_name(service.name):
            return Failure(jobs.BAD_SERVICE, f"a service name has 1 to {SERVICE_NAME_MAX} bytes")
        return Failure(jobs.TOO_MANY_SERVICES, f"{len(self.services)} services are known already")

    def _refuse(self, job: Job) -> None:
        service = job.service
        if service.internal:
            self.questions += 1
        else:
            self._count(job, REFUSED)
        job.state = REFUSED
        job.finished = self.now
        job.failure = self._why_refused(job.service)
        job.client.port.failed(job, job.failure)
        job.body = job.envelope = b""
        self.recent.append(job)
        if self.journal is not None:
            self.journal.finished(job)
        if self.services.get(service.name) is not service:
            self._retire(service)


def _outcome(job: Job, failure: Failure) -> int:
    """The state in which a job ends that has no result; the store and the ledger have the same words."""
    extra = job.extra
    if extra is not None and not extra.accepted:
        return REFUSED
    if failure.reason == jobs.CANCELLED:
        return WITHDRAWN
    if failure.reason == jobs.EXHAUSTED and extra is not None and extra.durable and extra.added:
        return DEAD
    return FAILED
