"""A store in dictionaries, written without SQL: the model with which the databases are compared.

It has the methods of `WriteBatch` that operations call, and the store's reads. Items of the key-value store may have an
expiry time, which readers check; the store removes expired items only when a space is trimmed.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice
from typing import Any, Final, TypeVar

from polydomo.deferred import Deferred
from polydomo.store.errors import StoreClosed, StoreError
from polydomo.store.operations import Operation
from polydomo.store.queries import page_position
from polydomo.store.records import (
    DEAD,
    AttemptRecord,
    EndedJob,
    EventRecord,
    Holding,
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
from polydomo.store.store import (
    BACKLOG,
    BATCH,
    ENDINGS,
    RECOVERY_BYTES,
    RECOVERY_JOBS,
    Store,
)
from polydomo.store.writer import CallSoon

T = TypeVar("T")

# A heap is rebuilt when it has more outdated entries than this, and more than current ones.
OUTDATED: Final = 64


class ModelBatch:
    """Dictionaries by the job's `seq`."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobRecord] = {}
        self.seqs: dict[str, int] = {}
        self.keys: dict[tuple[str, bytes, str], int] = {}
        self.attempts: dict[int, list[AttemptRecord]] = {}
        self.partials: dict[int, list[PartialRecord]] = {}
        self.events: dict[int, list[EventRecord]] = {}
        self.results: dict[int, bytes] = {}
        self.aliases: dict[str, int] = {}
        self.ledger_position = 0
        self.kv = ModelKv()

    def find(self, job_id: str) -> JobRecord | None:
        seq = self.seqs.get(job_id)
        return None if seq is None else self.jobs[seq]

    def find_by_key(self, principal: str, service: bytes, key: str) -> JobRecord | None:
        seq = self.keys.get((principal, service, key))
        return None if seq is None else self.jobs[seq]

    def find_by_name(self, name: str) -> JobRecord | None:
        """Return the job with that id, or else the one with that alias."""
        seq = self.seqs.get(name, self.aliases.get(name, 0))
        return self.jobs.get(seq)

    def insert(self, job: JobRecord) -> None:
        self.jobs[job.seq] = job
        self.seqs[job.id] = job.seq
        if job.key is not None:
            self.keys[job.principal, job.service, job.key] = job.seq

    def save_progress(self, job: JobProgress) -> None:
        """Do nothing: the operation changed the record itself."""

    def save_state(self, job: JobProgress, old: str) -> None:
        """Do nothing: the operation changed the record itself."""

    def save_change(self, job: JobProgress, change: JobChange) -> None:
        record = self.jobs[job.seq]
        if change.release_key:
            self._release_key(record)
        change.apply_to(record)

    def remove(self, job: JobProgress) -> None:
        self._release_key(self.jobs.pop(job.seq))
        del self.seqs[job.id]
        for table in (self.attempts, self.partials, self.events, self.results):
            table.pop(job.seq, None)
        self.aliases = {name: seq for name, seq in self.aliases.items() if seq != job.seq}

    def raise_counter(self, name: str, number: int) -> None:
        if name == "ledger":  # the others need not be remembered: the store's own only grow
            self.ledger_position = max(self.ledger_position, number)

    def add_record(self, job: JobProgress, record: AttemptRecord | PartialRecord | EventRecord) -> None:
        if isinstance(record, AttemptRecord):
            self.attempts.setdefault(job.seq, []).append(record)
        elif isinstance(record, PartialRecord):
            self.partials.setdefault(job.seq, []).append(record)
        else:
            self.events.setdefault(job.seq, []).append(record)

    def add_alias(self, job: JobProgress, name: str) -> None:
        self.aliases[name] = job.seq

    def set_result(self, job: JobProgress, body: bytes | None) -> None:
        if body is None:
            self.results.pop(job.seq, None)
        else:
            self.results[job.seq] = body

    def _release_key(self, job: JobRecord) -> None:
        if job.key is not None:
            del self.keys[job.principal, job.service, job.key]


