"""One connection to a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from polydomo.store.database import Database, Row
from polydomo.store.queries import BulkStatement, SqlColumn, SqlTable
from polydomo.store.schema import Migration

# Rows per statement, largest first: few statements for any number of rows, and few distinct texts, so that all of them
# stay in the cache of prepared statements.
CHUNKS: Final = (256, 128, 64, 32, 16, 8, 4, 2, 1)

# How long to wait for another program that has locked the file, in milliseconds.
BUSY_TIMEOUT: Final = 5000
SHORT_BUSY_TIMEOUT: Final = 50

SETTINGS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # the log is on disk when COMMIT returns
    "PRAGMA wal_autocheckpoint = 0",  # see Checkpointer
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -32768",
    "PRAGMA temp_store = MEMORY",
)


class SqliteDatabase(Database):
    """A connection. It is created by one thread and used by another, never by two at once.

    After an I/O error SQLite's view of the files is not trusted: `stale` is set, and the next use connects again.
    """

    def __init__(self, path: Path, mode: str = "rwc", *, readonly: bool = False) -> None:
        self.stale = False
        self._path = path
        self._readonly = readonly
        self._connection = self._connect(mode)

    def begin(self) -> None:
        self._connected().execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        try:
            if self._connection.in_transaction:  # a full disk may have rolled back already
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.stale = True

    def insert(self, table: SqlTable, rows: Sequence[Row]) -> None:
        for chunk in _chunks(rows):
            self._connection.execute(_insert(table, len(chunk)), list(chain.from_iterable(chunk)))

    def execute_bulk(self, statement: BulkStatement, rows: Sequence[Row]) -> None:
        for chunk in _chunks(rows):
            self._connection.execute(_with_rows(statement, len(chunk)), list(chain.from_iterable(chunk)))

    def fetch_bulk(self, statement: BulkStatement, rows: Sequence[Row], limit: int = 0) -> list[Row]:
        # The whole result is one JSON text: each fetched row would release and take the GIL (see queries.py).
        found: list[Row] = []
        for chunk in _chunks(rows):
            text = _select_json(statement, len(chunk), limit)
            result = self._connection.execute(text, list(chain.from_iterable(chunk))).fetchone()[0]
            found += _decode(statement.returns, msgspec.json.decode(result))
            if limit and len(found) >= limit:
                return found[:limit]
        return found

    def fetch(self, query: str, **parameters: object) -> list[Row]:
        return self._connected().execute(query, parameters).fetchall()

    def execute(self, query: str, **parameters: object) -> None:
        self._connection.execute(query, parameters)

    def statements(self, migration: Migration) -> list[str]:
        return [text.format(int="INTEGER", bytes="BLOB", nothing="x''") for text in migration.statements]

    def close(self) -> None:
        self._connection.close()

    def pragma(self, text: str) -> tuple[Any, ...]:
        """Run a pragma and return the first row of its result."""
        row: tuple[Any, ...] = self._connected().execute(f"PRAGMA {text}").fetchone()
        return row

    def try_pragma(self, text: str) -> None:
        """Run a pragma that fails soon if the file is locked."""
        self._connection.execute(f"PRAGMA busy_timeout = {SHORT_BUSY_TIMEOUT}")
        try:
            self._connection.execute(f"PRAGMA {text}").fetchone()
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT}")

    def _connected(self) -> sqlite3.Connection:
        if self.stale:
            self._connection.close()
            # Without "c" (create): a file on an unmounted disk must not be replaced by an empty one.
            self._connection = self._connect("rw")
            self.stale = False
        return self._connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT / 1000,
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
def _with_rows(statement: BulkStatement, rows: int) -> str:
    names = ", ".join(column.name for column in statement.columns)
    return f"WITH v ({names}) AS (VALUES {_values(len(statement.columns), rows)}) {statement.text}"


@cache
def _select_json(statement: BulkStatement, rows: int, limit: int) -> str:
    result = ", ".join(
        f"hex({column.name})" if column.kind == "bytes" else column.name for column in statement.returns
    )
    text = f"SELECT json_group_array(json_array({result})) FROM ({statement.text.format(limit=limit)})"
    return _with_rows(statement._replace(text=text), rows)


def _values(columns: int, rows: int) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)


def _decode(columns: Sequence[SqlColumn], rows: list[list[Any]]) -> list[Row]:
    """Convert columns of bytes, which JSON has as hexadecimal digits."""
    for index in [index for index, column in enumerate(columns) if column.kind == "bytes"]:
        for row in rows:
            row[index] = bytes.fromhex(row[index])
    return [tuple(row) for row in rows]
