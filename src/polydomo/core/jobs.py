"""Jobs by their ids: finding them, how they ended, and hearing of jobs that are another client's."""

from __future__ import annotations

from collections.abc import Callable

from polydomo.core.features.dedup import Dedup
from polydomo.core.features.recovery import Recovery
from polydomo.core.model import Client, Job
from polydomo.core.principals import READ, Principal
from polydomo.core.result_history import JobResult
from polydomo.core.states import ENDS, WAITING
from polydomo.core.tracked_job import NO_OPTIONS, TrackedJob
from polydomo.core.tracking import Tracking


class Jobs:
    """The tracked jobs of a broker, as its clients ask for them."""

    def __init__(self, tracking: Tracking, dedup: Dedup, recovery: Recovery) -> None:
        self.known = tracking.jobs  # all that have not ended, by id; a job may have several ids
        self._tracking = tracking
        self._dedup = dedup
        self._recovery = recovery
        self._principals = tracking.principals

    def is_open(self, uid: str) -> bool:
        """Return whether there is a job with this id that has not ended, whoever owns it."""
        return uid in self.known

    def job_for(self, principal: Principal, uid: str, verb: str) -> TrackedJob | None:
        """Return an unfinished job for which a principal has a verb.

        A job of another principal is reported as unknown, unless the verb is granted for its service: whether a job
        exists is nobody else's business.
        """
        job = self.known.get(uid)
        if job is None or not self.may(principal, verb, job.owner(), job.requested_service):
            return None
        return job

    def owner_of(self, uid: str) -> tuple[str, bytes] | None:
        """Return the owner and the service of a job that is in memory, ended or not."""
        job = self.known.get(uid)
        if job is not None:
            return job.owner(), job.requested_service
        ended = self._dedup.history.get(uid, self._tracking.clock.now)
        return None if ended is None else (ended.owner, ended.service)

    def may(self, principal: Principal, verb: str, owner: str, service: bytes) -> bool:
        """Return whether a principal may do this to a job of `owner` at `service`."""
        return self._principals.may_on_job(principal, verb, owner, service)

    def find_by_key(self, service: bytes, key: bytes) -> list[TrackedJob]:
        """Return the jobs with this idempotency key that have not ended, at most one of each principal."""
        keys = self._dedup.keys
        found = [keys.get((owner, service, key)) for owner in self._principals.known]
        return [job for job in found if job is not None]

    def result_for(self, principal: Principal, uid: str, verb: str = READ) -> JobResult | None:
        """Return how a job ended to which a principal may do this, if that is in memory."""
        ended = self._dedup.history.get(uid, self._tracking.clock.now)
        return self._readable(principal, ended, verb)

    def recall(self, principal: Principal, uid: str, then: Callable[[JobResult | None], None]) -> None:
        """Call `then` with how a job ended that a principal may read, now or when the disk has been read."""
        ended = self.result_for(principal, uid)
        if ended is not None or self._tracking.store is None:
            then(ended)
        else:
            self._tracking.store.read(uid, lambda found: then(self._readable(principal, found)))

    def _readable(self, principal: Principal, ended: JobResult | None, verb: str = READ) -> JobResult | None:
        if ended is None or not self.may(principal, verb, ended.owner, ended.service):
            return None
        return ended

    def when_ended(self, job: Job, then: Callable[[], None]) -> None:
        """Call `then` when a job has ended, and that is safe."""
        if not isinstance(job, TrackedJob) or job.state in ENDS:
            then()
        else:
            if job.waiters is None:
                job.waiters = []
            job.waiters.append(then)

    def watch(self, client: Client, job: TrackedJob) -> TrackedJob:
        """Let a client hear of a job that is not its own. Return what stands for it in those calls; no count has it."""
        leader = job.leader or job
        watching = self._tracking.stand_in(leader, client, leader.service, b"", NO_OPTIONS)
        watching.leader = leader
        watching.target = leader.target
        watching.names = leader.names
        watching.durable = leader.durable
        if leader.watchers is None:
            leader.watchers = []
        leader.watchers.append(watching)
        return watching

    def unwatch(self, watching: TrackedJob) -> None:
        """Stop notifying a watcher."""
        watchers = None if watching.leader is None else watching.leader.watchers
        if watchers is not None and watching in watchers:
            watchers.remove(watching)

    def detach(self, job: Job) -> None:
        """Take a durable job from a client that will be told nothing more of it unasked.

        The job keeps its client from nothing then. Others of the same client are still its neighbours in a queue.
        """
        client = job.client
        if not isinstance(job, TrackedJob) or not job.durable or client.gone:
            return
        shadow = self._recovery.shadow_of(client)
        waits = job.state == WAITING
        if waits:
            self._tracking.scheduler.unqueue(job)
        self._tracking.accounting.hand_over(job, shadow)
        if waits:
            self._tracking.scheduler.place(job, False)
