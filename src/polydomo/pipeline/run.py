"""The pipeline from the ledger's segments to gold: as a stream, once, or as a backfill.

`run` uses Structured Streaming: the stream's batches are lists of segments (`intake`), each batch is added to silver
exactly once (`ingest`), then gold is refreshed (`refresh`). `backfill` runs the same functions as one batch.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from polydomo.errors import ConfigError
from polydomo.pipeline import files
from polydomo.pipeline.ingest import Batch, Count, Fresh, Ingest, Taken
from polydomo.pipeline.intake import Intake
from polydomo.pipeline.lake import Lake
from polydomo.pipeline.lock import holding
from polydomo.pipeline.places import STATE
from polydomo.pipeline.refresh import Refreshed, refresh
from polydomo.pipeline.rewrite import orphans, rewrite
from polydomo.pipeline.session import prepare
from polydomo.pipeline.tables.bronze import Segment, Verdict
from polydomo.pipeline.tables.spec import Objective
from polydomo.server.log import Log
from polydomo.server.settings import Settings
from polydomo.server.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = Log()

# Completed share, from 0 to 1, and a description.
Progress = Callable[[float, str], None]

# Spark's checkpoint grows with the batches. After this many, a new stream is started.
_BATCHES: Final = 2000

# Snapshots that a table keeps. Its metadata, written with each commit, lists them all.
_HISTORY: Final = 100

# This many small files of one day are merged. Seconds between two checks.
_SMALL_FILES: Final = 64
_KEEPING: Final = 600.0

# A query that takes longer than this may miss files that were replaced after it started.
_READERS: Final = timedelta(hours=2)

# While segments keep coming, gold is refreshed at this interval, in seconds; less often if that would take more than
# this share of the time.
_GOLD: Final = 30.0
_GOLD_SHARE: Final = 0.25

# Silver's share of the progress.
_SILVER: Final = 0.7


@dataclass
class RunResult:
    """Totals of a run or a backfill. `seconds`: by stage."""

    batches: int = 0
    segments: int = 0
    rows: int = 0
    added: int = 0
    duplicates: int = 0
    counts: dict[str, Count] = field(default_factory=dict)
    gold: dict[str, int] = field(default_factory=dict)
    rejected: list[Verdict] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def take(self, taken: Taken) -> None:
        """Add the counts of a batch."""
        self.batches += 1
        for name, count in taken.counts.items():
            mine = self.counts.setdefault(name, Count())
            for what, number in vars(count).items():
                setattr(mine, what, getattr(mine, what) + number)
            self.segments += count.segments
            self.rows += count.rows
            self.added += count.added
            self.duplicates += count.duplicates
        self.rejected += taken.rejected
        for step, seconds in taken.seconds.items():
            self.spend(step, seconds)

    def refreshed(self, found: list[Refreshed]) -> None:
        """Add the rows written to gold."""
        for one in found:
            self.gold[one.table] = self.gold.get(one.table, 0) + one.rows
            self.spend(f"gold {one.table}", one.seconds)

    def spend(self, step: str, seconds: float) -> None:
        """Add seconds to a stage's total."""
        self.seconds[step] = self.seconds.get(step, 0.0) + seconds


