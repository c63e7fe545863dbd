"""The store for those who outgrow a file: PostgreSQL, through psycopg 3 (`pip install 'polydomo[postgres]'`).

It outlives its server's restarts: the connection is made again with growing pauses, and the batch under way
is tried again. If the connection was lost while the answer to COMMIT was on its way, nobody knows whether the
batch was written; so each batch also writes its own number, and the new connection looks which number is
there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec
import psycopg

from polydomo.store import queries
from polydomo.store.batch import execute
from polydomo.store.database import Database, Row, migrate
from polydomo.store.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreIO,
    StoreLocked,
    StoreReadonly,
    StoreUnreachable,
    StoreUnusable,
)
from polydomo.store.operations import AddJob, Operation, RemoveJob
from polydomo.store.queries import BulkInsert, Query, SqlTable
from polydomo.store.schema import Migration
from polydomo.store.sql import SqlStore
from polydomo.store.store import BACKLOG, BATCH, CallSoon
from polydomo.store.writer import Outcomes

T = TypeVar("T")

# How long a batch, or a question, waits for the server to come back, in seconds.
PATIENCE: Final = 30.0

# Pauses between attempts to connect, in seconds.
SHORTEST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0

# How long opening waits for the lock: the server may need a moment to notice that a killed broker is gone.
LOCK_PATIENCE: Final = 3.0

# A server that vanished without a word is noticed after about 20 s; unless the address says otherwise.
CONNECTION: Final[dict[str, str | int]] = {
    "connect_timeout": 5,
    "application_name": "polydomo",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 20_000,
}

SETTINGS: Final = (
    "SET synchronous_commit = on",  # whatever the server's default: acknowledged means on disk
    "SET statement_timeout = 0",
    "SET lock_timeout = '30s'",
    "SET idle_in_transaction_session_timeout = '60s'",
    # All our statements look up a few rows by an index; the planner must not think otherwise while tables are
    # new.
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET enable_bitmapscan = off",
)


class PostgresDatabase(Database):
    """One connection."""

    def __init__(self, url: str) -> None:
        parameters = CONNECTION | psycopg.conninfo.conninfo_to_dict(url)
        self.connection: psycopg.Connection[Row] = psycopg.connect(
            autocommit=True, prepare_threshold=None, **cast(dict[str, Any], parameters)
        )
        try:
            self._run("; ".join(SETTINGS))
        except BaseException:
            self.connection.close()
            raise

    def begin(self) -> None:
        self._run("BEGIN")

    def commit(self) -> None:
        self._run("COMMIT")

    def rollback(self) -> None:
        try:
            if not self.connection.closed:
                self._run("ROLLBACK")
        except psycopg.Error:
            self.connection.close()

    def append(self, table: SqlTable, rows: Sequence[Row]) -> None:
        names = ", ".join(column.name for column in table.columns)
        text = f"COPY {table.name} ({names}) FROM STDIN (FORMAT BINARY)"
        with self.connection.cursor() as cursor, cursor.copy(text) as copy:
            copy.set_types([TYPES[column.kind] for column in table.columns])
            for row in rows:
                copy.write_row(row)

    def change(self, bulk: BulkInsert, rows: Sequence[Row]) -> None:
        self._run(_with(bulk), {"rows": _encode(rows)})

    def ask(self, bulk: BulkInsert, rows: Sequence[Row], limit: int = 0) -> list[Row]:
        return self._run(_with(bulk).format(limit=limit), {"rows": _encode(rows)}).fetchall()

    def fetch(self, query: Query, **parameters: object) -> list[Row]:
        # Binary: a body would come as twice as many hexadecimal digits otherwise.
        return self.connection.execute(_translate(query.text), parameters, binary=True).fetchall()

    def execute(self, query: Query, **parameters: object) -> None:
        self._run(_translate(query.text), parameters)

    def script(self, text: str) -> None:
        self._run(text)

    def statements(self, migration: Migration) -> list[str]:
        texts = [text.format(int="BIGINT", bytes="BYTEA", nothing="''") for text in migration.statements]
        return [*texts, *migration.postgres]

    def close(self) -> None:
        self.connection.close()

    def lock(self) -> bool:
        """One broker at a time per schema. The lock is the connection's, and ends with it."""
        return bool(
            self._run(
                f"SELECT pg_try_advisory_lock({LOCK}, hashtext(coalesce(current_schema(), '')))"
            ).fetchall()[0][0]
        )

    def identity(self) -> Row:
        """Which of the server's processes serves this connection; the time tells it from a later one of its
        number."""
        return self._run(
            "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchall()[0]

    def terminate(self, identity: Row) -> None:
        """End what may be left of a former connection of ours: it could still hold locks."""
        pid, start = identity
        self._run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid = %(pid)s AND backend_start = %(start)s",
            {"pid": pid, "start": start},
        )

    def _run(self, text: str, parameters: dict[str, object] | None = None) -> psycopg.Cursor[Row]:
        return self.connection.execute(text, parameters)


