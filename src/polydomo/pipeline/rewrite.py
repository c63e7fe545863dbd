"""Compaction of small files and removal of unreferenced ones. Neither changes rows or disturbs readers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from polydomo.errors import PolydomoError
from polydomo.pipeline import files
from polydomo.pipeline.lake import COMPACT, Lake, TableFile
from polydomo.pipeline.tables.silver import TIME
from polydomo.pipeline.tables.spec import FILE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# File size that is quick to read and cheap to plan.
TARGET: Final = 128 * 1024 * 1024

# Maximum size of one rewrite.
_AT_ONCE: Final = 32 * TARGET


def rewrite(spark: SparkSession, lake: Lake, name: str, target: int = TARGET, at_least: int = 2) -> int:
    """Merge the small files of each day that has at least `at_least` of them. Return the number of rows rewritten."""
    done = 0
    # For tables with a row limit per file, half of the limit counts as large enough.
    most = FILE_ROWS if lake.spec(name).order else None
    small = [
        piece
        for piece in lake.pieces(name)
        if piece.size < target // 2 and (not most or piece.rows < most // 2)
    ]
    for pieces in _portions(small, at_least):
        edit = lake.edit(name)
        rows = sum(piece.rows for piece in pieces)
        written = edit.write(spark, _sorted(lake, name, lake.frame(spark, name, pieces), pieces, target))
        if sum(piece.rows for piece in written) != rows:
            raise PolydomoError(
                f"{rows} rows of {name} became {sum(piece.rows for piece in written)} during compaction",
                hint="nothing was committed; please report this bug",
            )
        edit.commit(COMPACT, add=written, remove=pieces)
        done += rows
    return done


def _sorted(lake: Lake, name: str, rows: DataFrame, pieces: list[TableFile], target: int) -> DataFrame:
    """Sort by day and time, into as many partitions as there will be large files."""
    spec = lake.spec(name)
    order = spec.order or ((spec.partition, TIME[name]) if name in TIME else (spec.partition, *spec.key))
    parts = math.ceil(sum(piece.size for piece in pieces) / target)
    whole = rows.coalesce(1) if parts == 1 else rows.repartitionByRange(parts, *order)
    return whole.sortWithinPartitions(*order)


def _portions(pieces: list[TableFile], at_least: int) -> Iterator[list[TableFile]]:
    """Yield groups of files, of days that have several, each small enough for one job."""
    days: dict[object, list[TableFile]] = {}
    for piece in pieces:
        days.setdefault(piece.day, []).append(piece)
    portion: list[TableFile] = []
    for _, small in sorted(days.items(), key=lambda item: str(item[0])):
        if len(small) < at_least:
            continue
        portion += small
        if sum(piece.size for piece in portion) > _AT_ONCE:
            yield portion
            portion = []
    if portion:
        yield portion


def orphans(spark: SparkSession, lake: Lake, name: str, before: datetime) -> list[files.Found]:
    """Remove files that no snapshot references: of failed changes, and of expired snapshots. Recent ones are kept: they
    may belong to a change in progress in another process."""
    removed: list[files.Found] = []
    known = lake.referenced(name)
    limit = int(before.timestamp() * 1e6)
    location = lake.edit(name).location
    for folder in (f"{location}/data", f"{location}/metadata"):
        for found in files.listing(spark, folder, deep=True):
            if found.modified < limit and _plain(found.path) not in known:
                files.remove(spark, found.path)
                removed.append(found)
    if files.is_local(location):
        _empty_folders(location, before)
    return removed


def _plain(path: str) -> str:
    return path.removeprefix("file://")


def _empty_folders(location: str, before: datetime) -> None:
    """Remove empty folders, with the marker files that Spark leaves in them."""
    data = files.local(location) / "data"
    if not data.is_dir():
        return
    for folder in data.iterdir():
        if folder.is_dir() and folder.stat().st_mtime < before.timestamp():
            if any(path.is_file() and path.name[0] not in "._" for path in folder.rglob("*")):
                continue
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            folder.rmdir()
