"""Jobs with a longer life than a queue's: durable, keyed, delayed, with a deadline.

A durable job is accepted when its commit is on disk and only then dispatched; its answer, or its failure, goes to its
client when that is on disk too. It does not need its client: whoever asks later finds the result in the store. What
the keeper cannot write now it is told again, so a full disk delays results and loses none.

Of jobs with one key only the first is run; those that come meanwhile follow it and share its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core import job as jobs
from polydomo.core.alarms import Timed
from polydomo.core.client import Client, Nobody
from polydomo.core.extras import Extra, Options
from polydomo.core.job import DELAYED, DONE, FAILED, RECORDING, RUNNING, STORING, WAITING, Failure, Job
from polydomo.core.policy import FOREVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from polydomo.core.broker import Broker
    from polydomo.core.ports import Keeper
    from polydomo.core.service import Service

# How long to wait before the keeper is told again what it could not write.
TELL_AGAIN: Final = 1.0

# No pause between two attempts is longer.
LONGEST_PAUSE: Final = 300.0

_NO_OPTIONS: Final = Options()


class Lifecycle:
    """See the module's text. Belongs to one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.keeper: Keeper | None = None
        self.epoch = 0.0  # wall time at the core's time 0, for records; set by the owner
        self.new_uid: Callable[[], str] = self._count
        self.random: Callable[[], float] = _half
        self.jobs: dict[str, Job] = {}  # by uid, while they live
        self.keys: dict[tuple[bytes, bytes], Job] = {}  # the one that is run
        self.orphans: dict[bytes, Job] = {}  # running when the broker stopped; by token
        self.delayed: dict[Job, Delayed] = {}
        self.writing = 0  # jobs being stored or recorded
        self._counter = 0

    # From the broker

    def begin(self, job: Job, options: Options | None) -> None:
        """A job that was just accepted."""
        broker = self.broker
        if options is None:
            options = _NO_OPTIONS
        durable = self.keeper is not None and (options.durable or job.service.policy.durable)
        extra = Extra(self.new_uid(), options, durable, broker.now, self.wall(broker.now))
        job.extra = extra
        self._watch(job, extra)
        if extra.key:
            name = (job.asked, extra.key)
            leader = self.keys.get(name)
            if leader is not None and leader.extra is not None:
                leader.extra.followers.append(job)
                self._elsewhere(job, STORING)
                return
            self.keys[name] = job
            if durable and self.keeper is not None:
                self._elsewhere(job, STORING)
                self.keeper.look_up(job)
                return
        self._keep(job)

    def dispatched(self, job: Job) -> None:
        """It goes to a worker now."""
        extra = job.extra
        if extra is not None and extra.durable and self.keeper is not None:
            extra.number += 1
            self.keeper.attempt(job)

    def partial(self, job: Job, body: bytes) -> None:
        """One of several answers came."""
        if job.extra is not None and job.extra.durable and self.keeper is not None:
            self.keeper.partial(job, body)

    def answered(self, job: Job, body: bytes) -> None:
        """Its worker has answered."""
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
        job.failure = failure
        if job.extra is not None and job.extra.durable:
            self._record(job)
        else:
            self._finish(job)

    def outlives(self, job: Job) -> bool:
        """Is it worth running although its client is gone?"""
        return job.extra is not None and (job.extra.durable or len(job.extra.followers) > 0)

    def kept(self, job: Job) -> bool:
        """Is it safe on disk?"""
        return job.extra is not None and job.extra.durable

    def expiry(self, job: Job) -> float:
        """When waiting that begins now ends. A durable job waits for ever; its deadline has an alarm of its own."""
        return FOREVER if self.kept(job) else self.broker.now + job.service.policy.wait

    def pause_before_retry(self, job: Job) -> None:
        """Exponential back-off with jitter: up to half of the pause is random."""
        pause = min(job.service.policy.backoff * 2.0 ** (job.attempt - 1), LONGEST_PAUSE)
        self._delay(job, self.broker.now + pause * (0.5 + self.random() / 2))

    def cancel(self, job: Job, failure: Failure | None = None) -> bool:
        """Nobody wants it any more. False if it is too late."""
        if job.state == WAITING:
            job.service.remove(job)
        elif job.state == RUNNING and job.worker is not None:
            self.broker.take_back(job)
        elif job.state == DELAYED:
            self.orphans.pop(job.token, None)
            self._back(job)
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

    def close(self) -> None:
        """The broker stops: who waits for something that is not on disk is told."""
        for job in list(self.delayed):
            if not self.kept(job):
                self.cancel(job, Failure(jobs.DRAINING, "the broker stopped before its time came"))
        for leader in list(self.keys.values()):
            if leader.extra is not None:
                followers = leader.extra.followers
                leader.extra.followers = []
                failure = Failure(jobs.DRAINING, "the broker stopped before there was an answer")
                for job in followers:
                    self._back(job)
                self._end(followers, None, failure)

    # From the keeper

    def stored(self, job: Job, failure: Failure | None) -> None:
        """Its commit is on disk, or cannot be."""
        extra = job.extra
        if extra is None:
            return
        self._back(job)
        if failure is not None:
            extra.durable = False  # there is nothing on disk to be changed
            self.broker.fail_job(job, failure)
            return
        if not job.client.gone:
            job.client.port.accepted(job)
        self._place(job)

    def looked_up(self, job: Job, body: bytes | None, failure: Failure | None) -> None:
        """What became of an earlier job with its key; both None: there was none."""
        extra = job.extra
        if extra is None:
            return
        self._back(job)
        if body is None and failure is None:
            self._keep(job)
            return
        extra.durable = False  # the earlier one's record is the record
        extra.result = body
        job.failure = failure
        self._finish(job)

    def recorded(self, job: Job, failure: Failure | None) -> None:
        """Its end is on disk, or cannot be at the moment."""
        if failure is not None:
            Again(self, job)
            return
        self._back(job)
        self._finish(job)

    def restore(
        self,
        job: Job,
        uid: str,
        key: bytes,
        ready: float,
        deadline: float,
        submitted: int,
        number: int,
        token: bytes,
    ) -> None:
        """A job that was not finished when the broker stopped; `token` if a worker may still come back with its
        answer. Called in the order in which they were submitted."""
        broker = self.broker
        extra = Extra(uid, _NO_OPTIONS, True, broker.now, submitted)
        extra.key = key
        extra.ready = ready
        extra.deadline = deadline
        extra.number = number
        job.attempt = number
        job.extra = extra
        self._watch(job, extra)
        if key:
            self.keys[(job.asked, key)] = job
        if token and job.service.policy.grace > 0:
            job.token = token
            self.orphans[token] = job
            self._delay(job, broker.now + job.service.policy.grace)
        else:
            self._place(job)

    def claim(self, token: bytes) -> Job | None:
        """A worker answers an attempt of before the restart."""
        job = self.orphans.pop(token, None)
        if job is not None:
            self._back(job)
            job.state = RUNNING
        return job

    def absent(self, name: bytes, dialect: str) -> Client:
        """Stands for a client of before the restart: it is told nothing."""
        client = Client(self.broker, name, dialect, Nobody())
        client.gone = True
        return client

    def wall(self, now: float) -> int:
        """The core's time as microseconds of wall time."""
        return int((now + self.epoch) * 1_000_000)

    def due(self, job: Job) -> None:
        """A delayed job's time has come."""
        self.orphans.pop(job.token, None)
        self._back(job)
        self.broker.place(job, job.attempt > 0)

    # Inside

    def _keep(self, job: Job) -> None:
        """Store it if it is durable, then it may be dispatched."""
        if job.extra is not None and job.extra.durable and self.keeper is not None:
            self._elsewhere(job, STORING)
            self.keeper.add(job)
        else:
            self._place(job)

    def _place(self, job: Job) -> None:
        extra = job.extra
        if extra is not None and extra.deadline <= self.broker.now:  # it passed while the disk was written
            self.broker.fail_job(job, Failure(jobs.DEADLINE, "its deadline passed"))
        elif extra is not None and extra.ready > self.broker.now:
            self._delay(job, extra.ready)
        else:
            self.broker.place(job, False)

    def _delay(self, job: Job, until: float) -> None:
        self._elsewhere(job, DELAYED)
        timer = Delayed(self, job)
        self.delayed[job] = timer
        self.broker.alarms.set(timer, until)

    def _watch(self, job: Job, extra: Extra) -> None:
        """It can be asked for by its id from now on, and must end by its deadline."""
        self.jobs[extra.uid] = job
        if extra.deadline < FOREVER:
            extra.timer = Deadline(self, job)
            self.broker.alarms.set(extra.timer, extra.deadline)

    def _elsewhere(self, job: Job, state: int) -> None:
        """It is in no queue and with no worker for now."""
        job.state = state
        job.service.elsewhere += 1
        if state != DELAYED:
            self.writing += 1
        self.broker.keep_service(job.service)

    def _back(self, job: Job) -> None:
        """The opposite."""
        job.service.elsewhere -= 1
        if job.state != DELAYED:
            self.writing -= 1
        else:
            self.broker.alarms.clear(self.delayed.pop(job))

    def _record(self, job: Job) -> None:
        self._elsewhere(job, RECORDING)
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
            self._back(one)
        self._end([job, *followers], extra.result, job.failure)
        extra.result = None

    def _end(self, everybody: list[Job], body: bytes | None, failure: Failure | None) -> None:
        """Tell all their clients, then close the books."""
        for job in everybody:
            if job.extra is not None:
                self.jobs.pop(job.extra.uid, None)
                if job.extra.timer is not None:
                    self.broker.alarms.clear(job.extra.timer)
            self._tell(job, body, failure)
        for job in everybody:
            self.broker.end_job(job, FAILED if failure is not None else DONE, failure)

    def _tell(self, job: Job, body: bytes | None, failure: Failure | None) -> None:
        if job.client.gone:
            return
        if failure is not None:
            job.client.port.failed(job, failure)
        elif body is not None:
            job.client.port.final(job, body)

    def _count(self) -> str:
        """Ids for tests and simulations; a running broker hands in better ones."""
        self._counter += 1
        return f"job-{self._counter}"


class Delayed(Timed):
    """A job whose time has not come."""

    def __init__(self, lifecycle: Lifecycle, job: Job) -> None:
        super().__init__()
        self.lifecycle = lifecycle
        self.job = job

    def ring(self, now: float) -> None:
        self.lifecycle.due(self.job)


class Deadline(Timed):
    """The end of a job's life, however far it has come."""

    def __init__(self, lifecycle: Lifecycle, job: Job) -> None:
        super().__init__()
        self.lifecycle = lifecycle
        self.job = job

    def ring(self, now: float) -> None:
        if self.job.state in (WAITING, RUNNING, DELAYED):
            self.lifecycle.cancel(self.job, Failure(jobs.DEADLINE, "its deadline passed"))


class Again(Timed):
    """An end that could not be recorded."""

    def __init__(self, lifecycle: Lifecycle, job: Job) -> None:
        super().__init__()
        self.lifecycle = lifecycle
        self.job = job
        lifecycle.broker.alarms.set(self, lifecycle.broker.now + TELL_AGAIN)

    def ring(self, now: float) -> None:
        if self.lifecycle.keeper is not None:
            self.lifecycle.keeper.finish(self.job)


def _half() -> float:
    return 0.5
