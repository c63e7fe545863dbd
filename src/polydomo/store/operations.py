"""Write operations: which writes a job's state allows, and what they change.

The three stores differ in where the jobs are, not in what may happen to them. An operation changes a `WriteBatch`,
which is loaded from a database before and written after. A store has one writer, which applies the operations one
after the other in the order in which they were made.

Fencing: attempt numbers only grow. A write on behalf of an attempt older than the latest is refused, and so is a
second end of a job. A write of an attempt *newer* than the latest known is accepted: the record of its start was lost
to a full disk.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import Final

import msgspec

from polydomo.store.batch import WriteBatch
from polydomo.store.database import Database
from polydomo.store.errors import (
    AlreadyFinished,
    DuplicateJob,
    DuplicateKey,
    StoreError,
    StoreRefusal,
    Superseded,
    UnknownJob,
    WrongState,
)
from polydomo.store.records import (
    DEAD,
    DONE,
    RUNNING,
    WAITING,
    AttemptRecord,
    EventRecord,
    JobChange,
    JobProgress,
    JobRecord,
    KvItem,
    PartialRecord,
)

# Called on the owner's thread when the write is on disk (None) or has failed.
DoneCallback = Callable[[StoreError | None], object]

SUPERSEDED: Final = "superseded"  # outcome of an attempt that ended because the next one started

# Approximate size of an operation's objects in the queue, besides its bodies.
OVERHEAD: Final = 512

Outcomes = list[StoreError | None]  # of the operations of a batch, in their order


class Operation(msgspec.Struct, eq=False):
    """One write. It may be applied several times, because a failed batch is retried."""

    done: DoneCallback | None

    @property
    def size(self) -> int:
        """Approximate bytes in the queue."""
        return OVERHEAD

    def ids(self) -> Sequence[str]:
        """Return the ids of the jobs that the operation reads."""
        return ()

    @abstractmethod
    def apply(self, batch: WriteBatch) -> StoreRefusal | None:
        """Change the batch, or return why the write is refused."""


class AddJob(Operation):
    """Add a new job."""

    job: JobRecord

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.job.body) + len(self.job.envelope) + len(self.job.options)

    def ids(self) -> Sequence[str]:
        return (self.job.id,)

    def apply(self, batch: WriteBatch) -> StoreRefusal | None:
        job = self.job
        if batch.find(job.id) is not None:
            return DuplicateJob(f"there is a job {job.id} already")
        if job.key is not None:
            holder = batch.find_by_key(job.principal, job.service, job.key)
            if holder is not None:
                return DuplicateKey(f"job {holder.id} has the idempotency key {job.key!r} already")
        batch.insert(copy(job))
        return None


class JobOperation(Operation):
    """A write about one existing job."""

    job_id: str

    def ids(self) -> Sequence[str]:
        return (self.job_id,)

    def apply(self, batch: WriteBatch) -> StoreRefusal | None:
        job = batch.find(self.job_id)
        if job is None:
            return UnknownJob(f"there is no job {self.job_id}")
        return self.apply_to(batch, job)

    @abstractmethod
    def apply_to(self, batch: WriteBatch, job: JobProgress) -> StoreRefusal | None:
        """Change the job, or return why the write is refused."""


class StartAttempt(JobOperation):
    """Record the dispatch of the job to a worker."""

    number: int
    worker: bytes
    at: int
    token: bytes
    holder: str

    def apply_to(self, batch: WriteBatch, job: JobProgress) -> StoreRefusal | None:
        if job.finished is not None:
            return _already_finished(job)
        if self.number <= job.attempt:
            return _superseded(job, self.number)
        _end_attempt(batch, job, self.at, SUPERSEDED)
        job.attempt = self.number
        job.worker = self.worker
        job.token = self.token
        job.holder = self.holder
        job.dispatched = self.at
        _enter_state(batch, job, RUNNING)
        return None


class AddEvent(JobOperation):
    """Add an event. Events are not fenced: they are accepted from any attempt, also after the job's end."""

    record: EventRecord

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.record.body)

    def apply_to(self, batch: WriteBatch, job: JobProgress) -> StoreRefusal | None:
        batch.add_record(job, self.record)
        return None


class AddPartial(JobOperation):
    """Add a partial reply."""

    record: PartialRecord

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.record.body)

    def apply_to(self, batch: WriteBatch, job: JobProgress) -> StoreRefusal | None:
        refusal = _fence(batch, job, self.record.attempt, self.record.at)
        if refusal is not None:
            return refusal
        job.size_out += len(self.record.body)
        batch.save_progress(job)
        batch.add_record(job, self.record)
        return None


class AddAlias(JobOperation):
    """Add an alias of the job, also after its end."""

    name: str

    def apply_to(self, batch: WriteBatch, job: JobProgress) -> StoreRefusal | None:
        batch.add_alias(job, self.name)
        return None


class FinishJob(JobOperation):
    """Finish the job, once."""

    attempt: int
    state: str
    code: str
    message: str
    body: bytes | None
    at: int
    ending: int

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.body or b"")

    def apply_to(self, batch: WriteBatch, job: JobProgress) -> StoreRefusal | None:
        lost = 0 < self.attempt == job.attempt and job.dispatched is None and job.finished is None
        if lost and self.state == DONE:
            # The broker may still end a job that waits again, but a worker's reply to the lost attempt is too late.
            return _superseded(job, self.attempt)
        refusal = _fence(batch, job, self.attempt, self.at)
        if refusal is not None:
            return refusal
        job.code = self.code
        job.message = self.message
        job.finished = self.at
        job.ending = self.ending
        if self.body is not None:
            job.size_out += len(self.body)
            batch.set_result(job, self.body)
        _enter_state(batch, job, self.state)
        return None


