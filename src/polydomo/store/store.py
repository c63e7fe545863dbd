"""The interface of all stores.

Writes are calls from the event loop's thread that return at once. The store applies them in the order in which they
were made, many per transaction (group commit), and calls `done(error)` on the loop's thread when the transaction is on
disk, in the same order. `done` is optional; without it a failed write shows in `trouble` only.

Reads return a `Deferred`: await it, or give it a callback. A read sees at least all writes whose `done` was called.

The owner passes `call_soon`, which schedules a function on the loop's thread (`loop.call_soon_threadsafe`). It is used
once per transaction, not once per job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from polydomo.deferred import Deferred
from polydomo.store import operations, queries
from polydomo.store.damage import DamageReport
from polydomo.store.database import Database
from polydomo.store.errors import StoreBusy, StoreClosed, StoreError, StoreInvalid, StoreTrouble
from polydomo.store.kv_batch import decode_space, encode_space
from polydomo.store.operations import DoneCallback, Operation, Outcomes
from polydomo.store.records import (
    DELAYED,
    ENDED,
    WAITING,
    AttemptRecord,
    EndedJob,
    EventRecord,
    Holding,
    JobChange,
    JobCount,
    JobFilter,
    JobPage,
    JobRecord,
    KvItem,
    PartialRecord,
    ResultRecord,
    Retention,
)
from polydomo.store.writer import CallSoon, ReaderThread, WriterThread

T = TypeVar("T")

Counters = tuple[int, int, int]  # `seq`, `ending`, `number`

# Bytes that may wait to be written before `add` refuses: enough for a disk that stops for a second.
BACKLOG: Final = 256 * 1024 * 1024

# The fraction of the backlog (1/8) beyond which the owner should accept no more jobs (`behind`) until half of it is
# written. Two or three transactions keep the disk busy, and a longer queue only adds latency.
READY: Final = 8

# Writes reported in one turn of the loop: each may dispatch a job or send a reply.
SLICE: Final = 256

# Writes with a `done` in one transaction, at most: the first ones should not wait for all of a long queue.
BATCH: Final = 4096

# Jobs that one transaction of a sweep removes: few enough to delay other writes by some milliseconds only.
SWEEP_JOBS: Final = 500

# Jobs that recovery reads at once, and the approximate limit of their bodies.
RECOVERY_JOBS: Final = 2000
RECOVERY_BYTES: Final = 32 * 1024 * 1024

# Finished jobs that are read at once.
ENDINGS: Final = 1000

# Limits of items' names: an entry of PostgreSQL's indexes has at most 2,700 bytes.
NAME_BYTES: Final = 1024
SPACE_LENGTH: Final = 512


class Store(ABC):
    """A store of durable jobs and key-value items, in a database with a connection for writing and one for reading.

    All methods are for the loop's thread, except `close`, `inspect` and `check_damage`. Subclasses open their
    connections, then start the threads.
    """

    _writer: WriterThread
    _reader: ReaderThread

    def __init__(self, call_soon: CallSoon, backlog_limit: int = BACKLOG, batch: int = BATCH) -> None:
        self.backlog = 0  # bytes that wait to be written
        self.backlog_limit = backlog_limit
        self.batch = batch  # 1: no group commit, for comparison
        self.trouble: StoreTrouble | None = None  # why the latest transaction failed; None if it did not
        self.on_trouble: Callable[[StoreTrouble], None] | None = None  # called for each failed transaction
        self.damage = ""  # loss of data found while opening
        self.unopened: StoreTrouble | None = None  # why the store is not open yet, see `reopen`
        self.commits = 0  # transactions since the store was opened
        self.writes = 0  # writes in these transactions
        self.refused = 0  # writes refused because of a full backlog
        self.on_progress: Callable[[], None] | None = None  # called when writes have completed
        self.number = 0  # of the latest call of `partial` or `event`
        self.ending = 0  # of the latest call of `finish`, whether it was accepted or not
        self._call_soon = call_soon
        self._unreported: deque[tuple[Operation, StoreError | None]] = (
            deque()
        )  # completed, `done` not yet called
        self._closed = False
        self._seq = 0  # of the latest call of `add`

    # Writes

    def add(self, job: JobRecord, done: DoneCallback | None = None) -> None:
        """Add a new job in state waiting or delayed, and set its `seq`. The record must not be changed afterwards.

        Raises StoreBusy when too much is waiting to be written. Refused with DuplicateJob or DuplicateKey.
        """
        operation = operations.AddJob(done, job)
        if self.backlog and self.backlog + operation.size > self.backlog_limit:
            self.refused += 1
            raise StoreBusy(f"{self.backlog} bytes wait to be written already")
        _check_text(job.principal, job.key, job.parent, job.target, job.dialect)
        if job.state not in (WAITING, DELAYED):
            raise StoreInvalid(f"a new job is waiting or delayed, not {job.state!r}")
        self._seq += 1
        job.seq = self._seq
        job.size_in = len(job.body)
        job.size_kept = job.size_in + len(job.envelope) + len(job.options)
        self._write(operation)

    def attempt(
        self,
        job_id: str,
        number: int,
        worker: bytes,
        at: int,
        token: bytes = b"",
        done: DoneCallback | None = None,
        holder: str = "anonymous",
    ) -> None:
        """Record the dispatch of the job to `worker` of the principal `holder`, whose reply must carry `token`.

        Numbers grow; a number that is not higher than the latest is refused with Superseded.
        """
        self._write(operations.StartAttempt(done, job_id, number, worker, at, token, holder))

    def partial(
        self, job_id: str, attempt: int, body: bytes, at: int, done: DoneCallback | None = None
    ) -> None:
        """Add a partial reply of this attempt."""
        self.number += 1
        self._write(operations.AddPartial(done, job_id, PartialRecord(self.number, attempt, at, body)))

    def event(
        self,
        job_id: str,
        kind: str,
        body: bytes,
        at: int,
        worker: bytes = b"",
        done: DoneCallback | None = None,
    ) -> None:
        """Add an event of the job, also after its end."""
        self.number += 1
        record = EventRecord(self.number, at, worker, _clean(kind), body)
        self._write(operations.AddEvent(done, job_id, record))

    def alias(self, job_id: str, name: str, done: DoneCallback | None = None) -> None:
        """Let `name` refer to this job, unless there is a job with that id."""
        _check_text(name)
        self._write(operations.AddAlias(done, job_id, name))

    def finish(
        self,
        job_id: str,
        attempt: int,
        state: str,
        body: bytes | None,
        at: int,
        done: DoneCallback | None = None,
        *,
        code: str = "",
        message: str = "",
    ) -> None:
        """Finish the job as done, failed, cancelled or dead. Recorded once.

        Refused with AlreadyFinished, or with Superseded if the attempt is over. The broker itself finishes a waiting
        job under the number of its latest attempt.
        """
        if state not in ENDED:
            raise StoreInvalid(f"a job ends as one of {', '.join(ENDED)}, not {state!r}")
        self.ending += 1
        self._write(
            operations.FinishJob(
                done, job_id, attempt, state, _clean(code), _clean(message), body, at, self.ending
            )
        )

    def revive(self, job_id: str, at: int, done: DoneCallback | None = None) -> None:
        """Let a dead, failed or cancelled job wait again. It keeps its `seq` and its attempt numbers."""
        self._write(operations.ReviveJob(done, job_id, at))

    def update(self, job_id: str, change: JobChange, done: DoneCallback | None = None) -> None:
        """Change an unfinished job. The idempotency key can also be released after the job's end."""
        self._write(operations.UpdateJob(done, job_id, change))

    def set_ledger_position(self, ending: int, done: DoneCallback | None = None) -> None:
        """Record that the ledger has every end up to this one on disk. A lower number changes nothing."""
        self._write(operations.SetLedgerPosition(done, ending))

    def forget(self, job_id: str, done: DoneCallback | None = None) -> None:
        """Remove the job and everything that belongs to it, such as a dead letter that was dealt with."""
        self._write(operations.RemoveJob(done, job_id))

    def put(
        self,
        space: str,
        name: bytes,
        value: bytes,
        at: int,
        until: int | None = None,
        done: DoneCallback | None = None,
    ) -> None:
        """Write an item, replacing the one with its name.

        Raises nothing, because items are mostly by-products: `done` receives StoreBusy when too much is waiting to be
        written, and StoreInvalid when the name is too long for the databases' indexes.
        """
        refusal: StoreError | None = None
        if len(name) > NAME_BYTES or len(space) > SPACE_LENGTH:
            refusal = StoreInvalid(
                f"the name {name[:40]!r}… in {space[:40]!r} has {len(name)} bytes",
                hint=f"a name has at most {NAME_BYTES} bytes, a space {SPACE_LENGTH} characters",
            )
        elif self.backlog and self.backlog + len(value) > self.backlog_limit:
            refusal = StoreBusy(f"{self.backlog} bytes wait to be written already")
        if refusal is None:
            self._write(operations.PutItem(done, KvItem(space, name, value, at, until)))
        elif done is not None:
            self._call_soon(partial(done, refusal))

    def drop(self, space: str, name: bytes | None, done: DoneCallback | None = None) -> None:
        """Remove an item, or all items of the space (None), if there are any."""
        self._write(operations.DropItem(done, space, name))

    def trim(self, space: str, now: int, size: int | None, done: DoneCallback | None = None) -> None:
        """Remove expired items, then the oldest until `size` bytes of values are left. Cheap if there are none."""
        self._write(operations.TrimSpace(done, space, now, None if size is None else max(size, 0)))

    def sweep(self, now: int, retention: Retention) -> Deferred[int]:
        """Remove finished jobs whose retention time is over, a few per transaction, and return how many."""
        reply: Deferred[int] = Deferred()
        total = 0

        def find() -> None:
            self._expired(now, retention, SWEEP_JOBS).then(remove, reply.fail)

        def remove(ids: list[str]) -> None:
            if not ids:
                reply.settle(total)
                return

            def removed(error: StoreError | None) -> None:
                nonlocal total
                if error is not None:
                    reply.fail(error)
                else:
                    total += operation.removed
                    find()

            operation = operations.RemoveEnded(removed, ids)
            try:
                self._write(operation)
            except StoreClosed as error:
                reply.fail(error)

        find()
        return reply

    def discard(self, job_ids: Sequence[str], done: DoneCallback | None = None) -> None:
        """Remove these finished jobs, dead letters too, and everything that belongs to them."""
        self._write(operations.RemoveEnded(done, job_ids, dead=True))

    def behind(self, fraction: int = READY) -> bool:
        """Return whether the backlog exceeds 1/`fraction` of its limit."""
        return self.backlog * fraction > self.backlog_limit

    # Reads

    def get(self, job_id: str) -> Deferred[JobRecord | None]:
        """Return a job with its request. Here and in `result`, `job_id` may be an alias."""
        return self._read_one(JobRecord, queries.GET_JOB, name=job_id)

    def by_key(self, service: bytes, key: str, principal: str = "anonymous") -> Deferred[JobRecord | None]:
        """Return the job that a principal submitted to `service` with this idempotency key."""
        return self._read_one(
            JobRecord, queries.GET_JOB_BY_KEY, service=service, key=key, principal=principal
        )

    def result(self, job_id: str) -> Deferred[ResultRecord | None]:
        """Return the job's result; None if the job is unfinished or unknown."""
        return self._read_one(ResultRecord, queries.GET_RESULT, name=job_id)

    def attempts(self, job_id: str) -> Deferred[list[AttemptRecord]]:
        """Return the job's attempts in order."""
        return self._read_all(AttemptRecord, queries.LIST_ATTEMPTS, id=job_id)

    def partials(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[PartialRecord]]:
        """Return the partial replies of all attempts after number `after`, in order."""
        return self._read_all(PartialRecord, queries.LIST_PARTIALS, id=job_id, after=after, limit=limit)

    def events(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[EventRecord]]:
        """Return the job's events after number `after`, in order."""
        return self._read_all(EventRecord, queries.LIST_EVENTS, id=job_id, after=after, limit=limit)

    def find(self, filter: JobFilter) -> Deferred[JobPage]:
        """Return a page of jobs without their requests, newest first."""

        def query(database: Database) -> JobPage:
            text, parameters = queries.find_jobs(filter)
            rows = database.fetch(text, **parameters)
            jobs = [JobRecord(*row) for row in rows[: filter.limit]]
            return JobPage(jobs, str(jobs[-1].seq) if len(rows) > len(jobs) else None)

        return self._read(query)

    def counts(self) -> Deferred[list[JobCount]]:
        """Return the number of jobs by service and state, without counting rows."""
        return self._read_all(JobCount, queries.LIST_TALLIES)

    def holdings(self) -> Deferred[list[Holding]]:
        """Return what the jobs of each principal take, without looking at them."""
        return self._read_all(Holding, queries.LIST_HOLDINGS)

    def oldest_ended(self, principal: str, *, dead: bool, limit: int) -> Deferred[list[EndedJob]]:
        """Return those of a principal's jobs that finished first: the dead letters or all others."""
        return self._read_all(
            EndedJob, queries.LIST_OLDEST_ENDED, principal=principal, dead=dead, limit=limit
        )

    def unfinished(self, after: int = 0, limit: int = RECOVERY_JOBS) -> Deferred[list[JobRecord]]:
        """Return unfinished jobs with their requests, in order of arrival, after `after` (a `seq`).

        There may be fewer than `limit` if their bodies are large; an empty list is the end.
        """

        def query(database: Database) -> list[JobRecord]:
            ((last, size),) = database.fetch(queries.MEASURE_OPEN, after=after, limit=limit)
            if last is None:
                return []
            if size > RECOVERY_BYTES:
                last = size = 0
                for seq, size_in in database.fetch(queries.LIST_OPEN_SIZES, after=after, limit=limit):
                    size += size_in
                    if last and size > RECOVERY_BYTES:
                        break
                    last = seq
            return [JobRecord(*row) for row in database.fetch(queries.LIST_OPEN, after=after, last=last)]

        return self._read(query)

    def aliases(self) -> Deferred[list[tuple[str, str]]]:
        """Return the aliases of unfinished jobs, each with the job's id."""
        return self._read_all(lambda alias, job_id: (alias, job_id), queries.LIST_OPEN_ALIASES)

    def endings(self, after: int, limit: int = ENDINGS) -> Deferred[list[JobRecord]]:
        """Return jobs that finished after `after` (an `ending`), in that order, without their requests.

        Numbers have gaps. Jobs that finish later have higher numbers.
        """
        return self._read_all(JobRecord, queries.LIST_ENDINGS, after=after, limit=limit)

    def ledger_position(self) -> Deferred[int]:
        """Return the number of the last end up to which the ledger is complete."""
        return self._read(lambda database: int(database.fetch(queries.LEDGER_POSITION)[0][0]))

    def item(self, space: str, name: bytes) -> Deferred[KvItem | None]:
        """Return an item, also if it has expired."""
        return self._read_one(partial(KvItem, space), queries.GET_ITEM, space=encode_space(space), name=name)

    def items(self, space: str, after: bytes = b"", limit: int = 1000) -> Deferred[list[KvItem]]:
        """Return the items after the name `after` (empty: from the first), by name, without their values."""

        def item(name: bytes, at: int, until: int | None) -> KvItem:
            return KvItem(space, name, b"", at, until)

        text = queries.LIST_ITEMS if after else queries.LIST_FIRST_ITEMS
        return self._read_all(item, text, space=encode_space(space), after=after, limit=limit)

    def space_totals(self, space: str) -> Deferred[tuple[int, int]]:
        """Return the number of items and the bytes of their values, without counting rows."""

        def query(database: Database) -> tuple[int, int]:
            rows = database.fetch(queries.SPACE_TOTALS, space=encode_space(space))
            return (rows[0][0], rows[0][1]) if rows else (0, 0)

        return self._read(query)

    def spaces(self, prefix: str = "") -> Deferred[list[str]]:
        """Return the names of the spaces that start with `prefix` and have items, in order."""

        def query(database: Database) -> list[str]:
            names = [decode_space(row[0]) for row in database.fetch(queries.LIST_SPACES)]
            return sorted(name for name in names if name.startswith(prefix))

        return self._read(query)

    async def recover(self, limit: int = RECOVERY_JOBS, after: int = 0) -> AsyncIterator[list[JobRecord]]:
        """Yield all unfinished jobs after `after` (a `seq`), `limit` at a time.

        The next jobs are not read ahead: SQLite's driver releases the GIL for every row and then competes for it with
        an owner that is busy with the rows before. Reading in turns is faster by a quarter.
        """
        jobs = await self.unfinished(after, limit)
        while jobs:
            yield jobs
            jobs = await self.unfinished(jobs[-1].seq, limit)

    # Lifecycle

    def reopen(self) -> Deferred[None]:
        """Try again to open a store whose disk did not allow it (`unopened`)."""
        reply: Deferred[None] = Deferred()
        reply.settle(None)
        return reply

    def inspect(self) -> None:  # noqa: B027 (a database server checks its disks itself)
        """Raise StoreTrouble if the disk is full or read-only. Blocks; may be called from any thread."""

    def check_damage(self, seconds: float, stopped: Callable[[], bool]) -> DamageReport:
        """Check the stored data for damage, for at most `seconds`. Blocks; may be called from any thread."""
        return DamageReport([], True)

    def show(self) -> dict[str, Any]:
        """Return the store's counters for the management service."""
        return {
            "commits": self.commits,
            "writes": self.writes,
            "backlog": self.backlog,
            "refused": self.refused,
            "trouble": "" if self.trouble is None else str(self.trouble),
        }

    def close(self) -> None:
        """Write the backlog, then close. Blocks: call it from another thread if each `done` should still be called."""
        if not self._closed:
            self._closed = True
            self._writer.close()
            self._reader.close()
            self._close()

    # For the implementations

    @abstractmethod
    def _execute(self, operations: Sequence[Operation]) -> Outcomes:
        """Run a batch as one transaction, in the writer's thread; see `WriterThread`."""

    @abstractmethod
    def _query(self, query: Callable[[Database], T]) -> T:
        """Run a query on the reader's connection, in the reader's thread. Raises StoreError for the driver's errors,
        except for those about the values that were given."""

    @abstractmethod
    def _close(self) -> None:
        """Close the connections; the threads have ended."""

    def _read_counters(self, database: Database) -> Counters:
        """Return the latest `seq`, `ending` and `number` in the database."""
        return (
            database.fetch(queries.LAST_SEQ)[0][0],
            database.fetch(queries.LAST_ENDING)[0][0],
            database.fetch(queries.LAST_NUMBER)[0][0],
        )

    def _set_counters(self, counters: Counters) -> None:
        self._seq, self.ending, self.number = counters

    def _start_threads(self) -> None:
        self._writer = WriterThread(self._execute, self._finish, self._call_soon, self.batch)
        self._reader = ReaderThread(self._call_soon)

    def _write(self, operation: Operation) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        _check_text(*operation.ids())
        self.backlog += operation.size
        self._submit(operation)

    def _submit(self, operation: Operation) -> None:
        """Apply the write in its turn, then call `_finish`."""
        self._writer.submit(operation)

    def _finish(self, batch: Sequence[Operation], outcomes: Sequence[StoreError | None]) -> None:
        """Report a completed transaction: call each `done` in order, some per turn of the loop."""
        self.commits += 1
        self.writes += len(batch)
        self.trouble = None
        for outcome in outcomes:
            if isinstance(outcome, StoreTrouble):
                self.trouble = outcome
        if self.trouble is not None and self.on_trouble is not None:
            self.on_trouble(self.trouble)
        reporting = bool(self._unreported)
        self._unreported.extend(zip(batch, outcomes, strict=True))
        if not reporting:
            self._report_some()

    def _report_some(self) -> None:
        """Call some callbacks. One that raises does not affect the others. A closing store calls all of them, because
        there may be no next turn."""
        failure: Exception | None = None
        for _ in range(len(self._unreported) if self._closed else min(len(self._unreported), SLICE)):
            operation, outcome = self._unreported[0]
            self.backlog -= operation.size
            if operation.done is not None:
                try:
                    operation.done(outcome)
                except Exception as error:
                    failure = failure or error
            self._unreported.popleft()  # after `done`: if that calls `_finish`, this loop reports its writes
        if self._unreported:
            self._call_soon(self._report_some)
        if self.on_progress is not None:
            self.on_progress()
        if failure is not None:
            raise failure

    def _expired(self, now: int, retention: Retention, limit: int) -> Deferred[list[str]]:
        """Return ids of finished jobs, no dead letters, whose retention time is over."""

        def query(database: Database) -> list[str]:
            services = [row[0] for row in database.fetch(queries.LIST_SWEEPABLE)]
            cutoffs = [(service, retention.cutoff(service, now)) for service in services]
            rows = [row for row in cutoffs if row[1] is not None]
            return [row[0] for row in database.fetch_bulk(queries.LIST_EXPIRED, rows, limit)] if rows else []

        return self._read(query)

    def _read(self, query: Callable[[Database], T]) -> Deferred[T]:
        return self._reader.submit(lambda: self._query(query))

    def _read_one(self, record: Callable[..., T], text: str, **parameters: object) -> Deferred[T | None]:
        def query(database: Database) -> T | None:
            rows = database.fetch(text, **parameters)
            return record(*rows[0]) if rows else None

        return self._read(query)

    def _read_all(self, record: Callable[..., T], text: str, **parameters: object) -> Deferred[list[T]]:
        return self._read(lambda database: [record(*row) for row in database.fetch(text, **parameters)])


def _check_text(*texts: str | None) -> None:
    """Raise StoreInvalid for NUL and lone surrogates, which databases reject, before they fail a whole batch."""
    for text in texts:
        if text is not None and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise StoreInvalid(f"{text[:40]!r} is not valid Unicode") from error
        if text is not None and "\0" in text:
            raise StoreInvalid(f"{text[:40]!r} contains a NUL character")


def _clean(text: str) -> str:
    """Replace what databases reject in a text that a worker wrote and that must not be refused."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")
