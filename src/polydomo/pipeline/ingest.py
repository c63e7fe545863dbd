"""One batch of segments into silver, exactly once.

In this order: check the segments; add their new rows to `jobs`, to `attempts` (which also follows `jobs`) and to
`peers`, one snapshot each; write bronze's account of the batch; set bad segments aside. Each snapshot notes its batch.
A batch that is done again after a crash passes over what is there already, and what a crash left unfinished is found by
the same notes. Files that were written and never committed are nobody's; `compact` removes them.
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
from polydomo.pipeline.lake import APPEND, NOTHING, REBUILD, Edit, Kind, Lake, Piece
from polydomo.pipeline.schemas import spark_schema
from polydomo.pipeline.tables import bronze, silver
from polydomo.pipeline.tables.bronze import Segment, Verdict
from polydomo.server.log import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = Log()

# The ledger's tables and where their rows go.
SILVER_OF: Final = {"jobs": "jobs", "attempts": "attempts", "events": "peers"}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Batch(NamedTuple):
    """`stream`: numbers of one stream only grow."""

    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.stream}:{self.number}"

    def is_in(self, notes: Mapping[str, str]) -> bool:
        """By what a snapshot says."""
        stream, _, number = notes.get("batch", "").rpartition(":")
        return stream == self.stream and int(number) >= self.number


@dataclass
class Count:
    """Of one table of the ledger, in one batch. rows = added + duplicates."""

    segments: int = 0
    rejected: int = 0
    rows: int = 0
    added: int = 0
    duplicates: int = 0


@dataclass
class Taken:
    """What became of a batch."""

    counts: dict[str, Count] = field(default_factory=lambda: {name: Count() for name in SILVER_OF})
    rejected: list[Verdict] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


class Fresh(NamedTuple):
    """Tables are filled anew: all their days, or those from `since` to `until`. `fewer`: even if there are fewer rows
    than before."""

    since: date | None = None
    until: date | None = None
    fewer: bool = False

    @property
    def whole(self) -> bool:
        """No day stays as it is."""
        return self.since is None and self.until is None

    def has(self, day: date | None) -> bool:
        """It is one of the days."""
        if day is None or self.whole:
            return self.whole
        return (self.since or day) <= day <= (self.until or day)

    def select(self, name: str, rows: DataFrame) -> DataFrame:
        """Rows of these days, of a table of the ledger."""
        day = F.to_date({"jobs": "finished", "attempts": "ended", "events": "at"}[name])
        if self.since is not None:
            rows = rows.where(day >= F.lit(self.since))
        return rows if self.until is None else rows.where(day <= F.lit(self.until))


class _Derived(NamedTuple):
    pieces: list[Piece]
    notes: dict[str, str]
    remove: list[Piece]
    kind: Kind


class Ingest:
    """`fresh`: what is in the tables is replaced at the commit. Otherwise it is added to."""

    def __init__(self, spark: SparkSession, lake: Lake, *, fresh: Fresh | None = None) -> None:
        self._spark = spark
        self._lake = lake
        self._fresh = fresh

    @staticmethod
    def before(step: str) -> None:
        """Each step that cannot be undone begins with this. Tests end the process here."""

    def take(self, batch: Batch, segments: Sequence[Segment]) -> Taken:
        """All of it, whatever of it was done before."""
        taken = Taken()
        if batch.is_in(self._lake.notes("segments")):
            return taken
        clock = _Clock(taken.seconds)
        verdicts = {verdict.segment: verdict for verdict in bronze.check(self._spark, segments)}
        clock.lap("check")
        with ThreadPoolExecutor(1, thread_name_prefix="peers") as pool:
            # Attempts follow jobs; events follow nothing. Nothing is replaced before it is known that jobs can be.
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
        """`attempts` has an attempt for each job. A crash may have come in between."""
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
            written: list[Piece] = []
            notes: dict[str, str] = {}
            remove = self._replaced(edit.pieces())
            kind: Kind = APPEND if self._fresh is None else REBUILD
            if any(not verdicts[segment].reason for segment in mine):
                written = self._write(edit, name, mine, verdicts)
            count.rows = sum(verdicts[segment].rows for segment in mine if not verdicts[segment].reason)
            count.added = sum(piece.rows for piece in written)
            if self._fresh is not None and not self._fresh.whole:  # what was not asked for is no duplicate
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
        # Only now is it known which of them could be read.
        bad = [verdicts[segment] for segment in mine if verdicts[segment].reason]
        count.segments, count.rejected = len(mine) - len(bad), len(bad)
        taken.rejected += bad

    def _write(
        self, edit: Edit, name: str, mine: list[Segment], verdicts: dict[Segment, Verdict]
    ) -> list[Piece]:
        """Files with the new rows. Segments that turn out to be damaged are left out and said to be bad."""
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

    def _write_good(self, edit: Edit, name: str, good: list[Verdict]) -> list[Piece]:
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

    def _attempts_of_jobs(self, edit: Edit, lost: Sequence[Piece]) -> _Derived | None:
        """Files with the attempts that ended jobs which are new since the last time. None: there are none.

        If all jobs are new (a backfill was interrupted here), so are these attempts: of those that are there, only the
        lost ones stay.
        """
        seen = edit.notes.get("from.jobs", str(NOTHING))
        head, pieces = self._lake.news("jobs", int(seen))
        anew = pieces is None or self._fresh is not None
        if anew:
            pieces = self._lake.pieces_at("jobs", head)
            pieces = pieces if self._fresh is None else self._replaced(pieces)
        if not pieces:
            return None
        there = [] if self._fresh is not None else edit.pieces()
        near = there if anew else _lost_near(edit, pieces, self._lake)
        kept = self._lake.frame(self._spark, "attempts", [*near, *lost]).where("lost")
        rows = silver.ended(self._lake.frame(self._spark, "jobs", pieces))
        if near or lost:
            # A dead letter's last attempt may be told twice: by its job, and among those that were lost.
            rows = rows.join(kept.select(*edit.spec.key), list(edit.spec.key), "left_anti")
        written = edit.write(self._spark, rows)
        if anew and there:
            written += edit.write(self._spark, self._lake.frame(self._spark, "attempts", there).where("lost"))
        notes = {"from.jobs": str(head)}
        return _Derived(written, notes, there if anew else [], REBUILD if anew and there else APPEND)

    def _find_bad(
        self, good: list[Verdict], verdicts: dict[Segment, Verdict], error: Exception, blamed: set[str]
    ) -> bool:
        """After Spark failed: which segments are to blame? Those whose pages cannot be read; or the one that Spark
        names twice, though it looks sound."""
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

    def _replaced(self, pieces: Sequence[Piece]) -> list[Piece]:
        return [] if self._fresh is None else [piece for piece in pieces if self._fresh.has(piece.day)]

    def _enough(self, edit: Edit, written: Sequence[Piece], remove: Sequence[Piece]) -> None:
        """What the ledger has forgotten is only in the tables."""
        new, old = (sum(piece.rows for piece in pieces) for pieces in (written, remove))
        if self._fresh is not None and not self._fresh.fewer and new < old:
            raise ConfigError(
                f"{edit.spec.name} has {old} rows, and the ledger has only {new} of them",
                hint="its older segments are gone: give a later first day, or say that fewer rows are wanted",
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
        # The last step: a segment that is written down here is in the tables, whatever happens now.
        self.before("note segments")
        self._note("segments", batch, segments)
        for verdict in taken.rejected:
            self._set_aside(verdict, moves[verdict.segment])

    def _note(self, name: str, batch: Batch, rows: list[dict[str, Any]]) -> None:
        edit = self._lake.edit(name)
        anew = self._fresh is not None and self._fresh.whole
        if batch.is_in(edit.notes) or not (rows or anew):
            return
        table = pa.Table.from_pylist(rows, schema=edit.table.schema().as_arrow())
        if anew and name == "segments":
            # What could not be taken then is still worth knowing.
            table = pa.concat_tables(
                [table, edit.table.scan("accepted = false").to_arrow().cast(table.schema)]
            )
        edit.append_arrow(table, {"batch": str(batch)}, anew=anew)

    def _aside(self, segment: Segment) -> str | None:
        """Where a bad one goes. Only a ledger on this machine that we may write to is tidied up."""
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
                log.warning("a bad segment could not be moved", path=segment.path, reason=str(error))
        log.error("a segment was not taken", path=segment.path, reason=verdict.reason, moved_to=aside or "")


def _segments(spark: SparkSession, table: ledger.LedgerTable, segments: Sequence[Segment]) -> DataFrame:
    """Their rows. Columns that one of them does not have are null, those that nobody knows are left out."""
    return (
        spark.read.schema(spark_schema(table))
        # What is damaged must fail: that is how it is found.
        .option("ignoreCorruptFiles", "false")
        .option("ignoreMissingFiles", "false")
        .option("parquet.page.verify-checksum.enabled", "true")
        .parquet(*[files.literal(segment.path) for segment in segments])
    )


def _once(
    rows: DataFrame, there: DataFrame | None, table: ledger.LedgerTable, suspects: DataFrame, by_id: bool
) -> DataFrame:
    """Each row once, and none that is there. A row that was made from the store is the worse one of two."""
    tagged = rows.withColumns({"_file": F.col("_metadata.file_path"), "_row": F.col("_metadata.row_index")})
    order = [F.col("rebuilt").asc()] if any(c.name == "rebuilt" for c in table.columns) else []
    mark = F.col(table.key[0]) if by_id else repeats.fingerprint(table.key)
    return repeats.without(
        tagged, there, table.key, suspects, mark, [*order, F.col("_file").asc(), F.col("_row").asc()]
    )


def _near(edit: Edit, good: Sequence[Verdict]) -> tuple[list[Piece], tuple[str, datetime, datetime] | None]:
    """Silver's files with rows that are as old as the new ones, and how old that is. None: it is not known."""
    bounds = [(verdict.low, verdict.high) for verdict in good if verdict.rows]
    lows = [low for low, _ in bounds if low is not None]
    highs = [high for _, high in bounds if high is not None]
    if len(lows) < len(bounds) or len(highs) < len(bounds):
        return edit.pieces(), None
    column = silver.TIME[edit.spec.name]
    return edit.overlapping(column, min(lows), max(highs)), (column, _time(min(lows)), _time(max(highs)))


def _lost_near(edit: Edit, jobs: Sequence[Piece], lake: Lake) -> list[Piece]:
    """Files of `attempts` that may have an attempt of these jobs."""
    bounds = lake.bounds("jobs", jobs, "dispatched")
    return [] if bounds is None else edit.overlapping("dispatched", *bounds)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


class _Clock:
    """How long each step took."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._last
        self._last = now
