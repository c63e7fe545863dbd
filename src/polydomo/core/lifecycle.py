"""Jobs with a longer life than a queue's: durable, keyed, delayed, with a deadline.

A durable job is accepted when its commit is on disk and only then dispatched; its answer, or its failure, goes to its
client when that is on disk too. It does not need its client: whoever asks later finds the result in the store. What
the keeper cannot write now it is told again, so a full disk delays results and loses none.

Which jobs are the same is in `following`, how they come back after a restart in `restoring`, answers that are known in
`memos`, jobs for several workers in `gathering`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core import job as jobs
from polydomo.core.extras import Extra, Options
from polydomo.core.following import LIKE_ALL
from polydomo.core.gathering import Gathers
from polydomo.core.job import (
    DELAYED,
    EXTRA_COST,
    GATHERING,
    RECORDING,
    REMEMBERING,
    RUNNING,
    STORING,
    WAITING,
    Failure,
    Job,
)
from polydomo.core.job_timers import Again, Deadline, Delayed
from polydomo.core.memos import Memos, digest_of
from polydomo.core.policy import FOREVER
from polydomo.core.restoring import Restoring
from polydomo.core.result_history import JobResult
from polydomo.core.targets import ALL, NAMES, RESOURCES, Assignment, Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from polydomo.core.broker import Broker
    from polydomo.core.service import Service

# No pause between two attempts is longer.
LONGEST_PAUSE: Final = 300.0

_NO_OPTIONS: Final = Options()

# Why a job is refused that seems to repeat another.
_NOT_TAKEN: Final = (jobs.STORE, jobs.DUPLICATE)

# Reasons after which a job is as if it had never been there.
_NOTHING_HAPPENED: Final = (jobs.DRAINING, jobs.STORE, jobs.QUEUE_FULL, jobs.CLIENT_GONE)


class Lifecycle(Restoring):
    """See the module's text. Belongs to one broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.epoch = 0.0  # wall time at the core's time 0, for records; set by the owner
        self.gathers = Gathers(self)
        self.memos = Memos(self)

    # From the broker

    def begin(self, job: Job, options: Options | None) -> None:
        """A job that was just accepted."""
        broker = self.broker
        if options is None:
            options = _NO_OPTIONS
        policy = job.service.policy
        durable = self.keeper is not None and not policy.volatile and (options.durable or policy.durable)
        uid = options.uid or broker.new_uid()
        extra = Extra(uid, options, durable, broker.now, self.wall(broker.now))
        job.extra = extra
        broker.memory += EXTRA_COST
        broker.undecided += 1  # until `_accept`, or its end
        if extra.timeout > 0:
            job.limit = extra.timeout
        else:
            extra.timeout = job.limit
        if extra.named and self._known(job, extra):
            return
        self._watch(job, extra)
        if policy.memo and extra.target is None:
            extra.memo = digest_of(job.body)
        if extra.key:
            name = (job.asked, extra.key)
            leader = self.keys.get(name)
            if leader is not None:
                self._follow(leader, job, True)
                return
            self.keys[name] = job
            if durable and self.keeper is not None:
                self.elsewhere(job, STORING)
                self.keeper.look_up(job)
                return
        if extra.memo and not (durable and (extra.named or extra.key)):
            memo = self.memos.known(job)
            if memo is not None:
                extra.durable = False  # it needs no record: there is nothing left to be done
                self._accept(job)
                self.memos.answer(job, memo)
                return
        self._keep(job)

    def dispatched(self, job: Job) -> None:
        """It goes to a worker now."""
        extra = job.extra
        if extra is None or job.worker is None:
            return
        if extra.resource:
            self._unwanted(job, extra)
        if extra.durable and self.keeper is not None:
            extra.number += 1
            self.keeper.attempt(job)
        if extra.names is None and extra.parent is None:
            self.assign(job, [job.worker.name])

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        """A worker says how it goes on."""
        extra = job.extra
        if extra is None or extra.parent is not None:
            if not job.client.gone:
                job.client.port.event(job, name, kind, body)
            return
        if extra.durable and self.keeper is not None:
            self.keeper.event(job, name, kind, body)
        for one in self.subscribers(job):
            one.client.port.event(one, name, kind, body)

    def partial(self, job: Job, body: bytes) -> None:
        """One of several answers came."""
        if job.extra is not None and job.extra.durable and self.keeper is not None:
            self.keeper.partial(job, body)
        for one in self.subscribers(job):
            one.client.port.partial(one, body)

    def answered(self, job: Job, body: bytes) -> None:
        """Its worker has answered."""
        if job.extra is not None and job.extra.memo:
            self.memos.landed(job, body)
        self.conclude(job, body)

    def conclude(self, job: Job, body: bytes) -> None:
        """It has an answer."""
        extra = job.extra
        if extra is None:
            return
        extra.result = body
        if extra.durable:
            self._record(job)
        else:
            self._finish(job)

    def failed(self, job: Job, failure: Failure) -> None:
        """It will have no result."""
        if job.extra is not None and job.extra.memo:
            self.memos.crashed(job, failure)
        job.failure = failure
        if job.extra is not None and job.extra.durable:
            self._record(job)
        else:
            self._finish(job)

    def survives_client(self, job: Job) -> bool:
        """Is it worth running although its client is gone?"""
        extra = job.extra
        if extra is None:
            return False
        if extra.parent is not None:
            return not extra.parent.client.gone or self.survives_client(extra.parent)
        return extra.durable or len(extra.followers) > 0

    def kept(self, job: Job) -> bool:
        """Is it, or what it is a part of, safe on disk?"""
        extra = job.extra
        if extra is None:
            return False
        return extra.durable or (extra.parent is not None and self.kept(extra.parent))

    def expiry(self, job: Job) -> float:
        """When waiting that begins now ends. A durable job waits for ever unless its client said otherwise; its
        deadline has an alarm of its own."""
        if self.kept(job) and (job.extra is None or job.extra.wait < 0):
            return FOREVER
        return self.broker.now + self.broker.patience(job)

    def pause_before_retry(self, job: Job) -> None:
        """Exponential back-off with jitter: up to half of the pause is random."""
        pause = min(job.service.policy.backoff * 2.0 ** (job.attempt - 1), LONGEST_PAUSE)
        self._delay(job, self.broker.now + pause * (0.5 + self.broker.random() / 2))

    def cancel(self, job: Job, failure: Failure | None = None) -> bool:
        """Nobody wants it any more. False if it is too late."""
        if job.state == WAITING:
            line = None if job.extra is None else job.extra.line
            (line or job.service).remove(job)
        elif job.state == GATHERING:
            self.gathers.cancel(job)
        elif job.state == RUNNING and job.worker is not None:
            self.broker.revoke(job)
        elif job.state == REMEMBERING:
            self.memos.leave(job)
            self.back(job)
        elif job.state == DELAYED:
            self.orphans.pop(job.token, None)
            self.back(job)
        elif job.state == STORING and job.extra is not None and job.extra.leader is None:
            job.extra.unwanted = failure or Failure(jobs.CANCELLED, "it was cancelled")
            return True  # it ends as soon as it is on disk: what was promised of it is true by then
        else:
            return False
        self.broker.fail_job(job, failure or Failure(jobs.CANCELLED, "it was cancelled"))
        return True

    def pause(self, service: Service) -> None:
        """Give its jobs to nobody until `resume`."""
        service.paused = True
        service.idle.clear()

    def resume(self, service: Service) -> None:
        """Go on."""
        service.paused = False
        for worker in list(service.workers):
            self.broker.offer(worker)
        if service.wakeup is not None:
            for job in service.jobs():
                service.wakeup.wanted(service, job)

    def close(self) -> None:
        """The broker stops: who waits for something that is not on disk is told."""
        for job in list(self.delayed):
            if not self.kept(job):
                self.cancel(job, Failure(jobs.DRAINING, "the broker stopped before its time came"))
        for job in list(self.jobs.values()):
            if job.state == GATHERING and not self.kept(job):
                self.cancel(job, Failure(jobs.DRAINING, "the broker stopped before all had answered"))
        for job in list(self.jobs.values()):
            if job.state == REMEMBERING and not self.kept(job):
                self.cancel(job, Failure(jobs.DRAINING, "the broker stopped before there was an answer"))
        for leader in [*self.keys.values(), *self.jobs.values()]:
            if leader.extra is not None and leader.extra.followers:
                followers = leader.extra.followers
                leader.extra.followers = []
                failure = Failure(jobs.DRAINING, "the broker stopped before there was an answer")
                for job in followers:
                    self.back(job)
                self._end(followers, None, failure)

    # From the keeper

    def stored(self, job: Job, failure: Failure | None) -> None:
        """Its commit is on disk, or cannot be."""
        extra = job.extra
        if extra is None:
            return
        self.back(job)
        if failure is not None:
            extra.durable = False  # there is nothing on disk to be changed
            self.broker.fail_job(job, failure)
            return
        self._accept(job)
        self._place(job)

    def looked_up(
        self,
        job: Job,
        body: bytes | None,
        failure: Failure | None,
        worker: bytes = b"",
        gathered: bool = False,
    ) -> None:
        """What became of an earlier job with its key or id; both None: there was none."""
        extra = job.extra
        if extra is None:
            return
        self.back(job)
        if body is None and failure is None:
            self._keep(job)
            return
        extra.durable = False  # the earlier one's record is the record
        extra.repeats = failure is None or failure.reason not in _NOT_TAKEN
        for one in [job, *extra.followers]:
            if one.extra is not None:
                one.extra.unsafe = False
                one.extra.target = LIKE_ALL if gathered else None
        extra.result = body
        job.failure = failure
        if failure is None:
            self._accept(job)
            self.assign(job, [worker] if worker else [])
        elif extra.repeats:
            self._taken(extra)
        self._finish(job)

    def recorded(self, job: Job, failure: Failure | None) -> None:
        """Its end is on disk, or cannot be at the moment."""
        if failure is not None:
            Again(self, job)
            return
        self.back(job)
        self._finish(job)

    def convened(self, job: Job, places: list[Assignment]) -> None:
        """A job for all workers has found some."""
        extra = job.extra
        if extra is not None:
            extra.places = places
            if extra.durable and self.keeper is not None:
                self.keeper.convened(job)
            self.gathers.start(job, places)

    def recall(self, uid: str, then: Callable[[JobResult | None], None]) -> None:
        """How a job ended, from memory or from the disk."""
        ended = self.results.get(uid, self.broker.now)
        if ended is not None or self.keeper is None:
            then(ended)
        else:
            self.keeper.read(uid, then)

    def wall(self, now: float) -> int:
        """The core's time as microseconds of wall time."""
        return int((now + self.epoch) * 1_000_000)

    def due(self, job: Job) -> None:
        """A delayed job's time has come."""
        self.orphans.pop(job.token, None)
        self.back(job)
        self.start(job, job.attempt > 0)

    # Inside

    def _keep(self, job: Job) -> None:
        """Store it if it is durable, then it may be dispatched."""
        extra = job.extra
        if extra is not None and extra.target is not None and not self._address(job, extra, extra.target):
            return
        if extra is not None and extra.durable and self.keeper is not None:
            self.elsewhere(job, STORING)
            extra.added = True
            self.keeper.add(job)
            if self.keeper.behind():
                self.broker.stall(job.client)
            for follower in list(extra.followers):
                if follower.extra is not None and follower.extra.unsafe:
                    self.keeper.alias(job, follower)
        else:
            for follower in extra.followers if extra is not None else []:
                if follower.extra is not None:
                    follower.extra.unsafe = False  # there is nothing on disk to follow
            self._accept(job)
            self._place(job)

    def _address(self, job: Job, extra: Extra, target: Target) -> bool:
        """Whom it is for. False: for nobody, and it is refused."""
        if target.kind in (NAMES, RESOURCES) and not target.names:
            extra.durable = False
            self.broker.fail_job(job, Failure(jobs.BAD_TARGET, "it is addressed to nobody"))
            return False
        if target.single:
            if target.everywhere:
                places = self.gathers.find_places(job, target)
                if not places:
                    extra.durable = False
                    self.broker.fail_job(job, Failure(jobs.BAD_TARGET, "there is no worker of this name"))
                    return False
                self.broker.move(job, places[0].service)
            if target.kind == NAMES:
                extra.worker = target.names[0]
            else:
                extra.resource = target.names[0]
            return True
        extra.places = self.gathers.find_places(job, target)
        if not extra.places and (target.everywhere or target.kind != ALL):
            extra.durable = False
            self.broker.fail_job(job, Failure(jobs.BAD_TARGET, "there are no such workers"))
            return False
        return True

    def _unwanted(self, job: Job, extra: Extra) -> None:
        """It waits for its resource no longer."""
        waiting = job.service.wanted.get(extra.resource)
        if waiting is not None:
            waiting.pop(job, None)
            if not waiting:
                del job.service.wanted[extra.resource]

    def _place(self, job: Job) -> None:
        extra = job.extra
        if extra is not None and extra.deadline <= self.broker.now:  # it passed while the disk was written
            self.broker.fail_job(job, Failure(jobs.DEADLINE, "its deadline passed"))
        elif extra is not None and extra.unwanted is not None:
            self.broker.fail_job(job, extra.unwanted)
        elif extra is not None and extra.ready > self.broker.now:
            self._delay(job, extra.ready)
        else:
            self.start(job, False)

    def start(self, job: Job, first: bool) -> None:
        """Now it may be done."""
        if job.extra is not None and job.extra.several():
            self.gathers.start(job, job.extra.places)
        elif job.extra is None or not job.extra.memo or first or not self.memos.place(job):
            self.broker.place(job, first)

    def _delay(self, job: Job, until: float) -> None:
        self.elsewhere(job, DELAYED)
        timer = Delayed(self, job)
        self.delayed[job] = timer
        self.broker.timers.set(timer, until)

    def _watch(self, job: Job, extra: Extra) -> None:
        """It can be asked for by its id from now on, and must end by its deadline."""
        self.jobs[extra.uid] = job
        if extra.deadline < FOREVER:
            extra.timer = Deadline(self, job)
            self.broker.timers.set(extra.timer, extra.deadline)

    def _record(self, job: Job) -> None:
        if job.extra is not None:
            job.extra.answered = self.broker.now
        self.elsewhere(job, RECORDING)
        if self.keeper is not None:
            self.keeper.finish(job)

    def _finish(self, job: Job) -> None:
        """Tell its client and those who followed it, and close the books."""
        extra = job.extra
        if extra is None:
            return
        if extra.key and self.keys.get((job.asked, extra.key)) is job:
            del self.keys[(job.asked, extra.key)]
        followers = extra.followers
        extra.followers = []
        for one in followers:
            self.back(one)
            if extra.accepted and one.extra is not None:
                self._taken(one.extra)
        self._end([job, *followers], extra.result, job.failure)
        extra.result = None

    def _end(self, subscribers: list[Job], body: bytes | None, failure: Failure | None) -> None:
        """Tell all their clients, then close the books."""
        for job in subscribers:
            extra = job.extra
            if extra is not None and extra.parent is None:
                if self.jobs.get(extra.uid) is job:
                    del self.jobs[extra.uid]
                    if extra.named:
                        self._remember(job, extra, body, failure)
                    for alias in extra.aliases or ():
                        self.jobs.pop(alias, None)
                if extra.timer is not None:
                    self.broker.timers.clear(extra.timer)
            if extra is not None and extra.resource:
                self._unwanted(job, extra)
            self._tell(job, body, failure)
            if extra is not None and extra.watchers:
                watchers = extra.watchers
                extra.watchers = None
                for one in watchers:
                    self._tell(one, body, failure)
        for job in subscribers:
            self.broker.end_job(job, failure)
        for job in subscribers:
            if job.extra is not None and job.extra.waiters:
                waiters = job.extra.waiters
                job.extra.waiters = None
                for ended in waiters:
                    ended()

    def _remember(self, job: Job, extra: Extra, body: bytes | None, failure: Failure | None) -> None:
        """Its client may ask for it by its id. Of a failure a copy: what may be big in it is dropped soon."""
        if failure is not None and failure.reason in _NOTHING_HAPPENED:
            return  # the same id may come again
        if failure is not None:
            failure = Failure(failure.reason, failure.message, failure.body, failure.detail)
        self.results.keep(
            JobResult(
                extra.uid,
                job.asked,
                b"" if job.worker is None else job.worker.name,
                body,
                failure,
                extra.several(),
                self.broker.now + job.service.policy.retention,
                hash(job.body),
            )
        )

    def _tell(self, job: Job, body: bytes | None, failure: Failure | None) -> None:
        if job.client.gone:
            if self.untold:
                self.missed(job)
            return
        if failure is not None:
            job.client.port.failed(job, failure)
        elif body is not None:
            job.client.port.final(job, body)