class ModelStore(Store):
    """Applies writes at once, and reports them together in the loop's next turn, as a database does."""

    def __init__(self, call_soon: CallSoon, backlog_limit: int = BACKLOG, batch: int = BATCH) -> None:
        super().__init__(call_soon, backlog_limit, batch)
        self._repository = ModelBatch()
        self._applied: list[tuple[Operation, StoreError | None]] = []

    def get(self, job_id: str) -> Deferred[JobRecord | None]:
        return self._read(lambda: _copy(self._repository.find_by_name(job_id)))

    def by_key(self, service: bytes, key: str, principal: str = "anonymous") -> Deferred[JobRecord | None]:
        return self._read(lambda: _copy(self._repository.find_by_key(principal, service, key)))

    def result(self, job_id: str) -> Deferred[ResultRecord | None]:
        def query() -> ResultRecord | None:
            job = self._repository.find_by_name(job_id)
            if job is None or job.finished is None:
                return None
            return ResultRecord(
                job.id,
                job.service,
                job.state,
                job.attempt,
                job.worker,
                job.code,
                job.message,
                job.finished,
                self._repository.results.get(job.seq),
            )

        return self._read(query)

    def attempts(self, job_id: str) -> Deferred[list[AttemptRecord]]:
        def query() -> list[AttemptRecord]:
            job = self._repository.find(job_id)
            if job is None:
                return []
            records = list(self._repository.attempts.get(job.seq, ()))
            if job.dispatched is not None:
                outcome = "" if job.finished is None else job.state
                records.append(
                    AttemptRecord(job.attempt, job.worker, job.dispatched, job.finished, outcome, job.token)
                )
            return records

        return self._read(query)

    def partials(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[PartialRecord]]:
        def query() -> list[PartialRecord]:
            records = self._repository.partials.get(self._repository.seqs.get(job_id, 0), [])
            return [record for record in records if record.number > after][:limit]

        return self._read(query)

    def events(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[EventRecord]]:
        def query() -> list[EventRecord]:
            records = self._repository.events.get(self._repository.seqs.get(job_id, 0), [])
            return [record for record in records if record.number > after][:limit]

        return self._read(query)

    def find(self, filter: JobFilter) -> Deferred[JobPage]:
        def query() -> JobPage:
            after = page_position(filter)
            jobs = [job for job in self._repository.jobs.values() if _matches(job, filter, after)]
            if not filter.oldest_first:
                jobs.reverse()
            page = [_without_request(job) for job in jobs[: filter.limit]]
            return JobPage(page, str(page[-1].seq) if len(jobs) > len(page) else None)

        return self._read(query)

    def counts(self) -> Deferred[list[JobCount]]:
        def query() -> list[JobCount]:
            tally: dict[tuple[bytes, str], int] = {}
            for job in self._repository.jobs.values():
                tally[job.service, job.state] = tally.get((job.service, job.state), 0) + 1
            return [JobCount(service, state, jobs) for (service, state), jobs in sorted(tally.items())]

        return self._read(query)

    def aliases(self) -> Deferred[list[tuple[str, str]]]:
        def query() -> list[tuple[str, str]]:
            jobs = {seq: job.id for seq, job in self._repository.jobs.items() if job.finished is None}
            return [(name, jobs[seq]) for name, seq in self._repository.aliases.items() if seq in jobs]

        return self._read(query)

    def holdings(self) -> Deferred[list[Holding]]:
        def query() -> list[Holding]:
            sums: dict[str, Holding] = {}
            for job in self._repository.jobs.values():
                holding = sums.setdefault(job.principal, Holding(job.principal, 0, 0))
                holding.jobs += 1
                holding.size += job.footprint()
            return sorted(sums.values(), key=lambda holding: holding.principal)

        return self._read(query)

    def oldest_ended(self, principal: str, *, dead: bool, limit: int) -> Deferred[list[EndedJob]]:
        def query() -> list[EndedJob]:
            ended = [
                job
                for job in self._repository.jobs.values()
                if job.ending is not None and job.principal == principal and (job.state == DEAD) == dead
            ]
            ended.sort(key=lambda job: job.ending or 0)
            return [EndedJob(job.id, job.state, job.footprint()) for job in ended[:limit]]

        return self._read(query)

    def unfinished(self, after: int = 0, limit: int = RECOVERY_JOBS) -> Deferred[list[JobRecord]]:
        def query() -> list[JobRecord]:
            jobs = (job for job in self._repository.jobs.values() if job.finished is None and job.seq > after)
            found: list[JobRecord] = []
            size = 0
            for job in islice(jobs, limit):
                size += job.size_in
                if found and size > RECOVERY_BYTES:
                    break
                found.append(copy(job))
            return found

        return self._read(query)

    def endings(self, after: int, limit: int = ENDINGS) -> Deferred[list[JobRecord]]:
        def query() -> list[JobRecord]:
            ended = [job for job in self._repository.jobs.values() if (job.ending or 0) > after]
            ended.sort(key=lambda job: job.ending or 0)
            return [_without_request(job) for job in ended[:limit]]

        return self._read(query)

    def ledger_position(self) -> Deferred[int]:
        return self._read(lambda: self._repository.ledger_position)

    def item(self, space: str, name: bytes) -> Deferred[KvItem | None]:
        return self._read(lambda: self._repository.kv.item(space, name))

    def items(self, space: str, after: bytes = b"", limit: int = 1000) -> Deferred[list[KvItem]]:
        return self._read(lambda: self._repository.kv.items(space, after, limit))

    def space_totals(self, space: str) -> Deferred[tuple[int, int]]:
        return self._read(lambda: self._repository.kv.totals(space))

    def spaces(self, prefix: str = "") -> Deferred[list[str]]:
        return self._read(lambda: self._repository.kv.spaces(prefix))

    def close(self) -> None:
        self._closed = True

    def _execute(self, operations: Any) -> Any:
        raise NotImplementedError("there is no database")

    _query = _close = _execute

    def _submit(self, operation: Operation) -> None:
        outcome = operation.apply(self._repository)  # type: ignore[arg-type]
        if not self._applied:
            self._call_soon(self._report)
        self._applied.append((operation, outcome))

    def _report(self) -> None:
        applied, self._applied = self._applied, []
        self._finish([operation for operation, _ in applied], [outcome for _, outcome in applied])

    def _expired(self, now: int, retention: Retention, limit: int) -> Deferred[list[str]]:
        def is_expired(job: JobRecord) -> bool:
            cutoff = retention.cutoff(job.service, now)
            return (
                job.finished is not None
                and job.state != DEAD
                and cutoff is not None
                and job.finished <= cutoff
            )

        return self._read(
            lambda: [job.id for job in self._repository.jobs.values() if is_expired(job)][:limit]
        )

    def _read(self, query: Callable[[], T]) -> Deferred[T]:
        reply: Deferred[T] = Deferred()

        def answer() -> None:
            try:
                value = query()
            except StoreError as error:
                reply.fail(error)
            else:
                reply.settle(value)

        if self._closed:
            reply.fail(StoreClosed("the store is closed"))
        else:
            self._call_soon(answer)
        return reply


