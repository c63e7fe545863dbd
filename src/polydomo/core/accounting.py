"""Accounting: what is alive, what it takes, what ended how, and what must be refused for that."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from polydomo.core import failure as reasons
from polydomo.core.counts import Counts
from polydomo.core.failure import Failure
from polydomo.core.model import JOB_COST, Client, Job, Service
from polydomo.core.policy import RESERVE
from polydomo.core.ports import Journal
from polydomo.core.principals import Principal, Principals
from polydomo.core.quotas import Quotas
from polydomo.core.services import SERVICE_NAME_MAX, Services, is_good_name, is_question
from polydomo.core.states import (
    BURY,
    DEAD,
    DONE,
    FAIL,
    FINISH,
    FINISHED,
    NEXT,
    REFUSE,
    REFUSED,
    WITHDRAW,
    WITHDRAWN,
)
from polydomo.core.timers import Clock
from polydomo.core.tracked_job import TRACKED_COST, TrackedJob

# How many ended jobs are remembered.
RECENT: Final = 1000


class Accounting:
    """The counters of a broker, its memory, and the flow control of its clients."""

    def __init__(self, clock: Clock, services: Services, principals: Principals, quotas: Quotas) -> None:
        self.journal: Journal | None = None
        self.draining = False
        self.active = 0  # jobs accepted and not ended
        self.memory = 0  # bytes they take: bodies, envelopes, and about what the objects around them do
        self.memory_limit = 0  # what they may have; less where the owner needs a part of it
        self.open_memory = 0  # of this, what may be anybody's
        self.numbered = 0  # requests that ever came, jobs and questions
        self.questions = 0  # of these, for the broker itself: they are in none of the counts below
        self.open_questions = 0  # of the active ones, the same
        self.undecided = 0  # of the active ones, those that are being stored, so neither accepted nor refused
        self.totals = Counts()  # of all services
        self.strays = 0  # replies to attempts that their worker never had
        self.recent: deque[Job] = deque(maxlen=RECENT)
        self.stalled: dict[Client, None] = {}  # clients that wait for the store to catch up
        self._clock = clock
        self._services = services
        self._principals = principals
        self._quotas = quotas
        quotas.on_release = self.maybe_release
        self.limit_memory(services.limits.memory)

    @property
    def submitted(self) -> int:
        """Return how many jobs ever came, those recovered at the start among them.

        That is accepted + refused + undecided; or, by their ends, done + failed + cancelled + dead + repeated + refused
        + active.
        """
        return self.numbered - self.questions

    @property
    def accepted(self) -> int:
        """Return how many jobs were taken."""
        return self.numbered - self.questions - self.totals.refused - self.undecided

    def limit_memory(self, limit: int) -> None:
        """Set how many bytes all jobs may take together."""
        self.memory_limit = limit
        self.open_memory = limit - limit // RESERVE

    def admit(self, job: Job, targeted: bool, denial: Failure | None) -> bool:
        """Count a new job, and hold its client if that has too much unanswered. False: it was refused.

        `denial`: why it is not allowed.
        """
        client = job.client
        service = job.service
        principal = client.principal
        if (
            denial is not None
            or self.memory > self.open_memory
            or self.draining
            or service.queue.waiting + service.pinned_jobs >= service.policy.open_queue
            or principal.quota is not None
            or not service.workers
        ) and (denial is not None or self._must_refuse(job, targeted)):
            self.refuse(job, denial)
            return False
        cost = job.size + JOB_COST
        self.active += 1
        self.memory += cost
        principal.jobs += 1
        principal.memory += cost
        client.total += 1
        client.jobs += 1
        client.size += job.size
        limits = self._services.limits
        if (
            client.jobs > limits.client_jobs
            or client.size > limits.client_bytes
            or (client.shadow is not None and client.size + client.shadow.size > limits.client_bytes)
        ):
            client.held = True
            client.port.hold()
        if principal.quota is not None:
            self._quotas.submitted(client)
        return True

    def why_not_stored(self, job: Job) -> Failure | None:
        """Return why a durable job must be refused for its principal's quota on disk; None: it need not."""
        principal = job.client.principal
        spent = self._quotas.storing(principal, job.size)
        if not spent:
            return None
        principal.refused += 1
        return Failure(reasons.QUOTA, spent)

    def resumed(self, job: Job) -> None:
        """Count a job that was accepted before the broker's restart."""
        self.active += 1
        client = job.client
        client.jobs += 1
        client.size += job.size
        client.principal.jobs += 1
        self.take(client.principal, job.size + JOB_COST)

    def take(self, principal: Principal, size: int) -> None:
        """Count bytes that a principal's jobs take, fewer if negative."""
        self.memory += size
        principal.memory += size

    def asked(self, job: Job) -> None:
        """Count a question to the broker itself."""
        self.questions += 1
        self.open_questions += 1
        job.client.questions += 1

    def accept(self, job: TrackedJob) -> None:
        """Count a tracked job as accepted."""
        if not job.accepted:
            job.accepted = True
            self.undecided -= 1

    def ended(self, job: Job, failure: Failure | None) -> None:
        """Count a job that has ended. What is remembered of it keeps no bodies."""
        job.finished = self._clock.now
        job.failure = failure
        service = job.service
        self.active -= 1
        cost = job.size + JOB_COST
        usual = failure is None and not service.internal and not job.hops
        if job.tracked and isinstance(job, TrackedJob):
            cost += TRACKED_COST
            usual = usual and job.accepted and not job.repeats
        if usual:
            job.state = FINISHED[job.state]
            self.totals.done += 1
            service.counts.done += 1
        else:
            self._count_end(job, failure)
        job.body = job.envelope = b""
        self.recent.append(job)
        if self.journal is not None:
            self.journal.finished(job)
        if failure is not None:
            failure.forget()
        client = job.client
        client.jobs -= 1
        client.size -= job.size
        principal = client.principal
        principal.jobs -= 1
        principal.memory -= cost
        self.memory -= cost
        if client.held:
            self.maybe_release(client)
        if principal.throttled:
            self._quotas.ended(principal)
        if not service.workers:
            self._services.drop_if_unused(service)

    def part_ended(self, job: TrackedJob, failure: Failure | None) -> None:
        """Count a part of a job for several workers: only the whole is in the counts."""
        job.finished = self._clock.now
        job.failure = failure
        job.state = NEXT[job.state][FINISH if failure is None else _ending(job, failure)]
        self.take(job.client.principal, -(job.size + JOB_COST + TRACKED_COST))
        job.body = b""
        if self.journal is not None:
            self.journal.finished(job)
        if not job.service.workers:
            self._services.drop_if_unused(job.service)

    def refuse(self, job: Job, failure: Failure | None) -> None:
        """End a job that cannot be taken, and tell its client why. Without a failure the broker has no room for it."""
        service = job.service
        if service.internal:
            self.questions += 1
        else:
            self._count(job, REFUSED)
        job.state = NEXT[job.state][REFUSE]
        job.finished = self._clock.now
        if failure is None:
            failure = self._why_refused(job)
        job.failure = failure
        job.client.port.failed(job, failure)
        job.body = job.envelope = b""
        self.recent.append(job)
        if self.journal is not None:
            self.journal.finished(job)
        if self._services.get(service.name) is not service:
            self._services.retire(service)

    def why_not_queued(self, service: Service) -> Failure:
        """Return why no job can wait for a service."""
        waiting = service.waiting()
        if waiting >= service.policy.queue:
            return Failure(reasons.QUEUE_FULL, f"{waiting} jobs wait for this service already")
        if not is_good_name(service.name):
            return Failure(reasons.BAD_SERVICE, f"a service name has 1 to {SERVICE_NAME_MAX} bytes")
        return Failure(reasons.TOO_MANY_SERVICES, f"{len(self._services)} services are known already")

    def resized(self, job: Job, size: int) -> None:
        """Count a job that has another body now."""
        client = job.client
        self.take(client.principal, size - job.size)
        client.size += size - job.size
        job.size = size
        if client.held:
            self.maybe_release(client)

    def retried(self, job: Job) -> None:
        """Count a lost attempt that is made again."""
        job.service.counts.retried += 1
        self.totals.retried += 1

    def forwarded(self, job: Job) -> None:
        """Count a job that leaves its service for another."""
        job.service.counts.forwarded += 1
        self.totals.forwarded += 1

    def hand_over(self, job: Job, client: Client) -> None:
        """Make a job that is in no queue another client's of the same principal."""
        old = job.client
        old.jobs -= 1
        old.size -= job.size
        client.jobs += 1
        client.size += job.size
        job.client = client
        if old.held:
            self.maybe_release(old)

    def maybe_release(self, client: Client) -> None:
        """Let a held client go on if it has at most half of what it may have unanswered, and its principal has room.

        The end of a shadow's job makes room for the client whose shadow it is.
        """
        if client.casts is not None:
            client = client.casts
        if not client.held or client.throttled:
            return
        limits = self._services.limits
        size = client.size if client.shadow is None else client.size + client.shadow.size
        if client.jobs * 2 <= limits.client_jobs and size * 2 <= limits.client_bytes:
            client.held = False
            if not client.stalled:
                client.port.release()

    def stall(self, client: Client) -> None:
        """Take nothing more from a client until `unstall`: its jobs would only wait to be written."""
        if not client.gone:
            client.stalled = True
            self.stalled[client] = None
            client.port.stall()

    def unstall(self, count: int) -> bool:
        """Let `count` clients go on, those that have waited longest first. Return whether there are more."""
        for client in list(islice(self.stalled, count)):
            del self.stalled[client]
            client.stalled = False
            client.port.go_on(client.held)
        return len(self.stalled) > 0

    def _count_end(self, job: Job, failure: Failure | None) -> None:
        if isinstance(job, TrackedJob) and not job.accepted:
            self.undecided -= 1
        state = NEXT[job.state][FINISH if failure is None else _ending(job, failure)]
        job.state = state
        if is_question(job):
            self.open_questions -= 1
        else:
            self._count(job, state)

    def _count(self, job: Job, state: int) -> None:
        """Count a job that ended so; at no service if it was forwarded to the broker itself."""
        counts = self._services.past.others if job.service.internal else job.service.counts
        for one in (self.totals, counts):
            if state == REFUSED:
                one.refused += 1
            elif isinstance(job, TrackedJob) and job.repeats:
                one.repeated += 1
            elif state == DONE:
                one.done += 1
            elif state == WITHDRAWN:
                one.cancelled += 1
            elif state == DEAD:
                one.dead += 1
            else:
                one.failed += 1

    def _must_refuse(self, job: Job, targeted: bool) -> bool:
        """Return whether there is no room for a job.

        The broker's own services are answered in every state: people want to see why it is full.
        """
        service = job.service
        principal = job.client.principal
        return (
            (
                (self.draining or self.memory > self.open_memory)
                and not service.internal
                and (self.draining or self._why_no_memory(service, principal) != "")
            )
            or (
                service.queue.waiting + service.pinned_jobs >= service.policy.open_queue
                and (not service.idle or targeted)
                and self._why_no_place(service, principal) != ""
            )
            or (
                principal.quota is not None
                and not service.internal
                and self._quotas.refusal(principal, job.size) != ""
            )
            or (
                not service.workers and not self._services.may_wait(service)
            )  # last: it makes the service known
        )

    def _why_refused(self, job: Job) -> Failure:
        service = job.service
        principal = job.client.principal
        if not service.internal:
            if self.draining:
                return Failure(reasons.DRAINING, "the broker is stopping")
            if self.memory > self.open_memory:
                why = self._why_no_memory(service, principal)
                if why:
                    return Failure(reasons.NO_MEMORY, why)
            spent = self._quotas.refusal(principal, job.size)
            if spent:
                principal.refused += 1
                self._quotas.hold(job.client)
                return Failure(reasons.QUOTA, spent)
        why = self._why_no_place(service, principal)
        return Failure(reasons.QUEUE_FULL, why) if why else self.why_not_queued(service)

    def _why_no_memory(self, service: Service, principal: Principal) -> str:
        """Return why the rest of the memory is not for this job; empty if it is. Only beyond `open_memory`.

        The last part is for jobs that will be done soon, and for principals that have less than what is left. So
        neither jobs that nobody works on nor those of one principal can keep everybody else's out.
        """
        if self.memory > self.memory_limit:
            return f"the broker holds more than {self.memory_limit} bytes of jobs"
        if not service.workers:
            return "no worker offers this service, and the broker's memory is nearly full of jobs"
        if self._principals.several() and principal.memory > self.memory_limit - self.memory:
            return (
                f"the broker's memory is nearly full, and {principal.name} has {principal.memory} bytes of it"
            )
        return ""

    def _why_no_place(self, service: Service, principal: Principal) -> str:
        """Return why the rest of the queue is not for this principal; empty if it is, or if there is enough room.

        The last part is for principals that have less than what is left.
        """
        waiting = service.waiting()
        limit = service.policy.queue
        if waiting >= limit:
            return f"{waiting} jobs wait for this service already"
        if (
            waiting >= service.policy.open_queue
            and self._principals.several()
            and principal.jobs > limit - waiting
        ):
            return f"{waiting} jobs wait for this service already, and the rest of its queue is for others"
        return ""


def _ending(job: Job, failure: Failure) -> int:
    """Return the event that ends a job without a result; the store and the ledger have the same words."""
    if isinstance(job, TrackedJob) and not job.accepted:
        return REFUSE
    if failure.reason == reasons.CANCELLED:
        return WITHDRAW
    if failure.reason == reasons.EXHAUSTED and isinstance(job, TrackedJob) and job.durable and job.added:
        return BURY
    return FAIL
