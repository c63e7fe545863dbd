"""Ingestion of one batch of segments into silver, exactly once.

In this order: check the segments; add their new rows to `jobs`, to `attempts` (which is also derived from `jobs`) and
to `peers`, one snapshot each; record the batch in bronze; quarantine bad segments. Each snapshot notes its batch. A
batch repeated after a crash skips what is already committed, and the same notes identify what is missing. Files that
were written and never committed are unreferenced; `compact` removes them.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F

from polydomo.errors import ConfigError
from polydomo.ledger import schema as ledger
from polydomo.pipeline import files, repeats
from polydomo.pipeline.lake import APPEND, NOTHING, REBUILD, Edit, Kind, Lake, TableFile
from polydomo.pipeline.schemas import spark_schema
from polydomo.pipeline.tables import bronze, silver
from polydomo.pipeline.tables.bronze import Segment, Verdict
from polydomo.server.log import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = Log()

# Silver table of each ledger table.
SILVER_OF: Final = {"jobs": "jobs", "attempts": "attempts", "events": "peers"}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Batch(NamedTuple):
    """Id of a batch. `number` increases within one `stream`."""

    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.stream}:{self.number}"

    def is_in(self, notes: Mapping[str, str]) -> bool:
        """Return whether a snapshot with these notes contains the batch."""
        stream, _, number = notes.get("batch", "").rpartition(":")
        return stream == self.stream and int(number) >= self.number


@dataclass
class Count:
    """Counts of one ledger table in one batch. rows = added + duplicates."""

    segments: int = 0
    rejected: int = 0
    rows: int = 0
    added: int = 0
    duplicates: int = 0


@dataclass
class Taken:
    """Result of a batch."""

    counts: dict[str, Count] = field(default_factory=lambda: {name: Count() for name in SILVER_OF})
    rejected: list[Verdict] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


class Fresh(NamedTuple):
    """Replacement of all days, or of those from `since` to `until`. `fewer`: allow the result to have fewer rows than
    before."""

    since: date | None = None
    until: date | None = None
    fewer: bool = False

    @property
    def whole(self) -> bool:
        """Return whether all days are replaced."""
        return self.since is None and self.until is None

    def has(self, day: date | None) -> bool:
        """Return whether a day is replaced."""
        if day is None or self.whole:
            return self.whole
        return (self.since or day) <= day <= (self.until or day)

    def select(self, name: str, rows: DataFrame) -> DataFrame:
        """Return the rows of these days of a ledger table."""
        day = F.to_date({"jobs": "finished", "attempts": "ended", "events": "at"}[name])
        if self.since is not None:
            rows = rows.where(day >= F.lit(self.since))
        return rows if self.until is None else rows.where(day <= F.lit(self.until))


class _Derived(NamedTuple):
    pieces: list[TableFile]
    notes: dict[str, str]
    remove: list[TableFile]
    kind: Kind


class Ingest:
    """Ingestion into a lake. `fresh`: replace existing rows at the commit; otherwise append."""

    def __init__(self, spark: SparkSession, lake: Lake, *, fresh: Fresh | None = None) -> None:
        self._spark = spark
        self._lake = lake
        self._fresh = fresh

    @staticmethod
    def before(step: str) -> None:
        """Mark the start of each irreversible step. Tests end the process here."""

    def take(self, batch: Batch, segments: Sequence[Segment]) -> Taken:
        """Ingest a batch, skipping the steps that are already committed."""
        taken = Taken()
        if batch.is_in(self._lake.notes("segments")):
            return taken
        clock = _Clock(taken.seconds)
        verdicts = {verdict.segment: verdict for verdict in bronze.check(self._spark, segments)}
        clock.lap("check")
        with ThreadPoolExecutor(1, thread_name_prefix="peers") as pool:
            # Attempts depend on jobs; events on nothing. No table is replaced until jobs can be.
            events = None
            if self._fresh is None:
                events = pool.submit(self._table, batch, "events", verdicts, taken)
            for name in ("jobs", "attempts"):
                self._table(batch, name, verdicts, taken)
                clock.lap(SILVER_OF[name])
            if events is None:
                self._table(batch, "events", verdicts, taken)
            else:
                events.result()
            clock.lap(SILVER_OF["events"])
        self.before("bronze")
        self._account(batch, verdicts, taken)
        clock.lap("bronze")
        return taken

    def follow(self) -> None:
        """Add missing attempts of jobs to `attempts`, after a crash between the two commits."""
        edit = self._lake.edit("attempts")
        more = self._attempts_of_jobs(edit, [])
        if more is not None:
            edit.commit(more.kind, add=more.pieces, remove=more.remove, notes=more.notes)

    # Silver

    def _table(self, batch: Batch, name: str, verdicts: dict[Segment, Verdict], taken: Taken) -> None:
        mine = [segment for segment in verdicts if segment.table == name]
        edit = self._lake.edit(SILVER_OF[name])
        count = taken.counts[name]
        if batch.is_in(edit.notes):
            rows, added = (int(edit.notes[f"last.{what}"]) for what in ("rows", "added"))
            count.rows, count.added, count.duplicates = rows, added, rows - added
        else:
            written: list[TableFile] = []
            notes: dict[str, str] = {}
            remove = self._replaced(edit.pieces())
            kind: Kind = APPEND if self._fresh is None else REBUILD
            if any(not verdicts[segment].reason for segment in mine):
                written = self._write(edit, name, mine, verdicts)
            count.rows = sum(verdicts[segment].rows for segment in mine if not verdicts[segment].reason)
            count.added = sum(piece.rows for piece in written)
            if self._fresh is not None and not self._fresh.whole:  # rows of other days are not duplicates
                count.rows = count.added
            count.duplicates = count.rows - count.added
            if name == "attempts":
                more = self._attempts_of_jobs(edit, written)
                if more is not None:
                    written, notes = [*written, *more.pieces], more.notes
                    if self._fresh is None:
                        remove, kind = more.remove, more.kind
            notes |= {"batch": str(batch), "last.rows": str(count.rows), "last.added": str(count.added)}
            self._enough(edit, written, remove)
            self.before(f"commit {edit.spec.name}")
            if written or remove or notes.get("from.jobs"):
                edit.commit(kind, add=written, remove=remove, notes=notes)
        # Unreadable segments are known only now.
        bad = [verdicts[segment] for segment in mine if verdicts[segment].reason]
        count.segments, count.rejected = len(mine) - len(bad), len(bad)
        taken.rejected += bad

    def _write(
        self, edit: Edit, name: str, mine: list[Segment], verdicts: dict[Segment, Verdict]
    ) -> list[TableFile]:
        """Write files with the new rows. Segments that turn out to be damaged are excluded and rejected."""
        blamed: set[str] = set()
        while True:
            good = [verdicts[segment] for segment in mine if not verdicts[segment].reason]
            if not any(verdict.rows for verdict in good):
                return []
            try:
                return self._write_good(edit, name, good)
            except Exception as error:
                if not self._find_bad(good, verdicts, error, blamed):
                    raise

    def _write_good(self, edit: Edit, name: str, good: list[Verdict]) -> list[TableFile]:
        table = bronze.BY_NAME[name]
        rows = _segments(self._spark, table, [verdict.segment for verdict in good])
        if self._fresh is not None:
            rows = self._fresh.select(name, rows)
        clean = {"jobs": silver.jobs, "attempts": silver.lost, "events": silver.peers}[name]
        near, within = ([], None) if self._fresh is not None else _near(edit, good)
        there = None
        if near:
            there = self._lake.frame(self._spark, edit.spec.name, near)
            if within is not None:
                there = there.where(F.col(within[0]).between(within[1], within[2]))
        if sum(verdict.rows for verdict in good) + sum(piece.rows for piece in near) <= repeats.SMALL:
            paths = [verdict.segment.path for verdict in good if verdict.rows]
            few = repeats.by_arrow(self._spark, paths, [piece.path for piece in near], table.key, within)
            return edit.write(
                self._spark, clean(rows if few is None else _once(rows, there, table, few, True))
            )
        suspects = repeats.by_spark(rows, there, table.key).persist()
        try:
            some = not suspects.isEmpty()
            return edit.write(
                self._spark, clean(_once(rows, there, table, suspects, False) if some else rows)
            )
        finally:
            suspects.unpersist()

    def _attempts_of_jobs(self, edit: Edit, lost: Sequence[TableFile]) -> _Derived | None:
        """Write the final attempts of jobs that are new since the last time. None: there are none.

        If all jobs are new (after an interrupted backfill), all these attempts are replaced: only lost attempts are
        kept.
        """
        seen = edit.notes.get("from.jobs", str(NOTHING))
        head, pieces = self._lake.news("jobs", int(seen))
        replace_all = pieces is None or self._fresh is not None
        if replace_all:
            pieces = self._lake.pieces_at("jobs", head)
            pieces = pieces if self._fresh is None else self._replaced(pieces)
        if not pieces:
            return None
        there = [] if self._fresh is not None else edit.pieces()
        near = there if replace_all else _lost_near(edit, pieces, self._lake)
        kept = self._lake.frame(self._spark, "attempts", [*near, *lost]).where("lost")
        rows = silver.ended(self._lake.frame(self._spark, "jobs", pieces))
        if near or lost:
            # A dead letter's last attempt may be recorded twice: with its job, and among the lost ones.
            rows = rows.join(kept.select(*edit.spec.key), list(edit.spec.key), "left_anti")
        written = edit.write(self._spark, rows)
        if replace_all and there:
            written += edit.write(self._spark, self._lake.frame(self._spark, "attempts", there).where("lost"))
        notes = {"from.jobs": str(head)}
        kind: Kind = REBUILD if replace_all and there else APPEND
        return _Derived(written, notes, there if replace_all else [], kind)

    def _find_bad(
        self, good: list[Verdict], verdicts: dict[Segment, Verdict], error: Exception, blamed: set[str]
    ) -> bool:
        """Find the segments that made Spark fail: those with unreadable pages, or the one that Spark names twice even
        though its pages are sound."""
        found = False
        for verdict in bronze.check_pages(self._spark, [verdict.segment for verdict in good]):
            if verdict.reason:
                verdicts[verdict.segment] = verdict
                found = True
        if found:
            return True
        named = re.search(r"FAILED_READ_FILE[^/]*?(/\S+?\.parquet)", str(error))
        path = named.group(1).split("://")[-1] if named else ""
        for verdict in good:
            if path and verdict.segment.path.endswith(path.lstrip("/")):
                if path in blamed:
                    verdicts[verdict.segment] = verdict._replace(
                        reason=f"Spark cannot read it: {_line(error)}"
                    )
                blamed.add(path)
                return True
        return False

    def _replaced(self, pieces: Sequence[TableFile]) -> list[TableFile]:
        return [] if self._fresh is None else [piece for piece in pieces if self._fresh.has(piece.day)]

    def _enough(self, edit: Edit, written: Sequence[TableFile], remove: Sequence[TableFile]) -> None:
        """Refuse to replace rows by fewer: rows of deleted segments exist only in the tables."""
        new, old = (sum(piece.rows for piece in pieces) for pieces in (written, remove))
        if self._fresh is not None and not self._fresh.fewer and new < old:
            raise ConfigError(
                f"{edit.spec.name} has {old} rows, but the ledger has only {new} of them",
                hint="older segments are gone: give a later first day, or allow fewer rows",
            )

    # Bronze

    def _account(self, batch: Batch, verdicts: dict[Segment, Verdict], taken: Taken) -> None:
        now = datetime.now(UTC)
        when = {"batch": str(batch), "at": now, "day": now.date()}
        moves = {verdict.segment: self._aside(verdict.segment) for verdict in taken.rejected}
        segments = [
            {
                "path": segment.path,
                "ledger": segment.table,
                "size": segment.size,
                "modified": segment.modified,
                "rows": verdict.rows if verdict.rows or not verdict.reason else None,
                "accepted": not verdict.reason,
                "reason": verdict.reason or None,
                "aside": moves.get(segment),
            }
            | when
            for segment, verdict in verdicts.items()
        ]
        counts = [
            {"ledger": name} | vars(count) | when
            for name, count in taken.counts.items()
            if count.segments or count.rejected
        ]
        self._note("batches", batch, counts)
        # The last step: the rows of a segment recorded here are committed.
        self.before("note segments")
        self._note("segments", batch, segments)
        for verdict in taken.rejected:
            self._set_aside(verdict, moves[verdict.segment])

    def _note(self, name: str, batch: Batch, rows: list[dict[str, Any]]) -> None:
        edit = self._lake.edit(name)
        replace_all = self._fresh is not None and self._fresh.whole
        if batch.is_in(edit.notes) or not (rows or replace_all):
            return
        table = pa.Table.from_pylist(rows, schema=edit.table.schema().as_arrow())
        if replace_all and name == "segments":
            # Keep the record of earlier rejections.
            table = pa.concat_tables(
                [table, edit.table.scan("accepted = false").to_arrow().cast(table.schema)]
            )
        edit.append_arrow(table, {"batch": str(batch)}, anew=replace_all)

    def _aside(self, segment: Segment) -> str | None:
        """Return where a bad segment is moved. None if the ledger is not local or not writable."""
        if not files.is_local(segment.path) or not files.is_local(self._lake.places.quarantine):
            return None
        here = files.local(segment.path)
        if not here.exists() or not os.access(here.parent, os.W_OK):
            return None
        return f"{self._lake.places.quarantine}/{segment.table}/{segment.modified}-{here.name}"

    def _set_aside(self, verdict: Verdict, aside: str | None) -> None:
        segment = verdict.segment
        if aside is not None:
            there = files.local(aside)
            try:
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(files.local(segment.path), there)
            except OSError as error:
                log.warning("cannot move a bad segment", path=segment.path, reason=str(error))
        log.error("segment rejected", path=segment.path, reason=verdict.reason, moved_to=aside or "")


def _segments(spark: SparkSession, table: ledger.LedgerTable, segments: Sequence[Segment]) -> DataFrame:
    """Read segments. Columns that a segment does not have are null, unknown ones are ignored."""
    return (
        spark.read.schema(spark_schema(table))
        # Damaged files must fail the read: that is how they are found.
        .option("ignoreCorruptFiles", "false")
        .option("ignoreMissingFiles", "false")
        .option("parquet.page.verify-checksum.enabled", "true")
        .parquet(*[files.literal(segment.path) for segment in segments])
    )


def _once(
    rows: DataFrame, there: DataFrame | None, table: ledger.LedgerTable, suspects: DataFrame, by_id: bool
) -> DataFrame:
    """Remove duplicates and existing rows. A row rebuilt from the store is dropped in favour of the original."""
    tagged = rows.withColumns({"_file": F.col("_metadata.file_path"), "_row": F.col("_metadata.row_index")})
    order = [F.col("rebuilt").asc()] if any(c.name == "rebuilt" for c in table.columns) else []
    mark = F.col(table.key[0]) if by_id else repeats.fingerprint(table.key)
    return repeats.without(
        tagged, there, table.key, suspects, mark, [*order, F.col("_file").asc(), F.col("_row").asc()]
    )


def _near(
    edit: Edit, good: Sequence[Verdict]
) -> tuple[list[TableFile], tuple[str, datetime, datetime] | None]:
    """Return silver's files in the time range of the new rows, and that range. None: the range is unknown."""
    bounds = [(verdict.low, verdict.high) for verdict in good if verdict.rows]
    lows = [low for low, _ in bounds if low is not None]
    highs = [high for _, high in bounds if high is not None]
    if len(lows) < len(bounds) or len(highs) < len(bounds):
        return edit.pieces(), None
    column = silver.TIME[edit.spec.name]
    return edit.overlapping(column, min(lows), max(highs)), (column, _time(min(lows)), _time(max(highs)))


def _lost_near(edit: Edit, jobs: Sequence[TableFile], lake: Lake) -> list[TableFile]:
    """Return the files of `attempts` that may have an attempt of these jobs."""
    bounds = lake.bounds("jobs", jobs, "dispatched")
    return [] if bounds is None else edit.overlapping("dispatched", *bounds)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


class _Clock:
    """Stopwatch for the steps of a batch."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._last
        self._last = now
