"""The store's one interface.

Writes are calls from the event loop's thread that return at once. They are executed in the order they were
made, many to a transaction (group commit), and `done(error)` is called on the loop's thread when the
transaction is on disk, also in order. Whoever does not need to know leaves `done` out; a write that failed
then shows in `trouble` only.

Reads return a `Deferred`: await it, or give it a function. They see at least all writes whose `done` has been
called.

The owner hands in `call`, which runs a function on the loop's thread soon (`loop.call_soon_threadsafe`). It
is used once per transaction, not once per job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final

from polydomo.store import kv, operations
from polydomo.store.damage import DamageReport
from polydomo.store.deferred import Deferred
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

CallSoon = Callable[[Callable[[], None]], object]

# How many bytes may wait to be written before `add` refuses. A disk that stops for a second must not be felt.
BACKLOG: Final = 256 * 1024 * 1024

# How much of that is kept ready for the writer. Beyond it the owner should take no more (`behind`) until half of it is
# written: two or three transactions' worth keeps the disk busy, and whoever comes next waits for all of it.
READY: Final = 8  # one in so many

# Writes whose ends are told in one turn of the loop: each may dispatch a job or answer a client.
SLICE: Final = 256

# Writes that somebody waits for and that share a transaction, at most: those who came first should not wait for all
# of a long queue.
BATCH: Final = 4096

# Jobs that one transaction of a sweep removes: few enough that the writes behind it wait some milliseconds
# only.
SWEEP_JOBS: Final = 500

# Jobs that come out at once on recovery, and about how many bytes of bodies.
RECOVERY_JOBS: Final = 2000
RECOVERY_BYTES: Final = 32 * 1024 * 1024

# Ends of jobs that are read at once.
ENDINGS: Final = 1000

# What names of items may have: PostgreSQL's indexes take no more than 2,700 bytes together.
NAME_BYTES: Final = 1024
SPACE_LENGTH: Final = 512


class Store(ABC):
    """See the module's text. All methods are for the loop's thread, except `close`."""

    def __init__(self, call: CallSoon, backlog_limit: int = BACKLOG, batch: int = BATCH) -> None:
        self.backlog = 0  # bytes that wait to be written
        self.backlog_limit = backlog_limit
        self.batch = batch  # 1: no two who wait for a commit share one, to see what sharing is good for
        self.trouble: StoreTrouble | None = None  # why the latest transaction failed; None if it did not
        self.on_trouble: Callable[[StoreTrouble], None] | None = (
            None  # hears of every transaction that failed
        )
        self.damage = ""  # what was found to be lost when the store was opened
        self.unopened: StoreTrouble | None = None  # why the store could not be opened yet, see `reopen`
        self.commits = 0  # transactions since the store was opened
        self.writes = 0  # what was in them
        self.refused = 0  # writes, for want of room in the backlog
        self.on_progress: Callable[[], None] | None = None  # called when some writes have ended
        self._call = call
        self._told: deque[tuple[Operation, StoreError | None]] = (
            deque()
        )  # ended, and those who wait have not heard
        self._closed = False
        self._seq = 0
        self._number = 0
        self._ending = 0

    # Writes

    def add(self, job: JobRecord, done: DoneCallback | None = None) -> None:
        """A new job, in state waiting or delayed. Sets its `seq`; leave the record alone afterwards.

        Raises StoreBusy when too much is waiting to be written. Refused with DuplicateJob or DuplicateKey.
        """
        size = len(job.body) + len(job.envelope) + len(job.options)
        if self.backlog and self.backlog + size > self.backlog_limit:
            self.refused += 1
            raise StoreBusy(f"{self.backlog} bytes wait to be written already")
        _check_text(job.key, job.parent, job.target, job.dialect)
        if job.state not in (WAITING, DELAYED):
            raise StoreInvalid(f"a new job is waiting or delayed, not {job.state!r}")
        self._seq += 1
        job.seq = self._seq
        job.size_in = len(job.body)
        self._write(operations.AddJob(job, done, size))

    def attempt(
        self,
        job_id: str,
        number: int,
        worker: bytes,
        at: int,
        token: bytes = b"",
        done: DoneCallback | None = None,
    ) -> None:
        """`worker` gets the job; its answer must carry `token`. Numbers grow; an older one than known is refused
        with Superseded."""
        self._write(operations.StartAttempt(job_id, number, worker, at, token, done))

    def requeue(
        self,
        job_id: str,
        attempt: int,
        reason: str,
        at: int,
        not_before: int | None = None,
        done: DoneCallback | None = None,
    ) -> None:
        """The attempt was lost; the job waits again, or is delayed if `not_before` is given."""
        self._write(operations.Requeue(job_id, attempt, _clean(reason), at, not_before, done))

    def partial(
        self, job_id: str, attempt: int, body: bytes, at: int, done: DoneCallback | None = None
    ) -> None:
        """One of several answers of this attempt."""
        self._number += 1
        self._write(operations.AddPartial(job_id, PartialRecord(self._number, attempt, at, body), done))

    def event(
        self,
        job_id: str,
        kind: str,
        body: bytes,
        at: int,
        worker: bytes = b"",
        done: DoneCallback | None = None,
    ) -> None:
        """Something that is said about the job. Taken as long as the job is kept, also after its end."""
        self._number += 1
        self._write(
            operations.AddEvent(job_id, EventRecord(self._number, at, worker, _clean(kind), body), done)
        )

    def alias(self, job_id: str, name: str, done: DoneCallback | None = None) -> None:
        """Whoever asks for `name` from now on means this job, unless there is a job of that id."""
        _check_text(name)
        self._write(operations.AddAlias(job_id, name, done))

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
        """The job's end: done, failed, cancelled or dead. Recorded once.

        Refused with AlreadyFinished, or with Superseded if it comes from an attempt that is over. The broker
        itself ends a waiting job under the number of its latest attempt.
        """
        if state not in ENDED:
            raise StoreInvalid(f"a job ends as one of {', '.join(ENDED)}, not {state!r}")
        self._ending += 1
        self._write(
            operations.FinishJob(
                job_id, attempt, state, _clean(code), _clean(message), body, at, self._ending, done
            )
        )

    def cancel(self, job_id: str, at: int, done: DoneCallback | None = None) -> None:
        """End the job as cancelled, whoever has it. Refused with AlreadyFinished."""
        self._ending += 1
        self._write(operations.Cancel(job_id, at, self._ending, done))

    def revive(self, job_id: str, at: int, done: DoneCallback | None = None) -> None:
        """Send a dead, failed or cancelled job again: it waits, keeps its place and its attempts' numbers."""
        self._write(operations.ReviveJob(job_id, at, done))

    def update(self, job_id: str, change: JobChange, done: DoneCallback | None = None) -> None:
        """Change a job that has not ended. Its idempotency key can be released at any time."""
        if change.state not in (None, WAITING, DELAYED):
            raise StoreInvalid(f"a job is made waiting or delayed, not {change.state!r}")
        _check_text(change.target)
        self._write(operations.UpdateJob(job_id, change, done))

    def settle(self, ending: int, done: DoneCallback | None = None) -> None:
        """The ledger has every end up to this one, safe on disk. A lower number than before changes nothing."""
        self._write(operations.SetLedgerPosition(ending, done))

    def forget(self, job_id: str, done: DoneCallback | None = None) -> None:
        """Remove the job and all that belongs to it: a dead letter that was dealt with."""
        self._write(operations.RemoveJob(job_id, done))

    def put(
        self,
        space: str,
        name: bytes,
        value: bytes,
        at: int,
        until: int | None = None,
        done: DoneCallback | None = None,
    ) -> None:
        """Keep `value` on the shelf under this name, in the place of what is there.

        Raises nothing, because what is put there is mostly a by-product: `done` hears StoreBusy when too much is
        waiting to be written, and StoreInvalid when the name is too long for the databases' indexes.
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
            self._write(kv.PutItem(KvItem(space, name, value, at, until), done))
        elif done is not None:
            self._call(partial(_hear, done, refusal))

    def drop(self, space: str, name: bytes | None, done: DoneCallback | None = None) -> None:
        """Remove an item, or the whole space (None). There need not be any."""
        self._write(kv.DropItem(space, name, done))

    def trim(self, space: str, now: int, size: int | None, done: DoneCallback | None = None) -> None:
        """Remove what has expired, then the oldest until `size` bytes of values are left. Cheap if nothing is to
        be removed."""
        self._write(kv.TrimSpace(space, now, size, done))

    def sweep(self, now: int, retention: Retention) -> Deferred[int]:
        """Remove finished jobs that were kept long enough, a few per transaction. Answers how many."""
        return _Sweep(self, now, retention).reply

    def behind(self, share: int = READY) -> bool:
        """Does more wait to be written than this share of what may?"""
        return self.backlog * share > self.backlog_limit

    @property
    def number(self) -> int:
        """Of the latest partial answer or event that was given to `partial` or `event`."""
        return self._number

    @property
    def ending(self) -> int:
        """Of the latest end that was given to `finish` or `cancel`; taken or not."""
        return self._ending

    # Reads

    @abstractmethod
    def get(self, job_id: str) -> Deferred[JobRecord | None]:
        """One job with its request; `job_id` may be a further name of it here, and in `result`."""

    @abstractmethod
    def by_key(self, service: bytes, key: str) -> Deferred[JobRecord | None]:
        """The job that was submitted to `service` with this idempotency key."""

    @abstractmethod
    def result(self, job_id: str) -> Deferred[ResultRecord | None]:
        """How the job ended; None if it has not, or is not known."""

    @abstractmethod
    def attempts(self, job_id: str) -> Deferred[list[AttemptRecord]]:
        """Who had the job, in order."""

    @abstractmethod
    def partials(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[PartialRecord]]:
        """The partial answers behind number `after`, in order, of all attempts."""

    @abstractmethod
    def events(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[EventRecord]]:
        """What was said about the job behind number `after`, in order."""

    @abstractmethod
    def find(self, filter: JobFilter) -> Deferred[JobPage]:
        """Jobs without their bodies, newest first, page by page. Dead letters are `JobFilter(state=DEAD)`."""

    @abstractmethod
    def counts(self) -> Deferred[list[JobCount]]:
        """How many jobs each service has in each state; cheap however many there are."""

    @abstractmethod
    def unfinished(self, after: int = 0, limit: int = RECOVERY_JOBS) -> Deferred[list[JobRecord]]:
        """Jobs that have not ended, with their requests, in order of arrival, from behind `after` (a `seq`).
        May be fewer than `limit` if their bodies are large; an empty list is the end."""

    @abstractmethod
    def aliases(self) -> Deferred[list[tuple[str, str]]]:
        """The further names of jobs that have not ended, each with the job's id."""

    @abstractmethod
    def endings(self, after: int, limit: int = ENDINGS) -> Deferred[list[JobRecord]]:
        """Jobs that have ended, without their requests, in the order in which they did, from behind `after` (an
        `ending`). Numbers have gaps; one that was seen is followed by higher ones only."""

    @abstractmethod
    def settled(self) -> Deferred[int]:
        """Up to which end the ledger has them all."""

    @abstractmethod
    def item(self, space: str, name: bytes) -> Deferred[KvItem | None]:
        """What is on the shelf under this name; also if its time is over."""

    @abstractmethod
    def items(self, space: str, after: bytes = b"", limit: int = 1000) -> Deferred[list[KvItem]]:
        """What the space has behind this name (an empty one: from the first), by name, values left empty."""

    @abstractmethod
    def room(self, space: str) -> Deferred[tuple[int, int]]:
        """How many items, and how many bytes of values, the space has; cheap however many there are."""

    @abstractmethod
    def spaces(self, prefix: str = "") -> Deferred[list[str]]:
        """The spaces whose names begin so and that have something in them, in order."""

    async def recover(self, limit: int = RECOVERY_JOBS, after: int = 0) -> AsyncIterator[list[JobRecord]]:
        """All unfinished jobs behind `after` (a `seq`). Not read ahead: SQLite's driver gives up the GIL for every row,
        and takes it back from an owner who is busy with the rows before; one after the other they are done a quarter
        sooner."""
        jobs = await self.unfinished(after, limit)
        while jobs:
            yield jobs
            jobs = await self.unfinished(jobs[-1].seq, limit)

    # Its life

    def reopen(self) -> Deferred[None]:
        """Try again to open a store that could not be opened because of its disk (`unopened`)."""
        reply: Deferred[None] = Deferred()
        reply.settle(None)
        return reply

    def inspect(self) -> None:  # noqa: B027 (a server looks after its disks itself)
        """Raise StoreTrouble if there is no room for more. Blocks, may be called from any thread."""

    def search(self, seconds: float, stopped: Callable[[], bool]) -> DamageReport:
        """Look for damage in what is stored, for so long at most. Blocks: for a thread of its own."""
        return DamageReport([], True)

    def show(self) -> dict[str, Any]:
        """How it goes, for people."""
        return {
            "commits": self.commits,
            "writes": self.writes,
            "backlog": self.backlog,
            "refused": self.refused,
            "trouble": "" if self.trouble is None else str(self.trouble),
        }

    @abstractmethod
    def close(self) -> None:
        """Write what is waiting, then end. Blocks: call it from another thread if `done`s should still be
        heard."""

    # For the implementations

    @abstractmethod
    def _submit(self, op: Operation) -> None:
        """Execute the write in its turn, then `_finish` it."""

    @abstractmethod
    def _expired(self, now: int, retention: Retention, limit: int) -> Deferred[list[str]]:
        """Ids of finished jobs, no dead letters, that were kept long enough."""

    def _write(self, op: Operation) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        _check_text(op.job_id)
        self.backlog += op.size
        self._submit(op)

    def _finish(self, ops: Sequence[Operation], outcomes: Sequence[StoreError | None]) -> None:
        """A transaction has ended: tell everybody, in order, some per turn of the loop."""
        self.commits += 1
        self.writes += len(ops)
        self.trouble = None
        for outcome in outcomes:
            if isinstance(outcome, StoreTrouble):
                self.trouble = outcome
        if self.trouble is not None and self.on_trouble is not None:
            self.on_trouble(self.trouble)
        waiting = bool(self._told)
        self._told.extend(zip(ops, outcomes, strict=True))
        if not waiting:
            self._tell_some()

    def _tell_some(self) -> None:
        """One that raises does not keep the others from hearing. While the store closes there may be no next turn."""
        failure: Exception | None = None
        for _ in range(len(self._told) if self._closed else min(len(self._told), SLICE)):
            op, outcome = self._told[0]
            self.backlog -= op.size
            if op.done is not None:
                try:
                    op.done(outcome)
                except Exception as error:
                    failure = failure or error
            self._told.popleft()  # not before: `_finish` must not begin to tell in between
        if self._told:
            self._call(self._tell_some)
        if self.on_progress is not None:
            self.on_progress()
        if failure is not None:
            raise failure


