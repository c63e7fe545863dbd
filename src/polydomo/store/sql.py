"""The part of the store that both databases share: a writer and a reader thread, each with its own connection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from polydomo.deferred import Deferred
from polydomo.store import queries
from polydomo.store.database import Database
from polydomo.store.kv_batch import encode_space
from polydomo.store.operations import Operation
from polydomo.store.records import (
    OPEN,
    AttemptRecord,
    EventRecord,
    JobCount,
    JobFilter,
    JobPage,
    JobRecord,
    KvItem,
    PartialRecord,
    ResultRecord,
    Retention,
)
from polydomo.store.store import (
    ENDINGS,
    RECOVERY_BYTES,
    RECOVERY_JOBS,
    Store,
    page_position,
)
from polydomo.store.writer import Outcomes, ReaderThread, WriterThread

T = TypeVar("T")

Counters = tuple[int, int, int]  # `seq`, `ending`, `number`


class SqlStore(Store):
    """A store in a database. Subclasses open their connections, then start the threads."""

    _writer: WriterThread
    _reader: ReaderThread

    def get(self, job_id: str) -> Deferred[JobRecord | None]:
        return self._read_by_name(JobRecord, queries.GET_JOB, job_id)

    def by_key(self, service: bytes, key: str) -> Deferred[JobRecord | None]:
        return self._read_one(JobRecord, queries.GET_JOB_BY_KEY, service=service, key=key)

    def result(self, job_id: str) -> Deferred[ResultRecord | None]:
        return self._read_by_name(ResultRecord, queries.GET_RESULT, job_id)

    def attempts(self, job_id: str) -> Deferred[list[AttemptRecord]]:
        return self._read_all(AttemptRecord, queries.LIST_ATTEMPTS, id=job_id)

    def partials(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[PartialRecord]]:
        return self._read_all(PartialRecord, queries.LIST_PARTIALS, id=job_id, after=after, limit=limit)

    def events(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[EventRecord]]:
        return self._read_all(EventRecord, queries.LIST_EVENTS, id=job_id, after=after, limit=limit)

    def counts(self) -> Deferred[list[JobCount]]:
        return self._read_all(JobCount, queries.LIST_TALLIES)

    def find(self, filter: JobFilter) -> Deferred[JobPage]:
        def query(database: Database) -> JobPage:
            conditions, parameters = _conditions(filter)
            text = queries.find_jobs(conditions, filter.oldest_first)
            rows = database.fetch(text, limit=filter.limit + 1, **parameters)
            jobs = [JobRecord(*row) for row in rows[: filter.limit]]
            return JobPage(jobs, str(jobs[-1].seq) if len(rows) > len(jobs) else None)

        return self._read(query)

    def aliases(self) -> Deferred[list[tuple[str, str]]]:
        return self._read(
            lambda database: [(row[0], row[1]) for row in database.fetch(queries.LIST_OPEN_ALIASES)]
        )

    def unfinished(self, after: int = 0, limit: int = RECOVERY_JOBS) -> Deferred[list[JobRecord]]:
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

    def endings(self, after: int, limit: int = ENDINGS) -> Deferred[list[JobRecord]]:
        return self._read_all(JobRecord, queries.LIST_ENDINGS, after=after, limit=limit)

    def ledger_position(self) -> Deferred[int]:
        return self._read(lambda database: int(database.fetch(queries.LEDGER_POSITION)[0][0]))

    def item(self, space: str, name: bytes) -> Deferred[KvItem | None]:
        def query(database: Database) -> KvItem | None:
            rows = database.fetch(queries.GET_ITEM, space=encode_space(space), name=name)
            return KvItem(space, *rows[0]) if rows else None

        return self._read(query)

    def items(self, space: str, after: bytes = b"", limit: int = 1000) -> Deferred[list[KvItem]]:
        def query(database: Database) -> list[KvItem]:
            if after:
                rows = database.fetch(queries.LIST_ITEMS, space=encode_space(space), after=after, limit=limit)
            else:
                rows = database.fetch(queries.LIST_FIRST_ITEMS, space=encode_space(space), limit=limit)
            return [KvItem(space, name, b"", at, until) for name, at, until in rows]

        return self._read(query)

    def space_totals(self, space: str) -> Deferred[tuple[int, int]]:
        def query(database: Database) -> tuple[int, int]:
            rows = database.fetch(queries.SPACE_TOTALS, space=encode_space(space))
            return (rows[0][0], rows[0][1]) if rows else (0, 0)

        return self._read(query)

    def spaces(self, prefix: str = "") -> Deferred[list[str]]:
        def query(database: Database) -> list[str]:
            names = [
                bytes(row[0]).decode(errors="surrogatepass") for row in database.fetch(queries.LIST_SPACES)
            ]
            return sorted(name for name in names if name.startswith(prefix))

        return self._read(query)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._writer.close()
            self._reader.close()
            self._close()

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
        self._seq, self._ending, self._number = counters

    def _start_threads(self) -> None:
        self._writer = WriterThread(self._execute, self._finish, self._call_soon, self.batch)
        self._reader = ReaderThread(self._call_soon)

    def _submit(self, operation: Operation) -> None:
        self._writer.submit(operation)

    def _expired(self, now: int, retention: Retention, limit: int) -> Deferred[list[str]]:
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

    def _read_by_name(self, record: Callable[..., T], text: str, name: str) -> Deferred[T | None]:
        """Read a record of the job with the id `name`, or else of the one with that alias."""

        def query(database: Database) -> T | None:
            rows = database.fetch(text, id=name)
            if not rows:
                found = database.fetch(queries.RESOLVE_ALIAS, id=name)
                rows = database.fetch(text, id=found[0][0]) if found else []
            return record(*rows[0]) if rows else None

        return self._read(query)

    def _read_all(self, record: Callable[..., T], text: str, **parameters: object) -> Deferred[list[T]]:
        return self._read(lambda database: [record(*row) for row in database.fetch(text, **parameters)])


def _conditions(filter: JobFilter) -> tuple[list[str], dict[str, object]]:
    """Return the filter as SQL conditions and their parameters."""
    conditions: list[str] = []
    parameters: dict[str, object] = {}
    after = page_position(filter)
    if after is not None:
        conditions.append(queries.AFTER[filter.oldest_first])
        parameters["after"] = after
    if filter.state is not None:
        conditions.append(queries.OPEN_STATE if filter.state in OPEN else queries.ENDED_STATE)
        parameters["state"] = filter.state
    for name, condition in queries.CONDITIONS.items():
        value = getattr(filter, name)
        if value is not None:
            conditions.append(condition)
            parameters[name] = value
    return conditions, parameters
