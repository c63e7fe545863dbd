"""The ledger's writer: a thread that collects batches of rows and writes them as segments.

A segment is written under a name that begins with a dot, synchronised, then renamed: readers see complete segments
only. All tables are written together, so that once rows are reported as safe, the related rows of the other tables are
safe as well.

Rows that cannot be written (a full disk) are kept and tried again. Beyond a limit the oldest rows are dropped and
counted; from then on nothing is reported as safe, so that after a restart the durable jobs among them are rebuilt from
the store.
"""

from __future__ import annotations

import errno
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
    LedgerTable,
)

# Seconds between two attempts to write.
RETRY: Final = 1.0

# Errors of a full or read-only disk, which may pass.
PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

# Rows that are kept while nothing can be written.
BACKLOG: Final = 2_000_000

# Batch size of the Parquet writer; its smaller default takes 8 % more time.
WRITE_BATCH: Final = 16_384

# Columns with minimum and maximum in each segment, for readers that filter by time or service. Statistics of all
# columns would take a fifth of the writing time.
MEASURED: Final = ("submitted", "finished", "service", "dispatched", "at")

# Seconds between two searches for old segments.
PRUNING: Final = 60.0

# Share of all bytes that is reserved for events. Any peer that can connect causes events; beyond this share they are
# removed before rows about jobs.
EVENTS_SHARE: Final = 1 / 8


class SegmentLimits(NamedTuple):
    """Limits of one segment (`roll` seconds or `rows`), and of the segments that are kept."""

    roll: float = 10.0
    rows: int = 250_000
    keep: float = 0.0  # seconds; 0: no limit
    bytes: int = 1 << 62


class _Rows(NamedTuple):
    table: str
    batch: Any
    ending: int  # number of the latest durable job among the rows; 0: none


class _Segment(NamedTuple):
    written: float
    size: int
    path: Path
    table: str


class _Flush(NamedTuple):
    done: Callable[[], object] | None  # called when all earlier rows are safe
    last: bool = False


