"""Table specifications: columns with descriptions, key, partitioning, and how a gold table is computed.

Every table is specified once, here and in the modules next to this one; Spark's schema, Iceberg's schema, the checks
and the reference pages are derived from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Layer = Literal["bronze", "silver", "gold"]

# Rows per file of a sorted table, which limits how much a small change rewrites.
FILE_ROWS: Final = 10_000


class TableColumn(NamedTuple):
    """A column. `kind`: a type of Spark's DDL: string, int, bigint, double, boolean, timestamp, date, binary."""

    name: str
    kind: str
    doc: str


@dataclass(frozen=True)
class TableSpec:
    """A table. `key` identifies a row."""

    name: str
    layer: Layer
    doc: str
    key: tuple[str, ...]
    partition: str  # a column of kind date
    columns: tuple[TableColumn, ...]
    # Rows are sorted by these columns, in files of at most FILE_ROWS each, so that a change of a few rows affects few
    # files.
    order: tuple[str, ...] = ()

    def ddl(self) -> str:
        """Return the schema as Spark DDL."""
        return ", ".join(f"`{column.name}` {column.kind}" for column in self.columns)

    def names(self) -> list[str]:
        """Return the names of the columns, in order."""
        return [column.name for column in self.columns]


class Objective(NamedTuple):
    """A service level objective: `share` of the jobs within `seconds`. A service that ends in `*` is a prefix."""

    service: str
    seconds: float
    share: float


# Computes the rows that some rows of a silver table add to a gold table. Runs in Spark tasks.
Work = Callable[[Iterator["pa.RecordBatch"], tuple[Objective, ...]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True)
class Columnar:
    """A delta computed from Arrow columns in Python, because Spark's rows would take longer.

    `work` yields rows of the table, possibly several of one key, which must be merged.
    """

    columns: tuple[str, ...]  # columns of the source to read
    words: tuple[str, ...]  # those of them that are text with few values
    schema: str  # the table's, as Spark DDL
    work: Work


@dataclass(frozen=True)
class GoldTable:
    """An aggregate table that can be updated from new silver rows alone.

    `columnar` computes rows of the table (with all its columns) from silver rows: from all of them, the whole table;
    from new ones, their delta. `merge` combines several rows of one key, and merge(delta(a) ∪ delta(b)) =
    merge(delta(a ∪ b)). So the cost of a refresh depends on the new rows and the partitions they touch.
    """

    spec: TableSpec
    columnar: Mapping[str, Columnar]  # the computation for each source table
    merge: Callable[[DataFrame], DataFrame]
    # `merge` for Arrow tables, so that few new rows need no query. Keeps the table's order, if it has one.
    merge_here: Callable[[pa.Table], pa.Table]
    reach: int = 0  # days before and after those of a delta that take part in a merge
    # The column with a row's minute, if all rows of a delta lie between the first and the last time of the silver rows,
    # even after clock changes. Files without any of these minutes are not rewritten.
    minute: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the names of the source tables."""
        return tuple(self.columnar)