class PostgresConnection:
    """A connection that is made again when it was lost."""

    def __init__(self, url: str, patience: float, exclusive: bool) -> None:
        self.database: PostgresDatabase | None = None
        self.closing = False  # wait for nothing any more
        self._url = url
        self._patience = patience
        self._exclusive = exclusive
        self._identity: Row | None = None
        self._given_up = False  # the server has been away for long: fail at once until it is back

    def give_up_at(self) -> float:
        """When somebody who begins to wait now should stop."""
        return time.monotonic() + (0.0 if self._given_up else self._patience)

    def connected(self, give_up: float) -> PostgresDatabase:
        """The connection; waits for the server if it must. Raises StoreError at that time."""
        pause = SHORTEST_PAUSE
        while self.database is None:
            try:
                self.database = self._connect()
            except (psycopg.Error, StoreLocked) as error:
                meaning = error if isinstance(error, StoreError) else explain(error)
                now = time.monotonic()
                if meaning is None or now >= give_up or self.closing:
                    self._given_up = True
                    raise meaning or error from error
                time.sleep(min(pause, give_up - now))
                pause = min(2 * pause, LONGEST_PAUSE)
        self._given_up = False
        return self.database

    def lost(self, error: Exception, give_up: float) -> None:
        """The connection is no good; try again, unless that has gone on for too long. (It comes back at once and
        is lost again if what is sent makes the server fall over.)"""
        self.drop()
        if time.monotonic() >= give_up:
            raise StoreUnreachable(_first_line(error)) from error

    def drop(self) -> None:
        """Close it, if it is open."""
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
    ops: Sequence[Operation]
    outcomes: Outcomes