class Segments:
    """Segments of one run of a broker. `add` and `flush` are thread-safe and do not block.

    In the writer's thread, `safe` is called with the number of the latest end whose row is on disk, and `warn` with an
    event and its reason.
    """

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
        self.lost = 0  # rows that were dropped
        self.pruned = 0  # segments that were removed because of the limits
        self.trouble = ""
        self._broker = broker
        self._run = run
        self._safe = safe
        self._warn = warn
        self._started = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self._number = 0
        self._queue: queue.SimpleQueue[_Rows | _Flush] = queue.SimpleQueue()
        self._batches: dict[str, list[Any]] = {table.name: [] for table in TABLES}
        self._waiting = 0  # rows in the batches
        self._ending = 0
        self._complete = True  # no row about a job was dropped
        self._due = 0.0  # when the oldest batch must be on disk
        self._pruned_at = 0.0
        self._flushes: list[Callable[[], object]] = []
        shared = private_files.is_for_group(folder)
        self._file_mode = private_files.GROUP_FILE if shared else private_files.FILE
        self._folder_mode = private_files.GROUP_FOLDER if shared else private_files.FOLDER
        self._prepared = False
        self._prune_failed = False
        try:
            self._prepare()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            self._trouble(error)
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        self._thread.start()

    def add(self, table: str, batch: Any, ending: int = 0) -> None:
        """Add rows of one table: a record batch, or a `JobBatch`."""
        self._queue.put(_Rows(table, batch, ending))

    def flush(self, done: Callable[[], object] | None = None) -> None:
        """Write all rows added so far; `done` is called in the writer's thread once they are on disk."""
        self._queue.put(_Flush(done))

    def close(self, timeout: float = 10.0) -> bool:
        """Write the remaining rows and stop the thread; return False if they could not be written in time."""
        self._queue.put(_Flush(None, last=True))
        self._thread.join(timeout)
        return not self._thread.is_alive() and not self._waiting

    # The writer's thread

    def _prepare(self) -> None:
        """Create the tables' folders, and remove unfinished segments of runs that were killed."""
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
                item = None if closing else self._queue.get(timeout=self._idle_time())
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

    def _idle_time(self) -> float:
        """Return how long the thread may sleep."""
        if not self._waiting:
            return PRUNING
        if self.trouble:
            return RETRY
        return max(0.001, min(self._due - time.monotonic(), PRUNING))

    def _full(self) -> bool:
        return self._waiting >= self.limits.rows and not self.trouble

    def _drop(self) -> None:
        """Drop the oldest batch, events before rows about jobs."""
        for name in (EVENTS.name, JOBS.name, ATTEMPTS.name):
            batches = self._batches[name]
            if batches:
                batch = batches.pop(0)
                self._waiting -= batch.num_rows
                self.lost += batch.num_rows
                self._complete = self._complete and name == EVENTS.name
                return

    def _roll(self) -> None:
        """Write all collected rows. A table that is written stays written if the next one fails."""
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
        except Exception as error:  # of any kind: the thread must not end
            self._trouble(error)
            self._due = time.monotonic() + RETRY
            return
        if self.trouble:
            self._warn("ledger written again", f"{self.lost} rows were lost" if self.lost else "")
        self.trouble = ""
        if self._ending and self._complete:
            self._safe(self._ending)

    def _trouble(self, error: Exception) -> None:
        """Record that nothing can be written; warn once until the next success."""
        if not self.trouble:
            self._warn("cannot write the ledger; retrying", str(error))
        self.trouble = str(error)

    def _portion(self, batches: list[Any]) -> int:
        """Return how many batches make a segment: all of them, unless nothing could be written for a while."""
        rows = 0
        for index, batch in enumerate(batches):
            rows += batch.num_rows
            if rows >= self.limits.rows:
                return index + 1
        return len(batches)

    def _answer(self) -> None:
        flushes, self._flushes = self._flushes, []
        for done in flushes:
            done()

    def _write(self, table: LedgerTable, batches: list[Any]) -> int:
        self._number += 1
        folder = self.folder / table.name
        name = f"{table.name}-{self._started}-{self._run}-{self._number:06d}.parquet"
        rows = self._table(batches)
        deltas = _deltas(table)
        aside = folder / f".{name}"
        try:
            private_files.make_file(aside, self._file_mode)
            with (
                # Not a Python file: each write to one would take the GIL.
                pyarrow.OSFile(str(aside), "wb") as file,
                parquet.ParquetWriter(
                    file,
                    rows.schema,
                    compression="zstd",
                    compression_level=1,
                    write_batch_size=WRITE_BATCH,
                    write_page_checksum=True,
                    write_statistics=[name for name in MEASURED if name in rows.schema.names],
                    store_schema=False,  # readers need not know which columns are dictionary-encoded in memory
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
            private_files.sync(aside)
            aside.rename(folder / name)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        private_files.sync(folder)  # the new name must be on disk, too
        self.segments += 1
        return int(rows.num_rows)

    def _table(self, batches: list[Any]) -> Any:
        """Return one Arrow table. Jobs that were rebuilt from the store come as record batches, others as
        `JobBatch`."""
        jobs = [batch for batch in batches if isinstance(batch, JobBatch)]
        others = [batch for batch in batches if not isinstance(batch, JobBatch)]
        if not jobs:
            return pyarrow.Table.from_batches(others)
        rows = table_of(jobs, self._broker, self._run)
        if others:
            rows = pyarrow.concat_tables([pyarrow.Table.from_batches(others), rows.cast(arrow_schema(JOBS))])
        return rows

    def _prune(self) -> None:
        """Remove expired segments, and the oldest ones if all together are too large.

        Segments of events beyond their share are removed before others.
        """
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
            if not self._prune_failed:
                self._prune_failed = True
                self._warn("cannot remove an old segment of the ledger", str(error))
            return
        self._prune_failed = False
        if crowded:
            self._warn("removed segments of the ledger to make room", f"{len(crowded)} segments")

    def _found(self) -> list[_Segment]:
        """Return all segments, oldest first."""
        found = []
        for table in TABLES:
            for path in (self.folder / table.name).glob("[!.]*.parquet"):
                try:
                    status = path.stat()
                except OSError:
                    continue  # removed by another process
                found.append(_Segment(status.st_mtime, status.st_size, path, table.name))
        return sorted(found)


def _oldest(segments: list[_Segment], excess: int) -> list[_Segment]:
    """Return as many of the first segments as have at least `excess` bytes."""
    found = []
    for segment in segments:
        if excess <= 0:
            break
        found.append(segment)
        excess -= segment.size
    return found


def _deltas(table: LedgerTable) -> dict[str, str]:
    """Return the encodings of columns whose values differ in nearly every row, but little from the row before."""
    numbers = {column.name for column in table.columns if column.kind in ("timestamp", "int64")}
    ids = {name for name in table.key if table.column(name).kind == "string"}
    return dict.fromkeys(numbers, "DELTA_BINARY_PACKED") | dict.fromkeys(ids, "DELTA_BYTE_ARRAY")
