"""A batch of writes as one transaction on a database: load the jobs, apply the operations, write the changes.

There is only one writer (a lock ensures it), so loaded jobs cannot change in the database. Each job is written at most
once per batch, however many operations it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import astuple

from polydomo.store import queries
from polydomo.store.database import Database, Row
from polydomo.store.errors import StoreError
from polydomo.store.kv_batch import KvBatch
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

REQUEST_FIELDS: Final = 3  # body, envelope, options: the last fields of a JobRecord


def execute(database: Database, operations: Sequence[Operation]) -> list[StoreError | None]:
    """Apply the operations in the open transaction and return the outcome of each."""
    batch = WriteBatch()
    batch.load(database, operations)
    outcomes: list[StoreError | None] = [operation.apply(batch) for operation in operations]
    batch.write(database)
    return outcomes


class WriteBatch(Repository):
    """The loaded jobs of one batch, and the rows to write."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobProgress] = {}
        self._keys: dict[tuple[bytes, str], JobProgress] = {}
        self._key_of: dict[int, tuple[bytes, str]] = {}  # the same keys, by `seq`
        self._removed: set[int] = set()
        self._new: dict[int, JobRecord] = {}
        self._progress: dict[int, JobProgress] = {}
        self._changes: dict[int, JobChange] = {}
        self._tallies: dict[tuple[bytes, str], int] = {}
        self._attempts: list[Row] = []
        self._partials: list[Row] = []
        self._events: list[Row] = []
        self._results: dict[int, bytes] = {}
        self._removed_results: set[int] = set()
        self._aliases: dict[str, int] = {}
        self._removed_aliases: set[str] = set()  # they may be in the database as another job's
        self._withdrawn_ending = 0  # the highest
        self._ledger_position = 0
        self._kv = KvBatch()

    def load(self, database: Database, operations: Sequence[Operation]) -> None:
        """Read the jobs and idempotency keys that the operations need.

        Two alternatives were measured and saved nothing: a cache of unfinished jobs from batch to batch, and inserting
        new jobs without looking for duplicates until the database rejects one.
        """
        ids = {job_id for operation in operations for job_id in operation.ids()}
        if ids:
            for row in database.fetch_bulk(queries.LOAD_PROGRESS, [(job_id,) for job_id in ids]):
                job = JobProgress(*row)
                self._jobs[job.id] = job
        new = [operation.job for operation in operations if isinstance(operation, AddJob)]
        keys = {(job.key, job.service) for job in new if job.key is not None}
        if keys:
            for service, key, job_id, seq in database.fetch_bulk(queries.LOAD_KEY_HOLDERS, list(keys)):
                self._hold_key((service, key), self._jobs.get(job_id) or JobProgress(job_id, service, seq))

    @property
    def kv(self) -> KvBatch:
        return self._kv

    def find(self, job_id: str) -> JobProgress | None:
        return self._jobs.get(job_id)

    def find_by_key(self, service: bytes, key: str) -> JobProgress | None:
        return self._keys.get((service, key))

    def insert(self, job: JobRecord) -> None:
        self._jobs[job.id] = job
        self._new[job.seq] = job
        if job.key is not None:
            self._hold_key((job.service, job.key), job)
        self._tally(job.service, job.state, 1)

    def save_progress(self, job: JobProgress) -> None:
        self._progress[job.seq] = job

    def save_state(self, job: JobProgress, old: str) -> None:
        self._tally(job.service, old, -1)
        self._tally(job.service, job.state, 1)
        self._progress[job.seq] = job

    def save_change(self, job: JobProgress, change: JobChange) -> None:
        new = self._new.get(job.seq)
        if new is not None:
            change.apply_to(new)
        else:
            self._changes.setdefault(job.seq, JobChange()).merge(change)
        if change.release_key:
            self._release_key(job.seq)

    def remove(self, job: JobProgress) -> None:
        seq = job.seq
        del self._jobs[job.id]
        self._release_key(seq)
        self.withdraw_ending(job.ending or 0)
        self._tally(job.service, job.state, -1)
        self._progress.pop(seq, None)
        self._changes.pop(seq, None)
        self._results.pop(seq, None)
        self._attempts = [row for row in self._attempts if row[0] != seq]
        self._partials = [row for row in self._partials if row[1] != seq]
        self._events = [row for row in self._events if row[1] != seq]
        for name in [name for name, owner in self._aliases.items() if owner == seq]:
            del self._aliases[name]
            self._removed_aliases.add(name)
        if self._new.pop(seq, None) is None:
            self._removed.add(seq)

    def withdraw_ending(self, ending: int) -> None:
        self._withdrawn_ending = max(self._withdrawn_ending, ending)

    def set_ledger_position(self, ending: int) -> None:
        self._ledger_position = max(self._ledger_position, ending)

    def add_attempt(self, job: JobProgress, record: AttemptRecord) -> None:
        self._attempts.append((job.seq, *astuple(record)))

    def add_partial(self, job: JobProgress, record: PartialRecord) -> None:
        self._partials.append((record.number, job.seq, record.attempt, record.at, record.body))

    def add_event(self, job: JobProgress, record: EventRecord) -> None:
        self._events.append((record.number, job.seq, record.at, record.worker, record.kind, record.body))

    def add_alias(self, job: JobProgress, name: str) -> None:
        self._aliases[name] = job.seq

    def set_result(self, job: JobProgress, body: bytes | None) -> None:
        if body is not None:
            self._results[job.seq] = body
        elif self._results.pop(job.seq, None) is None:
            self._removed_results.add(job.seq)

    def write(self, database: Database) -> None:
        """Write the changes: removals first, so that their ids and keys are free for new jobs."""
        self._write_removals(database)
        self._write_changes(database)
        self._write_new(database)
        self._kv.write(database)

    def _write_removals(self, database: Database) -> None:
        if self._removed:
            rows = [(seq,) for seq in sorted(self._removed)]
            for statement in queries.DELETE_JOBS:
                database.execute_bulk(statement, rows)
            database.execute(queries.RAISE_SEQ, seq=rows[-1][0])
        if self._removed_aliases:
            database.execute_bulk(queries.DELETE_ALIASES, [(name,) for name in self._removed_aliases])
        if self._withdrawn_ending:
            database.execute(queries.RAISE_ENDING, ending=self._withdrawn_ending)
        if self._ledger_position:
            database.execute(queries.RAISE_LEDGER_POSITION, ending=self._ledger_position)
        if self._removed_results:
            database.execute_bulk(queries.DELETE_RESULTS, [(seq,) for seq in self._removed_results])

    def _write_changes(self, database: Database) -> None:
        progress = [job for seq, job in self._progress.items() if seq not in self._new]
        if progress:
            database.execute_bulk(queries.UPDATE_PROGRESS, [_progress_row(job) for job in progress])
        if self._changes:
            changes = self._changes.items()
            rows = [(seq, change.max_attempts, int(change.release_key)) for seq, change in changes]
            database.execute_bulk(queries.UPDATE_JOBS, rows)
            options = [(seq, change.options) for seq, change in changes if change.options is not None]
            if options:
                database.execute_bulk(queries.UPDATE_OPTIONS, options)
        tallies = [(service, state, number) for (service, state), number in self._tallies.items() if number]
        if tallies:
            database.execute_bulk(queries.ADD_TALLIES, tallies)
        if self._removed:
            database.execute(queries.DELETE_EMPTY_TALLIES)

    def _write_new(self, database: Database) -> None:
        if self._new:
            jobs: list[Row] = []
            requests: list[Row] = []
            for job in self._new.values():
                row = astuple(job)
                jobs.append((*row[:-REQUEST_FIELDS], None if job.key is None else job.service))
                requests.append((job.seq, *row[-REQUEST_FIELDS:]))
            database.insert(queries.JOBS, jobs)
            database.insert(queries.REQUESTS, requests)
        if self._aliases:
            database.execute_bulk(queries.UPSERT_ALIASES, list(self._aliases.items()))
        for table, rows in (
            (queries.RESULTS, list(self._results.items())),
            (queries.ATTEMPTS, self._attempts),
            (queries.PARTIALS, self._partials),
            (queries.EVENTS, self._events),
        ):
            if rows:
                database.insert(table, rows)

    def _tally(self, service: bytes, state: str, number: int) -> None:
        self._tallies[service, state] = self._tallies.get((service, state), 0) + number

    def _hold_key(self, key: tuple[bytes, str], job: JobProgress) -> None:
        self._keys[key] = job
        self._key_of[job.seq] = key

    def _release_key(self, seq: int) -> None:
        key = self._key_of.pop(seq, None)
        if key is not None:
            del self._keys[key]


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
