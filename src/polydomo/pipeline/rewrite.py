"""Small files put together, and files that are nobody's removed. Both change no row, and no reader notices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from polydomo.errors import PolydomoError
from polydomo.pipeline import files
from polydomo.pipeline.lake import COMPACT, Lake, Piece
from polydomo.pipeline.tables.silver import TIME
from polydomo.pipeline.tables.spec import FILE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A file of this size is read quickly and planned easily.
TARGET: Final = 128 * 1024 * 1024

# Rewritten in one go, at most.
_AT_ONCE: Final = 32 * TARGET


def rewrite(spark: SparkSession, lake: Lake, name: str, target: int = TARGET, at_least: int = 2) -> int:
    """Put the small files of each day that has so many of them together. How many rows that were."""
    done = 0
    # Where files have few rows on purpose, one with half of them is large enough.
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
                f"{rows} rows of {name} became {sum(piece.rows for piece in written)} when they were put together",
                hint="nothing was changed; please report this",
            )
        edit.commit(COMPACT, add=written, remove=pieces)
        done += rows
    return done


def _sorted(lake: Lake, name: str, rows: DataFrame, pieces: list[Piece], target: int) -> DataFrame:
    """By day and time, in as many parts as large files will come of it."""
    spec = lake.spec(name)
    order = spec.order or ((spec.partition, TIME[name]) if name in TIME else (spec.partition, *spec.key))
    parts = math.ceil(sum(piece.size for piece in pieces) / target)
    whole = rows.coalesce(1) if parts == 1 else rows.repartitionByRange(parts, *order)
    return whole.sortWithinPartitions(*order)


def _portions(pieces: list[Piece], at_least: int) -> Iterator[list[Piece]]:
    """Files of days that have several, so many that one job can do them."""
    days: dict[object, list[Piece]] = {}
    for piece in pieces:
        days.setdefault(piece.day, []).append(piece)
    portion: list[Piece] = []
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
    """Remove files that no snapshot has: of changes that failed, and of snapshots that are gone. Young ones may be part
    of a change that is under way elsewhere."""
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
    """Of files that are gone, and what Spark leaves behind in them."""
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
