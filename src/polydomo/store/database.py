"""One connection to a database, as the store uses it. SQLite and PostgreSQL differ in these few ways only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from polydomo.store.errors import StoreNewer
from polydomo.store.queries import SET_VERSION, VERSION, BulkInsert, Query, SqlTable
from polydomo.store.schema import META, MIGRATIONS, Migration

Row = tuple[Any, ...]


class Database(ABC):
    """Used by one thread at a time. Methods raise the driver's own errors."""

    @abstractmethod
    def begin(self) -> None:
        """Start a transaction that writes."""

    @abstractmethod
    def commit(self) -> None:
        """On disk when this returns."""

    @abstractmethod
    def rollback(self) -> None:
        """As if nothing had happened. Never fails: what cannot be rolled back is closed, which does the
        same."""

    @abstractmethod
    def append(self, table: SqlTable, rows: Sequence[Row]) -> None:
        """New rows."""

    @abstractmethod
    def change(self, bulk: BulkInsert, rows: Sequence[Row]) -> None:
        """A statement about many rows."""

    @abstractmethod
    def ask(self, bulk: BulkInsert, rows: Sequence[Row], limit: int = 0) -> list[Row]:
        """A question about many rows. `limit` fills its place in the text."""

    @abstractmethod
    def fetch(self, query: Query, **parameters: object) -> list[Row]:
        """A question."""

    @abstractmethod
    def execute(self, query: Query, **parameters: object) -> None:
        """A statement."""

    @abstractmethod
    def script(self, text: str) -> None:
        """A statement of a migration."""

    @abstractmethod
    def statements(self, migration: Migration) -> list[str]:
        """The migration in this database's words."""

    @abstractmethod
    def close(self) -> None:
        """The end of the connection."""


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Make the store one of this version. Raises StoreNewer if it is of a later one.

    Each step is a transaction, the first one includes the table of versions: a database that turns out to belong
    to somebody else is left as it was.
    """
    version = -1
    while version < len(migrations):
        database.begin()
        try:
            version = _step(database, migrations)
            database.commit()
        except BaseException:
            database.rollback()
            raise


def _step(database: Database, migrations: Sequence[Migration]) -> int:
    """One migration, if there is one to do; the version reached."""
    (create,) = database.statements(Migration("", (META,)))
    database.script(create)
    found = database.fetch(VERSION)
    version: int = found[0][0] if found else 0
    if version > len(migrations):
        raise StoreNewer(
            f"the store has schema version {version}, this Polydomo knows versions up to {len(migrations)}"
        )
    if version < len(migrations):
        for statement in database.statements(migrations[version]):
            database.script(statement)
        version += 1
        database.execute(SET_VERSION, version=version)
    return version
