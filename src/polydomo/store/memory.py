"""The store that forgets: for tests, and the model that the databases are compared with."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from itertools import islice
from typing import TypeVar

from polydomo.store.deferred import Deferred
from polydomo.store.errors import StoreClosed, StoreError
from polydomo.store.kv import MemoryKv
from polydomo.store.operations import Operation
from polydomo.store.records import (
    DEAD,
    AttemptRecord,
    EventRecord,
    JobChange,
    JobCount,
    JobFilter,
    JobPage,
    JobProgress,
    JobRecord,
    KvItem,
    PartialRecord,
    ResultRecord,
    Retention,
)
from polydomo.store.repository import Repository
from polydomo.store.store import (
    BACKLOG,
    BATCH,
    ENDINGS,
    RECOVERY_BYTES,
    RECOVERY_JOBS,
    CallSoon,
    Store,
    page_position,
)

T = TypeVar("T")


class MemoryRepository(Repository):
    """Everything by the job's `seq`."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobRecord] = {}
        self.seqs: dict[str, int] = {}
        self.keys: dict[tuple[bytes, str], int] = {}
        self.owned: dict[int, tuple[bytes, str]] = {}  # who has which key
        self.attempts: dict[int, list[AttemptRecord]] = {}
        self.partials: dict[int, list[PartialRecord]] = {}
        self.events: dict[int, list[EventRecord]] = {}
        self.results: dict[int, bytes] = {}
        self.aliases: dict[str, int] = {}
        self.ledger = 0
        self._shelf = MemoryKv()

    @property
    def shelf(self) -> MemoryKv:
        return self._shelf

    def find(self, job_id: str) -> JobRecord | None:
        seq = self.seqs.get(job_id)
        return None if seq is None else self.jobs[seq]

    def holder(self, service: bytes, key: str) -> JobRecord | None:
        seq = self.keys.get((service, key))
        return None if seq is None else self.jobs[seq]

    def insert(self, job: JobRecord) -> None:
        self.jobs[job.seq] = job
        self.seqs[job.id] = job.seq
        if job.key is not None:
            self.keys[job.service, job.key] = job.seq
            self.owned[job.seq] = (job.service, job.key)

    def changed(self, job: JobProgress) -> None:
        """It is the job itself that was changed."""

    def moved(self, job: JobProgress, service: bytes, state: str) -> None:
        """The same."""

    def revised(self, job: JobProgress, change: JobChange) -> None:
        revise(self.jobs[job.seq], change)
        if change.release_key:
            self._release(job.seq)

    def removed(self, job: JobProgress) -> None:
        self._release(job.seq)
        del self.jobs[job.seq]
        del self.seqs[job.id]
        for table in (self.attempts, self.partials, self.events, self.results):
            table.pop(job.seq, None)
        self.aliases = {name: seq for name, seq in self.aliases.items() if seq != job.seq}

    def withdrawn(self, ending: int) -> None:
        """The store counts on."""

    def settled(self, ending: int) -> None:
        self.ledger = max(self.ledger, ending)

    def attempt(self, job: JobProgress, record: AttemptRecord) -> None:
        self.attempts.setdefault(job.seq, []).append(record)

    def partial(self, job: JobProgress, record: PartialRecord) -> None:
        self.partials.setdefault(job.seq, []).append(record)

    def event(self, job: JobProgress, record: EventRecord) -> None:
        self.events.setdefault(job.seq, []).append(record)

    def alias(self, job: JobProgress, name: str) -> None:
        self.aliases[name] = job.seq

    def named(self, name: str) -> JobRecord | None:
        """The job of that id, or the one that has this further name."""
        seq = self.seqs.get(name, self.aliases.get(name, 0))
        return self.jobs.get(seq)

    def result(self, job: JobProgress, body: bytes | None) -> None:
        if body is None:
            self.results.pop(job.seq, None)
        else:
            self.results[job.seq] = body

    def _release(self, seq: int) -> None:
        owned = self.owned.pop(seq, None)
        if owned is not None:
            del self.keys[owned]


def revise(job: JobRecord, change: JobChange) -> None:
    """Put into the job what `change` says about the part of it that is not progress."""
    for name in ("target", "priority", "max_attempts", "timeout", "deadline", "body", "options"):
        value = getattr(change, name)
        if value is not None:
            setattr(job, name, value)
    job.size_in = len(job.body)
    if change.release_key:
        job.key = None


