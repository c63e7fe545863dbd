"""Jobs for several workers: which workers, a part for each of them, and the whole when all have ended.

The parts are jobs of a client of their own, a `Gather`. It hands on what their workers say to the whole's client, and
keeps their replies until all have come. Of a durable job each piece is on disk before its client is told of it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.features.durability import TELL_AGAIN
from polydomo.core.features.feature import PASS, TAKEN, Feature
from polydomo.core.features.resources import Resources
from polydomo.core.model import Client, ClientPort, Job, Service, Worker
from polydomo.core.pieces import Piece, pack
from polydomo.core.policy import FOREVER
from polydomo.core.principals import CALL
from polydomo.core.states import GATHER, GATHERING
from polydomo.core.targets import ALL, EACH, NAMES, RESOURCES, Assignment, Target
from polydomo.core.timers import CallTimer, Timer
from polydomo.core.tracked_job import TrackedJob, is_durable
from polydomo.core.tracking import Tracking

# A job for all workers that came before any of them waits so many seconds after the first one's arrival: after a
# restart they come one by one.
SETTLE: Final = 1.0


class Fanout(Feature):
    """Splits jobs for several workers, and addresses jobs for one."""

    def __init__(self, tracking: Tracking, resources: Resources) -> None:
        self.writing = 0  # pieces that are being recorded
        self._tracking = tracking
        self._resources = resources
        self._gathers: dict[TrackedJob, Gather] = {}
        # Jobs for all workers of a service that has none yet.
        self._convening: dict[Service, dict[TrackedJob, _Convening]] = {}

    def on_submit(self, job: TrackedJob) -> int:
        target = job.target
        if target is None:
            return PASS
        why = self._address(job, target)
        if not why:
            return PASS
        job.durable = False
        self._tracking.scheduler.fail(job, Failure(reasons.BAD_TARGET, why))
        return TAKEN

    def on_ready(self, job: TrackedJob) -> int:
        if not job.is_gathered():
            return PASS
        self._begin(job)
        return TAKEN

    def on_cancel(self, job: Job, failure: Failure) -> int:
        if job.state != GATHERING or not isinstance(job, TrackedJob):
            return PASS
        gather = self._gathers.get(job)
        if gather is not None:
            gather.over = True
            for part in list(gather.parts.values()):
                self._tracking.cancel(part)
            gather.parts.clear()
        self._release(job)
        return TAKEN

    def on_register(self, worker: Worker, service: Service) -> None:
        """Wait a moment for more workers, then give the jobs that waited for the first one to all of them."""
        for job, convening in self._convening.get(service, {}).items():
            self._settle(job, convening)

    def on_close(self) -> None:
        for job in list(self._tracking.jobs.values()):
            if job.state == GATHERING and not is_durable(job):
                failure = Failure(reasons.DRAINING, "the broker stopped before all had answered")
                self._tracking.cancel(job, failure)

    def is_writing(self) -> bool:
        return self.writing > 0

    def parts_of(self, job: TrackedJob) -> list[TrackedJob]:
        """Return the parts of a job that have not ended."""
        gather = self._gathers.get(job)
        return [] if gather is None else list(gather.parts.values())

    def restore(self, job: TrackedJob, pieces: dict[int, Piece]) -> None:
        """Go on with a job of before the restart, of which some pieces are known."""
        self._hold(job)
        gather = self._gathers[job] = Gather(self, self._tracking, job)
        gather.pieces = pieces
        gather.told = len(pieces)
        job.names = gather.names
        missing = [index for index in range(len(job.assignments)) if index not in pieces]
        if missing:
            self._place_parts(job, gather, missing)
        else:
            self._complete(job, gather)

    def piece_stored(self, job: TrackedJob, index: int, failure: Failure | None) -> None:
        """Tell the client of a piece that is on disk, or try again later if it cannot be written at the moment."""
        self.writing -= 1
        gather = self._gathers.get(job)
        if gather is None or gather.over:
            return
        if failure is not None:
            timer = CallTimer(partial(self.keep_piece, job), index)
            self._tracking.timers.set(timer, self._tracking.clock.now + TELL_AGAIN)
        else:
            self._tell(job, gather, index)

    def keep_piece(self, job: TrackedJob, index: int) -> None:
        """Record that a part has ended."""
        gather = self._gathers.get(job)
        if gather is None:
            return
        if job.durable and self._tracking.store is not None:
            self.writing += 1
            self._tracking.store.gathered(job, index, gather.pieces[index])
        else:
            self._tell(job, gather, index)

    def convene(self, job: TrackedJob) -> None:
        """Give a job that waited for the first worker to all that are here by now."""
        convening = self._convening.get(job.service, {}).get(job)
        if convening is None or job.target is None:
            return
        convening.settle = None
        assignments = self._assignments(job, job.target)
        if assignments:
            self._release(job)
            job.assignments = assignments
            if job.durable and self._tracking.store is not None:
                self._tracking.store.convened(job)
            self._begin(job)

    def expire(self, job: TrackedJob) -> None:
        """Fail a job that no worker came for."""
        if job in self._convening.get(job.service, {}):
            self._release(job)
            self._tracking.scheduler.fail(job, Failure(reasons.EXPIRED, "no worker came in time"))

    def _address(self, job: TrackedJob, target: Target) -> str:
        """Find out which workers a job is for. Return why there can be none."""
        if target.kind in (NAMES, RESOURCES) and not target.names:
            return "it is addressed to nobody"
        if not target.single:
            job.assignments = self._assignments(job, target)
            known = job.assignments or (target.kind == ALL and not target.everywhere)
            return "" if known else "there are no such workers"
        if target.everywhere:
            assignments = self._assignments(job, target)
            if not assignments:
                return "there is no worker of this name"
            left = job.service
            job.service = self._tracking.services.find(assignments[0].service)
            self._tracking.services.drop_if_unused(left)
        if target.kind == NAMES:
            job.pinned_worker = target.names[0]
        else:
            job.resource = target.names[0]
        return ""

    def _begin(self, job: TrackedJob) -> None:
        """Give each worker its part. Without workers, wait for the first."""
        self._hold(job)
        if job.assignments:
            gather = self._gathers[job] = Gather(self, self._tracking, job)
            self._tracking.assign(job, gather.names)
            self._place_parts(job, gather, list(range(len(job.assignments))))
            return
        convening = self._convening.setdefault(job.service, {})[job] = _Convening()
        expiry = self._tracking.scheduler.expiry(job)
        if expiry < FOREVER:
            convening.expiry = CallTimer(self.expire, job)
            self._tracking.timers.set(convening.expiry, expiry)
        if job.service.names:  # workers that came while the job was being stored
            self._settle(job, convening)

    def _settle(self, job: TrackedJob, convening: _Convening) -> None:
        if convening.settle is None:
            convening.settle = CallTimer(self.convene, job)
            self._tracking.timers.set(convening.settle, self._tracking.clock.now + SETTLE)

    def _place_parts(self, job: TrackedJob, gather: Gather, indices: list[int]) -> None:
        for index in indices:
            assignment = job.assignments[index]
            service = self._tracking.services.find(assignment.service)
            self._tracking.services.keep(service)
            part = self._tracking.part_of(job, index, gather.client, service)
            part.pinned_worker = assignment.worker
            part.resource = assignment.resource
            gather.parts[index] = part
        for part in list(gather.parts.values()):
            self._tracking.scheduler.place(part, False)

    def _tell(self, job: TrackedJob, gather: Gather, index: int) -> None:
        """Tell the clients of a piece that is safe. After the last one the whole has ended."""
        if gather.over:
            return
        piece = gather.pieces[index]
        gather.told += 1
        for one in job.subscribers():
            one.client.port.gathered(one, piece.name, None if piece.reason else piece.body, piece.failure())
        if gather.told == len(gather.names):
            self._complete(job, gather)

    def _complete(self, job: TrackedJob, gather: Gather) -> None:
        self._release(job)
        failure = gather.failure()
        if failure is not None:
            self._tracking.scheduler.fail(job, failure)
        else:
            self._tracking.replied(job, gather.result())

    def _hold(self, job: TrackedJob) -> None:
        job.client.gathers[job] = None
        self._tracking.hold(job, GATHER)

    def _release(self, job: TrackedJob) -> None:
        job.client.gathers.pop(job, None)
        self._gathers.pop(job, None)
        waiting = self._convening.get(job.service, {})
        convening = waiting.pop(job, None)
        if convening is not None:
            for timer in (convening.expiry, convening.settle):
                if timer is not None:
                    self._tracking.timers.clear(timer)
            if not waiting:
                del self._convening[job.service]
        self._tracking.release(job)

    def _assignments(self, job: TrackedJob, target: Target) -> list[Assignment]:
        """Return where the parts of a job are done; empty if no worker is here that could."""
        if target.everywhere:
            return self._everywhere(job, target)
        service = job.service
        if target.kind == ALL:
            return [Assignment(service.name, name) for name in service.names]
        if target.kind == RESOURCES:
            return self._by_resource(service, target.names)
        return [Assignment(service.name, name) for name in target.names]

    def _everywhere(self, job: TrackedJob, target: Target) -> list[Assignment]:
        """Return workers of every service that the owner may call, each in its first one (NORFAB's service `all`)."""
        may, owner = self._tracking.principals.allows, job.client.principal
        services = [one for one in self._tracking.services.values() if may(owner, CALL, one.name)]
        if target.kind == EACH:
            return [
                Assignment(service.name, next(iter(service.idle or service.workers)).name)
                for service in services
                if service.workers and not all(worker.internal for worker in service.workers)
            ]
        workers = dict.fromkeys(worker for service in services for worker in service.workers)
        found = {
            worker.name: Assignment(next(one.name for one in worker.services if one in services), worker.name)
            for worker in workers
            if worker.services and not worker.internal
        }
        if target.kind == ALL:
            return list(found.values())
        return [found[name] for name in target.names if name in found]

    def _by_resource(self, service: Service, names: list[bytes]) -> list[Assignment]:
        """Return one part for each worker that has some of the resources, and one for each that no worker has now."""
        found: dict[bytes, Assignment] = {}
        for name in names:
            holder = self._resources.pick(service, name)
            one = (
                Assignment(service.name, b"", name)
                if holder is None
                else Assignment(service.name, holder.name)
            )
            found[one.name()] = one
        return list(found.values())


class Gather(ClientPort):
    """The client of a job's parts."""

    def __init__(self, fanout: Fanout, tracking: Tracking, job: TrackedJob) -> None:
        self.names = [
            one.name() for one in job.assignments
        ]  # whose replies make up the result, in this order
        self.parts: dict[int, TrackedJob] = {}  # under way, by their place in `names`
        self.pieces: dict[int, Piece] = {}  # ended
        self.told = 0  # of these, also stored
        self.over = False  # the job was cancelled
        name, dialect = job.client.name, job.client.dialect
        self.client = Client(name, dialect, self, job.client.principal, tracking.clock.now, _never)
        self._fanout = fanout
        self._tracking = tracking
        self._job = job

    def partial(self, job: Job, body: bytes) -> None:
        self.stream(job, b"" if job.worker is None else job.worker.name, body)

    def final(self, job: Job, body: bytes) -> None:
        self._ended(job, body, "", "", b"")

    def failed(self, job: Job, failure: Failure) -> None:
        self._ended(job, failure.body, failure.reason, failure.message, failure.detail)

    def acknowledged(self, job: Job, name: bytes, body: bytes) -> None:
        for one in self._job.subscribers():
            one.client.port.acknowledged(one, name, body)

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        self._tracking.event(self._job, name, kind, body)

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        for one in self._job.subscribers():
            one.client.port.stream(one, name, body)

    def result(self) -> bytes:
        """Return all pieces as one body."""
        return pack([self.pieces[index] for index in range(len(self.names))])

    def failure(self) -> Failure | None:
        """Return the job's failure: there is one if no worker did anything about it."""
        for piece in self.pieces.values():
            if not piece.reason or piece.reason == reasons.WORKER_ERROR:
                return None
        return self.pieces[0].failure()

    def _ended(self, job: Job, body: bytes | None, reason: str, message: str, detail: bytes) -> None:
        if self.over or not isinstance(job, TrackedJob) or job.part not in self.parts:
            return
        index = job.part
        del self.parts[index]
        self.pieces[index] = Piece(self.names[index], body, reason, message, detail)
        self._fanout.keep_piece(self._job, index)


def _never(client: Client) -> None:
    """Do nothing: the client of parts has no grace period."""


class _Convening:
    """The timers of a job that waits for the first worker of its service."""

    def __init__(self) -> None:
        self.expiry: Timer | None = None  # no worker came
        self.settle: Timer | None = None  # the first one came a moment ago
