"""Gold, kept up to date: what is new in silver, merged into the days that it touches.

Each gold table notes the silver snapshots that it has. A refresh reads the files that silver got since, makes rows of
them, reads the gold rows of the same days, merges both and puts the result in their place, in one snapshot that notes
how far it is now. A crash in between changes nothing: the next refresh finds the same new files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from polydomo.errors import PolydomoError
from polydomo.pipeline.lake import NOTHING, REBUILD, Edit, Lake, Piece
from polydomo.pipeline.tables.spec import GoldTable, Objective

_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# If what is new lies within so many days, they are all merged; else only those that it touches, which takes another
# look at it.
_FEW_DAYS: Final = 4

# Times that say nothing about the days that a row is counted in.
_ELSEWHEN: Final = ("submitted", "first_partial", "deadline")

# So many tables at once: while one waits for the driver, another one's tasks run.
_AT_ONCE: Final = 3


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
    frames = {source: lake.frame(spark, source, pieces) for source, pieces in news.items()}
    delta = gold.delta(frames, objectives).select(*gold.spec.names())
    rows, days = (
        _rebuild(spark, edit, gold, delta, notes)
        if everything
        else _merge(spark, lake, edit, gold, delta, _span(lake, news), notes)
    )
    source_rows = sum(piece.rows for pieces in news.values() for piece in pieces)
    return Refreshed(gold.spec.name, source_rows, rows, days, time.monotonic() - began)


def _rebuild(
    spark: SparkSession, edit: Edit, gold: GoldTable, delta: DataFrame, notes: dict[str, str]
) -> tuple[int, None]:
    # From all rows at once there is nothing to merge.
    written = edit.write(spark, _by_day(delta, gold))
    edit.commit(REBUILD, add=written, remove=edit.pieces(), notes=notes)
    return sum(piece.rows for piece in written), None


def _merge(
    spark: SparkSession,
    lake: Lake,
    edit: Edit,
    gold: GoldTable,
    delta: DataFrame,
    span: set[date | None],
    notes: dict[str, str],
) -> tuple[int, int]:
    """`span`: days that hold all that is new, as far as can be said from outside; empty: that cannot be said."""
    days = _around(list(span), gold.reach)
    old, written = _merged(spark, lake, edit, gold, delta, days) if days else ([], [])
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
    spark: SparkSession, lake: Lake, edit: Edit, gold: GoldTable, delta: DataFrame, days: set[date | None]
) -> tuple[list[Piece], list[Piece]]:
    """The files of these days, and those that are to take their place."""
    old = [piece for piece in edit.pieces() if piece.day in days]
    rows = delta.unionByName(lake.frame(spark, gold.spec.name, old)) if old else delta
    return old, edit.write(spark, _by_day(gold.merge(rows), gold))


def _strays(written: Sequence[Piece], days: set[date | None]) -> list[str]:
    return sorted(str(piece.day) for piece in written if piece.day not in days)


def _span(lake: Lake, news: Mapping[str, Sequence[Piece]]) -> set[date | None]:
    """The days from the first to the last time in these files, by what their footers say. Empty: too many, or they do
    not say."""
    times: list[int] = []
    for source, pieces in news.items():
        if any(piece.day is None for piece in pieces):
            return set()
        kinds = {column.name: column.kind for column in lake.spec(source).columns}
        wanted = [name for name, kind in kinds.items() if kind == "timestamp" and name not in _ELSEWHEN]
        times += lake.bounds(source, pieces, *wanted) or ()
    if not times or max(times) - min(times) > _FEW_DAYS * _DAY_US:
        return set()
    first, last = (_EPOCH + timedelta(days=time // _DAY_US) for time in (min(times), max(times)))
    return {first + timedelta(days=off) for off in range((last - first).days + 1)}


def _by_day(rows: DataFrame, gold: GoldTable) -> DataFrame:
    """One file per day."""
    return rows.repartition(gold.spec.partition)


def _around(days: Sequence[date | None], reach: int) -> set[date | None]:
    around: set[date | None] = {None} if None in days else set()
    return around | {day + timedelta(days=off) for day in days if day for off in range(-reach, reach + 1)}
