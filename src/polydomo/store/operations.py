"""What each write means: the only place that knows which writes a job's state allows.

The three stores differ in where the jobs are, not in what may happen to them. So a write is an `Operation` that says
what it does to `Repository`; memory's books are dictionaries, the databases' are a batch that was loaded before
and is written after. All writes run one after the other in the order they were made, in the store's one
writer.

Fencing: attempt numbers only grow. A write on behalf of an older attempt than the latest is refused, and so
is any second end of a job. One of a *newer* attempt than known is taken: the record of its beginning was lost
to a full disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Final

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
    CANCELLED,
    DEAD,
    DELAYED,
    DONE,
    RUNNING,
    WAITING,
    AttemptRecord,
    EventRecord,
    JobChange,
    JobProgress,
    JobRecord,
    PartialRecord,
)
from polydomo.store.repository import Repository

DoneCallback = Callable[[StoreError | None], object]

SUPERSEDED: Final = "superseded"  # the outcome of an attempt that ended because the next began

# What a write weighs in the queue besides its bodies: about what its objects take.
OVERHEAD: Final = 512


class Operation:
    """One write. It may be applied more than once (a batch that failed is tried again), so it changes nothing
    of its own for good."""

    __slots__ = ("done", "job_id", "size")

    def __init__(self, job_id: str, done: DoneCallback | None, size: int = 0) -> None:
        self.job_id = job_id
        self.done = done
        self.size = OVERHEAD + size

    def ids(self) -> Sequence[str]:
        """The jobs it looks at."""
        return (self.job_id,)

    def apply(self, books: Repository) -> StoreRefusal | None:
        """Do it, or say why not."""
        job = books.find(self.job_id)
        if job is None:
            return UnknownJob(f"there is no job {self.job_id}")
        return self.change(books, job)

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        """What it does to a job that exists: nothing, unless the write says otherwise."""
        return None


class AddJob(Operation):
    """A new job."""

    __slots__ = ("job",)

    def __init__(self, job: JobRecord, done: DoneCallback | None, size: int) -> None:
        super().__init__(job.id, done, size)
        self.job = job

    def apply(self, books: Repository) -> StoreRefusal | None:
        job = self.job
        if books.find(job.id) is not None:
            return DuplicateJob(f"there is a job {job.id} already")
        if job.key is not None:
            holder = books.holder(job.service, job.key)
            if holder is not None:
                return DuplicateKey(f"job {holder.id} has the idempotency key {job.key!r} already", holder.id)
        books.insert(copy(job))
        return None


class StartAttempt(Operation):
    """A worker gets the job."""

    __slots__ = ("at", "number", "token", "worker")

    def __init__(
        self, job_id: str, number: int, worker: bytes, at: int, token: bytes, done: DoneCallback | None
    ) -> None:
        super().__init__(job_id, done)
        self.token = token
        self.number = number
        self.worker = worker
        self.at = at

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        if job.finished is not None:
            return _finished(job)
        if self.number <= job.attempt:
            return _superseded(job, self.number)
        _end_attempt(books, job, self.at, SUPERSEDED)
        job.attempt = self.number
        job.worker = self.worker
        job.token = self.token
        job.dispatched = self.at
        _enter(books, job, RUNNING)
        return None


class Requeue(Operation):
    """The attempt was lost (its worker vanished, or took too long): the job waits again."""

    __slots__ = ("at", "attempt", "not_before", "reason")

    def __init__(
        self,
        job_id: str,
        attempt: int,
        reason: str,
        at: int,
        not_before: int | None,
        done: DoneCallback | None,
    ) -> None:
        super().__init__(job_id, done)
        self.attempt = attempt
        self.reason = reason
        self.at = at
        self.not_before = not_before

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        refusal = _fence(books, job, self.attempt, self.at)
        if refusal is not None:
            return refusal
        _end_attempt(books, job, self.at, self.reason)
        job.queued = self.at
        job.not_before = self.not_before
        _enter(books, job, WAITING if self.not_before is None else DELAYED)
        return None


class AddPartial(Operation):
    """One of several answers."""

    __slots__ = ("record",)

    def __init__(self, job_id: str, record: PartialRecord, done: DoneCallback | None) -> None:
        super().__init__(job_id, done, len(record.body))
        self.record = record

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        refusal = _fence(books, job, self.record.attempt, self.record.at)
        if refusal is not None:
            return refusal
        job.size_out += len(self.record.body)
        books.partial(job, self.record)
        books.changed(job)
        return None


class AddEvent(Operation):
    """Something that is said about a job. Not fenced: what was said was said, also after the job's end."""

    __slots__ = ("record",)

    def __init__(self, job_id: str, record: EventRecord, done: DoneCallback | None) -> None:
        super().__init__(job_id, done, len(record.body))
        self.record = record

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        books.event(job, self.record)
        return None


class AddAlias(Operation):
    """A further name for a job, also after its end."""

    __slots__ = ("name",)

    def __init__(self, job_id: str, name: str, done: DoneCallback | None) -> None:
        super().__init__(job_id, done, len(name))
        self.name = name

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        books.alias(job, self.name)
        return None


