"""Whole changes of a table in one call, for tests of the lake and of the refresh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING

from polydomo.pipeline.lake import APPEND, REBUILD, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def append_rows(
    lake: Lake, spark: SparkSession, name: str, rows: DataFrame, notes: Mapping[str, str] | None = None
) -> int:
    """Append rows in one snapshot and return their number."""
    edit = lake.edit(name)
    written = edit.write(spark, rows)
    edit.commit(APPEND, add=written, notes=notes)
    return sum(piece.rows for piece in written)


def replace_rows(
    lake: Lake, spark: SparkSession, name: str, rows: DataFrame, days: Iterable[date] | None = None
) -> None:
    """Replace all rows, or the rows of some days, in one snapshot."""
    edit = lake.edit(name)
    wanted = None if days is None else set(days)
    gone = [piece for piece in edit.pieces() if wanted is None or piece.day in wanted]
    edit.commit(REBUILD if wanted is None else "merge", add=edit.write(spark, rows), remove=gone)
