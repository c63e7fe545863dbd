"""Jobs for several workers: who they are, a part for each of them, and the whole when all have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core import job as jobs
from polydomo.core.extras import Extra, Options
from polydomo.core.gather import Gather, Piece
from polydomo.core.job import EXTRA_COST, GATHERING, JOB_COST, Failure, Job
from polydomo.core.job_timers import Convene, KeepAgain, Patience
from polydomo.core.policy import FOREVER
from polydomo.core.targets import ALL, EACH, RESOURCES, Assignment, Target

if TYPE_CHECKING:
    from polydomo.core.lifecycle import Lifecycle
    from polydomo.core.service import Service

# A job for all workers that came before any of them waits so long behind the first one's arrival: after a restart
# they come one by one.
SETTLE: Final = 1.0


class Gathers:
    """Belongs to one lifecycle."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.lifecycle = lifecycle
        self.broker = lifecycle.broker
        self.writing = 0  # pieces being recorded

    def find_places(self, job: Job, target: Target) -> list[Assignment]:
        """Where its parts are done; none: nobody is here who could."""
        if target.everywhere:
            return self._everywhere(target)
        service = job.service
        if target.kind == ALL:
            return [Assignment(service.name, name) for name in service.names]
        if target.kind == RESOURCES:
            return self._by_resource(service, target.names)
        return [Assignment(service.name, name) for name in target.names]

    def start(self, job: Job, places: list[Assignment]) -> None:
        """Give each its part. Without places, wait for the first worker."""
        extra = job.extra
        if extra is None or extra.target is None:
            return
        job.client.gathers[job] = None
        self.lifecycle.elsewhere(job, GATHERING)
        if not places:
            job.service.convening[job] = None
            wait = self.lifecycle.expiry(job)
            if wait < FOREVER:
                extra.patience = Patience(self, job)
                self.broker.timers.set(extra.patience, wait)
            return
        gather = Gather(self.lifecycle, job, [place.name() for place in places])
        extra.gather = gather
        self.lifecycle.assign(job, gather.names)
        parts = [self._part(job, gather, index, place) for index, place in enumerate(places)]
        for part in parts:
            self.broker.place(part, False)

    def restore(self, job: Job, places: list[Assignment], pieces: dict[int, Piece]) -> None:
        """A job of before the restart, with the answers that are known."""
        extra = job.extra
        if extra is None:
            return
        job.client.gathers[job] = None
        self.lifecycle.elsewhere(job, GATHERING)
        gather = Gather(self.lifecycle, job, [place.name() for place in places])
        gather.pieces = pieces
        gather.told = len(pieces)
        extra.gather = gather
        extra.names = gather.names
        missing = [index for index in range(len(places)) if index not in pieces]
        if not missing:
            self.complete(job, gather)
            return
        for part in [self._part(job, gather, index, places[index]) for index in missing]:
            self.broker.place(part, False)

    def keep(self, job: Job, index: int) -> None:
        """A part has ended."""
        extra = job.extra
        if extra is None or extra.gather is None:
            return
        if extra.durable and self.lifecycle.keeper is not None:
            self.writing += 1
            self.lifecycle.keeper.gathered(job, index, extra.gather.pieces[index])
        else:
            extra.gather.kept(index)

    def kept(self, job: Job, index: int, failure: Failure | None) -> None:
        """From the keeper: that is on disk, or cannot be at the moment."""
        self.writing -= 1
        extra = job.extra
        if extra is None or extra.gather is None or extra.gather.over:
            return
        if failure is not None:
            KeepAgain(self, job, index)
        else:
            extra.gather.kept(index)

    def complete(self, job: Job, gather: Gather) -> None:
        """All parts have ended."""
        self._leave(job)
        failure = gather.why_not()
        if failure is not None:
            self.broker.fail_job(job, failure)
        else:
            self.lifecycle.answered(job, gather.result())

    def cancel(self, job: Job) -> None:
        """Nobody wants it any more; the caller tells its client."""
        extra = job.extra
        if extra is not None and extra.gather is not None:
            extra.gather.over = True
            for part in list(extra.gather.parts.values()):
                self.lifecycle.cancel(part)
            extra.gather.parts.clear()
        self._leave(job)

    def someone_came(self, service: Service) -> None:
        """Jobs for all workers of this service have waited for the first."""
        for job in service.convening:
            if job.extra is not None and job.extra.convene is None:
                job.extra.convene = Convene(self, job)
                self.broker.timers.set(job.extra.convene, self.broker.now + SETTLE)

    def convene(self, job: Job) -> None:
        """The workers that came first are here by now; or have gone again."""
        extra = job.extra
        if extra is None or extra.target is None or job not in job.service.convening:
            return
        extra.convene = None
        places = self.find_places(job, extra.target)
        if places:
            self._leave(job)
            self.lifecycle.convened(job, places)

    def out_of_patience(self, job: Job) -> None:
        """Nobody came."""
        if job in job.service.convening:
            self._leave(job)
            self.broker.fail_job(job, Failure(jobs.EXPIRED, "no worker came in time"))

    def _leave(self, job: Job) -> None:
        extra = job.extra
        job.client.gathers.pop(job, None)
        job.service.convening.pop(job, None)
        if extra is not None:
            if extra.patience is not None:
                self.broker.timers.clear(extra.patience)
            if extra.convene is not None:
                self.broker.timers.clear(extra.convene)
        self.lifecycle.back(job)

    def _part(self, job: Job, gather: Gather, index: int, place: Assignment) -> Job:
        broker = self.broker
        whole = job.extra
        assert whole is not None
        service = broker.service_called(place.service)
        part = Job(job.id, gather.client, service, job.body, b"", broker.now)
        part.size = 0  # the body is the whole's
        broker.memory += JOB_COST + EXTRA_COST
        options = Options(priority=whole.priority, timeout=whole.timeout, wait=whole.wait)
        extra = Extra(whole.uid, options, False, broker.now, whole.submitted)
        extra.parent = job
        extra.accepted = True  # as the whole was
        extra.part = index
        extra.worker = place.worker
        extra.resource = place.resource
        part.extra = extra
        part.limit = extra.timeout
        gather.parts[index] = part
        return part

    def _everywhere(self, target: Target) -> list[Assignment]:
        """NORFAB's service `all`: workers of every service, each in its first one."""
        if target.kind == EACH:
            return [
                Assignment(service.name, next(iter(service.idle or service.workers)).name)
                for service in self.broker.services.values()
                if service.workers and not all(worker.internal for worker in service.workers)
            ]
        places = {
            worker.name: Assignment(worker.services[0].name, worker.name)
            for worker in self.broker.workers
            if worker.services and not worker.internal
        }
        if target.kind == ALL:
            return list(places.values())
        return [places[name] for name in target.names if name in places]

    def _by_resource(self, service: Service, names: list[bytes]) -> list[Assignment]:
        """One part for each worker that has some of them, and one for each that nobody has now."""
        places: dict[bytes, Assignment] = {}
        for name in names:
            holder = self.broker.resources.pick(service, name)
            place = (
                Assignment(service.name, b"", name)
                if holder is None
                else Assignment(service.name, holder.name)
            )
            places[place.name()] = place
        return list(places.values())
