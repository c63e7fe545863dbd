"""The store in memory: a SQLite database without a file, for values that need not survive the broker.

There is no disk to wait for, so there are no threads: reads and writes run on the loop's thread, in its next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from polydomo.deferred import Deferred
from polydomo.store.database import Database, migrate
from polydomo.store.errors import StoreClosed
from polydomo.store.operations import Operation, Outcomes, execute
from polydomo.store.sqlite_database import SqliteDatabase
from polydomo.store.store import BACKLOG, BATCH, Store
from polydomo.store.writer import CallSoon, answer, commit, schedule

T = TypeVar("T")


class MemoryStore(Store):
    """The jobs and items of one process. Writes of one turn of the loop are one transaction, as in a database."""

    def __init__(self, call_soon: CallSoon, backlog_limit: int = BACKLOG, batch: int = BATCH) -> None:
        super().__init__(call_soon, backlog_limit, batch)
        self._queued: list[Operation] = []

    @cached_property
    def _database(self) -> SqliteDatabase:
        """The database. It is made when it is first used, because most brokers never do."""
        database = SqliteDatabase(Path("memory"), "memory")
        migrate(database)
        return database

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            schedule(self._call_soon, self._close)  # after the reads and writes that are scheduled

    def _submit(self, operation: Operation) -> None:
        if not self._queued:
            self._call_soon(self._write_queued)
        self._queued.append(operation)

    def _write_queued(self) -> None:
        batch, self._queued = self._queued, []
        self._finish(batch, commit(self._execute, batch))

    def _execute(self, operations: Sequence[Operation]) -> Outcomes:
        with self._database.transaction():
            return execute(self._database, operations)

    def _read(self, query: Callable[[Database], T]) -> Deferred[T]:
        reply: Deferred[T] = Deferred()
        if self._closed:
            reply.fail(StoreClosed("the store is closed"))
        else:
            self._call_soon(partial(answer, partial(self._query, query), reply, self._call_soon))
        return reply

    def _query(self, query: Callable[[Database], T]) -> T:
        return query(self._database)

    def _close(self) -> None:
        if "_database" in vars(self):
            self._database.close()
