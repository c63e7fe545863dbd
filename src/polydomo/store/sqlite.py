"""The default store: one SQLite file, in write-ahead-log mode with full synchronisation.

The writer's connection commits; the reader's sees what was committed without ever making the writer wait.
Moving the log's pages into the database (a checkpoint) is left to a thread of its own, so that no commit
waits for it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from polydomo import private_files
from polydomo.store.batch import execute
from polydomo.store.checkpoint import Checkpointer
from polydomo.store.damage import DamageReport, WalScan, lost_in_log, quick_check, scan_log, set_aside
from polydomo.store.database import Database, Row, migrate
from polydomo.store.deferred import Deferred
from polydomo.store.disk import explain, inspect
from polydomo.store.errors import (
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadonly,
    StoreTrouble,
    StoreUnusable,
)
from polydomo.store.operations import Operation
from polydomo.store.queries import BulkInsert, Query, SqlColumn, SqlTable
from polydomo.store.schema import Migration
from polydomo.store.sql import Counters, SqlStore
from polydomo.store.store import BACKLOG, BATCH, CallSoon
from polydomo.store.writer import Outcomes

T = TypeVar("T")

# UPDATE … FROM came with 3.33.
OLDEST: Final = (3, 33, 0)

# Rows per statement, largest first: few statements for any number of rows, and few texts, so that all of them
# stay prepared.
CHUNKS: Final = (256, 128, 64, 32, 16, 8, 4, 2, 1)

# How long to wait for another program that has the file locked, in milliseconds.
PATIENCE: Final = 5000
HURRY: Final = 50

SETTINGS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # the log is on disk when COMMIT returns
    "PRAGMA wal_autocheckpoint = 0",  # see Checkpointer
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -32768",
    "PRAGMA temp_store = MEMORY",
)


class SqliteDatabase(Database):
    """One connection. It is made by one thread and used by another, never by two at once.

    After an error below the database its view of the files is not trusted any more: whoever notices marks it as
    `stale`, and its next user makes it anew.
    """

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self.stale = False
        self._path = path
        self._readonly = readonly
        self._connection = self._connect()

    def begin(self) -> None:
        self._fresh().execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        try:
            if self._connection.in_transaction:  # a full disk may have rolled back already
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.stale = True

    def append(self, table: SqlTable, rows: Sequence[Row]) -> None:
        for chunk in _chunks(rows):
            self._connection.execute(_insert(table, len(chunk)), list(chain.from_iterable(chunk)))

    def change(self, bulk: BulkInsert, rows: Sequence[Row]) -> None:
        for chunk in _chunks(rows):
            self._connection.execute(_with(bulk, len(chunk)), list(chain.from_iterable(chunk)))

    def ask(self, bulk: BulkInsert, rows: Sequence[Row], limit: int = 0) -> list[Row]:
        """The whole answer is one JSON text: each row fetched would cost a turn of Python's lock (see
        queries)."""
        found: list[Row] = []
        for chunk in _chunks(rows):
            text = _question(bulk, len(chunk), limit)
            answer = self._connection.execute(text, list(chain.from_iterable(chunk))).fetchone()[0]
            found += _decode(bulk.answer, msgspec.json.decode(answer))
            if limit and len(found) >= limit:
                return found[:limit]
        return found

    def fetch(self, query: Query, **parameters: object) -> list[Row]:
        return self._fresh().execute(query.text, parameters).fetchall()

    def execute(self, query: Query, **parameters: object) -> None:
        self._connection.execute(query.text, parameters)

    def script(self, text: str) -> None:
        self._connection.execute(text)

    def statements(self, migration: Migration) -> list[str]:
        return [text.format(int="INTEGER", bytes="BLOB", nothing="x''") for text in migration.statements]

    def close(self) -> None:
        self._connection.close()

    def pragma(self, text: str) -> tuple[Any, ...]:
        """The answer's first row."""
        found: tuple[Any, ...] = self._fresh().execute(f"PRAGMA {text}").fetchone()
        return found

    def hurry(self, text: str) -> None:
        """A pragma that gives up soon if somebody is in its way."""
        self._connection.execute(f"PRAGMA busy_timeout = {HURRY}")
        try:
            self._connection.execute(f"PRAGMA {text}").fetchone()
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {PATIENCE}")

    def _fresh(self) -> sqlite3.Connection:
        if self.stale:
            self._connection.close()
            self._connection = self._connect(
                "rw"
            )  # a disk that is away must not be replaced by an empty file
            self.stale = False
        return self._connection

    def _connect(self, mode: str = "rwc") -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=PATIENCE / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            for setting in SETTINGS:
                connection.execute(setting)
            if self._readonly:
                connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        return connection


