"""What the two databases have in common: a writer and a reader, each with its own connection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from polydomo.store import queries
from polydomo.store.database import Database
from polydomo.store.deferred import Deferred
from polydomo.store.errors import StoreError
from polydomo.store.kv_batch import encode
from polydomo.store.operations import Operation
from polydomo.store.queries import Query
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
    BACKLOG,
    BATCH,
    ENDINGS,
    RECOVERY_BYTES,
    RECOVERY_JOBS,
    CallSoon,
    Store,
    page_position,
)
from polydomo.store.writer import Outcomes, ReaderThread, WriterThread

T = TypeVar("T")

Counters = tuple[int, int, int]


class SqlStore(Store):
    """Subclasses open their connections and then call `_start`."""

    def __init__(self, call: CallSoon, backlog_limit: int = BACKLOG, batch: int = BATCH) -> None:
        super().__init__(call, backlog_limit, batch)
        self._writer: WriterThread
        self._reader: ReaderThread

    def get(self, job_id: str) -> Deferred[JobRecord | None]:
        return self._named(JobRecord, queries.GET, job_id)

    def by_key(self, service: bytes, key: str) -> Deferred[JobRecord | None]:
        return self._one(JobRecord, queries.BY_KEY, service=service, key=key)

    def result(self, job_id: str) -> Deferred[ResultRecord | None]:
        return self._named(ResultRecord, queries.RESULT, job_id)

    def attempts(self, job_id: str) -> Deferred[list[AttemptRecord]]:
        return self._all(AttemptRecord, queries.ATTEMPTS_OF, id=job_id)

    def partials(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[PartialRecord]]:
        return self._all(PartialRecord, queries.PARTIALS_OF, id=job_id, after=after, limit=limit)

    def events(self, job_id: str, after: int = 0, limit: int = 1000) -> Deferred[list[EventRecord]]:
        return self._all(EventRecord, queries.EVENTS_OF, id=job_id, after=after, limit=limit)

    def counts(self) -> Deferred[list[JobCount]]:
        return self._all(JobCount, queries.COUNTS)

    def find(self, filter: JobFilter) -> Deferred[JobPage]:
        def look(database: Database) -> JobPage:
            conditions, parameters = _conditions(filter)
            query = queries.find(conditions, filter.oldest_first)
            rows = database.fetch(query, limit=filter.limit + 1, **parameters)
            jobs = [JobRecord(*row) for row in rows[: filter.limit]]
            return JobPage(jobs, str(jobs[-1].seq) if len(rows) > len(jobs) else None)

        return self._ask(look)

    def aliases(self) -> Deferred[list[tuple[str, str]]]:
        return self._ask(lambda database: [(row[0], row[1]) for row in database.fetch(queries.OPEN_ALIASES)])

    def unfinished(self, after: int = 0, limit: int = RECOVERY_JOBS) -> Deferred[list[JobRecord]]:
        def look(database: Database) -> list[JobRecord]:
            ((last, size),) = database.fetch(queries.OPEN_SIZE, after=after, limit=limit)
            if last is None:
                return []
            if size > RECOVERY_BYTES:
                last = size = 0
                for seq, size_in in database.fetch(queries.OPEN_SIZES, after=after, limit=limit):
                    size += size_in
                    if last and size > RECOVERY_BYTES:
                        break
                    last = seq
            return [JobRecord(*row) for row in database.fetch(queries.OPEN_JOBS, after=after, last=last)]

        return self._ask(look)

    def endings(self, after: int, limit: int = ENDINGS) -> Deferred[list[JobRecord]]:
        return self._all(JobRecord, queries.ENDED_JOBS, after=after, limit=limit)

    def settled(self) -> Deferred[int]:
        return self._ask(lambda database: int(database.fetch(queries.SETTLED)[0][0]))

    def item(self, space: str, name: bytes) -> Deferred[KvItem | None]:
        def look(database: Database) -> KvItem | None:
            rows = database.fetch(queries.ITEM, space=encode(space), name=name)
            return KvItem(space, *rows[0]) if rows else None

        return self._ask(look)

    def items(self, space: str, after: bytes = b"", limit: int = 1000) -> Deferred[list[KvItem]]:
        def look(database: Database) -> list[KvItem]:
            if after:
                rows = database.fetch(queries.ITEMS, space=encode(space), after=after, limit=limit)
            else:
                rows = database.fetch(queries.FIRST_ITEMS, space=encode(space), limit=limit)
            return [KvItem(space, name, b"", at, until) for name, at, until in rows]

        return self._ask(look)

    def room(self, space: str) -> Deferred[tuple[int, int]]:
        def look(database: Database) -> tuple[int, int]:
            rows = database.fetch(queries.ROOM, space=encode(space))
            return (rows[0][0], rows[0][1]) if rows else (0, 0)

        return self._ask(look)

    def spaces(self, prefix: str = "") -> Deferred[list[str]]:
        def look(database: Database) -> list[str]:
            names = [bytes(row[0]).decode(errors="surrogatepass") for row in database.fetch(queries.SPACES)]
            return sorted(name for name in names if name.startswith(prefix))

        return self._ask(look)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._writer.close()
            self._reader.close()
            self._close()

    @abstractmethod
    def _execute(self, ops: Sequence[Operation]) -> Outcomes:
        """A batch as one transaction, in the writer's thread; see `WriterThread`."""

    @abstractmethod
    def _look(self, look: Callable[[Database], T]) -> T:
        """Run this with the reader's connection, in the reader's thread."""

    @abstractmethod
    def _explain(self, error: Exception) -> StoreError | None:
        """What a driver's error means."""

    @abstractmethod
    def _close(self) -> None:
        """Close the connections; the threads have ended."""

    def _start(self, database: Database) -> None:
        """Read where the counters are, and start the threads."""
        self._set_counters(self._read_counters(database))
        self._start_threads()

    def _read_counters(self, database: Database) -> Counters:
        """The latest `seq`, `ending` and `number` in the database."""
        return (
            database.fetch(queries.LAST_SEQ)[0][0],
            database.fetch(queries.LAST_ENDING)[0][0],
            database.fetch(queries.LAST_NUMBER)[0][0],
        )

    def _set_counters(self, counters: Counters) -> None:
        self._seq, self._ending, self._number = counters

    def _start_threads(self) -> None:
        self._writer = WriterThread(self._execute, self._finish, self._call, self.batch)
        self._reader = ReaderThread(self._call, self._explain)

    def _submit(self, op: Operation) -> None:
        self._writer.put(op)

    def _expired(self, now: int, retention: Retention, limit: int) -> Deferred[list[str]]:
        def look(database: Database) -> list[str]:
            services = [row[0] for row in database.fetch(queries.SWEEPABLE)]
            cutoffs = [(service, retention.cutoff(service, now)) for service in services]
            rows = [row for row in cutoffs if row[1] is not None]
            return [row[0] for row in database.ask(queries.EXPIRED, rows, limit)] if rows else []

        return self._ask(look)

    def _ask(self, look: Callable[[Database], T]) -> Deferred[T]:
        return self._reader.ask(lambda: self._look(look))

    def _one(self, record: Callable[..., T], query: Query, **parameters: object) -> Deferred[T | None]:
        def look(database: Database) -> T | None:
            rows = database.fetch(query, **parameters)
            return record(*rows[0]) if rows else None

        return self._ask(look)

    def _named(self, record: Callable[..., T], query: Query, name: str) -> Deferred[T | None]:
        """The same of a job by its id, or else by a further name."""

        def look(database: Database) -> T | None:
            rows = database.fetch(query, id=name)
            if not rows:
                found = database.fetch(queries.NAMED, id=name)
                rows = database.fetch(query, id=found[0][0]) if found else []
            return record(*rows[0]) if rows else None

        return self._ask(look)

    def _all(self, record: Callable[..., T], query: Query, **parameters: object) -> Deferred[list[T]]:
        return self._ask(lambda database: [record(*row) for row in database.fetch(query, **parameters)])


def _conditions(filter: JobFilter) -> tuple[list[str], dict[str, object]]:
    """The filter as SQL conditions and their parameters."""
    conditions: list[str] = []
    parameters: dict[str, object] = {}
    behind = page_position(filter)
    if behind is not None:
        conditions.append(queries.BEHIND[filter.oldest_first])
        parameters["behind"] = behind
    if filter.state is not None:
        conditions.append(queries.OPEN_STATE if filter.state in OPEN else queries.ENDED_STATE)
        parameters["state"] = filter.state
    for name, condition in queries.CONDITIONS.items():
        value = getattr(filter, name)
        if value is not None:
            conditions.append(condition)
            parameters[name] = value
    return conditions, parameters
