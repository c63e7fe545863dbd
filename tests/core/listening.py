"""Clients and workers that hear and say what only some dialects can; and a disk that keeps all it is told."""

from __future__ import annotations

from collections.abc import Callable

from polydomo.core.failure import Failure
from polydomo.core.model import Job
from polydomo.core.pieces import Piece, unpack
from polydomo.core.policy import Heartbeat
from polydomo.core.result_history import JobResult
from polydomo.core.tracked_job import Options, TrackedJob
from tests.support.core import Bench, FakeClient, FakeWorker, QuietKeeper


class Listener(FakeClient):
    """Told of everything."""

    def send(self, service: bytes, options: Options, body: bytes = b"body") -> Job | None:
        return self.broker.submit(self.core, service, body, b"", options)

    def accepted(self, job: Job) -> None:
        self.heard.append(("accepted", job.id, b""))

    def assigned(self, job: Job, names: list[bytes]) -> None:
        self.heard.append(("assigned", job.id, names))

    def acknowledged(self, job: Job, name: bytes, body: bytes) -> None:
        self.heard.append(("taken", job.id, (name, body)))

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        self.heard.append(("event", job.id, (name, kind, body)))

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        self.heard.append(("stream", job.id, (name, body)))

    def gathered(self, job: Job, name: bytes, body: bytes | None, failure: Failure | None) -> None:
        self.heard.append(("gathered", job.id, (name, failure.reason if failure else body)))

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.heard]

    def of(self, kind: str) -> list[object]:
        return [what for heard, _, what in self.heard if heard == kind]

    def whole(self) -> dict[bytes, bytes | str | None]:
        """Its one gathered result."""
        (body,) = self.finals()
        assert isinstance(body, bytes)
        return {piece.name: piece.reason or piece.body for piece in unpack(body)}


class Asked(FakeWorker):
    """Can be asked for jobs of before a restart, and given input."""

    def __init__(self, bench: Bench, name: bytes, *services: bytes, slots: int = 1) -> None:
        super().__init__(bench.broker, name, Heartbeat(1.0, 3))
        self.core.base_credit = self.core.credit = slots
        self.reclaimed: list[bytes] = []
        self.input: list[tuple[bytes, bytes]] = []
        self.cancelled: list[bytes] = []
        self.shares: list[list[bytes]] = []
        for service in services:
            assert self.register(service)

    def reclaim(self, job: Job) -> bool:
        self.reclaimed.append(job.token)
        self.holds.append(job.token)
        return True

    def put(self, job: Job, body: bytes) -> bool:
        self.input.append((job.token, body))
        return True

    def cancel(self, job: Job) -> None:
        self.cancelled.append(job.token)

    def share(self, resources: list[bytes]) -> None:
        self.shares.append(resources)


class Keeping(QuietKeeper):
    """A disk whose commits happen when the test says so."""

    def __init__(self, bench: Bench) -> None:
        self.store_events = bench.broker.store_events
        bench.broker.use_store(self)
        self.queue: list[tuple[str, Job, int]] = []
        self.events: list[tuple[str, bytes, str, bytes]] = []
        self.pieces: dict[int, Piece] = {}
        self.ends: dict[str, JobResult] = {}
        self.places: list[Job] = []
        self.numbers: list[int] = []

    def add(self, job: Job) -> None:
        self.queue.append(("add", job, 0))

    def attempt(self, job: Job) -> None:
        assert isinstance(job, TrackedJob)
        self.numbers.append(job.number)

    def partial(self, job: Job, body: bytes) -> None:
        pass

    def finish(self, job: Job) -> None:
        self.queue.append(("finish", job, 0))

    def look_up(self, job: Job) -> None:
        self.queue.append(("look up", job, 0))

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        assert isinstance(job, TrackedJob)
        self.events.append((job.uid, name, kind, body))

    def convened(self, job: Job) -> None:
        self.places.append(job)

    def gathered(self, job: Job, index: int, piece: Piece) -> None:
        self.pieces[index] = piece
        self.queue.append(("gathered", job, index))

    def read(self, uid: str, then: Callable[[JobResult | None], None]) -> None:
        then(self.ends.get(uid))

    def commit(self, failure: Failure | None = None) -> None:
        queue, self.queue = self.queue, []
        for what, job, index in queue:
            if what == "add":
                self.store_events.stored(job, failure)
            elif what == "finish":
                self.store_events.recorded(job, failure)
            elif what == "gathered":
                self.store_events.piece_stored(job, index, failure)
            else:
                self.store_events.looked_up(job, None, failure)
