"""A batch of writes as one transaction on a database: load the jobs it is about, apply the rules, write what
changed.

Only one writer exists (a lock sees to that), so what was loaded cannot change under its hands. Each job is
written at most once per batch, however many writes it had in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import astuple

from polydomo.store import queries
from polydomo.store.database import Database, Row
from polydomo.store.errors import StoreError
from polydomo.store.kv_batch import KvBatch
from polydomo.store.memory import revise
from polydomo.store.operations import AddJob, Operation
from polydomo.store.records import (
    AttemptRecord,
    EventRecord,
    JobChange,
    JobProgress,
    JobRecord,
    PartialRecord,
)
from polydomo.store.repository import Repository

REQUEST_FIELDS: Final = 3  # body, envelope, options: the end of a JobRecord


def execute(database: Database, ops: Sequence[Operation]) -> list[StoreError | None]:
    """All of them in the open transaction; what became of each."""
    books = WriteBatch()
    books.load(database, ops)
    outcomes: list[StoreError | None] = [op.apply(books) for op in ops]
    books.write(database)
    return outcomes


class WriteBatch(Repository):
    """What is known of the jobs of one batch, and what is to be written."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobProgress] = {}
        self._keys: dict[tuple[bytes, str], JobProgress] = {}
        self._gone: set[int] = set()
        self._new: dict[int, JobRecord] = {}
        self._owned: dict[int, tuple[bytes, str]] = {}  # the same, by job
        self._changed: dict[int, JobProgress] = {}
        self._revised: dict[int, JobChange] = {}
        self._tally: dict[tuple[bytes, str], int] = {}
        self._attempts: list[Row] = []
        self._partials: list[Row] = []
        self._events: list[Row] = []
        self._results: dict[int, bytes] = {}
        self._withdrawn: set[int] = set()  # results
        self._aliases: dict[str, int] = {}
        self._ending = 0  # the highest that was taken back
        self._settled = 0
        self._shelf = KvBatch()
        self._unnamed: set[str] = set()  # names that went with the job that had taken them

    def load(self, database: Database, ops: Sequence[Operation]) -> None:
        """Read what the writes will look at.

        (Remembering unfinished jobs from batch to batch, and taking new jobs for new until the database
        objects, were both tried: what they save is what they cost.)
        """
        ids = {job_id for op in ops for job_id in op.ids()}
        if ids:
            for row in database.ask(queries.LOAD, [(job_id,) for job_id in ids]):
                job = JobProgress(*row)
                self._jobs[job.id] = job
        keys = {
            (op.job.key, op.job.service) for op in ops if isinstance(op, AddJob) and op.job.key is not None
        }
        if keys:
            for service, key, job_id, seq in database.ask(queries.HOLDERS, list(keys)):
                self._own((service, key), self._jobs.get(job_id) or JobProgress(job_id, service, seq))

    @property
    def shelf(self) -> KvBatch:
        return self._shelf

    def find(self, job_id: str) -> JobProgress | None:
        return self._jobs.get(job_id)

    def holder(self, service: bytes, key: str) -> JobProgress | None:
        return self._keys.get((service, key))

    def insert(self, job: JobRecord) -> None:
        self._jobs[job.id] = job
        self._new[job.seq] = job
        if job.key is not None:
            self._own((job.service, job.key), job)
        self._count(job.service, job.state, 1)

    def changed(self, job: JobProgress) -> None:
        self._changed[job.seq] = job

    def moved(self, job: JobProgress, service: bytes, state: str) -> None:
        self._count(service, state, -1)
        self._count(job.service, job.state, 1)
        self._changed[job.seq] = job

    def revised(self, job: JobProgress, change: JobChange) -> None:
        new = self._new.get(job.seq)
        if new is not None:
            revise(new, change)
        else:
            _merge(self._revised.setdefault(job.seq, JobChange()), change)
        if change.release_key:
            self._release(job.seq)

    def removed(self, job: JobProgress) -> None:
        seq = job.seq
        del self._jobs[job.id]
        self._release(seq)
        self.withdrawn(job.ending or 0)
        self._count(job.service, job.state, -1)
        self._changed.pop(seq, None)
        self._revised.pop(seq, None)
        self._results.pop(seq, None)
        self._attempts = [row for row in self._attempts if row[0] != seq]
        self._partials = [row for row in self._partials if row[1] != seq]
        self._events = [row for row in self._events if row[1] != seq]
        for name in [name for name, owner in self._aliases.items() if owner == seq]:
            del self._aliases[name]
            self._unnamed.add(name)
        if self._new.pop(seq, None) is None:
            self._gone.add(seq)

    def withdrawn(self, ending: int) -> None:
        self._ending = max(self._ending, ending)

    def settled(self, ending: int) -> None:
        self._settled = max(self._settled, ending)

    def attempt(self, job: JobProgress, record: AttemptRecord) -> None:
        self._attempts.append((job.seq, *astuple(record)))

    def partial(self, job: JobProgress, record: PartialRecord) -> None:
        self._partials.append((record.number, job.seq, record.attempt, record.at, record.body))

    def event(self, job: JobProgress, record: EventRecord) -> None:
        self._events.append((record.number, job.seq, record.at, record.worker, record.kind, record.body))

    def alias(self, job: JobProgress, name: str) -> None:
        self._aliases[name] = job.seq

    def result(self, job: JobProgress, body: bytes | None) -> None:
        if body is not None:
            self._results[job.seq] = body
        elif self._results.pop(job.seq, None) is None:
            self._withdrawn.add(job.seq)

    def write(self, database: Database) -> None:
        """Removals first, then changes, then what is new: so a key or an id that was given up can be
        taken."""
        self._write_removals(database)
        self._write_changes(database)
        self._write_news(database)
        self._shelf.write(database)

    def _write_removals(self, database: Database) -> None:
        if self._gone:
            rows = [(seq,) for seq in sorted(self._gone)]
            for bulk in queries.REMOVE:
                database.change(bulk, rows)
            database.execute(queries.KEEP_SEQ, seq=rows[-1][0])
        if self._unnamed:
            database.change(queries.REMOVE_NAMES, [(name,) for name in self._unnamed])
        if self._ending:
            database.execute(queries.KEEP_ENDING, ending=self._ending)
        if self._settled:
            database.execute(queries.SETTLE, ending=self._settled)
        if self._withdrawn:
            database.change(queries.REMOVE_RESULTS, [(seq,) for seq in self._withdrawn])

    def _write_changes(self, database: Database) -> None:
        changed = [job for seq, job in self._changed.items() if seq not in self._new]
        if changed:
            database.change(queries.CHANGE, [_progress_row(job) for job in changed])
        if self._revised:
            revised = self._revised.items()
            database.change(queries.REVISE, [_revision_row(seq, change) for seq, change in revised])
            rewritten = [
                (seq, change.body, change.options)
                for seq, change in revised
                if change.body is not None or change.options is not None
            ]
            if rewritten:
                database.change(queries.REWRITE, rewritten)
        tally = [(service, state, number) for (service, state), number in self._tally.items() if number]
        if tally:
            database.change(queries.TALLY, tally)
        if self._gone:
            database.execute(queries.REMOVE_TALLIES)

    def _write_news(self, database: Database) -> None:
        if self._new:
            jobs: list[Row] = []
            requests: list[Row] = []
            for job in self._new.values():
                row = astuple(job)
                owned = self._owned.get(job.seq)
                jobs.append((*row[:-REQUEST_FIELDS], None if owned is None else owned[0]))
                requests.append((job.seq, *row[-REQUEST_FIELDS:]))
            database.append(queries.JOBS, jobs)
            database.append(queries.REQUESTS, requests)
        if self._aliases:
            database.change(queries.ALIAS, list(self._aliases.items()))
        if self._results:
            database.append(queries.RESULTS, list(self._results.items()))
        for table, rows in (
            (queries.ATTEMPTS, self._attempts),
            (queries.PARTIALS, self._partials),
            (queries.EVENTS, self._events),
        ):
            if rows:
                database.append(table, rows)

    def _count(self, service: bytes, state: str, number: int) -> None:
        self._tally[service, state] = self._tally.get((service, state), 0) + number

    def _own(self, key: tuple[bytes, str], job: JobProgress) -> None:
        self._keys[key] = job
        self._owned[job.seq] = key

    def _release(self, seq: int) -> None:
        key = self._owned.pop(seq, None)
        if key is not None:
            del self._keys[key]


def _merge(into: JobChange, change: JobChange) -> None:
    """A later change of the same job goes over an earlier one."""
    for name in change.__struct_fields__:
        value = getattr(change, name)
        if value is not None and value is not False:
            setattr(into, name, value)


def _progress_row(job: JobProgress) -> Row:
    return (
        job.seq,
        job.state,
        job.attempt,
        job.worker,
        job.queued,
        job.not_before,
        job.dispatched,
        job.finished,
        job.code,
        job.message,
        job.size_out,
        job.token,
        job.ending,
    )


def _revision_row(seq: int, change: JobChange) -> Row:
    return (
        seq,
        change.service,
        change.target,
        change.priority,
        change.max_attempts,
        change.timeout,
        change.deadline,
        None if change.body is None else len(change.body),
        int(change.release_key),
    )
