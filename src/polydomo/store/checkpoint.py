"""Checkpoints: moving the log's pages into the SQLite file, in a thread of its own.

SQLite would checkpoint inside a commit that finds the log long enough, and that commit would wait for two more syncs
of the disk. Here a PASSIVE checkpoint runs beside the writer without blocking it: when writing pauses, or when the log
has grown by some megabytes.

After a passive checkpoint the log can only start over while the writer pauses. If the writer never pauses, the log
grows; above a limit the writer itself truncates the log between two batches, with little left to do.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Condition, Thread
from typing import Final

from polydomo.store.sqlite_database import SqliteDatabase

# Seconds between checkpoints while jobs are written.
PAUSE: Final = 1.0

# Growth of the log, in bytes, after which a checkpoint does not wait for the pause.
GROWTH: Final = 32 * 1024 * 1024

# Size of the log, in bytes, above which the writer truncates it.
TRUNCATE_SIZE: Final = 256 * 1024 * 1024


class Checkpointer:
    """The checkpoint thread. The writer calls `on_commit` after each commit."""

    def __init__(self, path: Path, database: SqliteDatabase) -> None:
        self._log = Path(f"{path}-wal")
        self._database = database
        self._wake = Condition()
        self._dirty = False
        self._closed = False
        self._untruncated = 0  # size of a log that could not be truncated, because a backup reads it
        self._size = 0  # of the log at the last checkpoint
        self._thread = Thread(target=self._run, name="polydomo-store-checkpoint", daemon=True)
        self._thread.start()

    def on_commit(self, writer: SqliteDatabase) -> None:
        """Request a checkpoint, and truncate a log that is too long. Called in the writer's thread."""
        size = self._log_size()
        if size > (self._untruncated + GROWTH if self._untruncated else TRUNCATE_SIZE):
            self._truncate(writer)
            size = self._log_size()
            self._untruncated = size if size > TRUNCATE_SIZE else 0
        with self._wake:
            self._dirty = True
            self._wake.notify()

    def close(self) -> None:
        """Stop the thread. SQLite itself makes a last checkpoint when the last connection is closed."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()
        self._database.close()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._dirty or self._closed)
                self._wake.wait_for(lambda: self._closed or self._log_size() - self._size > GROWTH, PAUSE)
                if self._closed:
                    return
                self._dirty = False
            try:
                self._database.pragma("wal_checkpoint(PASSIVE)")
            except sqlite3.Error:
                pass  # a full disk: the log keeps everything until there is space again
            self._size = self._log_size()

    def _truncate(self, writer: SqliteDatabase) -> None:
        try:
            writer.try_pragma("wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            pass  # a long read is in progress; try again after one of the next commits

    def _log_size(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0
