"""The store in a PostgreSQL database, for those who outgrow a file (`pip install 'polydomo[postgres]'`).

The store survives restarts of the server: it connects again with growing pauses, and retries the current batch. If the
connection was lost during COMMIT, it is uncertain whether the batch was written. So each batch also writes a number of
its own, and the next connection checks which number is there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import psycopg

from polydomo.store import queries
from polydomo.store.database import Database, Row, migrate
from polydomo.store.errors import StoreLocked, StoreUnreachable, StoreUnusable
from polydomo.store.operations import AddJob, Operation, Outcomes, RemoveJob, execute
from polydomo.store.postgres_database import PostgresDatabase, first_line, is_lost, translate_error
from polydomo.store.store import BACKLOG, BATCH, Store
from polydomo.store.writer import CallSoon

T = TypeVar("T")

# How long a batch or a query waits for an unreachable server, in seconds.
PATIENCE: Final = 30.0

# Pauses between attempts to connect, in seconds.
SHORTEST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0

# How long opening waits for the lock, in seconds: the server may not have noticed yet that a former broker was killed.
LOCK_PATIENCE: Final = 3.0


class PostgresConnection:
    """A connection that is made again when it is lost."""

    def __init__(self, url: str, patience: float, exclusive: bool) -> None:
        self.database: PostgresDatabase | None = None
        self.closing = False  # do not wait for the server
        self._url = url
        self._patience = patience
        self._exclusive = exclusive
        self._identity: Row | None = None
        self._given_up = False  # unreachable for `patience` seconds: fail at once until the server is back

    def deadline(self) -> float:
        """Return until when to wait for the server, on the monotonic clock."""
        return time.monotonic() + (0.0 if self._given_up else self._patience)

    def connected(self, deadline: float) -> PostgresDatabase:
        """Return the connection; wait for the server until `deadline`, then raise StoreError."""
        pause = SHORTEST_PAUSE
        while self.database is None:
            try:
                self.database = self._connect()
            except (psycopg.Error, StoreLocked) as error:
                translated = translate_error(error)
                now = time.monotonic()
                if translated is None or now >= deadline or self.closing:
                    self._given_up = True
                    raise translated or error from error
                time.sleep(min(pause, deadline - now))
                pause = min(2 * pause, LONGEST_PAUSE)
        self._given_up = False
        return self.database

    def reset(self, error: Exception, deadline: float) -> None:
        """Close a lost connection, to connect again. Raises StoreUnreachable after `deadline`: a batch that makes the
        server crash would lose every new connection, too."""
        self.close()
        if time.monotonic() >= deadline:
            raise StoreUnreachable(first_line(error)) from error

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self.database is not None:
            self.database.close()
            self.database = None

    def _connect(self) -> PostgresDatabase:
        database = PostgresDatabase(self._url)
        try:
            if self._exclusive:
                if self._identity is not None:
                    database.terminate(self._identity)
                if not database.lock():
                    raise StoreLocked("another broker uses this database")
                self._identity = database.identity()
        except BaseException:
            database.close()
            raise
        return database


class UncertainCommit(NamedTuple):
    """A batch that may or may not have been committed."""

    number: int
    operations: Sequence[Operation]
    outcomes: Outcomes


class PostgresStore(Store):
    """A store in a PostgreSQL schema."""

    def __init__(
        self,
        url: str,
        call_soon: CallSoon,
        backlog_limit: int = BACKLOG,
        batch: int = BATCH,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(call_soon, backlog_limit, batch)
        self._writing = PostgresConnection(url, patience, exclusive=True)
        self._reading = PostgresConnection(url, patience, exclusive=False)
        self._uncertain: UncertainCommit | None = None
        try:
            database = self._writing.connected(time.monotonic() + LOCK_PATIENCE)
            migrate(database)
            self._set_counters(self._read_counters(database))
            self._start_threads()
        except Exception as error:
            self._close()
            translated = translate_error(error)
            if translated is None and isinstance(error, psycopg.Error):
                translated = StoreUnusable(first_line(error), hint="does it belong to another program?")
            raise translated or error from error

    def close(self) -> None:
        self._writing.closing = self._reading.closing = True
        super().close()

    def _execute(self, operations: Sequence[Operation]) -> Outcomes:
        connection = self._writing
        deadline = connection.deadline()
        while True:
            database = connection.connected(deadline)
            try:
                outcomes = self._resolve(database, operations)
                return self._transact(database, operations) if outcomes is None else outcomes
            except Exception as error:
                if not is_lost(error, database):
                    if self._uncertain is not None and self._uncertain.operations is operations:
                        self._uncertain = None  # the server reported that it did not commit
                    raise translate_error(error) or error from error
                connection.reset(error, deadline)

    def _transact(self, database: PostgresDatabase, operations: Sequence[Operation]) -> Outcomes:
        with database.transaction():
            outcomes = execute(database, operations)
            number = secrets.randbits(62)  # unique, also among other brokers that used the store in between
            database.execute(queries.SET_BATCH_NUMBER, batch=number)
            self._uncertain = UncertainCommit(number, operations, outcomes)
        self._uncertain = None
        return outcomes

    def _resolve(self, database: PostgresDatabase, operations: Sequence[Operation]) -> Outcomes | None:
        """Find out whether an uncertain commit happened, and return its outcomes if it was that of `operations`.

        An earlier batch was reported as failed when its deadline passed. If its commit happened, its new jobs are
        removed again, because their clients were told that they were not accepted.
        """
        uncertain = self._uncertain
        if uncertain is None:
            return None
        with database.transaction():
            # Waits for the former connection's transaction, should it still be committing.
            committed = database.fetch(queries.BATCH_NUMBER)[0][0] == uncertain.number
            if committed and uncertain.operations is not operations:
                pairs = zip(uncertain.operations, uncertain.outcomes, strict=True)
                added = [
                    operation.job.id
                    for operation, error in pairs
                    if isinstance(operation, AddJob) and error is None
                ]
                execute(database, [RemoveJob(None, job_id) for job_id in added])
        self._uncertain = None
        return uncertain.outcomes if committed and uncertain.operations is operations else None

    def _query(self, query: Callable[[Database], T]) -> T:
        connection = self._reading
        deadline = connection.deadline()
        while True:
            database = connection.connected(deadline)
            try:
                return query(database)
            except psycopg.Error as error:
                if not is_lost(error, database):
                    raise translate_error(error) or error from error
                connection.reset(error, deadline)

    def _close(self) -> None:
        self._writing.close()
        self._reading.close()
