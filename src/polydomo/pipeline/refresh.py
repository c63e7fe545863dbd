"""Gold, kept up to date: what is new in silver, merged into the days that it touches.

Each gold table notes the silver snapshots that it has. A refresh reads the files that silver got since, makes rows of
them, reads the gold rows of the same days, merges both and puts the result in their place, in one snapshot that notes
how far it is now. A crash in between changes nothing: the next refresh finds the same new files. Rows of these days
that nothing new can belong to are only copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from polydomo.errors import PolydomoError
from polydomo.pipeline.lake import NOTHING, REBUILD, Edit, Lake, Piece
from polydomo.pipeline.scan import scan
from polydomo.pipeline.session import prepare
from polydomo.pipeline.tables.spec import GoldTable, Objective

_DAY_US: Final = 86_400_000_000
_MINUTE_US: Final = 60_000_000
_EPOCH: Final = date(1970, 1, 1)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# If what is new lies within so many days, they are all merged; else only those that it touches, which takes another
# look at it.
_FEW_DAYS: Final = 4

# Times that say nothing about the days that a row is counted in.
_ELSEWHEN: Final = ("submitted", "first_partial", "deadline")

# So many tables at once: while one waits for the driver, another one's tasks run.
_AT_ONCE: Final = 3

# Up to so many new rows are one task's work, from reading to writing: to move them between tasks would take longer.
_SMALL: Final = 500_000


_PARTITIONS: Final = "spark.sql.shuffle.partitions"


class Span(NamedTuple):
    """From the first to the last time of what is new, in microseconds since 1970."""

    first: int
    last: int

    def days(self) -> set[date | None]:
        """All that it touches."""
        first, last = (_EPOCH + timedelta(days=time // _DAY_US) for time in self)
        return {first + timedelta(days=off) for off in range((last - first).days + 1)}


class Sessions:
    """Of the same Spark: `usual` for much, `small` for what one task does, with nothing cut into several parts."""

    def __init__(self, spark: SparkSession) -> None:
        self.usual, self.small = spark.newSession(), spark.newSession()
        for made in (self.usual, self.small):
            prepare(made)
            # Rows that come in order are aggregated as they come. Spark would rather hash them, and sort them after all
            # when there are many groups.
            made.conf.set("spark.sql.execution.useObjectHashAggregateExec", "false")
        self.usual.conf.set(_PARTITIONS, spark.conf.get(_PARTITIONS) or "")
        self.small.conf.set(_PARTITIONS, "1")


@dataclass(frozen=True)
class Refreshed:
    """What happened to a gold table. `days`: None if all were made anew."""

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
    """All gold tables that are behind silver. `rebuild`: from all of silver, whatever they have."""
    sessions = Sessions(spark)

    def work(gold: GoldTable) -> Refreshed | None:
        found = refresh_one(sessions, lake, gold, objectives, rebuild=rebuild)
        if found is not None and done is not None:
            done(found)
        return found

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="gold") as pool:
        return [found for found in pool.map(work, lake.gold) if found is not None]


def refresh_one(
    sessions: Sessions,
    lake: Lake,
    gold: GoldTable,
    objectives: tuple[Objective, ...] = (),
    *,
    rebuild: bool = False,
) -> Refreshed | None:
    """One of them; None if there is nothing new."""
    began = time.monotonic()
    edit = lake.edit(gold.spec.name)
    heads: dict[str, int | None] = {}
    news: dict[str, list[Piece]] = {}
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
    small = not everything and source_rows <= _SMALL
    spark = sessions.small if small else sessions.usual
    delta = _delta(spark, lake, gold, news, objectives, small).select(*gold.spec.names())
    rows, days = (
        _rebuild(spark, edit, gold, delta, notes)
        if everything
        else _merge(spark, lake, edit, gold, delta, _span(lake, news), notes, small)
    )
    return Refreshed(gold.spec.name, source_rows, rows, days, time.monotonic() - began)


def _delta(
    spark: SparkSession,
    lake: Lake,
    gold: GoldTable,
    news: Mapping[str, Sequence[Piece]],
    objectives: tuple[Objective, ...],
    small: bool,
) -> DataFrame:
    """What these files add. If that comes from columns, a key may have several rows."""
    if gold.columnar is None:
        frames = {source: lake.frame(spark, source, pieces) for source, pieces in news.items()}
        if small:
            frames = {source: frame.coalesce(1) for source, frame in frames.items()}
        return gold.delta(frames, objectives)
    (source,) = gold.sources
    tasks = 1 if small else None
    found = scan(spark, lake.store(source), lake.spec(source), news[source], gold.columnar, tasks)
    return gold.columnar.rows(found)


def _rebuild(
    spark: SparkSession, edit: Edit, gold: GoldTable, delta: DataFrame, notes: dict[str, str]
) -> tuple[int, None]:
    rows = _by_day(delta, gold)
    # From all rows at once there is nothing to merge, unless they were columns.
    written = edit.write(spark, rows if gold.columnar is None else gold.merge(rows))
    edit.commit(REBUILD, add=written, remove=edit.pieces(), notes=notes)
    return sum(piece.rows for piece in written), None


def _merge(
    spark: SparkSession,
    lake: Lake,
    edit: Edit,
    gold: GoldTable,
    delta: DataFrame,
    span: Span | None,
    notes: dict[str, str],
    small: bool,
) -> tuple[int, int]:
    """`span`: when all that is new happened, as far as can be said from outside; None: that cannot be said."""
    days = _around(list(span.days()), gold.reach) if span else set()
    old, written = _merged(spark, lake, edit, gold, delta, days, span, small=small) if days else ([], [])
    if not days or _strays(written, days):
        # Used twice: for its days, and for its rows. It is small: that is what gold is for.
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
            f"the merge of {gold.spec.name} made rows of {', '.join(strays)}, days that it was not given",
            hint="this is an error in the table's merge, or its reach is too short",
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
    *,
    small: bool = False,
) -> tuple[list[Piece], list[Piece]]:
    """The files of these days, and those that are to take their place."""
    old = [piece for piece in edit.pieces() if piece.day in days]
    small = small and sum(piece.rows for piece in old) <= _SMALL

    def together(rows: DataFrame) -> DataFrame:
        return _in_order(rows.coalesce(1), gold) if small else _by_day(rows, gold)

    def merged(rows: DataFrame) -> DataFrame:
        return gold.merge(together(rows))

    def write(rows: DataFrame) -> list[Piece]:
        return edit.write(spark, together(rows))

    if not old:
        return old, write(merged(delta))
    there = lake.frame(spark, gold.spec.name, old)
    if span is None or gold.minute is None:
        return old, write(merged(delta.unionByName(there)))
    touched = _between(gold.minute, span)
    new = merged(delta.unionByName(there.where(touched)))
    return old, write(new.unionByName(there.where(~touched)))


def _between(minute: str, span: Span) -> Column:
    """Is a row's minute one of those?"""
    from pyspark.sql import functions as F

    first = F.timestamp_micros(F.lit(span.first - span.first % _MINUTE_US))
    return F.col(minute).between(first, F.timestamp_micros(F.lit(span.last)))


def _strays(written: Sequence[Piece], days: set[date | None]) -> list[str]:
    return sorted(str(piece.day) for piece in written if piece.day not in days)


def _span(lake: Lake, news: Mapping[str, Sequence[Piece]]) -> Span | None:
    """From the first to the last time in these files, by what their footers say. None: too long, or they do not say."""
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
    """One file per day."""
    return _in_order(rows.repartition(gold.spec.partition), gold)


def _in_order(rows: DataFrame, gold: GoldTable) -> DataFrame:
    """By minutes, if it is asked for some of them."""
    if gold.minute is None:
        return rows
    first = (gold.spec.partition, gold.minute)
    return rows.sortWithinPartitions(*first, *[name for name in gold.spec.key if name not in first])


def _around(days: Sequence[date | None], reach: int) -> set[date | None]:
    around: set[date | None] = {None} if None in days else set()
    return around | {day + timedelta(days=off) for day in days if day for off in range(-reach, reach + 1)}
