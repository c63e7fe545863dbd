"""Who hears of a job: its client, those who asked for the same under one key or id, those who only watch.

Of jobs with one key, or one id, only the first is run; those that come meanwhile follow it and share its end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from polydomo.core import job as jobs
from polydomo.core.client import Client
from polydomo.core.extras import Extra
from polydomo.core.job import DELAYED, ENDS, RECORDING, STORING, Failure, Job
from polydomo.core.job_timers import Delayed
from polydomo.core.result_history import Results
from polydomo.core.targets import ALL, Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from polydomo.core.broker import Broker
    from polydomo.core.ports import JobStorePort

# For a job that gets the gathered result of an earlier one.
LIKE_ALL: Final = Target(ALL)


class Following(ABC):
    """The part of a lifecycle that knows which jobs are the same."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.keeper: JobStorePort | None = None
        self.jobs: dict[str, Job] = {}  # by uid, while they live
        self.keys: dict[tuple[bytes, bytes], Job] = {}  # the one that is run
        self.delayed: dict[Job, Delayed] = {}
        self.results = Results()
        self.writing = 0  # jobs being stored or recorded

    @abstractmethod
    def _end(self, subscribers: list[Job], body: bytes | None, failure: Failure | None) -> None:
        """Tell all their clients, then close the books."""

    def subscribers(self, job: Job) -> list[Job]:
        """It and those that follow it, as far as their clients are here."""
        extra = job.extra
        if extra is None or not (extra.followers or extra.watchers):
            return [] if job.client.gone else [job]
        return [one for one in [job, *extra.followers, *(extra.watchers or ())] if not one.client.gone]

    def assign(self, job: Job, names: list[bytes]) -> None:
        """It is known who will do it."""
        if job.extra is not None:
            job.extra.names = names
            if not job.extra.followers and not job.extra.unsafe:
                if not job.client.gone:
                    job.client.port.assigned(job, names)
                return
            for one in self.subscribers(job):
                if one.extra is None or not one.extra.unsafe:
                    one.client.port.assigned(one, names)

    def watch(self, client: Client, job: Job) -> Job:
        """See `Broker.watch`. What stands for the watcher is in no books."""
        leader = job if job.extra is None or job.extra.leader is None else job.extra.leader
        watching = Job(leader.id, client, leader.service, b"", b"", self.broker.now)
        watching.extra = leader.extra
        if leader.extra is not None:
            if leader.extra.watchers is None:
                leader.extra.watchers = []
            leader.extra.watchers.append(watching)
        return watching

    def unwatch(self, watching: Job) -> None:
        """See `Broker.unwatch`."""
        watchers = None if watching.extra is None else watching.extra.watchers
        if watchers is not None and watching in watchers:
            watchers.remove(watching)

    def when_ended(self, job: Job, ended: Callable[[], None]) -> None:
        """Call this when it has ended, and that is safe."""
        if job.extra is None or job.state in ENDS:
            ended()
        else:
            if job.extra.waiters is None:
                job.extra.waiters = []
            job.extra.waiters.append(ended)

    def aliased(self, job: Job, failure: Failure | None) -> None:
        """That it follows another is on disk, or cannot be: then it is refused."""
        extra = job.extra
        if extra is None or not extra.unsafe or job.state in ENDS:
            return
        extra.unsafe = False
        leader = extra.leader
        if leader is None or leader.extra is None:
            return
        if failure is None:
            if leader.extra.accepted:
                self._accept_follower(job, leader.extra)
        elif job in leader.extra.followers:
            leader.extra.followers.remove(job)
            self.back(job)
            extra.durable = False
            self._end([job], None, failure)

    def _known(self, job: Job, extra: Extra) -> bool:
        """Its client calls it by an id that is known already: it is the same job, or it is refused."""
        leader = self.jobs.get(extra.uid)
        if leader is not None:
            if leader.asked == job.asked and leader.body == job.body:
                self._follow(leader, job, False)
            else:
                self._reject_duplicate(job, extra)
            return True
        ended = self.results.get(extra.uid, self.broker.now)
        if ended is None:
            return False
        extra.durable = False  # the earlier one's record is the record
        if ended.service != job.asked or ended.request != hash(job.body):
            self._reject_duplicate(job, extra)
        else:
            extra.repeats = True
            extra.target = LIKE_ALL if ended.gathered else None
            extra.result = ended.body
            job.failure = ended.failure
            self._accept(job)
            self.assign(job, [ended.worker] if ended.worker else [])
            self._end([job], ended.body, ended.failure)
        return True

    def _reject_duplicate(self, job: Job, extra: Extra) -> None:
        extra.durable = False
        self._end([job], None, Failure(jobs.DUPLICATE, "there is another job with this id"))

    def _follow(self, leader: Job, job: Job, alias: bool) -> None:
        """Run once, answered to both. `alias`: the follower's own id, if it has one, must lead to the leader."""
        head = leader.extra
        if head is not None and head.leader is not None:  # it only follows itself
            leader = head.leader
            head = leader.extra
        if head is None:
            return
        head.followers.append(job)
        self.elsewhere(job, STORING)
        extra = job.extra
        if extra is None:
            return
        extra.leader = leader
        extra.repeats = True
        extra.target = head.target  # its result has the shape of the leader's
        if alias and head.durable and extra.named and self.keeper is not None:
            extra.unsafe = True
            if head.added:
                self.keeper.alias(leader, job)
        elif head.accepted:
            self._accept_follower(job, head)

    def _accept(self, job: Job) -> None:
        """It is taken: tell whoever asked for it."""
        extra = job.extra
        if extra is not None:
            self._taken(extra)
            for one in extra.followers:
                if one.extra is not None and not one.extra.unsafe:
                    self._taken(one.extra)
        for one in self.subscribers(job):
            if one.extra is None or not one.extra.unsafe:
                one.client.port.accepted(one)
        if extra is not None and extra.worker and extra.parent is None:
            self.assign(job, [extra.worker])

    def _taken(self, extra: Extra) -> None:
        """Count a job as accepted."""
        if not extra.accepted:
            extra.accepted = True
            self.broker.undecided -= 1

    def _accept_follower(self, job: Job, head: Extra) -> None:
        if job.extra is not None:
            self._taken(job.extra)
        if not job.client.gone:
            job.client.port.accepted(job)
            if head.names is not None:
                job.client.port.assigned(job, head.names)

    def elsewhere(self, job: Job, state: int) -> None:
        """It is in no queue and with no worker for now."""
        job.state = state
        job.service.elsewhere += 1
        if state in (STORING, RECORDING):
            self.writing += 1
        self.broker.keep_service(job.service)

    def back(self, job: Job) -> None:
        """The opposite."""
        job.service.elsewhere -= 1
        if job.state == DELAYED:
            self.broker.timers.clear(self.delayed.pop(job))
        elif job.state in (STORING, RECORDING):
            self.writing -= 1