class ModelKv:
    """Spaces by name. Empty spaces are removed."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Space] = {}

    def put(self, item: KvItem) -> None:
        self._spaces.setdefault(item.space, _Space()).put(item)

    def drop(self, space: str, name: bytes | None) -> None:
        if name is None:
            self._spaces.pop(space, None)
        elif space in self._spaces:
            self._spaces[space].drop(name)
            self._drop_if_empty(space)

    def trim(self, space: str, now: int, size: int | None) -> None:
        if space in self._spaces:
            self._spaces[space].trim(now, size)
            self._drop_if_empty(space)

    def item(self, space: str, name: bytes) -> KvItem | None:
        """Return one item, also if it has expired."""
        found = self._spaces.get(space)
        return None if found is None else found.items.get(name)

    def items(self, space: str, after: bytes, limit: int) -> list[KvItem]:
        """Return the items after the name `after`, by name, without their values."""
        found = self._spaces.get(space)
        if found is None:
            return []
        names = nsmallest(limit, (name for name in found.items if not after or name > after))
        items = [found.items[name] for name in names]
        return [KvItem(space, item.name, b"", item.at, item.until) for item in items]

    def totals(self, space: str) -> tuple[int, int]:
        """Return the number of items and the size of their values."""
        found = self._spaces.get(space)
        return (0, 0) if found is None else (len(found.items), found.size)

    def spaces(self, prefix: str) -> list[str]:
        """Return the names of all spaces with this prefix."""
        return sorted(name for name in self._spaces if name.startswith(prefix))

    def _drop_if_empty(self, space: str) -> None:
        if not self._spaces[space].items:
            del self._spaces[space]


class _Space:
    """The items of one space, with heaps by age and by expiry. Entries of replaced or dropped items are outdated."""

    def __init__(self) -> None:
        self.items: dict[bytes, KvItem] = {}
        self.size = 0
        self._by_age: list[tuple[int, bytes]] = []
        self._by_expiry: list[tuple[int, bytes]] = []

    def put(self, item: KvItem) -> None:
        self.drop(item.name)
        self.items[item.name] = item
        self.size += len(item.value)
        heappush(self._by_age, (item.at, item.name))
        if item.until is not None:
            heappush(self._by_expiry, (item.until, item.name))
        if len(self._by_age) > 2 * len(self.items) + OUTDATED:
            self._by_age = [(one.at, one.name) for one in self.items.values()]
            heapify(self._by_age)
        if len(self._by_expiry) > 2 * len(self.items) + OUTDATED:
            self._by_expiry = [(one.until, one.name) for one in self.items.values() if one.until is not None]
            heapify(self._by_expiry)

    def drop(self, name: bytes) -> None:
        item = self.items.pop(name, None)
        if item is not None:
            self.size -= len(item.value)

    def trim(self, now: int, size: int | None) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now:
            until, name = heappop(self._by_expiry)
            item = self.items.get(name)
            if item is not None and item.until == until:
                self.drop(name)
        while size is not None and self.size > size:
            at, name = heappop(self._by_age)
            item = self.items.get(name)
            if item is not None and item.at == at:
                self.drop(name)


def _without_request(job: JobRecord) -> JobRecord:
    job = copy(job)
    job.body = job.envelope = job.options = b""
    return job


def _copy(job: JobRecord | None) -> JobRecord | None:
    return None if job is None else copy(job)


def _matches(job: JobRecord, filter: JobFilter, after: int | None) -> bool:
    return (
        (filter.state is None or job.state == filter.state)
        and (filter.service is None or job.service == filter.service)
        and (filter.client is None or job.client == filter.client)
        and (filter.principal is None or job.principal == filter.principal)
        and (filter.key is None or job.key == filter.key)
        and (filter.parent is None or job.parent == filter.parent)
        and (filter.since is None or job.submitted >= filter.since)
        and (filter.before is None or job.submitted < filter.before)
        and (after is None or (job.seq > after if filter.oldest_first else job.seq < after))
    )
