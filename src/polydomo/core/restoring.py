"""What outlives the broker's process, seen from the core: jobs that were under way, and their clients and workers."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from polydomo.core.client import Client, NullClientPort
from polydomo.core.extras import Extra
from polydomo.core.following import Following
from polydomo.core.gather import Piece
from polydomo.core.gathering import Gathers
from polydomo.core.job import EXTRA_COST, RUNNING, WAITING, Failure, Job
from polydomo.core.memos import Memos, digest_of

if TYPE_CHECKING:
    from polydomo.core.broker import Broker
    from polydomo.core.ports import ClientPort
    from polydomo.core.service import Service
    from polydomo.core.worker import Worker


class Restoring(Following):
    """The part of a lifecycle that takes up what was left."""

    gathers: Gathers
    memos: Memos

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.absentees: dict[tuple[bytes, str], Client] = {}  # clients of before, by name and dialect
        # Of those that cannot ask for it, how jobs ended while they were away: ids, by name and dialect.
        self.untold: dict[tuple[bytes, str], list[str]] = {}
        self.orphans: dict[bytes, Job] = {}  # running when the broker stopped; by token

    @abstractmethod
    def _watch(self, job: Job, extra: Extra) -> None:
        """It can be asked for by its id from now on, and must end by its deadline."""

    @abstractmethod
    def _tell(self, job: Job, body: bytes | None, failure: Failure | None) -> None:
        """Give its client the answer, or the failure."""

    @abstractmethod
    def _delay(self, job: Job, until: float) -> None:
        """Not before then."""

    @abstractmethod
    def _place(self, job: Job) -> None:
        """It may be done as soon as its time has come."""

    def absent(self, name: bytes, dialect: str) -> Client:
        """Stands for a client of before the restart: it is told nothing."""
        client = Client(self.broker, name, dialect, NullClientPort())
        client.gone = True
        return client

    def returned(self, name: bytes, dialect: str, port: ClientPort) -> Client | None:
        """A client of before the restart is back: what becomes of its jobs is told it again."""
        client = self.absentees.pop((name, dialect), None)
        untold = self.untold.pop((name, dialect), [])
        if client is None or not (client.jobs or untold):
            return None
        client.port = port
        client.gone = False
        client.since = self.broker.now
        if untold and self.keeper is not None:
            self.keeper.tell(client, untold)
        return client

    def missed(self, job: Job) -> None:
        """A job has ended whose client is not here: it is told when it comes back, if it cannot ask."""
        client, extra = job.client, job.extra
        untold = self.untold.get((client.name, client.dialect))
        if untold is not None and extra is not None and client is self.absentees[client.name, client.dialect]:
            untold.append(extra.uid)

    def retell(
        self, client: Client, name: bytes, envelope: bytes, body: bytes | None, failure: Failure | None
    ) -> None:
        """A client that is back is told how a job of its has ended: a stand-in for the job carries the answer."""
        job = Job(0, client, self.broker.service_called(name), b"", envelope, self.broker.now)
        self._tell(job, body, failure)

    def give_up_absentees(self) -> None:
        """Clients that cannot ask for their results, and are not back by now, are not expected any more: a later
        client of the same name would take an old answer for that to its own request."""
        for who in self.untold:
            del self.absentees[who]
        self.untold.clear()

    def detach(self, job: Job) -> None:
        """Its client has heard all that it will be told unasked: a durable job is nobody's from now on, and keeps its
        client from nothing. Others of the same client are still its neighbours in a line."""
        client = job.client
        if job.extra is None or not job.extra.durable or client.gone:
            return
        if client.shadow is None:
            client.shadow = self.absent(client.name, client.dialect)
        waits = job.state == WAITING
        if waits:
            (job.extra.line or job.service).remove(job)
        self.broker.hand_over(job, client.shadow)
        if waits:
            self.broker.place(job, False)

    def restore(
        self,
        job: Job,
        extra: Extra,
        token: bytes,
        holder: bytes,
        pieces: dict[int, Piece] | None = None,
        resent: int = 0,
    ) -> None:
        """A job that was not finished when the broker stopped; `token` and `holder` if a worker may still come back
        with its answer, `pieces` of what several workers have done, `resent` if so many of its attempts were made
        before it was sent again: these count for nothing. Called in the order in which they were submitted."""
        broker = self.broker
        job.attempt = max(0, extra.number - resent)
        job.limit = extra.timeout
        job.extra = extra
        broker.memory += EXTRA_COST
        extra.restored = True
        extra.accepted = True  # before the restart
        self._watch(job, extra)
        if extra.key:
            self.keys[(job.asked, extra.key)] = job
        memo = job.service.policy.memo and extra.target is None
        if memo:
            extra.memo = digest_of(job.body)
        if extra.several() and extra.places:
            self.gathers.restore(job, extra.places, pieces or {})
        elif token and job.service.policy.grace > 0:
            job.token = token
            extra.holder = holder
            extra.names = [holder]
            self.orphans[token] = job
            self._delay(job, broker.now + job.service.policy.grace)
        elif (
            extra.target is None
            and not memo
            and extra.ready <= broker.now < extra.deadline
            and not job.service.idle
        ):
            broker.enqueue(job)  # what `_place` comes to for nearly all of a hundred thousand
        else:
            self._place(job)

    def restore_alias(self, uid: str, alias: str) -> None:
        """Before the restart it was also known by another id."""
        job = self.jobs.get(uid)
        if job is not None and job.extra is not None and alias not in self.jobs:
            if job.extra.aliases is None:
                job.extra.aliases = []
            job.extra.aliases.append(alias)
            self.jobs[alias] = job

    def arrived(self, worker: Worker, service: Service) -> None:
        """Before the restart it may have had some of these: it is asked, if it can be."""
        for token, job in list(self.orphans.items()):
            extra = job.extra
            if extra is None or extra.holder != worker.name or job.service is not service:
                continue
            if token in self.orphans and worker.port.reclaim(job):
                self.claim(token)
                self.broker.reattach(worker, job)

    def claim(self, token: bytes) -> Job | None:
        """A worker answers an attempt of before the restart."""
        job = self.orphans.pop(token, None)
        if job is not None:
            self.back(job)
            job.state = RUNNING
        return job