class ReviveJob(JobOperation):
    """Send a job again that finished without a result. Its attempt numbers continue."""

    at: int

    def apply_to(self, batch: WriteBatch, job: JobProgress) -> StoreRefusal | None:
        if job.finished is None or job.state == DONE:
            return WrongState(
                f"job {job.id} is {job.state}; only jobs that finished without a result can be sent again"
            )
        _end_attempt(batch, job, job.finished, job.state)
        job.finished = None
        if job.ending is not None:
            batch.raise_counter("ending", job.ending)
            job.ending = None
        job.code = ""
        job.message = ""
        job.size_out = 0
        job.not_before = None
        job.queued = self.at
        batch.set_result(job, None)
        _enter_state(batch, job, WAITING)
        return None


class UpdateJob(JobOperation):
    """Change a job that has not finished. Its idempotency key can be released later, too."""

    change: JobChange

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.change.options or b"")

    def apply_to(self, batch: WriteBatch, job: JobProgress) -> StoreRefusal | None:
        if job.finished is not None and self.change != JobChange(release_key=True):
            return _already_finished(job)
        batch.save_change(job, self.change)
        return None


class RemoveJob(JobOperation):
    """Remove a job and everything that belongs to it."""

    def apply_to(self, batch: WriteBatch, job: JobProgress) -> StoreRefusal | None:
        batch.remove(job)
        return None


class RemoveEnded(Operation):
    """Remove finished jobs, dead letters only if wanted. Jobs that were revived in the meantime stay."""

    job_ids: Sequence[str]
    dead: bool = False
    removed: int = 0

    def ids(self) -> Sequence[str]:
        return self.job_ids

    def apply(self, batch: WriteBatch) -> StoreRefusal | None:
        self.removed = 0
        for job_id in self.job_ids:
            job = batch.find(job_id)
            if job is not None and job.finished is not None and (self.dead or job.state != DEAD):
                batch.remove(job)
                self.removed += 1
        return None


class SetLedgerPosition(Operation):
    """Record that the ledger has every end up to this one."""

    ending: int

    def apply(self, batch: WriteBatch) -> StoreRefusal | None:
        batch.raise_counter("ledger", self.ending)
        return None


class PutItem(Operation):
    """Add an item, or replace the one with its name."""

    item: KvItem

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.item.value) + len(self.item.name)

    def apply(self, batch: WriteBatch) -> StoreRefusal | None:
        batch.kv.put(self.item)
        return None


class DropItem(Operation):
    """Remove an item, or a whole space."""

    space: str
    name: bytes | None

    def apply(self, batch: WriteBatch) -> StoreRefusal | None:
        batch.kv.drop(self.space, self.name)
        return None


class TrimSpace(Operation):
    """Remove expired items, then the oldest until the space has the given size."""

    space: str
    now: int
    limit: int | None

    def apply(self, batch: WriteBatch) -> StoreRefusal | None:
        batch.kv.trim(self.space, self.now, self.limit)
        return None


def execute(database: Database, operations: Sequence[Operation]) -> Outcomes:
    """Apply the operations in the open transaction and return the outcome of each."""
    batch = WriteBatch()
    new = [operation.job for operation in operations if isinstance(operation, AddJob)]
    batch.load(
        database,
        {job_id for operation in operations for job_id in operation.ids()},
        {(job.principal, job.key, job.service) for job in new if job.key is not None},
    )
    outcomes: Outcomes = [operation.apply(batch) for operation in operations]
    batch.write(database)
    return outcomes


def _enter_state(batch: WriteBatch, job: JobProgress, state: str) -> None:
    old = job.state
    job.state = state
    batch.save_state(job, old)


def _end_attempt(batch: WriteBatch, job: JobProgress, at: int, outcome: str) -> None:
    """Move the latest attempt from the job's own fields to a record of its own."""
    if job.dispatched is not None:
        record = AttemptRecord(job.attempt, job.worker, job.dispatched, at, outcome, job.token)
        batch.add_record(job, record)
        job.dispatched = None
        job.worker = job.token = b""


def _fence(batch: WriteBatch, job: JobProgress, attempt: int, at: int) -> StoreRefusal | None:
    """Refuse a write of an attempt that is over. The start of an attempt newer than known is recorded late."""
    if job.finished is not None:
        return _already_finished(job)
    if attempt < job.attempt:
        return _superseded(job, attempt)
    if attempt > job.attempt:
        _end_attempt(batch, job, at, SUPERSEDED)
        job.attempt = attempt
        job.dispatched = at
        _enter_state(batch, job, RUNNING)
    return None


def _already_finished(job: JobProgress) -> StoreRefusal:
    return AlreadyFinished(f"job {job.id} is {job.state} since attempt {job.attempt}")


def _superseded(job: JobProgress, attempt: int) -> StoreRefusal:
    return Superseded(f"attempt {attempt} of job {job.id} is over; the latest is {job.attempt}")