class _Sweep:
    """Look for some jobs, remove them, look again. Other writes go on in between."""

    def __init__(self, store: Store, now: int, retention: Retention) -> None:
        self.reply: Deferred[int] = Deferred()
        self._store = store
        self._now = now
        self._retention = retention
        self._removed = 0
        self._look()

    def _look(self) -> None:
        self._store._expired(self._now, self._retention, SWEEP_JOBS).then(self._remove, self.reply.fail)

    def _remove(self, ids: list[str]) -> None:
        if not ids:
            self.reply.settle(self._removed)
            return

        def gone(error: StoreError | None) -> None:
            if error is not None:
                self.reply.fail(error)
            else:
                self._removed += op.removed
                self._look()

        op = operations.RemoveExpired(ids, gone)
        try:
            self._store._write(op)
        except StoreClosed as error:
            self.reply.fail(error)


def _hear(done: DoneCallback, error: StoreError) -> None:
    done(error)


def page_position(filter: JobFilter) -> int | None:
    """The `seq` that the filter's page begins behind."""
    if filter.limit < 1:
        raise StoreInvalid(f"a page has at least 1 job, not {filter.limit}")
    if filter.state is not None and filter.state not in OPEN + ENDED:
        raise StoreInvalid(f"there is no state {filter.state!r}", hint=f"there are {', '.join(OPEN + ENDED)}")
    if filter.page is None:
        return None
    if not filter.page.isascii() or not filter.page.isdigit() or len(filter.page) > 18:
        raise StoreInvalid(f"{filter.page[:40]!r} is no page of this list", hint="use the `next` of a page")
    return int(filter.page)


def _check_text(*texts: str | None) -> None:
    """Databases take neither NUL nor lone surrogates in a text; better say so before others share its
    fate."""
    for text in texts:
        if text is not None and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise StoreInvalid(f"{text[:40]!r} is not valid Unicode") from error
        if text is not None and "\0" in text:
            raise StoreInvalid(f"{text[:40]!r} contains a NUL character")


def _clean(text: str) -> str:
    """The same, for what a worker wrote and must not be refused for."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")
