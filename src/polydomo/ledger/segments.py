"""Rows become files: a thread of its own collects batches and writes segments.

A segment is written under a name that begins with a dot, synchronised, then renamed: whoever lists the folder sees
whole segments only. All tables are rolled together, so that when the owner hears that rows are safe, so are the rows
of the other tables that belong to them.

What cannot be written (a full disk) is kept and tried again. If too much waits, the oldest rows are dropped and
counted; from then on nothing is said to be safe any more, so that after a restart the durable jobs among them are made
anew from the store.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow
from pyarrow import parquet

from polydomo import private_files
from polydomo.ledger.arrow_columns import arrow_schema, table_of
from polydomo.ledger.job_batch import JobBatch
from polydomo.ledger.schema import (
    ATTEMPTS,
    EVENTS,
    JOBS,
    META_BROKER,
    META_RUN,
    META_TABLE,
    META_VERSION,
    TABLES,
    VERSION,
    Table,
)

# Seconds between two tries to write.
RETRY: Final = 1.0

# What a disk says that is full or read-only: it may be better later.
PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

# Rows that may wait while nothing can be written.
BACKLOG: Final = 2_000_000

# Values that Parquet's writer takes at once: with fewer, the default, it needs 8 % more time.
WRITE_BATCH: Final = 16_384

# Columns of which a segment says the lowest and the highest value, for readers that look for a time or a service. All
# of them would cost a fifth of the writing.
MEASURED: Final = ("submitted", "finished", "service", "dispatched", "at")

# How often old segments are looked for, in seconds.
PRUNING: Final = 60.0

# The share of all bytes that events have for themselves. Anybody who can connect makes events; beyond this share they
# are removed before anything about jobs is.
EVENTS_SHARE: Final = 1 / 8


class SegmentLimits(NamedTuple):
    """When a segment is finished, and what is kept."""

    roll: float = 10.0
    rows: int = 250_000
    keep: float = 0.0  # seconds; 0: for ever
    bytes: int = 1 << 62


class _Rows(NamedTuple):
    table: str
    batch: Any
    ending: int  # of the latest durable job in it; 0: none


class _Segment(NamedTuple):
    written: float
    size: int
    path: Path
    table: str


class _Flush(NamedTuple):
    done: Callable[[], object] | None  # called when all that came before is safe
    last: bool = False


class Segments:
    """`add` and `flush` may be called from any thread and never wait. `safe` is called in the writer's own thread with
    the number of the latest end whose row is on disk; `warn` with what went wrong, once."""

    def __init__(
        self,
        folder: Path,
        broker: str,
        run: str,
        limits: SegmentLimits,
        *,
        safe: Callable[[int], object],
        warn: Callable[[str, str], object],
    ) -> None:
        self.folder = folder
        self.limits = limits
        self.written = 0  # rows, of all tables
        self.segments = 0
        self.lost = 0  # rows that could not be written in time
        self.pruned = 0  # segments that were removed because of their age or of all segments' size
        self.trouble = ""
        self._broker = broker
        self._run = run
        self._safe = safe
        self._warn = warn
        self._started = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self._number = 0
        self._queue: queue.SimpleQueue[_Rows | _Flush] = queue.SimpleQueue()
        self._batches: dict[str, list[Any]] = {table.name: [] for table in TABLES}
        self._waiting = 0  # rows in them
        self._ending = 0
        self._complete = True  # no row about a job was lost
        self._due = 0.0  # when the oldest of them must be on disk
        self._pruned_at = 0.0
        self._flushes: list[Callable[[], object]] = []
        shared = private_files.is_for_group(folder)
        self._file_mode = private_files.GROUP_FILE if shared else private_files.FILE
        self._folder_mode = private_files.GROUP_FOLDER if shared else private_files.FOLDER
        self._prepared = False
        self._stuck = False  # an old segment could not be removed
        try:
            self._prepare()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            self._trouble(error)
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        self._thread.start()

    def add(self, table: str, batch: Any, ending: int = 0) -> None:
        """Rows of one table: a record batch, or a sheet of jobs."""
        self._queue.put(_Rows(table, batch, ending))

    def flush(self, done: Callable[[], object] | None = None) -> None:
        """Write now what has come so far; `done` is called in the writer's thread as soon as it is on disk."""
        self._queue.put(_Flush(done))

    def close(self, patience: float = 10.0) -> bool:
        """Write what is left, and end. Waits; False: it could not be written in that time."""
        self._queue.put(_Flush(None, last=True))
        self._thread.join(patience)
        return not self._thread.is_alive() and not self._waiting

    # In the thread, once there is one

    def _prepare(self) -> None:
        """Make the tables' folders, and remove what a run left there that was killed while it wrote."""
        for table in TABLES:
            place = self.folder / table.name
            private_files.make_folder(place, self._folder_mode)
            for path in place.glob(".*.parquet"):
                path.unlink(missing_ok=True)
        self._prepared = True

    def _work(self) -> None:
        closing = False
        tries = 0
        while True:
            try:
                item = None if closing else self._queue.get(timeout=self._patience())
            except queue.Empty:
                item = None
            hurry = closing
            while item is not None:
                if isinstance(item, _Flush):
                    hurry = True
                    closing = closing or item.last
                    if item.done is not None:
                        self._flushes.append(item.done)
                else:
                    self._take(item)
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    item = None
            if self._waiting and (hurry or self._flushes or self._full() or time.monotonic() >= self._due):
                self._roll()
            if not self._waiting:
                self._answer()
            self._prune()
            if closing:
                tries += 1
                if not self._waiting or tries > 3:
                    return
                time.sleep(RETRY)

    def _take(self, item: _Rows) -> None:
        if not self._waiting:
            self._due = time.monotonic() + self.limits.roll
        self._batches[item.table].append(item.batch)
        self._waiting += item.batch.num_rows
        self._ending = max(self._ending, item.ending)
        while self._waiting > BACKLOG:
            self._drop()

    def _patience(self) -> float | None:
        """How long the thread may sleep."""
        if not self._waiting:
            return PRUNING
        if self.trouble:
            return RETRY
        return max(0.001, min(self._due - time.monotonic(), PRUNING))

    def _full(self) -> bool:
        return self._waiting >= self.limits.rows and not self.trouble

    def _drop(self) -> None:
        """There is no room for more: the oldest rows go, events before those about jobs."""
        for name in (EVENTS.name, JOBS.name, ATTEMPTS.name):
            batches = self._batches[name]
            if batches:
                batch = batches.pop(0)
                self._waiting -= batch.num_rows
                self.lost += batch.num_rows
                self._complete = self._complete and name == EVENTS.name
                return

    def _roll(self) -> None:
        """Everything that waits becomes segments. A table that is written stays written if the next one fails."""
        try:
            if not self._prepared:
                self._prepare()
            for table in TABLES:
                batches = self._batches[table.name]
                while batches:
                    portion = self._portion(batches)
                    rows = self._write(table, batches[:portion])
                    del batches[:portion]
                    self._waiting -= rows
                    self.written += rows
        except Exception as error:  # whatever it is: if this thread ended, nobody would write any more
            self._trouble(error)
            self._due = time.monotonic() + RETRY
            return
        if self.trouble:
            self._warn("the ledger is written again", f"{self.lost} rows were lost" if self.lost else "")
        self.trouble = ""
        if self._ending and self._complete:
            self._safe(self._ending)

    def _trouble(self, error: Exception) -> None:
        """Nothing can be written now. Said once, until something could be."""
        if not self.trouble:
            self._warn("the ledger cannot be written; it is tried again", str(error))
        self.trouble = str(error)

    def _portion(self, batches: list[Any]) -> int:
        """How many of them make a segment. There are more only if nothing could be written for a while."""
        rows = 0
        for place, batch in enumerate(batches):
            rows += batch.num_rows
            if rows >= self.limits.rows:
                return place + 1
        return len(batches)

    def _answer(self) -> None:
        flushes, self._flushes = self._flushes, []
        for done in flushes:
            done()

    def _write(self, table: Table, batches: list[Any]) -> int:
        self._number += 1
        folder = self.folder / table.name
        name = f"{table.name}-{self._started}-{self._run}-{self._number:06d}.parquet"
        rows = self._table(batches)
        deltas = _deltas(table)
        aside = folder / f".{name}"
        try:
            private_files.make_file(aside, self._file_mode)
            with (
                # Not a file of Python's: every write to it would take Python's lock.
                pyarrow.OSFile(str(aside), "wb") as file,
                parquet.ParquetWriter(
                    file,
                    rows.schema,
                    compression="zstd",
                    compression_level=1,
                    write_batch_size=WRITE_BATCH,
                    write_page_checksum=True,
                    write_statistics=[name for name in MEASURED if name in rows.schema.names],
                    store_schema=False,  # words are coded here only so that they need not be looked up again
                    use_dictionary=[column.name for column in table.columns if column.name not in deltas],
                    column_encoding=deltas,
                ) as writer,
            ):
                writer.write_table(rows)
                writer.add_key_value_metadata(
                    {
                        META_VERSION: str(VERSION),
                        META_TABLE: table.name,
                        META_BROKER: self._broker,
                        META_RUN: self._run,
                    }
                )
            _sync(aside)
            aside.rename(folder / name)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        _sync(folder)  # so that the new name is on disk, too
        self.segments += 1
        return int(rows.num_rows)

    def _table(self, batches: list[Any]) -> Any:
        """All of them. Jobs come on sheets, but for those that were made from the store after a crash."""
        sheets = [batch for batch in batches if isinstance(batch, JobBatch)]
        others = [batch for batch in batches if not isinstance(batch, JobBatch)]
        if not sheets:
            return pyarrow.Table.from_batches(others)
        rows = table_of(sheets, self._broker, self._run)
        if others:
            rows = pyarrow.concat_tables([pyarrow.Table.from_batches(others), rows.cast(arrow_schema(JOBS))])
        return rows

    def _prune(self) -> None:
        """Remove segments that are too old, and if all together are too large, the oldest: first of the events that
        have more than their share, then of all."""
        now = time.monotonic()
        if now - self._pruned_at < PRUNING and self._pruned_at:
            return
        self._pruned_at = now
        found = self._found()
        oldest = time.time() - self.limits.keep if self.limits.keep else 0.0
        kept = [segment for segment in found if segment.written >= oldest]
        events = [segment for segment in kept if segment.table == EVENTS.name]
        excess = sum(segment.size for segment in kept) - self.limits.bytes
        spare = sum(segment.size for segment in events) - int(self.limits.bytes * EVENTS_SHARE)
        crowded = _oldest(events, min(excess, spare))
        excess -= sum(segment.size for segment in crowded)
        crowded += _oldest([segment for segment in kept if segment not in crowded], excess)
        try:
            for segment in [*found[: len(found) - len(kept)], *crowded]:
                segment.path.unlink(missing_ok=True)
                self.pruned += 1
        except OSError as error:
            if not self._stuck:
                self._stuck = True
                self._warn("an old segment of the ledger cannot be removed", str(error))
            return
        self._stuck = False
        if crowded:
            self._warn("segments of the ledger were removed to make room", f"{len(crowded)} of them")

    def _found(self) -> list[_Segment]:
        """All segments, the oldest first."""
        found = []
        for table in TABLES:
            for path in (self.folder / table.name).glob("[!.]*.parquet"):
                try:
                    status = path.stat()
                except OSError:
                    continue  # somebody else took it away
                found.append(_Segment(status.st_mtime, status.st_size, path, table.name))
        return sorted(found)


def _oldest(segments: list[_Segment], excess: int) -> list[_Segment]:
    """So many of the first that they have at least `excess` bytes."""
    found = []
    for segment in segments:
        if excess <= 0:
            break
        found.append(segment)
        excess -= segment.size
    return found


def _deltas(table: Table) -> dict[str, str]:
    """Columns in which nearly every row has another value, but one close to that of the row before."""
    numbers = {column.name for column in table.columns if column.kind in ("timestamp", "int64")}
    ids = {name for name in table.key if table.column(name).kind == "string"}
    return dict.fromkeys(numbers, "DELTA_BINARY_PACKED") | dict.fromkeys(ids, "DELTA_BYTE_ARRAY")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
