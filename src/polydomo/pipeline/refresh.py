"""Incremental refresh of gold: new silver rows are merged into the days they touch.

Each gold table notes the silver snapshots that it includes. A refresh reads the files added to silver since then,
computes rows from them, merges these with the gold rows of the same days and replaces those, in one snapshot that notes
the new position. A crash in between changes nothing: the next refresh finds the same new files. Where a day has several
files, those whose minutes cannot be affected are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from polydomo.errors import PolydomoError
from polydomo.pipeline.lake import NOTHING, REBUILD, Edit, Lake, TableFile
from polydomo.pipeline.scan import read_here, scan, scan_here
from polydomo.pipeline.session import prepare
from polydomo.pipeline.tables.columns import schema
from polydomo.pipeline.tables.spec import GoldTable, Objective

_DAY_US: Final = 86_400_000_000
_MINUTE_US: Final = 60_000_000
_EPOCH: Final = date(1970, 1, 1)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# If the new rows span at most this many days, all of those days are merged; else only the days with new rows, which
# takes another pass.
_FEW_DAYS: Final = 4

# Times that do not determine the days in which a row is counted.
_ELSEWHEN: Final = ("submitted", "first_partial", "deadline")

# Tables refreshed at once: while one waits for the driver, another one's tasks run.
_AT_ONCE: Final = 3

_PARTITIONS: Final = "spark.sql.shuffle.partitions"

# Limits for merging in this process: new rows, old rows, and bytes of the old files. Below them, planning and compiling
# a query takes Spark longer than the merge.
_NEW_HERE: Final = 500_000
_OLD_HERE: Final = 2_000_000
_BYTES_HERE: Final = 64 * 1024 * 1024


class Span(NamedTuple):
    """Time range of the new rows, in microseconds since 1970."""

    first: int
    last: int

    def days(self) -> set[date | None]:
        """Return all days in the range."""
        first, last = (_EPOCH + timedelta(days=time // _DAY_US) for time in self)
        return {first + timedelta(days=off) for off in range((last - first).days + 1)}


@dataclass(frozen=True)
class Refreshed:
    """Result of refreshing a gold table. `days`: None if all were rebuilt."""

    table: str
    source_rows: int
    rows: int
    days: int | None
    seconds: float


def refresh(
    spark: SparkSession,
    lake: Lake,
    objectives: tuple[Objective, ...] = (),
    *,
    rebuild: bool = False,
    done: Callable[[Refreshed], None] | None = None,
) -> list[Refreshed]:
    """Refresh all gold tables that are behind silver. `rebuild`: compute them from all of silver."""

    def work(gold: GoldTable) -> Refreshed | None:
        found = refresh_one(spark, lake, gold, objectives, rebuild=rebuild)
        if found is not None and done is not None:
            done(found)
        return found

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="gold") as pool:
        return [found for found in pool.map(work, lake.gold) if found is not None]


def refresh_one(
    spark: SparkSession,
    lake: Lake,
    gold: GoldTable,
    objectives: tuple[Objective, ...] = (),
    *,
    rebuild: bool = False,
) -> Refreshed | None:
    """Refresh one gold table; return None if there is nothing new."""
    began = time.monotonic()
    edit = lake.edit(gold.spec.name)
    heads: dict[str, int | None] = {}
    news: dict[str, list[TableFile]] = {}
    everything = rebuild
    for source in gold.sources:
        seen = edit.notes.get(f"from.{source}")
        heads[source], new = lake.news(source, int(seen) if seen else None)
        everything = everything or new is None
        news[source] = new or []
    if everything:
        news = {source: lake.pieces_at(source, heads[source]) for source in gold.sources}
        if not any(news.values()) and not edit.pieces():
            return None
    elif not any(news.values()):
        return None
    notes = {f"from.{source}": str(head or NOTHING) for source, head in heads.items()}
    source_rows = sum(piece.rows for pieces in news.values() for piece in pieces)
    if not everything and source_rows <= _NEW_HERE:
        done = _here(lake, edit, gold, news, objectives, notes)
        if done is not None:
            return Refreshed(gold.spec.name, source_rows, *done, time.monotonic() - began)
    spark = _session(spark)
    delta = _delta(spark, lake, gold, news, objectives)
    if everything:
        made = _rebuild(spark, edit, gold, delta, notes)
        return Refreshed(gold.spec.name, source_rows, made, None, time.monotonic() - began)
    rows, days = _merge(spark, lake, edit, gold, delta, _span(lake, news), notes)
    return Refreshed(gold.spec.name, source_rows, rows, days, time.monotonic() - began)


def _session(spark: SparkSession) -> SparkSession:
    """Return a session of the same Spark with settings for large tables."""
    made = spark.newSession()
    prepare(made)
    # Sorted rows are aggregated as a stream. Spark would otherwise hash them, and fall back to sorting when there are
    # many groups.
    made.conf.set("spark.sql.execution.useObjectHashAggregateExec", "false")
    made.conf.set(_PARTITIONS, spark.conf.get(_PARTITIONS) or "")
    return made


def _delta(
    spark: SparkSession,
    lake: Lake,
    gold: GoldTable,
    news: Mapping[str, Sequence[TableFile]],
    objectives: tuple[Objective, ...],
) -> DataFrame:
    """Compute the rows that these files add. A key may have several rows."""
    found = [
        scan(spark, lake.store(source), lake.spec(source), news[source], way, objectives)
        for source, way in gold.columnar.items()
    ]
    return reduce(lambda one, other: one.unionByName(other), found)


def _here(
    lake: Lake,
    edit: Edit,
    gold: GoldTable,
    news: Mapping[str, Sequence[TableFile]],
    objectives: tuple[Objective, ...],
    notes: dict[str, str],
) -> tuple[int, int] | None:
    """Merge a few new rows with those of their days, or of their minutes, without a Spark query. None: there are too
    many old rows."""
    batches = [
        batch
        for source, way in gold.columnar.items()
        for batch in scan_here(lake.store(source), lake.spec(source), news[source], way, objectives)
    ]
    new = pa.Table.from_batches(batches, schema(gold.spec))
    days = _around(new[gold.spec.partition].unique().to_pylist(), gold.reach)
    if gold.minute is not None and new.num_rows:
        minutes = pc.min_max(new[gold.minute].cast(pa.int64())).as_py()
        there = edit.overlapping(gold.minute, minutes["min"], minutes["max"])
    else:
        there = edit.pieces()
    old = [piece for piece in there if piece.day in days]
    if sum(piece.rows for piece in old) > _OLD_HERE or sum(piece.size for piece in old) > _BYTES_HERE:
        return None
    known = pa.Table.from_batches(read_here(lake.store(gold.spec.name), gold.spec, old), new.schema)
    written = edit.write_arrow(gold.merge_here(pa.concat_tables([known, new])))
    edit.commit("merge", add=written, remove=old, notes=notes)
    return sum(piece.rows for piece in written), len(days)


def _rebuild(
    spark: SparkSession, edit: Edit, gold: GoldTable, delta: DataFrame, notes: dict[str, str]
) -> int:
    written = edit.write(spark, gold.merge(_by_day(delta, gold)))
    edit.commit(REBUILD, add=written, remove=edit.pieces(), notes=notes)
    return sum(piece.rows for piece in written)


def _merge(
    spark: SparkSession,
    lake: Lake,
    edit: Edit,
    gold: GoldTable,
    delta: DataFrame,
    span: Span | None,
    notes: dict[str, str],
) -> tuple[int, int]:
    """Merge with Spark. `span`: the time range of the new rows from the files' bounds; None if unknown."""
    days = _around(list(span.days()), gold.reach) if span else set()
    old, written = _merged(spark, lake, edit, gold, delta, days, span) if days else ([], [])
    if not days or _strays(written, days):
        # Used twice: for its days, and for its rows. A gold delta is small enough to persist.
        delta = delta.persist()
        try:
            days = _around(
                [row[0] for row in delta.select(gold.spec.partition).distinct().collect()], gold.reach
            )
            old, written = _merged(spark, lake, edit, gold, delta, days) if days else ([], [])
        finally:
            delta.unpersist()
    strays = _strays(written, days)
    if strays:
        raise PolydomoError(
            f"the merge of {gold.spec.name} produced rows of {', '.join(strays)}, outside of its input's days",
            hint="this is a bug in the table's merge, or its reach is too short",
        )
    edit.commit("merge", add=written, remove=old, notes=notes)
    return sum(piece.rows for piece in written), len(days)


