"""The default store: one SQLite file, in write-ahead-log mode with full synchronisation.

The writer's connection commits; the reader's connection sees committed data without blocking the writer. Moving the
log's pages into the database (a checkpoint) is left to a thread of its own, so that no commit waits for it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from polydomo import private_files
from polydomo.deferred import Deferred
from polydomo.store.checkpoint import Checkpointer
from polydomo.store.damage import DamageReport, WalScan, lost_in_log, quick_check, scan_log, set_aside
from polydomo.store.database import Database, migrate
from polydomo.store.disk import check_disk, translate_error
from polydomo.store.errors import (
    StoreFull,
    StoreLocked,
    StoreReadonly,
    StoreTrouble,
    StoreUnusable,
)
from polydomo.store.operations import Operation, Outcomes, execute
from polydomo.store.sqlite_database import SqliteDatabase
from polydomo.store.store import BACKLOG, BATCH, Counters, Store
from polydomo.store.writer import CallSoon

T = TypeVar("T")

# UPDATE … FROM came with 3.33.
OLDEST_SQLITE: Final = (3, 33, 0)


class SqliteStore(Store):
    """A SQLite file and the connections to it.

    A store on a full or read-only disk can be created, too: `unopened` is the reason, all reads and writes fail with
    it, and `reopen` tries again.
    """

    def __init__(
        self, path: str | Path, call_soon: CallSoon, backlog_limit: int = BACKLOG, batch: int = BATCH
    ) -> None:
        super().__init__(call_soon, backlog_limit, batch)
        self._path = Path(path)
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
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

        def failed(error: Exception) -> None:
            if isinstance(error, StoreTrouble):
                self.unopened = error
            reply.fail(error)

        reply: Deferred[None] = Deferred()
        if self.unopened is None:
            reply.settle(None)
        else:
            self._reader.submit(self._open).then(opened, failed)
        return reply

    def inspect(self) -> None:
        check_disk(self._path)

    def check_damage(self, seconds: float, stopped: Callable[[], bool]) -> DamageReport:
        return quick_check(self._path, seconds, stopped)

    def _open(self) -> Counters:
        """Lock the file, connect, and bring the schema up to date."""
        try:
            self._resources.callback(os.close, _lock(self._path))
            _create(self._path)
            log = Path(f"{self._path}-wal")
            scan = scan_log(log)
            self._writing = self._connect()
            self.damage = _lost_transactions(log, scan, self._writing)
            migrate(self._writing)
            self._reading = self._connect(readonly=True)
            self._checkpointer = Checkpointer(self._path, self._connect())
            self._resources.callback(self._checkpointer.close)
            return self._read_counters(self._writing)
        except Exception as error:
            self._resources.close()
            self._databases.clear()
            translated = translate_error(error, self._path)
            if translated is None and isinstance(error, sqlite3.Error):
                translated = StoreUnusable(
                    f"{self._path}: {error}", hint="does it belong to another program?"
                )
            raise translated or error from error

    def _submit(self, operation: Operation) -> None:
        if self.unopened is None:
            super()._submit(operation)
        else:
            self._call_soon(partial(self._finish, [operation], [self.unopened]))

    def _connect(self, *, readonly: bool = False) -> SqliteDatabase:
        database = SqliteDatabase(self._path, readonly=readonly)
        self._resources.callback(database.close)
        self._databases.append(database)
        return database

    def _execute(self, operations: Sequence[Operation]) -> Outcomes:
        database = self._writing
        try:
            with database.transaction():
                outcomes = execute(database, operations)
        except Exception as error:
            raise self._failure(error) from error
        self._checkpointer.on_commit(database)
        return outcomes

    def _query(self, query: Callable[[Database], T]) -> T:
        if self.unopened is not None:
            raise self.unopened
        try:
            return query(self._reading)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        """Return the store's error for a driver's. After disk errors all connections are marked to be made again."""
        translated = translate_error(error, self._path)
        if isinstance(translated, StoreTrouble) and not isinstance(translated, StoreFull):
            for database in self._databases:
                database.stale = True
        return translated or error

    def _close(self) -> None:
        self._resources.close()


def _lock(path: Path) -> int:
    """Lock the store for this broker. The lock is a file of its own, to leave SQLite's locks on the database alone."""
    private_files.make_folder(path.parent)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StoreLocked(f"another broker uses {path}") from None
    return lock


def _lost_transactions(log: Path, scan: WalScan | None, database: SqliteDatabase) -> str:
    """Describe what SQLite could not read of its log; empty if nothing is lost. Call before the log is written to."""
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
    """Create the file, readable by its owner only, and sync its folder. SQLite gives the log the same permissions."""
    if not path.exists():
        private_files.make_file(path)
        private_files.sync(path.parent)
