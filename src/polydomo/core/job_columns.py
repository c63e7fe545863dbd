"""Ended jobs as columns of numbers, for the ledger.

Here rather than there because it is on every job's path, and this room is compiled: a job is taken apart at the moment
it ends, while everything about it is at hand. `librt` writes a number without making a Python object of it, which is
ten times as fast as `struct` where it is compiled, and as fast as that where it is not. Who took part is a number, too.
Whatever only some jobs have is kept beside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count
from typing import Final

from librt.strings import BytesWriter, write_f64_le, write_i32_le, write_i64_le
from mypy_extensions import mypyc_attr

from polydomo.core.model import Client, Job, Service, Worker
from polydomo.core.ports import Journal
from polydomo.core.services import is_question
from polydomo.core.tracked_job import TrackedJob

# What is noted of every job, and as which kind of number (numpy's names). `service`, `client` and `worker` are places
# in the lists of those (-1: none).
FIELDS: Final = {
    "id": "<i8",
    "bytes_in": "<i8",
    "bytes_out": "<i8",
    "submitted": "<f8",
    "queued": "<f8",
    "started": "<f8",
    "dispatched": "<f8",
    "finished": "<f8",
    "attempts": "<i4",
    "partials": "<i4",
    "service": "<i4",
    "client": "<i4",
    "worker": "<i4",
}

# Rows that can be told apart by the marks on those who took part; more than there is ever room for.
_MARKS: Final = 1 << 24

_numbers = count()


class ColumnBuffer:
    """Room for so many ended jobs.

    Services, clients and workers are listed in the order in which they came. That one is in the list, and where, is
    marked on itself: its `mark` is at least `base` then, and lower if it was in other rows.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.count = 0
        self.base: int = next(_numbers) * _MARKS
        self.services: list[Service] = []
        self.clients: list[Client] = []
        self.workers: list[Worker] = []
        self.aliases: dict[int, bytes] = {}  # what clients called the service, if it was not its name
        self.first_partials: dict[int, float] = {}
        self.failed: dict[int, Job] = {}
        self.special: dict[int, TrackedJob] = {}  # durable, or with options
        # The number that the store gave to the latest end of a durable job; they come in order.
        self.ending = 0
        self._id = BytesWriter()
        self._bytes_in = BytesWriter()
        self._bytes_out = BytesWriter()
        self._submitted = BytesWriter()
        self._queued = BytesWriter()
        self._started = BytesWriter()
        self._dispatched = BytesWriter()
        self._finished = BytesWriter()
        self._attempts = BytesWriter()
        self._partials = BytesWriter()
        self._service = BytesWriter()
        self._client = BytesWriter()
        self._worker = BytesWriter()

    def add(self, job: Job) -> bool:
        """Add an ended job. False: it was a question that the broker answered itself."""
        service = job.service
        if (service.internal or job.hops) and is_question(job):
            return False
        base = self.base
        worker = job.worker
        doer = -1
        if worker is not None:
            doer = worker.mark - base
            if doer < 0:
                doer = len(self.workers)
                worker.mark = base + doer
                self.workers.append(worker)
        what = service.mark - base
        if what < 0:
            what = len(self.services)
            service.mark = base + what
            self.services.append(service)
        client = job.client
        who = client.mark - base
        if who < 0:
            who = len(self.clients)
            client.mark = base + who
            self.clients.append(client)
        place = self.count
        self.count = place + 1
        finished = job.finished
        if job.requested_service is not service.name:
            self.aliases[place] = job.requested_service
        if job.partials:
            self.first_partials[place] = job.first_partial
        if job.failure is not None:
            self.failed[place] = job
        if isinstance(job, TrackedJob):
            self.special[place] = job
            if job.durable and job.added:
                self.ending = job.ending
            if job.answered:
                finished = job.answered  # that an end is being recorded is no work of its worker's
        write_i64_le(self._id, job.id)
        write_i64_le(self._bytes_in, job.size)
        write_i64_le(self._bytes_out, job.size_out)
        write_f64_le(self._submitted, job.submitted)
        write_f64_le(self._queued, job.queued_at)
        write_f64_le(self._started, job.started)
        write_f64_le(self._dispatched, job.dispatched)
        write_f64_le(self._finished, finished)
        write_i32_le(self._attempts, job.attempt)
        write_i32_le(self._partials, job.partials)
        write_i32_le(self._service, what)
        write_i32_le(self._client, who)
        write_i32_le(self._worker, doer)
        return True

    def fields(self) -> dict[str, bytes]:
        """Return the numbers of all jobs, by `FIELDS`."""
        return {name: getattr(self, "_" + name).getvalue() for name in FIELDS}


@mypyc_attr(allow_interpreted_subclasses=True)
class ColumnSink(ABC):
    """The owner of a `ColumnJournal`: told of rows when there is no room for more, and of all else at once."""

    @abstractmethod
    def full(self) -> None:
        """There are as many rows as there may be: `ColumnJournal.take` them."""

    @abstractmethod
    def event(self, kind: str, worker: Worker, reason: str) -> None:
        """Hear what `Journal.event` hears."""

    @abstractmethod
    def attempt(self, job: Job, reason: str) -> None:
        """Hear what `Journal.attempt` hears."""

    @abstractmethod
    def client(self, kind: str, client: Client, reason: str) -> None:
        """Hear what `Journal.client` hears."""


class ColumnJournal(Journal):
    """Adds ended jobs to rows. It has no subclasses, so that a job's end is a direct call where it is compiled."""

    def __init__(self, room: int, taker: ColumnSink) -> None:
        self.room = room
        self.rows = ColumnBuffer(room)
        self.taker = taker

    def finished(self, job: Job) -> None:
        rows = self.rows
        if rows.add(job) and rows.count == rows.room:
            self.taker.full()

    def event(self, kind: str, worker: Worker, reason: str) -> None:
        self.taker.event(kind, worker, reason)

    def attempt(self, job: Job, reason: str) -> None:
        self.taker.attempt(job, reason)

    def client(self, kind: str, client: Client, reason: str) -> None:
        self.taker.client(kind, client, reason)

    def take(self) -> ColumnBuffer:
        """Return the rows so far, and begin new ones."""
        rows, self.rows = self.rows, ColumnBuffer(self.room)
        return rows