def _merged(
    spark: SparkSession,
    lake: Lake,
    edit: Edit,
    gold: GoldTable,
    delta: DataFrame,
    days: set[date | None],
    span: Span | None = None,
) -> tuple[list[TableFile], list[TableFile]]:
    """Return the files of these days that the new rows may affect, and the files that replace them."""
    there = edit.pieces()
    if span is not None and gold.minute is not None:
        there = edit.overlapping(gold.minute, span.first - span.first % _MINUTE_US, span.last)
    old = [piece for piece in there if piece.day in days]
    rows = delta if not old else delta.unionByName(lake.frame(spark, gold.spec.name, old))
    merged = gold.merge(_by_day(rows, gold))
    return old, edit.write(spark, merged if gold.spec.order else _by_day(merged, gold))


def _strays(written: Sequence[TableFile], days: set[date | None]) -> list[str]:
    return sorted(str(piece.day) for piece in written if piece.day not in days)


def _span(lake: Lake, news: Mapping[str, Sequence[TableFile]]) -> Span | None:
    """Return the time range of these files from their bounds. None: too long, or unknown."""
    times: list[int] = []
    for source, pieces in news.items():
        if any(piece.day is None for piece in pieces):
            return None
        kinds = {column.name: column.kind for column in lake.spec(source).columns}
        wanted = [name for name, kind in kinds.items() if kind == "timestamp" and name not in _ELSEWHEN]
        times += lake.bounds(source, pieces, *wanted) or ()
    if not times or max(times) - min(times) > _FEW_DAYS * _DAY_US:
        return None
    return Span(min(times), max(times))


def _by_day(rows: DataFrame, gold: GoldTable) -> DataFrame:
    """Repartition to one file per day, sorted if the table has a sort order. A merge keeps it."""
    there = rows.repartition(gold.spec.partition)
    return there.sortWithinPartitions(*gold.spec.order) if gold.spec.order else there


def _around(days: Sequence[date | None], reach: int) -> set[date | None]:
    around: set[date | None] = {None} if None in days else set()
    return around | {day + timedelta(days=off) for day in days if day for off in range(-reach, reach + 1)}