class FinishJob(Operation):
    """The job's end. Recorded once."""

    __slots__ = ("at", "attempt", "body", "code", "ending", "message", "state")

    def __init__(
        self,
        job_id: str,
        attempt: int,
        state: str,
        code: str,
        message: str,
        body: bytes | None,
        at: int,
        ending: int,
        done: DoneCallback | None,
    ) -> None:
        super().__init__(job_id, done, 0 if body is None else len(body))
        self.attempt = attempt
        self.state = state
        self.code = code
        self.message = message
        self.body = body
        self.at = at
        self.ending = ending

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        lost = 0 < self.attempt == job.attempt and job.dispatched is None and job.finished is None
        if (
            lost and self.state == DONE
        ):  # the broker may still end a job that waits, a worker's answer is late
            return _superseded(job, self.attempt)
        refusal = _fence(books, job, self.attempt, self.at)
        if refusal is not None:
            return refusal
        job.code = self.code
        job.message = self.message
        job.finished = self.at
        job.ending = self.ending
        if self.body is not None:
            job.size_out += len(self.body)
            books.result(job, self.body)
        _enter(books, job, self.state)
        return None


class Cancel(Operation):
    """Whatever its attempt, the job is not wanted any more."""

    __slots__ = ("at", "ending")

    def __init__(self, job_id: str, at: int, ending: int, done: DoneCallback | None) -> None:
        super().__init__(job_id, done)
        self.at = at
        self.ending = ending

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        if job.finished is not None:
            return _finished(job)
        job.code = CANCELLED
        job.finished = self.at
        job.ending = self.ending
        _enter(books, job, CANCELLED)
        return None


class ReviveJob(Operation):
    """A job that ended without a result is sent again. Its attempts go on counting where they were."""

    __slots__ = ("at",)

    def __init__(self, job_id: str, at: int, done: DoneCallback | None) -> None:
        super().__init__(job_id, done)
        self.at = at

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        if job.finished is None or job.state == DONE:
            return WrongState(
                f"job {job.id} is {job.state}; only what ended without a result can be sent again"
            )
        _end_attempt(books, job, job.finished, job.state)
        job.finished = None
        if job.ending is not None:
            books.withdrawn(job.ending)
            job.ending = None
        job.code = ""
        job.message = ""
        job.size_out = 0
        job.not_before = None
        job.queued = self.at
        books.result(job, None)
        _enter(books, job, WAITING)
        return None


class UpdateJob(Operation):
    """Anything else that changes about a job that has not ended."""

    __slots__ = ("revision",)

    def __init__(self, job_id: str, revision: JobChange, done: DoneCallback | None) -> None:
        super().__init__(job_id, done, len(revision.body or b"") + len(revision.options or b""))
        self.revision = revision

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        revision = self.revision
        if job.finished is not None:
            if not _only_key(revision):
                return _finished(job)
            books.revised(job, revision)
            return None
        if revision.state is not None and job.state == RUNNING:
            return WrongState(f"job {job.id} is running; only waiting jobs can become {revision.state}")
        service, state = job.service, job.state
        job.state = revision.state or state
        job.service = service if revision.service is None else revision.service
        if revision.queued is not None:
            job.queued = revision.queued
        if revision.not_before is not None or revision.state == WAITING:
            job.not_before = revision.not_before
        books.revised(job, revision)
        books.moved(job, service, state)
        return None


class SetLedgerPosition(Operation):
    """The ledger has written what it was told of."""

    __slots__ = ("ending",)

    def __init__(self, ending: int, done: DoneCallback | None) -> None:
        super().__init__("", done)
        self.ending = ending

    def ids(self) -> Sequence[str]:
        return ()

    def apply(self, books: Repository) -> StoreRefusal | None:
        books.settled(self.ending)
        return None


class RemoveJob(Operation):
    """Remove every trace of a job."""

    __slots__ = ()

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        books.removed(job)
        return None


class RemoveExpired(Operation):
    """Remove finished jobs whose time is over. Those that were sent again meanwhile stay."""

    __slots__ = ("_ids", "removed")

    def __init__(self, ids: Sequence[str], done: DoneCallback) -> None:
        super().__init__("", done)
        self._ids = ids
        self.removed = 0

    def ids(self) -> Sequence[str]:
        return self._ids

    def apply(self, books: Repository) -> StoreRefusal | None:
        self.removed = 0
        for job_id in self._ids:
            job = books.find(job_id)
            if job is not None and job.finished is not None and job.state != DEAD:
                books.removed(job)
                self.removed += 1
        return None


def _enter(books: Repository, job: JobProgress, state: str) -> None:
    old = job.state
    job.state = state
    books.moved(job, job.service, old)


def _end_attempt(books: Repository, job: JobProgress, at: int, outcome: str) -> None:
    """Keep the running attempt's record; the job's own fields are for the next."""
    if job.dispatched is not None:
        books.attempt(job, AttemptRecord(job.attempt, job.worker, job.dispatched, at, outcome, job.token))
        job.dispatched = None
        job.worker = job.token = b""


def _fence(books: Repository, job: JobProgress, attempt: int, at: int) -> StoreRefusal | None:
    """May this attempt still say something? If it is newer than known, its beginning is made up for."""
    if job.finished is not None:
        return _finished(job)
    if attempt < job.attempt:
        return _superseded(job, attempt)
    if attempt > job.attempt:
        _end_attempt(books, job, at, SUPERSEDED)
        job.attempt = attempt
        job.dispatched = at
        _enter(books, job, RUNNING)
    return None


def _finished(job: JobProgress) -> StoreRefusal:
    return AlreadyFinished(f"job {job.id} is {job.state} since attempt {job.attempt}", job.state, job.attempt)


def _superseded(job: JobProgress, attempt: int) -> StoreRefusal:
    return Superseded(f"attempt {attempt} of job {job.id} is over; the latest is {job.attempt}", job.attempt)


def _only_key(change: JobChange) -> bool:
    """Giving up an idempotency key is for finished jobs too: it says that their result should not be
    found."""
    return change == JobChange(release_key=True)
