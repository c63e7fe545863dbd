"""One connection to a PostgreSQL database, through psycopg 3."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, cast

import msgspec
import psycopg

from polydomo.store.database import Database, Row
from polydomo.store.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreIO,
    StoreReadonly,
    StoreUnreachable,
)
from polydomo.store.queries import PARAMETER, BulkStatement, SqlTable
from polydomo.store.schema import Migration

# A lost connection is noticed after about 20 s, unless the URL has other values.
CONNECTION: Final[dict[str, str | int]] = {
    "connect_timeout": 5,
    "application_name": "polydomo",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 20_000,
}

SETTINGS: Final = (
    "SET synchronous_commit = on",  # acknowledged means on disk, whatever the server's default is
    "SET statement_timeout = 0",
    "SET lock_timeout = '30s'",
    "SET idle_in_transaction_session_timeout = '60s'",
    # All statements look up a few rows by an index. Without statistics, on new tables, the planner would scan.
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET enable_bitmapscan = off",
)


class PostgresDatabase(Database):
    """A connection."""

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

    def insert(self, table: SqlTable, rows: Sequence[Row]) -> None:
        names = ", ".join(column.name for column in table.columns)
        text = f"COPY {table.name} ({names}) FROM STDIN (FORMAT BINARY)"
        with self.connection.cursor() as cursor, cursor.copy(text) as copy:
            copy.set_types([TYPES[column.kind] for column in table.columns])
            for row in rows:
                copy.write_row(row)

    def execute_bulk(self, statement: BulkStatement, rows: Sequence[Row]) -> None:
        self._run(_with_rows(statement), {"rows": _encode(rows)})

    def fetch_bulk(self, statement: BulkStatement, rows: Sequence[Row], limit: int = 0) -> list[Row]:
        return self._run(_with_rows(statement).format(limit=limit), {"rows": _encode(rows)}).fetchall()

    def fetch(self, query: str, **parameters: object) -> list[Row]:
        # Binary, because a body in text format has twice the size, as hexadecimal digits.
        return self.connection.execute(_to_pyformat(query), parameters, binary=True).fetchall()

    def execute(self, query: str, **parameters: object) -> None:
        self._run(_to_pyformat(query), parameters)

    def statements(self, migration: Migration) -> list[str]:
        texts = [text.format(int="BIGINT", bytes="BYTEA", nothing="''") for text in migration.statements]
        return [*texts, *migration.postgres]

    def close(self) -> None:
        self.connection.close()

    def lock(self) -> bool:
        """Lock the schema for this broker; return False if another has it. The lock ends with the connection."""
        return bool(
            self._run(
                f"SELECT pg_try_advisory_lock({LOCK}, hashtext(coalesce(current_schema(), '')))"
            ).fetchall()[0][0]
        )

    def identity(self) -> Row:
        """Return the process id and start time of the server process behind this connection."""
        return self._run(
            "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchall()[0]

    def terminate(self, identity: Row) -> None:
        """End the server process of a former connection, which could still hold locks."""
        pid, start = identity
        self._run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid = %(pid)s AND backend_start = %(start)s",
            {"pid": pid, "start": start},
        )

    def _run(self, text: str, parameters: dict[str, object] | None = None) -> psycopg.Cursor[Row]:
        return self.connection.execute(text, parameters)


def is_lost(error: Exception, database: PostgresDatabase) -> bool:
    """Return whether the error means that the connection is lost or about to be closed."""
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate or ""
    return database.connection.closed or state.startswith("08") or state in ("57P01", "57P02", "57P03")


def translate_error(error: Exception) -> StoreError | None:
    """Return the store's error for one of psycopg or the server; None if it is about the values that were given."""
    if isinstance(error, StoreError):
        return error
    if not isinstance(error, psycopg.Error):
        return None
    text = first_line(error)
    state = error.sqlstate
    if state in ERRORS:
        return ERRORS[state](text)
    if state is None and not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return None  # raised by psycopg itself, about a value
    if state is None or state.startswith(("08", "28", "3D", "57")):
        return StoreUnreachable(text)
    return None


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


ERRORS: Final[dict[str, type[StoreError]]] = {
    "53100": StoreFull,
    "25006": StoreReadonly,
    "42501": StoreReadonly,  # no permission
    "58030": StoreIO,
    "53200": StoreIO,  # out of memory
    "53300": StoreUnreachable,  # too many connections
    "55P03": StoreIO,  # another session locks the tables for longer than lock_timeout
    "XX001": StoreCorrupt,
    "XX002": StoreCorrupt,
}

# Key of the advisory lock: any constant.
LOCK: Final = 0x504F4C59

TYPES: Final = {"int": "int8", "text": "text", "bytes": "bytea"}

# Conversion of element n of a JSON row to a column; msgspec writes bytes as base64.
ELEMENTS: Final = {"int": "(e->>{n})::int8", "text": "e->>{n}", "bytes": "decode(e->>{n}, 'base64')"}


@cache
def _with_rows(statement: BulkStatement) -> str:
    """Return the statement's text with the rows as one JSON parameter, which is encoded and decoded in C."""
    names = ", ".join(column.name for column in statement.columns)
    values = ", ".join(ELEMENTS[column.kind].format(n=n) for n, column in enumerate(statement.columns))
    return f"WITH v ({names}) AS (SELECT {values} FROM jsonb_array_elements(%(rows)s::jsonb) AS e) {statement.text}"


def _encode(rows: Sequence[Row]) -> str:
    return msgspec.json.encode(rows).decode()


@cache
def _to_pyformat(query: str) -> str:
    """Convert `:name` to psycopg's `%(name)s`."""
    return PARAMETER.sub(r"%(\1)s", query)