class PostgresStore(SqlStore):
    """See the module's text."""

    def __init__(
        self,
        url: str,
        call: CallSoon,
        backlog_limit: int = BACKLOG,
        batch: int = BATCH,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(call, backlog_limit, batch)
        self._writing = PostgresConnection(url, patience, exclusive=True)
        self._reading = PostgresConnection(url, patience, exclusive=False)
        self._doubt: UncertainCommit | None = None
        try:
            database = self._writing.connected(time.monotonic() + LOCK_PATIENCE)
            migrate(database)
            self._start(database)
        except Exception as error:
            self._close()
            meaning = explain(error)
            if meaning is None and isinstance(error, psycopg.Error):
                meaning = StoreUnusable(_first_line(error), hint="does it belong to another program?")
            raise meaning or error from error

    def close(self) -> None:
        self._writing.closing = self._reading.closing = True
        super().close()

    def _execute(self, ops: Sequence[Operation]) -> Outcomes:
        line = self._writing
        give_up = line.give_up_at()
        while True:
            database = line.connected(give_up)
            try:
                outcomes = self._resolve(database, ops)
                return self._transact(database, ops) if outcomes is None else outcomes
            except Exception as error:
                if not lost(error, database):
                    database.rollback()
                    if self._doubt is not None and self._doubt.ops is ops:
                        self._doubt = None  # the server said that it did not commit
                    raise explain(error) or error from error
                line.lost(error, give_up)

    def _transact(self, database: PostgresDatabase, ops: Sequence[Operation]) -> Outcomes:
        database.begin()
        outcomes = execute(database, ops)
        number = secrets.randbits(62)  # nobody else's, not even another broker's that was here in between
        database.execute(queries.MARK, batch=number)
        self._doubt = UncertainCommit(number, ops, outcomes)
        database.commit()
        self._doubt = None
        return outcomes

    def _resolve(self, database: PostgresDatabase, ops: Sequence[Operation]) -> Outcomes | None:
        """If a commit was in doubt: did it take place? If it is that of `ops`, these are its outcomes.

        If it is that of an earlier batch, which was reported as failed when patience ended, its new jobs are
        taken back: whoever submitted them was told that they were not accepted.
        """
        doubt = self._doubt
        if doubt is None:
            return None
        database.begin()
        # Waits for what is left of the former connection, should it still be committing.
        committed = database.fetch(queries.MARKED)[0][0] == doubt.number
        if committed and doubt.ops is not ops:
            pairs = zip(doubt.ops, doubt.outcomes, strict=True)
            added = [op.job_id for op, error in pairs if isinstance(op, AddJob) and error is None]
            execute(database, [RemoveJob(job_id, None) for job_id in added])
        database.commit()
        self._doubt = None
        return doubt.outcomes if committed and doubt.ops is ops else None

    def _look(self, look: Callable[[Database], T]) -> T:
        line = self._reading
        give_up = line.give_up_at()
        while True:
            database = line.connected(give_up)
            try:
                return look(database)
            except psycopg.Error as error:
                if not lost(error, database):
                    raise
                line.lost(error, give_up)

    def _explain(self, error: Exception) -> StoreError | None:
        return explain(error)

    def _close(self) -> None:
        self._writing.drop()
        self._reading.drop()


def lost(error: Exception, database: PostgresDatabase) -> bool:
    """Is the connection gone, or about to go?"""
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate or ""
    return database.connection.closed or state.startswith("08") or state in ("57P01", "57P02", "57P03")


def explain(error: Exception) -> StoreError | None:
    """What an error of psycopg or the server means; None if it is about the values that were given."""
    if isinstance(error, StoreError):
        return error
    if not isinstance(error, psycopg.Error):
        return None
    text = _first_line(error)
    state = error.sqlstate
    if state in MEANINGS:
        return MEANINGS[state](text)
    if state is None and not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return None  # of psycopg itself, about a value
    if state is None or state.startswith(("08", "28", "3D", "57")):
        return StoreUnreachable(text)
    return None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


MEANINGS: Final[dict[str, type[StoreError]]] = {
    "53100": StoreFull,
    "25006": StoreReadonly,
    "42501": StoreReadonly,  # no permission
    "58030": StoreIO,
    "53200": StoreIO,  # out of memory
    "53300": StoreUnreachable,  # too many connections
    "55P03": StoreIO,  # somebody else locks our tables for longer than lock_timeout
    "XX001": StoreCorrupt,
    "XX002": StoreCorrupt,
}

# Any number, but always the same.
LOCK: Final = 0x504F4C59

TYPES: Final = {"int": "int8", "text": "text", "bytes": "bytea"}

# How element n of a JSON row becomes a column; msgspec writes bytes as base64.
ELEMENTS: Final = {"int": "(e->>{n})::int8", "text": "e->>{n}", "bytes": "decode(e->>{n}, 'base64')"}


@cache
def _with(bulk: BulkInsert) -> str:
    """The rows are one JSON parameter: made and taken apart in C, on both sides."""
    names = ", ".join(column.name for column in bulk.columns)
    values = ", ".join(ELEMENTS[column.kind].format(n=n) for n, column in enumerate(bulk.columns))
    return (
        f"WITH v ({names}) AS (SELECT {values} FROM jsonb_array_elements(%(rows)s::jsonb) AS e) {bulk.text}"
    )


def _encode(rows: Sequence[Row]) -> str:
    return msgspec.json.encode(rows).decode()


@cache
def _translate(text: str) -> str:
    """`:name` in psycopg's words."""
    return queries.PARAMETER.sub(r"%(\1)s", text)
