"""Tracked jobs: their way through the features, their subscribers, and their end.

A tracked job passes every feature twice: before it is accepted (`on_submit`) and before it goes to a worker
(`on_ready`). A feature that takes it calls `proceed` later, and the job goes on with the next feature. When it has a
result or a failure, a feature may hold it again (`on_conclude`), until that is on disk.

`Tracking` is also the interface of the core to features: they hold, release, fail and conclude jobs through it.
"""

from __future__ import annotations

from collections.abc import Callable

from polydomo.core import failure as reasons
from polydomo.core.accounting import Accounting
from polydomo.core.failure import Failure
from polydomo.core.features.feature import LATER, PASS, TAKEN, Features
from polydomo.core.model import JOB_COST, Client, Job, Service
from polydomo.core.ports import JobStorePort
from polydomo.core.principals import Principals
from polydomo.core.scheduler import JobHooks, Scheduler
from polydomo.core.services import Services
from polydomo.core.states import NEXT, READY, RECORDING, RELEASE, RUNNING, STORING, WAITING
from polydomo.core.timers import Clock, TimerHeap
from polydomo.core.tracked_job import NO_OPTIONS, TRACKED_COST, Options, TrackedJob


class Tracking(JobHooks):
    """All tracked jobs of a broker."""

    scheduler: Scheduler  # set by the broker: the scheduler needs the hooks first

    def __init__(
        self,
        clock: Clock,
        timers: TimerHeap,
        services: Services,
        accounting: Accounting,
        principals: Principals,
        new_uid: Callable[[], str],
    ) -> None:
        self.clock = clock
        self.timers = timers
        self.services = services
        self.accounting = accounting
        self.principals = principals
        self.features = Features([])
        self.store: JobStorePort | None = None
        self.jobs: dict[str, TrackedJob] = {}  # by id, while they live; a job may have several ids
        self.writing = 0  # jobs that are being stored or recorded
        self._new_uid = new_uid

    def applies(self, service: Service) -> bool:
        """Return whether all jobs of a service are tracked."""
        return any(feature.applies(service) for feature in self.features.all)

    # The way of a job

    def submit(
        self,
        client: Client,
        service: Service,
        body: bytes,
        envelope: bytes,
        options: Options | None,
        attempt_timeout: float,
        denial: Failure | None,
    ) -> TrackedJob | None:
        """Take a request. None: it is refused, and the client has been told, if its dialect can.

        `denial`: why it is not allowed.
        """
        if options is None:
            options = NO_OPTIONS
        accounting = self.accounting
        number = accounting.numbered
        now = self.clock.now
        uid = options.uid or self._new_uid()
        job = TrackedJob(number, client, service, body, envelope, now, options, uid, self.clock.wall(now))
        policy = service.policy
        job.durable = self.store is not None and not policy.volatile and (options.durable or policy.durable)
        job.attempt_timeout = attempt_timeout
        if denial is None and job.durable:
            denial = accounting.why_not_stored(job)
        if not accounting.admit(job, options.target is not None, denial):
            return None
        accounting.take(client.principal, TRACKED_COST)
        accounting.undecided += 1  # until `accept`, or its end
        if job.timeout > 0:
            job.attempt_timeout = job.timeout
        else:
            job.timeout = attempt_timeout
        self.proceed(job)
        return job

    def proceed(self, job: TrackedJob) -> None:
        """Pass the next features; after the last one the job is dispatched or queued."""
        if not job.accepted:
            for feature in self.features.on_submit[job.stage :]:
                job.stage += 1
                if feature.on_submit(job) == TAKEN:
                    return
            self.accept(job)
            job.stage = 0
        for feature in self.features.on_ready[job.stage :]:
            job.stage += 1
            if feature.on_ready(job) == TAKEN:
                return
        self.scheduler.place(job, False)

    def accept(self, job: TrackedJob) -> None:
        """Tell all clients that asked for a job that it is accepted."""
        self.accounting.accept(job)
        for follower in job.followers:
            if not job.durable:
                follower.unsafe = False  # there is nothing on disk to follow
            if not follower.unsafe:
                self.accounting.accept(follower)
        for one in job.subscribers():
            if not one.unsafe:
                one.client.port.accepted(one)
        if job.pinned_worker and job.parent is None:
            self.assign(job, [job.pinned_worker])

    def assign(self, job: TrackedJob, names: list[bytes]) -> None:
        """Tell all clients that asked for a job which workers do it."""
        job.names = names
        for watcher in job.watchers or ():
            watcher.names = names
        for one in job.subscribers() if job.followers else [job]:
            if not one.unsafe and not one.client.gone:
                one.client.port.assigned(one, names)

    def partial(self, job: TrackedJob, body: bytes) -> None:
        """Hand on one of several replies."""
        for feature in self.features.on_partial:
            feature.on_partial(job, body)
        for one in job.subscribers():
            one.client.port.partial(one, body)

    def event(self, job: TrackedJob, name: bytes, kind: str, body: bytes) -> None:
        """Hand on an event of the worker `name`. The whole's features hear those of its parts."""
        if job.parent is None:
            for feature in self.features.on_event:
                feature.on_event(job, name, kind, body)
        for one in job.subscribers():
            one.client.port.event(one, name, kind, body)

    def replied(self, job: TrackedJob, body: bytes) -> None:
        """Conclude a job whose worker has sent its last reply."""
        for feature in self.features.on_reply:
            feature.on_reply(job, body)
        self.conclude(job, body)

    def conclude(self, job: TrackedJob, body: bytes) -> None:
        """End a job with a result, as soon as no feature objects."""
        job.result = body
        self._conclude(job)

    def failed(self, job: TrackedJob, failure: Failure) -> None:
        """End a job with a failure, as soon as no feature objects."""
        for feature in self.features.all:
            feature.on_failure(job, failure)
        job.failure = failure
        self._conclude(job)

    def finish(self, job: TrackedJob) -> None:
        """Tell the clients of a job and of its followers how it ended."""
        followers = job.followers
        job.followers = []
        for follower in followers:
            self.release(follower)
            if job.accepted:
                self.accounting.accept(follower)
        self.end([job, *followers], job.result, job.failure)
        job.result = None

    def end(self, ended: list[TrackedJob], body: bytes | None, failure: Failure | None) -> None:
        """Tell all clients, then the accounting, then those that wait for the end."""
        for job in ended:
            for feature in self.features.on_end:
                feature.on_end(job, body, failure)
            self.tell(job, body, failure)
            if job.watchers:
                watchers = job.watchers
                job.watchers = None
                for one in watchers:
                    self.tell(one, body, failure)
        for job in ended:
            if job.parent is None:
                self.accounting.ended(job, failure)
            else:
                self.accounting.part_ended(job, failure)
        for job in ended:
            if job.waiters:
                waiters = job.waiters
                job.waiters = None
                for waiter in waiters:
                    waiter()

    def tell(self, job: Job, body: bytes | None, failure: Failure | None) -> None:
        """Tell a job's client, if it is here, how the job ended."""
        if job.client.gone:
            return
        if failure is not None:
            job.client.port.failed(job, failure)
        elif body is not None:
            job.client.port.final(job, body)

    # For features

    def hold(self, job: Job, event: int) -> None:
        """Take a job out of everything: it is in no queue and with no worker until `release`."""
        job.state = NEXT[job.state][event]
        job.service.held += 1
        if job.state in (STORING, RECORDING):
            self.writing += 1
        self.services.keep(job.service)

    def release(self, job: Job) -> None:
        """End `hold`: the job is ready for what comes next."""
        job.service.held -= 1
        if job.state in (STORING, RECORDING):
            self.writing -= 1
        job.state = NEXT[job.state][RELEASE]

    def stand_in(
        self, job: TrackedJob, client: Client, service: Service, body: bytes, options: Options
    ) -> TrackedJob:
        """Return a job with the id of another, for a client that has a part in that or watches it."""
        now = self.clock.now
        return TrackedJob(job.id, client, service, body, b"", now, options, job.uid, job.submitted_wall)

    def part_of(self, whole: TrackedJob, index: int, client: Client, service: Service) -> TrackedJob:
        """Return a job that is one part of another. It has the whole's body, and is in no counts."""
        options = Options(priority=whole.priority, timeout=whole.timeout, wait=whole.own_wait)
        part = self.stand_in(whole, client, service, whole.body, options)
        part.size = 0  # the body is the whole's
        self.accounting.take(client.principal, JOB_COST + TRACKED_COST)
        part.accepted = True  # as the whole was
        part.parent = whole
        part.part = index
        part.attempt_timeout = part.timeout
        return part

    def cancel(self, job: Job, failure: Failure | None = None) -> bool:
        """End a job that is not wanted any more. False: it is too late."""
        if failure is None:
            failure = Failure(reasons.CANCELLED, "it was cancelled")
        if job.state == WAITING:
            self.scheduler.unqueue(job)
        elif job.state == RUNNING and job.worker is not None:
            self.scheduler.revoke(job)
        elif job.state == READY:
            return isinstance(job, TrackedJob) and self._cancel_soon(job, failure)
        else:
            decision = PASS
            for feature in self.features.all:
                decision = feature.on_cancel(job, failure)
                if decision != PASS:
                    break
            if decision != TAKEN:
                return decision == LATER
        self.scheduler.fail(job, failure)
        return True

    # Hooks of the scheduler

    def dispatched(self, job: TrackedJob) -> None:
        for feature in self.features.on_dispatch:
            feature.on_dispatch(job)
        if job.names is None and job.parent is None and job.worker is not None:
            self.assign(job, [job.worker.name])

    def held_before_retry(self, job: Job) -> bool:
        return any(feature.on_retry(job) == TAKEN for feature in self.features.all)

    def holder_of(self, job: TrackedJob) -> bytes:
        for feature in self.features.all:
            name = feature.pin(job)
            if name:
                return name
        return b""

    # Stopping

    def is_writing(self) -> bool:
        """Return whether something has to reach the disk before the broker may stop."""
        return self.writing > 0 or any(feature.is_writing() for feature in self.features.all)

    def close(self) -> None:
        """End what cannot end any more."""
        for feature in self.features.all:
            feature.on_close()

    # Inside

    def _cancel_soon(self, job: TrackedJob, failure: Failure) -> bool:
        """Cancel a job whose client is just being told of it: it ends before it goes to a worker."""
        if job.result is not None or job.failure is not None:
            return False
        job.cancelled = failure
        return True

    def _conclude(self, job: TrackedJob) -> None:
        for feature in self.features.on_conclude:
            if feature.on_conclude(job) == TAKEN:
                return
        self.finish(job)