def run(
    spark: SparkSession,
    lake: Lake,
    settings: Settings,
    *,
    once: bool = False,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> RunResult:
    """Ingest new segments. `once`: those that exist now. Otherwise until `stop` is set or, without it, until SIGTERM or
    Ctrl-C; then the current batch is finished and gold is refreshed."""
    with holding(lake.places, "run"):
        prepare(spark)
        work = _Run(spark, lake, settings, progress)
        if once:
            return work.go(None)
        if stop is not None:
            return work.go(stop)
        with _until_told() as told:
            return work.go(told)


def backfill(
    spark: SparkSession,
    lake: Lake,
    settings: Settings,
    *,
    since: date | None = None,
    until: date | None = None,
    fewer: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Rebuild all tables from all existing segments, or some days of them (`until` inclusive) and keep the others. Each
    table is replaced in one step, and a later `run` continues from there.

    The ledger deletes old segments, the tables keep their rows: if fewer rows would remain, nothing is changed, unless
    `fewer` allows it."""
    with holding(lake.places, "backfill"):
        prepare(spark)
        told = progress or (lambda share, text: None)
        began = time.monotonic()
        intake = Intake(spark, lake, settings.spark.files)
        segments = intake.discover()
        told(0.02, f"checking {len(segments)} segments")
        result = RunResult()
        Ingest(spark, lake).follow()
        ingest = Ingest(spark, lake, fresh=Fresh(since, until, fewer))
        result.take(ingest.take(Batch(f"backfill-{uuid.uuid4().hex[:8]}", 0), segments))
        told(_SILVER, "gold")
        _gold(spark, lake, settings, result, told, rebuild=True)
        # The segments in pending lists are ingested now.
        for found in files.listing(spark, lake.places.intake):
            files.remove(spark, found.path)
        result.spend("all", time.monotonic() - began)
        told(1.0, "done")
        return result


def objectives(settings: Settings) -> tuple[Objective, ...]:
    """Return the objectives in `spark.slo`."""
    found = []
    for text in settings.spark.slo:
        words = text.split()
        try:
            service, latency, share = words
            objective = Objective(
                service, parse_duration(latency), round(float(share.removesuffix("%")) / 100, 9)
            )
        except ValueError as error:
            raise ConfigError(
                f"{text!r} in spark.slo is not SERVICE LATENCY PERCENT: {error}",
                hint='for example "echo 200ms 99.9%"',
            ) from None
        if not 0 < objective.share < 1 or objective.seconds <= 0:
            raise ConfigError(
                f"{text!r} in spark.slo is not a valid objective",
                hint="the latency must be above 0, the share between 0% and 100%",
            )
        found.append(objective)
    return tuple(found)


class _Run:
    def __init__(
        self, spark: SparkSession, lake: Lake, settings: Settings, progress: Progress | None
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._settings = settings
        self._told = progress or (lambda share, text: None)
        self._result = RunResult()
        self._ingest = Ingest(spark, lake)
        self._intake = Intake(spark, lake, settings.spark.files)
        self._stream = ""
        # The stream's thread and this one exclude each other.
        self._turn = threading.Lock()
        self._stopping = False
        self._error: BaseException | None = None
        self._posted = 0
        self._seen = 0
        self._lists: set[str] = set()
        self._refreshed = time.monotonic()
        self._pause = _GOLD
        self._stale = True
        self._kept = float("-inf")
        self._first = 0

    def go(self, stop: threading.Event | None) -> RunResult:
        began = time.monotonic()
        self._intake.open()
        self._ingest.follow()
        self._stream = _stream_name(self._spark, self._lake)
        self._intake.post(self._intake.discover())
        self._posted = self._intake.waiting()
        self._told(0.0, f"{self._posted} segments")
        if stop is None:
            self._once()
        else:
            self._until(stop)
        self._gold()
        self._result.spend("all", time.monotonic() - began)
        self._told(1.0, "done")
        return self._result

    def _once(self) -> None:
        if self._posted:
            query = self._start(available_now=True)
            try:
                self._wait(query)
            finally:
                query.stop()
            self._tidy()

    def _until(self, stop: threading.Event) -> None:
        """Run one stream after the other until stopped."""
        while True:
            self._follow(stop)
            if stop.is_set():
                return
            self._stream = _stream_name(self._spark, self._lake, new=True)
            self._first = self._result.batches

    def _follow(self, stop: threading.Event) -> None:
        """Discover segments at an interval; the stream finds their lists. Return after _BATCHES batches or on stop."""
        interval = self._settings.spark.interval
        query = self._start(available_now=False)
        try:
            while not stop.wait(interval):
                if not query.isActive:
                    self._wait(query)
                with self._turn:
                    new = self._intake.discover()
                    self._posted += len(new)
                    self._intake.post(new)
                    if self._stale and self._due():
                        self._gold()
                    if self._result.batches - self._first >= _BATCHES:
                        break
        finally:
            self._halt(query)

    def _start(self, *, available_now: bool) -> StreamingQuery:
        writer = (
            self._intake.stream()
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", f"{self._lake.places.checkpoint}/{self._stream}")
            .queryName(f"polydomo-{self._stream}")
        )
        if available_now:
            return writer.trigger(availableNow=True).start()
        pause = min(1.0, self._settings.spark.interval)
        return writer.trigger(processingTime=f"{int(pause * 1000)} milliseconds").start()

    def _wait(self, query: StreamingQuery) -> None:
        """Wait for the end of the query. An error in our own code is raised without Spark's wrapper."""
        try:
            query.awaitTermination()
        except Exception:
            if self._error is not None:
                raise self._error from None
            raise

    def _halt(self, query: StreamingQuery) -> None:
        """Stop after the current batch. A batch that begins in the meantime ends at once."""
        self._stopping = True
        with self._turn:
            pass
        query.stop()
        self._stopping = False
        if self._error is not None:
            raise self._error
        self._tidy()

    def _batch(self, rows: DataFrame, number: int) -> None:
        with self._turn:
            if self._stopping:
                raise _Stopped
            try:
                self._take(rows, number)
            except BaseException as error:
                self._error = error
                raise

    def _take(self, rows: DataFrame, number: int) -> None:
        found = rows.collect()
        # The start of this batch means that Spark has recorded the end of the last one.
        self._tidy()
        segments = [Segment(row.table, row.path, row.size, row.modified) for row in found]
        taken = self._ingest.take(Batch(self._stream, number), segments)
        self._intake.note(verdict.segment for verdict in taken.rejected)
        self._lists = {row.list for row in found}
        self._result.take(taken)
        self._seen += len(segments)
        self._stale = True
        self._told(
            _SILVER * self._seen / max(self._posted, self._seen, 1),
            f"{self._seen} of {max(self._posted, self._seen)} segments, {self._result.added} rows",
        )
        if self._due():
            self._gold()

    def _tidy(self) -> None:
        """Remove lists of completed batches."""
        self._intake.done(self._lists)
        self._lists = set()

    def _due(self) -> bool:
        return time.monotonic() - self._refreshed > self._pause

    def _gold(self) -> None:
        began = time.monotonic()
        _gold(self._spark, self._lake, self._settings, self._result, self._told)
        self._refreshed = time.monotonic()
        self._pause = max(_GOLD, (self._refreshed - began) / _GOLD_SHARE)
        self._stale = False
        if time.monotonic() - self._kept > _KEEPING:
            self._keep()

    def _keep(self) -> None:
        """Expire snapshots, merge small files and remove orphans, so that the stream does not slow down over time."""
        before = datetime.now(UTC) - _READERS
        for name in self._lake.specs:
            changed = self._lake.expire(name, most=_HISTORY)
            changed += rewrite(self._spark, self._lake, name, at_least=_SMALL_FILES)
            if changed:
                orphans(self._spark, self._lake, name, before)
        self._kept = time.monotonic()


@contextmanager
def _until_told() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set. Java is not signalled: it exits with this process."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Stopped(Exception):
    """Ends the stream before the next batch."""


def _gold(
    spark: SparkSession,
    lake: Lake,
    settings: Settings,
    result: RunResult,
    told: Progress,
    *,
    rebuild: bool = False,
) -> None:
    began = time.monotonic()
    done: list[Refreshed] = []

    def count(one: Refreshed) -> None:
        done.append(one)
        told(_SILVER + (1 - _SILVER) * len(done) / max(1, len(lake.gold)), f"{one.table}: {one.rows} rows")

    result.refreshed(refresh(spark, lake, objectives(settings), rebuild=rebuild, done=count))
    result.spend("gold", time.monotonic() - began)


def _stream_name(spark: SparkSession, lake: Lake, *, new: bool = False) -> str:
    """Return the name of the current stream, as long as its checkpoint exists and is not too long; else a new one.

    Without a checkpoint Spark would number its batches from 0 again; under the old name they would count as done.
    """
    path = f"{lake.places.tables}/{STATE}/stream"
    name = (files.read(spark, path) or "").strip()
    folder = f"{lake.places.checkpoint}/{name}"
    if name and not new and files.read(spark, f"{folder}/metadata") is not None:
        commits = [found.path.rpartition("/")[2] for found in files.listing(spark, f"{folder}/commits")]
        if max((int(number) for number in commits if number.isdigit()), default=0) < _BATCHES:
            return name
    fresh = f"stream-{uuid.uuid4().hex[:8]}"
    files.write(spark, path, fresh)
    if name:
        files.remove(spark, folder)
    return fresh
