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
from typing import Any, Final

from polydomo.deferred import Deferred
from polydomo.store import operations
from polydomo.store.damage import DamageReport
from polydomo.store.errors import StoreBusy, StoreClosed, StoreError, StoreInvalid, StoreTrouble
from polydomo.store.operations import DoneCallback, Operation
from polydomo.store.records import (
    DELAYED,
    ENDED,
    OPEN,
    WAITING,
    AttemptRecord,
    EventRecord,
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

# Schedules a function on the event loop's thread.
CallSoon = Callable[[Callable[[], object]], object]

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
    """A store of durable jobs and key-value items. All methods are for the loop's thread, except `close`, `inspect` and
    `check_damage`."""

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
        self._call_soon = call_soon
        self._unreported: deque[tuple[Operation, StoreError | None]] = (
            deque()
        )  # completed, `done` not yet called
        self._closed = False
        self._seq = 0
        self._number = 0
        self._ending = 0

    # Writes

    def add(self, job: JobRecord, done: DoneCallback | None = None) -> None:
        """Add a new job in state waiting or delayed, and set its `seq`. The record must not be changed afterwards.

        Raises StoreBusy when too much is waiting to be written. Refused with DuplicateJob or DuplicateKey.
        """
        operation = operations.AddJob(done, job)
        if self.backlog and self.backlog + operation.size > self.backlog_limit:
            self.refused += 1
            raise StoreBusy(f"{self.backlog} bytes wait to be written already")
        _check_text(job.key, job.parent, job.target, job.dialect)
        if job.state not in (WAITING, DELAYED):
            raise StoreInvalid(f"a new job is waiting or delayed, not {job.state!r}")
        self._seq += 1
        job.seq = self._seq
        job.size_in = len(job.body)
        self._write(operation)

    def attempt(
        self,
        job_id: str,
        number: int,
        worker: bytes,
        at: int,
        token: bytes = b"",
        done: DoneCallback | None = None,
    ) -> None:
        """Record the dispatch of the job to `worker`, whose reply must carry `token`.

        Numbers grow; a number that is not higher than the latest is refused with Superseded.
        """
        self._write(operations.StartAttempt(done, job_id, number, worker, at, token))

    def partial(
        self, job_id: str, attempt: int, body: bytes, at: int, done: DoneCallback | None = None
    ) -> None:
        """Add a partial reply of this attempt."""
        self._number += 1
        self._write(operations.AddPartial(done, job_id, PartialRecord(self._number, attempt, at, body)))

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
        self._number += 1
        record = EventRecord(self._number, at, worker, _clean(kind), body)
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
        self._ending += 1
        self._write(
            operations.FinishJob(
                done, job_id, attempt, state, _clean(code), _clean(message), body, at, self._ending
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
        return _Sweep(self, now, retention).reply

    def behind(self, fraction: int = READY) -> bool:
        """Return whether the backlog exceeds 1/`fraction` of its limit."""
        return self.backlog * fraction > self.backlog_limit

    @property
    def number(self) -> int:
        """The number of the latest call of `partial` or `event`."""
        return self._number

    @property
    def ending(self) -> int:
        """The number of the latest call of `finish`, whether it was accepted or not."""
        return self._ending

    # Reads

    @abstractmethod
    def get(self, job_id: str) -> Deferred[JobRecord | None]:
        """Return a job with its request. Here and in `result`, `job_id` may be an alias."""

    @abstractmethod
    def by_key(self, service: bytes, key: str) -> Deferred[JobRecord | None]:
        """Return the job that was submitted to `service` with this idempotency key."""

    @abstractmethod
    def result(self, job_id: str) -> Deferred[ResultRecord | None]:
        """Return the job's result; None if the job is unfinished or unknown."""

    @abstractmethod
    def attempts(self, job_id: str) -> Deferred[list[AttemptRecord]]:
        """Return the job's attempts in order."""

    @abstractmethod
    def partials(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[PartialRecord]]:
        """Return the partial replies of all attempts after number `after`, in order."""

    @abstractmethod
    def events(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[EventRecord]]:
        """Return the job's events after number `after`, in order."""

    @abstractmethod
    def find(self, filter: JobFilter) -> Deferred[JobPage]:
        """Return a page of jobs without their requests, newest first."""

    @abstractmethod
    def counts(self) -> Deferred[list[JobCount]]:
        """Return the number of jobs by service and state, without counting rows."""

    @abstractmethod
    def unfinished(self, after: int = 0, limit: int = RECOVERY_JOBS) -> Deferred[list[JobRecord]]:
        """Return unfinished jobs with their requests, in order of arrival, after `after` (a `seq`).

        There may be fewer than `limit` if their bodies are large; an empty list is the end.
        """

    @abstractmethod
    def aliases(self) -> Deferred[list[tuple[str, str]]]:
        """Return the aliases of unfinished jobs, each with the job's id."""

    @abstractmethod
    def endings(self, after: int, limit: int = ENDINGS) -> Deferred[list[JobRecord]]:
        """Return jobs that finished after `after` (an `ending`), in that order, without their requests.

        Numbers have gaps. Jobs that finish later have higher numbers.
        """

    @abstractmethod
    def ledger_position(self) -> Deferred[int]:
        """Return the number of the last end up to which the ledger is complete."""

    @abstractmethod
    def item(self, space: str, name: bytes) -> Deferred[KvItem | None]:
        """Return an item, also if it has expired."""

    @abstractmethod
    def items(self, space: str, after: bytes = b"", limit: int = 1000) -> Deferred[list[KvItem]]:
        """Return the items after the name `after` (empty: from the first), by name, without their values."""

    @abstractmethod
    def space_totals(self, space: str) -> Deferred[tuple[int, int]]:
        """Return the number of items and the bytes of their values, without counting rows."""

    @abstractmethod
    def spaces(self, prefix: str = "") -> Deferred[list[str]]:
        """Return the names of the spaces that start with `prefix` and have items, in order."""

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

    @abstractmethod
    def close(self) -> None:
        """Write the backlog, then close. Blocks: call it from another thread if each `done` should still be called."""

    # For the implementations

    @abstractmethod
    def _submit(self, operation: Operation) -> None:
        """Apply the write in its turn, then call `_finish`."""

    @abstractmethod
    def _expired(self, now: int, retention: Retention, limit: int) -> Deferred[list[str]]:
        """Return ids of finished jobs, no dead letters, whose retention time is over."""

    def _write(self, operation: Operation) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        _check_text(*operation.ids())
        self.backlog += operation.size
        self._submit(operation)

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


class _Sweep:
    """The removal of expired jobs, a few per transaction, with other writes in between."""

    def __init__(self, store: Store, now: int, retention: Retention) -> None:
        self.reply: Deferred[int] = Deferred()
        self._store = store
        self._now = now
        self._retention = retention
        self._removed = 0
        self._find()

    def _find(self) -> None:
        self._store._expired(self._now, self._retention, SWEEP_JOBS).then(self._remove, self.reply.fail)

    def _remove(self, ids: list[str]) -> None:
        if not ids:
            self.reply.settle(self._removed)
            return

        def removed(error: StoreError | None) -> None:
            if error is not None:
                self.reply.fail(error)
            else:
                self._removed += operation.removed
                self._find()

        operation = operations.RemoveExpired(removed, ids)
        try:
            self._store._write(operation)
        except StoreClosed as error:
            self.reply.fail(error)


def page_position(filter: JobFilter) -> int | None:
    """Check the filter and return the `seq` after which its page starts; None for the first page."""
    if filter.limit < 1:
        raise StoreInvalid(f"a page has at least 1 job, not {filter.limit}")
    if filter.state is not None and filter.state not in OPEN + ENDED:
        raise StoreInvalid(f"there is no state {filter.state!r}", hint=f"there are {', '.join(OPEN + ENDED)}")
    if filter.page is None:
        return None
    if not filter.page.isascii() or not filter.page.isdigit() or len(filter.page) > 18:
        raise StoreInvalid(
            f"{filter.page[:40]!r} is not a page of this list", hint="use the `next` of a page"
        )
    return int(filter.page)


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
