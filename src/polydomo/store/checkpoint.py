"""Moves the log's pages into the database file, in a thread of its own.

SQLite would do it inside every commit that finds the log long enough, and that commit would wait for two more
synchronisations of the disk. Here a PASSIVE checkpoint runs beside the writer and disturbs nobody: soon after
things have gone quiet, or when the log has grown by some megabytes.

A passive checkpoint can only start the log over when the writer pauses for a moment. If it never does, the
log grows; once it is really long, the writer itself finishes the checkpoint between two batches, of which
little is left to do.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from polydomo.store.sqlite import SqliteDatabase

# Seconds between checkpoints while something is written.
PAUSE: Final = 1.0

# A log of this many bytes is not left to wait for the pause.
LONG: Final = 32 * 1024 * 1024

# A log of this many bytes is cut back by the writer.
TOO_LONG: Final = 256 * 1024 * 1024


class Checkpointer:
    """`written` is called by the writer after each commit."""

    def __init__(self, path: Path, database: SqliteDatabase) -> None:
        self._log = Path(f"{path}-wal")
        self._database = database
        self._wake = Condition()
        self._dirty = False
        self._closed = False
        self._uncut = 0  # size of a log that could not be cut: a backup reads it
        self._size = 0  # of the log when it was last checkpointed
        self._thread = Thread(target=self._run, name="polydomo-store-checkpoint", daemon=True)
        self._thread.start()

    def written(self, writer: SqliteDatabase) -> None:
        """A commit has ended."""
        size = self._log_size()
        if size > (self._uncut + LONG if self._uncut else TOO_LONG):
            self._cut(writer)
            size = self._log_size()
            self._uncut = size if size > TOO_LONG else 0
        with self._wake:
            self._dirty = True
            self._wake.notify()

    def close(self) -> None:
        """A last checkpoint is made by SQLite itself, when the last connection is closed."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()
        self._database.close()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._dirty or self._closed)
                self._wake.wait_for(lambda: self._closed or self._log_size() - self._size > LONG, PAUSE)
                if self._closed:
                    return
                self._dirty = False
            try:
                self._database.pragma("wal_checkpoint(PASSIVE)")
            except sqlite3.Error:
                pass  # a full disk: the log keeps everything until there is space again
            self._size = self._log_size()

    def _cut(self, writer: SqliteDatabase) -> None:
        try:
            writer.hurry("wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            pass  # somebody reads a lot just now; after one of the next commits, then

    def _log_size(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0