class SqliteStore(SqlStore):
    """One SQLite file, and the connections to it.

    A file on a full or read-only disk need not be usable when the store is made: `unopened` says why, every read
    and write fails with that, and `reopen` tries again.
    """

    def __init__(
        self, path: str | Path, call: CallSoon, backlog_limit: int = BACKLOG, batch: int = BATCH
    ) -> None:
        super().__init__(call, backlog_limit, batch)
        self._path = Path(path)
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreUnusable(
                f"SQLite {sqlite3.sqlite_version} is too old", hint="3.33 or newer is needed, or PostgreSQL"
            )
        self._resources = ExitStack()
        self._databases: list[SqliteDatabase] = []
        try:
            self._set_counters(self._open())
        except StoreFull as trouble:
            self.unopened = trouble
        except StoreReadonly as trouble:
            if not self._path.exists():
                raise StoreUnusable(trouble.message, hint="choose another place") from trouble
            self.unopened = trouble
        self.trouble = self.unopened
        self._start_threads()

    def reopen(self) -> Deferred[None]:
        def opened(counters: Counters) -> None:
            self._set_counters(counters)
            self.unopened = None
            reply.settle(None)

        def failed(error: StoreError) -> None:
            if isinstance(error, StoreTrouble):
                self.unopened = error
            reply.fail(error)

        reply: Deferred[None] = Deferred()
        if self.unopened is None:
            reply.settle(None)
        else:
            self._reader.ask(self._open).then(opened, failed)
        return reply

    def inspect(self) -> None:
        inspect(self._path)

    def search(self, seconds: float, stopped: Callable[[], bool]) -> DamageReport:
        return quick_check(self._path, seconds, stopped)

    def _open(self) -> Counters:
        """Lock the file, connect, and bring the schema up to date."""
        try:
            self._resources.callback(os.close, _lock(self._path))
            _create(self._path)
            log = Path(f"{self._path}-wal")
            scan = scan_log(log)
            self._database = self._connect()
            self.damage = _lost(log, scan, self._database)
            migrate(self._database)
            self._reading = self._connect(readonly=True)
            self._checkpointer = Checkpointer(self._path, self._connect())
            self._resources.callback(self._checkpointer.close)
            return self._read_counters(self._database)
        except Exception as error:
            self._resources.close()
            self._databases.clear()
            meaning = explain(error, self._path)
            if meaning is None and isinstance(error, sqlite3.Error):
                meaning = StoreUnusable(f"{self._path}: {error}", hint="does it belong to another program?")
            raise meaning or error from error

    def _submit(self, op: Operation) -> None:
        if self.unopened is None:
            super()._submit(op)
        else:
            self._call(partial(self._finish, [op], [self.unopened]))

    def _connect(self, *, readonly: bool = False) -> SqliteDatabase:
        database = SqliteDatabase(self._path, readonly=readonly)
        self._resources.callback(database.close)
        self._databases.append(database)
        return database

    def _execute(self, ops: Sequence[Operation]) -> Outcomes:
        database = self._database
        try:
            database.begin()
            outcomes = execute(database, ops)
            database.commit()
        except Exception as error:
            database.rollback()
            raise self._meaning(error) from error
        self._checkpointer.written(database)
        return outcomes

    def _look(self, look: Callable[[Database], T]) -> T:
        if self.unopened is not None:
            raise self.unopened
        try:
            return look(self._reading)
        except sqlite3.Error as error:
            raise self._meaning(error) from error

    def _meaning(self, error: Exception) -> Exception:
        """What the error means. The next transaction should find connections that can work, if the disk can."""
        meaning = explain(error, self._path)
        if isinstance(meaning, StoreTrouble) and not isinstance(meaning, StoreFull):
            for database in self._databases:
                database.stale = True
        return meaning or error

    def _explain(self, error: Exception) -> StoreError | None:
        return explain(error, self._path)

    def _close(self) -> None:
        self._resources.close()


def _lock(path: Path) -> int:
    """One broker at a time. The lock is a file of its own: SQLite's locks on the database must not be
    touched."""
    private_files.make_folder(path.parent)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StoreLocked(f"another broker uses {path}") from None
    return lock


def _lost(log: Path, scan: WalScan | None, database: SqliteDatabase) -> str:
    """What SQLite could not read of its log; empty: nothing. Before anything is written to the log again."""
    if scan is None:
        return ""
    try:
        frames = database.pragma("wal_checkpoint(PASSIVE)")[1]
    except sqlite3.Error:
        return ""  # a full disk
    lost = lost_in_log(scan, frames)
    copy = set_aside(log) if lost else None
    return f"{lost}; the log is kept as {copy}" if copy else lost


def _create(path: Path) -> None:
    """For its owner's eyes only; SQLite gives the log the same permissions. The name is on disk as well."""
    if path.exists():
        return
    private_files.make_file(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    start = 0
    for size in CHUNKS:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


@cache
def _insert(table: SqlTable, rows: int) -> str:
    names = ", ".join(column.name for column in table.columns)
    return f"INSERT INTO {table.name} ({names}) VALUES {_values(len(table.columns), rows)}"


@cache
def _with(bulk: BulkInsert, rows: int) -> str:
    names = ", ".join(column.name for column in bulk.columns)
    return f"WITH v ({names}) AS (VALUES {_values(len(bulk.columns), rows)}) {bulk.text}"


@cache
def _question(bulk: BulkInsert, rows: int, limit: int) -> str:
    names = ", ".join(column.name for column in bulk.columns)
    answer = ", ".join(
        f"hex({column.name})" if column.kind == "bytes" else column.name for column in bulk.answer
    )
    return (
        f"WITH v ({names}) AS (VALUES {_values(len(bulk.columns), rows)}) "
        f"SELECT json_group_array(json_array({answer})) FROM ({bulk.text.format(limit=limit)})"
    )


def _values(columns: int, rows: int) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)


def _decode(columns: Sequence[SqlColumn], rows: list[list[Any]]) -> list[Row]:
    """JSON has no bytes; they came as hexadecimal digits."""
    for place in [place for place, column in enumerate(columns) if column.kind == "bytes"]:
        for row in rows:
            row[place] = bytes.fromhex(row[place])
    return [tuple(row) for row in rows]