class MemoryStore(Store):
    """Writes are executed at once and reported in the loop's next turn, together, as a database does it."""

    def __init__(self, call: CallSoon, backlog_limit: int = BACKLOG, batch: int = BATCH) -> None:
        super().__init__(call, backlog_limit, batch)
        self._books = MemoryRepository()
        self._settled: list[tuple[Operation, StoreError | None]] = []

    def get(self, job_id: str) -> Deferred[JobRecord | None]:
        return self._read(lambda: _copy(self._books.named(job_id)))

    def by_key(self, service: bytes, key: str) -> Deferred[JobRecord | None]:
        return self._read(lambda: _copy(self._books.holder(service, key)))

    def result(self, job_id: str) -> Deferred[ResultRecord | None]:
        def look() -> ResultRecord | None:
            job = self._books.named(job_id)
            if job is None or job.finished is None:
                return None
            body = self._books.results.get(job.seq)
            return ResultRecord(
                job.id,
                job.service,
                job.state,
                job.attempt,
                job.worker,
                job.code,
                job.message,
                job.finished,
                body,
            )

        return self._read(look)

    def attempts(self, job_id: str) -> Deferred[list[AttemptRecord]]:
        def look() -> list[AttemptRecord]:
            job = self._books.find(job_id)
            if job is None:
                return []
            records = list(self._books.attempts.get(job.seq, ()))
            if job.dispatched is not None:
                outcome = "" if job.finished is None else job.state
                records.append(
                    AttemptRecord(job.attempt, job.worker, job.dispatched, job.finished, outcome, job.token)
                )
            return records

        return self._read(look)

    def partials(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[PartialRecord]]:
        def look() -> list[PartialRecord]:
            records = self._books.partials.get(self._books.seqs.get(job_id, 0), [])
            return [record for record in records if record.number > after][:limit]

        return self._read(look)

    def events(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[EventRecord]]:
        def look() -> list[EventRecord]:
            records = self._books.events.get(self._books.seqs.get(job_id, 0), [])
            return [record for record in records if record.number > after][:limit]

        return self._read(look)

    def find(self, filter: JobFilter) -> Deferred[JobPage]:
        def look() -> JobPage:
            behind = page_position(filter)
            jobs = [job for job in self._books.jobs.values() if _matches(job, filter, behind)]
            if not filter.oldest_first:
                jobs.reverse()
            page = [bare(job) for job in jobs[: filter.limit]]
            return JobPage(page, str(page[-1].seq) if len(jobs) > len(page) else None)

        return self._read(look)

    def counts(self) -> Deferred[list[JobCount]]:
        def look() -> list[JobCount]:
            tally: dict[tuple[bytes, str], int] = {}
            for job in self._books.jobs.values():
                tally[job.service, job.state] = tally.get((job.service, job.state), 0) + 1
            return [JobCount(service, state, jobs) for (service, state), jobs in sorted(tally.items())]

        return self._read(look)

    def aliases(self) -> Deferred[list[tuple[str, str]]]:
        def look() -> list[tuple[str, str]]:
            jobs = {seq: job.id for seq, job in self._books.jobs.items() if job.finished is None}
            return [(name, jobs[seq]) for name, seq in self._books.aliases.items() if seq in jobs]

        return self._read(look)

    def unfinished(self, after: int = 0, limit: int = RECOVERY_JOBS) -> Deferred[list[JobRecord]]:
        def look() -> list[JobRecord]:
            jobs = (job for job in self._books.jobs.values() if job.finished is None and job.seq > after)
            found: list[JobRecord] = []
            size = 0
            for job in islice(jobs, limit):
                size += job.size_in
                if found and size > RECOVERY_BYTES:
                    break
                found.append(copy(job))
            return found

        return self._read(look)

    def endings(self, after: int, limit: int = ENDINGS) -> Deferred[list[JobRecord]]:
        def look() -> list[JobRecord]:
            ended = [(job.ending, job) for job in self._books.jobs.values() if (job.ending or 0) > after]
            ended.sort(key=lambda pair: pair[0] or 0)
            return [bare(job) for _, job in ended[:limit]]

        return self._read(look)

    def settled(self) -> Deferred[int]:
        return self._read(lambda: self._books.ledger)

    def item(self, space: str, name: bytes) -> Deferred[KvItem | None]:
        return self._read(lambda: self._books.shelf.item(space, name))

    def items(self, space: str, after: bytes = b"", limit: int = 1000) -> Deferred[list[KvItem]]:
        return self._read(lambda: self._books.shelf.items(space, after, limit))

    def room(self, space: str) -> Deferred[tuple[int, int]]:
        return self._read(lambda: self._books.shelf.room(space))

    def spaces(self, prefix: str = "") -> Deferred[list[str]]:
        return self._read(lambda: self._books.shelf.spaces(prefix))

    def close(self) -> None:
        self._closed = True

    def _submit(self, op: Operation) -> None:
        outcome = op.apply(self._books)
        if not self._settled:
            self._call(self._report)
        self._settled.append((op, outcome))

    def _report(self) -> None:
        settled = self._settled
        self._settled = []
        self._finish([op for op, _ in settled], [outcome for _, outcome in settled])

    def _expired(self, now: int, retention: Retention, limit: int) -> Deferred[list[str]]:
        def over(job: JobRecord) -> bool:
            cutoff = retention.cutoff(job.service, now)
            return (
                job.finished is not None
                and job.state != DEAD
                and cutoff is not None
                and job.finished <= cutoff
            )

        return self._read(lambda: [job.id for job in self._books.jobs.values() if over(job)][:limit])

    def _read(self, look: Callable[[], T]) -> Deferred[T]:
        reply: Deferred[T] = Deferred()

        def answer() -> None:
            try:
                value = look()
            except StoreError as error:
                reply.fail(error)
            else:
                reply.settle(value)

        if self._closed:
            reply.fail(StoreClosed("the store is closed"))
        else:
            self._call(answer)
        return reply


def bare(job: JobRecord) -> JobRecord:
    """A copy without what may be large."""
    job = copy(job)
    job.body = job.envelope = job.options = b""
    return job


def _copy(job: JobRecord | None) -> JobRecord | None:
    return None if job is None else copy(job)


def _matches(job: JobRecord, filter: JobFilter, behind: int | None) -> bool:
    return (
        (filter.state is None or job.state == filter.state)
        and (filter.service is None or job.service == filter.service)
        and (filter.client is None or job.client == filter.client)
        and (filter.key is None or job.key == filter.key)
        and (filter.parent is None or job.parent == filter.parent)
        and (filter.since is None or job.submitted >= filter.since)
        and (filter.before is None or job.submitted < filter.before)
        and (behind is None or (job.seq > behind if filter.oldest_first else job.seq < behind))
    )
