"""Ended jobs as rows of numbers, for the ledger.

Here rather than there because it is on every job's path, and this room is compiled: a job is taken apart at the moment
it ends, while everything about it is at hand. One call of `struct` writes its numbers; who took part is a number, too.
Whatever only some jobs have is kept beside, and looked at when the rows become columns.
"""

from __future__ import annotations

from abc import abstractmethod
from struct import Struct
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.core.client import Client
from polydomo.core.job import Job
from polydomo.core.ports import Journal
from polydomo.core.service import Service
from polydomo.core.worker import Worker

# Numbers of one job, in the order of `FIELDS`. The last ones say which service, client and worker (-1: none).
ROW: Final = Struct("=qqqdddddiiiii4x")
ROW_SIZE: Final = 88  # a literal, because that is what a compiler can use
FIELDS: Final = (
    ("id", "i8"),
    ("bytes_in", "i8"),
    ("bytes_out", "i8"),
    ("submitted", "f8"),
    ("queued", "f8"),
    ("started", "f8"),
    ("dispatched", "f8"),
    ("finished", "f8"),
    ("attempts", "i4"),
    ("partials", "i4"),
    ("service", "i4"),
    ("client", "i4"),
    ("worker", "i4"),
)


class Rows:
    """Room for so many ended jobs. Services, clients and workers are numbered in the order in which they came."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.count = 0
        self.buffer = bytearray(ROW_SIZE * room)
        self.services: dict[Service, int] = {}
        self.clients: dict[Client, int] = {}
        self.workers: dict[Worker, int] = {}
        self.aliases: dict[int, bytes] = {}  # what clients called the service, if it was not its name
        self.first_partials: dict[int, float] = {}
        self.failed: dict[int, Job] = {}
        self.special: dict[int, Job] = {}  # durable, or with options
        self.ending = (
            0  # the number that its keeper gave to the latest end of a durable job; they come in order
        )

    def add(self, job: Job) -> bool:
        """False: it was no job, but a question that the broker answered itself."""
        worker = job.worker
        doer = -1
        if worker is not None:
            if worker.internal:
                return False
            doer = self.workers.get(worker, -1)
            if doer < 0:
                doer = self.workers[worker] = len(self.workers)
        service = job.service
        what = self.services.get(service, -1)
        if what < 0:
            what = self.services[service] = len(self.services)
        client = job.client
        who = self.clients.get(client, -1)
        if who < 0:
            who = self.clients[client] = len(self.clients)
        place = self.count
        self.count = place + 1
        ROW.pack_into(
            self.buffer,
            place * ROW_SIZE,
            job.id,
            job.size,
            job.size_out,
            job.submitted,
            job.queued,
            job.started,
            job.dispatched,
            job.finished,
            job.attempt,
            job.partials,
            what,
            who,
            doer,
        )
        if job.asked is not service.name:
            self.aliases[place] = job.asked
        if job.partials:
            self.first_partials[place] = job.first_partial
        if job.failure is not None:
            self.failed[place] = job
        extra = job.extra
        if extra is not None:
            self.special[place] = job
            if extra.durable and extra.added:
                self.ending = extra.ending
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class RowJournal(Journal):
    """A journal that notes ended jobs in rows, and says when there is no room for more."""

    def __init__(self, room: int) -> None:
        self.rows = Rows(room)

    def finished(self, job: Job) -> None:
        rows = self.rows
        if rows.add(job) and rows.count == rows.room:
            self.collect()

    @abstractmethod
    def collect(self) -> None:
        """Take `rows`, and put new ones in their place."""
