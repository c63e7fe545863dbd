"""Idempotency: of jobs with one id, or with one key at one service, only the first is run.

Those that come while it is under way follow it and share its end. Those that come later get the end that is
remembered, in memory for ids and on disk for keys of durable jobs. The same id or key with another body is refused: it
is another request, and would get an answer that is not its own.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.features.feature import PASS, TAKEN, Feature
from polydomo.core.result_history import JobResult, ResultHistory
from polydomo.core.states import ENDS, STORE
from polydomo.core.targets import ALL, Target
from polydomo.core.tracked_job import TrackedJob
from polydomo.core.tracking import Tracking

# The target of a job that gets the gathered result of an earlier one.
LIKE_ALL: Final = Target(ALL)

# Why a job is refused that seems to repeat another.
_REFUSED: Final = (reasons.STORE, reasons.DUPLICATE, reasons.KEY_REUSED)

# Failures after which the same id may come again.
_NOTHING_HAPPENED: Final = (
    reasons.DRAINING,
    reasons.STORE,
    reasons.QUEUE_FULL,
    reasons.CLIENT_GONE,
    reasons.KEY_REUSED,
)


class Dedup(Feature):
    """Finds jobs that are the same."""

    def __init__(self, tracking: Tracking) -> None:
        self.keys: dict[tuple[str, bytes, bytes], TrackedJob] = {}  # by owner, service and key: what is run
        self.history = ResultHistory()
        self._tracking = tracking

    def on_submit(self, job: TrackedJob) -> int:
        if job.user_named and self._is_known(job):
            return TAKEN
        self._tracking.jobs[job.uid] = job
        if not job.key:
            return PASS
        job.request = digest_of(job.body)
        name = _key_of(job)
        leader = self.keys.get(name)
        if leader is not None:
            if leader.request != job.request:
                job.durable = False
                self._tracking.end([job], None, key_reused())
                return TAKEN
            self._follow(leader, job, True)
            return TAKEN
        self.keys[name] = job
        store = self._tracking.store
        if not job.durable or store is None:
            return PASS
        self._tracking.hold(job, STORE)
        store.look_up(job)
        return TAKEN

    def on_end(self, job: TrackedJob, body: bytes | None, failure: Failure | None) -> None:
        if job.key and self.keys.get(_key_of(job)) is job:
            del self.keys[_key_of(job)]
        jobs = self._tracking.jobs
        if jobs.get(job.uid) is job:
            del jobs[job.uid]
            if job.user_named:
                self._remember(job, body, failure)
            for alias in job.aliases or ():
                jobs.pop(alias, None)

    def on_close(self) -> None:
        failure = Failure(reasons.DRAINING, "the broker stopped before there was an answer")
        for leader in [*self.keys.values(), *self._tracking.jobs.values()]:
            followers = leader.followers
            leader.followers = []
            for job in followers:
                self._tracking.release(job)
            if followers:
                self._tracking.end(followers, None, failure)

    def looked_up(
        self, job: TrackedJob, body: bytes | None, failure: Failure | None, worker: bytes, gathered: bool
    ) -> None:
        """Take the end of an earlier job with the same key or id; without body and failure there was none."""
        self._tracking.release(job)
        if body is None and failure is None:
            self._tracking.proceed(job)
            return
        job.durable = False  # the earlier one's record is the record
        job.repeats = failure is None or failure.reason not in _REFUSED
        for one in [job, *job.followers]:
            one.unsafe = False
            one.target = LIKE_ALL if gathered else None
        job.result = body
        job.failure = failure
        if failure is None:
            self._tracking.accept(job)
            self._tracking.assign(job, [worker] if worker else [])
        elif job.repeats:
            self._tracking.accounting.accept(job)
        self._tracking.finish(job)

    def aliased(self, job: TrackedJob, failure: Failure | None) -> None:
        """Accept a follower whose id leads to its leader on disk, or refuse it because that could not be written."""
        if not job.unsafe or job.state in ENDS:
            return
        job.unsafe = False
        leader = job.leader
        if leader is None:
            return
        if failure is None:
            if leader.accepted:
                self._accept_follower(job, leader)
        elif job in leader.followers:
            leader.followers.remove(job)
            self._tracking.release(job)
            job.durable = False
            self._tracking.end([job], None, failure)

    def on_restore(self, job: TrackedJob) -> None:
        self._tracking.jobs[job.uid] = job
        if job.key:
            job.request = digest_of(job.body)
            self.keys[_key_of(job)] = job

    def restore_alias(self, uid: str, alias: str) -> None:
        """Know a job of before the restart by another id, too."""
        jobs = self._tracking.jobs
        job = jobs.get(uid)
        if job is not None and alias not in jobs:
            if job.aliases is None:
                job.aliases = []
            job.aliases.append(alias)
            jobs[alias] = job

    def _is_known(self, job: TrackedJob) -> bool:
        """Follow, repeat or refuse a job whose id is known."""
        tracking = self._tracking
        leader = tracking.jobs.get(job.uid)
        if leader is not None:
            if _is_same(leader, job):
                self._follow(leader, job, False)
            else:
                self._reject_duplicate(job)
            return True
        ended = self.history.get(job.uid, tracking.clock.now)
        if ended is None:
            return False
        if (
            ended.owner != job.owner()
            or ended.service != job.requested_service
            or ended.request != hash(job.body)
        ):
            self._reject_duplicate(job)
            return True
        job.durable = False  # the earlier one's record is the record
        job.repeats = True
        job.target = LIKE_ALL if ended.gathered else None
        tracking.accept(job)
        tracking.assign(job, [ended.worker] if ended.worker else [])
        tracking.end([job], ended.body, ended.failure)
        return True

    def _reject_duplicate(self, job: TrackedJob) -> None:
        job.durable = False
        self._tracking.end([job], None, Failure(reasons.DUPLICATE, "there is another job with this id"))

    def _follow(self, leader: TrackedJob, job: TrackedJob, alias: bool) -> None:
        """Run one job, answer two. `alias`: the follower's own id, if it has one, must lead to the leader."""
        leader = leader.leader or leader
        leader.followers.append(job)
        self._tracking.hold(job, STORE)
        job.leader = leader
        job.repeats = True
        job.target = leader.target  # its result has the shape of the leader's
        if alias and leader.durable and job.user_named and self._tracking.store is not None:
            job.unsafe = True
            if leader.added:
                self._tracking.store.alias(leader, job)
        elif leader.accepted:
            self._accept_follower(job, leader)

    def _accept_follower(self, job: TrackedJob, leader: TrackedJob) -> None:
        self._tracking.accounting.accept(job)
        if not job.client.gone:
            job.client.port.accepted(job)
            if leader.names is not None:
                job.client.port.assigned(job, leader.names)

    def _remember(self, job: TrackedJob, body: bytes | None, failure: Failure | None) -> None:
        """Keep the end of a job for its client, who may ask for it by its id."""
        if failure is not None:
            if failure.reason in _NOTHING_HAPPENED:
                return
            # A copy: what may be large in it is dropped soon.
            failure = Failure(failure.reason, failure.message, failure.body, failure.detail)
        self.history.keep(
            JobResult(
                job.uid,
                job.requested_service,
                b"" if job.worker is None else job.worker.name,
                body,
                failure,
                job.is_gathered(),
                self._tracking.clock.now + job.service.policy.retention,
                hash(job.body),
                job.owner(),
            )
        )


def digest_of(body: bytes) -> bytes:
    """Return by what a request is compared with another that has the same key."""
    return blake2b(body, digest_size=16).digest()


def key_reused() -> Failure:
    """Return why a job with the key of another request is refused."""
    return Failure(reasons.KEY_REUSED, "another request to this service has this idempotency key")


def _key_of(job: TrackedJob) -> tuple[str, bytes, bytes]:
    return job.owner(), job.requested_service, job.key


def _is_same(leader: TrackedJob, job: TrackedJob) -> bool:
    """Return whether a job with the id of another repeats it."""
    return (
        leader.owner() == job.owner()
        and leader.requested_service == job.requested_service
        and leader.body == job.body
    )
