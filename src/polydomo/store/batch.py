"""A batch of writes as one transaction on a database: load the jobs, apply the operations, write the changes.

There is only one writer (a lock ensures it), so loaded jobs cannot change in the database. Each job is written at most
once per batch, however many operations it had.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec.structs import astuple

from polydomo.store import queries
from polydomo.store.database import Database, Row
from polydomo.store.kv_batch import KvBatch
from polydomo.store.queries import SqlTable
from polydomo.store.records import (
    AttemptRecord,
    EventRecord,
    JobChange,
    JobProgress,
    JobRecord,
    PartialRecord,
)

IDENTITY_FIELDS: Final = 2  # id, service: the first fields of a JobProgress, which never change
OWNER_FIELDS: Final = 2  # principal, size_kept: the last fields of a JobProgress, which never change either
REQUEST_FIELDS: Final = 3  # body, envelope, options: the last fields of a JobRecord

# Tables of what belongs to a job.
RECORD_TABLES: Final[dict[type, SqlTable]] = {
    AttemptRecord: queries.ATTEMPTS,
    PartialRecord: queries.PARTIALS,
    EventRecord: queries.EVENTS,
}


class WriteBatch:
    """The loaded jobs of one batch, and the rows to write. Operations change a job's fields, then call the method that
    saves them."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobProgress] = {}
        self._keys: dict[tuple[str, bytes, str], JobProgress] = {}
        self._key_of: dict[int, tuple[str, bytes, str]] = {}  # the same keys, by `seq`
        self._removed: set[int] = set()
        self._new: dict[int, JobRecord] = {}
        self._progress: dict[int, JobProgress] = {}
        self._changes: dict[int, JobChange] = {}
        self._tallies: dict[tuple[bytes, str], int] = {}
        self._footprints: dict[int, int] = {}  # of the loaded jobs, before this batch
        self._holdings: dict[str, tuple[int, int]] = {}  # jobs and bytes that principals have more
        self._records: dict[type, list[Row]] = {}
        self._results: dict[int, bytes] = {}
        self._removed_results: set[int] = set()
        self._aliases: dict[str, int] = {}
        self._removed_aliases: set[str] = set()  # they may be in the database as another job's
        self._counters: dict[str, int] = {}  # to be raised to these numbers
        self.kv = KvBatch()

    def load(
        self, database: Database, ids: Collection[str], keys: Collection[tuple[str, str, bytes]]
    ) -> None:
        """Read the jobs with these ids, and the holders of these idempotency keys (principal, key, service).

        Two alternatives were measured and saved nothing: a cache of unfinished jobs from batch to batch, and inserting
        new jobs without looking for duplicates until the database rejects one.
        """
        if ids:
            for row in database.fetch_bulk(queries.LOAD_PROGRESS, [(job_id,) for job_id in ids]):
                job = JobProgress(*row)
                self._jobs[job.id] = job
                self._footprints[job.seq] = job.footprint()
        if keys:
            for owner, service, key, job_id, seq in database.fetch_bulk(queries.LOAD_KEY_HOLDERS, list(keys)):
                job = self._jobs.get(job_id) or JobProgress(job_id, service, seq)
                self._hold_key((owner, service, key), job)

    def find(self, job_id: str) -> JobProgress | None:
        """Return the job with this id."""
        return self._jobs.get(job_id)

    def find_by_key(self, principal: str, service: bytes, key: str) -> JobProgress | None:
        """Return the principal's job that has this idempotency key."""
        return self._keys.get((principal, service, key))

    def insert(self, job: JobRecord) -> None:
        """Add a new job, whose id and key are free."""
        self._jobs[job.id] = job
        self._new[job.seq] = job
        if job.key is not None:
            self._hold_key((job.principal, job.service, job.key), job)
        self._tally(job.service, job.state, 1)

    def save_progress(self, job: JobProgress) -> None:
        """Save the job's progress; its state is unchanged."""
        self._progress[job.seq] = job

    def save_state(self, job: JobProgress, old: str) -> None:
        """Save the job's progress, with a state other than `old`."""
        self._tally(job.service, old, -1)
        self._tally(job.service, job.state, 1)
        self._progress[job.seq] = job

    def save_change(self, job: JobProgress, change: JobChange) -> None:
        """Change fields of the job that are not part of its progress."""
        new = self._new.get(job.seq)
        if new is not None:
            change.apply_to(new)
        else:
            self._changes.setdefault(job.seq, JobChange()).merge(change)
        if change.release_key:
            self._release_key(job.seq)

    def remove(self, job: JobProgress) -> None:
        """Remove the job and everything that belongs to it."""
        seq = job.seq
        del self._jobs[job.id]
        self._release_key(seq)
        self.raise_counter("ending", job.ending or 0)
        self._tally(job.service, job.state, -1)
        self._progress.pop(seq, None)
        self._changes.pop(seq, None)
        self._results.pop(seq, None)
        for kind, rows in self._records.items():
            self._records[kind] = [row for row in rows if row[0] != seq]
        for name in [name for name, owner in self._aliases.items() if owner == seq]:
            del self._aliases[name]
            self._removed_aliases.add(name)
        if self._new.pop(seq, None) is None:
            self._removed.add(seq)
            self._hold(job.principal, -1, -self._footprints[seq])
            self.raise_counter("seq", seq)

    def raise_counter(self, name: str, number: int) -> None:
        """Raise a counter of table `meta`; a lower number changes nothing.

        `seq` and `ending` are the highest numbers of removed jobs and withdrawn ends, which are not assigned again;
        `ledger` is the number of the last end up to which the ledger is complete.
        """
        self._counters[name] = max(self._counters.get(name, 0), number)

    def add_record(self, job: JobProgress, record: AttemptRecord | PartialRecord | EventRecord) -> None:
        """Add an attempt that ended without finishing the job, a partial reply, or an event."""
        self._records.setdefault(type(record), []).append((job.seq, *astuple(record)))

    def add_alias(self, job: JobProgress, name: str) -> None:
        """Add an alias; another job that has it loses it."""
        self._aliases[name] = job.seq

    def set_result(self, job: JobProgress, body: bytes | None) -> None:
        """Save the body of the job's result; None removes it."""
        if body is not None:
            self._results[job.seq] = body
        elif self._results.pop(job.seq, None) is None:
            self._removed_results.add(job.seq)

    def write(self, database: Database) -> None:
        """Write the changes: removals first, so that their ids and keys are free for new jobs."""
        self._write_removals(database)
        self._write_changes(database)
        self._write_new(database)
        self.kv.write(database)

    def _write_removals(self, database: Database) -> None:
        if self._removed:
            rows = [(seq,) for seq in sorted(self._removed)]
            for statement in queries.DELETE_JOBS:
                database.execute_bulk(statement, rows)
        if self._removed_aliases:
            database.execute_bulk(queries.DELETE_ALIASES, [(name,) for name in self._removed_aliases])
        for name, number in self._counters.items():
            database.execute(queries.RAISE_COUNTER, name=name, number=number)
        if self._removed_results:
            database.execute_bulk(queries.DELETE_RESULTS, [(seq,) for seq in self._removed_results])

    def _write_changes(self, database: Database) -> None:
        progress = [job for seq, job in self._progress.items() if seq not in self._new]
        if progress:
            database.execute_bulk(
                queries.UPDATE_PROGRESS, [astuple(job)[IDENTITY_FIELDS:-OWNER_FIELDS] for job in progress]
            )
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
        for job in progress:
            self._hold(job.principal, 0, job.footprint() - self._footprints[job.seq])
        for new in self._new.values():
            self._hold(new.principal, 1, new.footprint())
        holdings = [(principal, *more) for principal, more in self._holdings.items() if more != (0, 0)]
        if holdings:
            database.execute_bulk(queries.ADD_HOLDINGS, holdings)
        if self._removed:
            database.execute(queries.DELETE_EMPTY_TALLIES)
            database.execute(queries.DELETE_EMPTY_HOLDINGS)

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
        if self._results:
            database.insert(queries.RESULTS, list(self._results.items()))
        for kind, rows in self._records.items():
            if rows:
                database.insert(RECORD_TABLES[kind], rows)

    def _tally(self, service: bytes, state: str, number: int) -> None:
        self._tallies[service, state] = self._tallies.get((service, state), 0) + number

    def _hold(self, principal: str, jobs: int, size: int) -> None:
        before = self._holdings.get(principal, (0, 0))
        self._holdings[principal] = before[0] + jobs, before[1] + size

    def _hold_key(self, key: tuple[str, bytes, str], job: JobProgress) -> None:
        self._keys[key] = job
        self._key_of[job.seq] = key

    def _release_key(self, seq: int) -> None:
        key = self._key_of.pop(seq, None)
        if key is not None:
            del self._keys[key]
