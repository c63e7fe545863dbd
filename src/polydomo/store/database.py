"""One database connection. The ways in which SQLite and PostgreSQL differ for the store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from polydomo.store.errors import StoreNewer
from polydomo.store.queries import SET_VERSION, VERSION, BulkStatement, SqlTable
from polydomo.store.schema import META, MIGRATIONS, Migration

Row = tuple[Any, ...]


class Database(ABC):
    """A connection, used by one thread at a time. Methods raise the driver's errors."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit when the block ends, roll back if it raises."""
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    @abstractmethod
    def begin(self) -> None:
        """Start a write transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Commit; the transaction is on disk when this returns."""

    @abstractmethod
    def rollback(self) -> None:
        """Roll back. Never fails: a connection that cannot roll back is closed, which has the same effect."""

    @abstractmethod
    def insert(self, table: SqlTable, rows: Sequence[Row]) -> None:
        """Append rows to a table."""

    @abstractmethod
    def execute_bulk(self, statement: BulkStatement, rows: Sequence[Row]) -> None:
        """Run a statement about many rows."""

    @abstractmethod
    def fetch_bulk(self, statement: BulkStatement, rows: Sequence[Row], limit: int = 0) -> list[Row]:
        """Run a query about many rows. `limit` replaces `{limit}` in its text."""

    @abstractmethod
    def fetch(self, query: str, **parameters: object) -> list[Row]:
        """Run a query and return all rows."""

    @abstractmethod
    def execute(self, query: str, **parameters: object) -> None:
        """Run a statement that returns nothing."""

    @abstractmethod
    def statements(self, migration: Migration) -> list[str]:
        """Return the migration in this database's dialect of SQL."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the schema up to date. Raises StoreNewer if it has a later version than the last migration.

    Each migration is a transaction. The first one also creates the table of versions, so that the database of another
    program is left unchanged.
    """
    version = -1
    while version < len(migrations):
        with database.transaction():
            version = _migrate_once(database, migrations)


def _migrate_once(database: Database, migrations: Sequence[Migration]) -> int:
    """Run the next migration, if there is one, and return the version reached."""
    for statement in database.statements(META):
        database.execute(statement)
    rows = database.fetch(VERSION)
    version: int = rows[0][0] if rows else 0
    if version > len(migrations):
        raise StoreNewer(
            f"the store has schema version {version}, this Polydomo knows versions up to {len(migrations)}"
        )
    if version < len(migrations):
        for statement in database.statements(migrations[version]):
            database.execute(statement)
        version += 1
        database.execute(SET_VERSION, version=version)
    return version
