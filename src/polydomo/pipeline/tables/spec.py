"""What a table is: its columns with their sentences, its key, how it is cut into partitions, how it is made.

Every table is described once, here and in the modules beside this one; Spark's schema, Iceberg's schema, the checks
and the reference pages are made from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Layer = Literal["bronze", "silver", "gold"]

# In a file of a table whose rows lie in an order: what is rewritten at least when some of them change.
FILE_ROWS: Final = 10_000


class TableColumn(NamedTuple):
    """`kind` is a type as Spark's DDL has it: string, int, bigint, double, boolean, timestamp, date, binary."""

    name: str
    kind: str
    doc: str


@dataclass(frozen=True)
class TableSpec:
    """One table. No two rows agree in all of `key`."""

    name: str
    layer: Layer
    doc: str
    key: tuple[str, ...]
    partition: str  # a column of kind date
    columns: tuple[TableColumn, ...]
    # Rows lie in the order of these columns, in files of at most FILE_ROWS each. Then a change that concerns a few of
    # them concerns a few files.
    order: tuple[str, ...] = ()

    def ddl(self) -> str:
        """The schema as Spark takes it."""
        return ", ".join(f"`{column.name}` {column.kind}" for column in self.columns)

    def names(self) -> list[str]:
        """Of the columns, in order."""
        return [column.name for column in self.columns]


class Objective(NamedTuple):
    """That share of a service's jobs is to be done within that time. A service that ends in `*` is a prefix."""

    service: str
    seconds: float
    share: float


# Gets some rows of a silver table and gives what they add to a gold table. Runs where Spark's tasks do.
Work = Callable[[Iterator["pa.RecordBatch"], tuple[Objective, ...]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True)
class Columnar:
    """A delta that is worked out from Arrow's columns, in Python, because Spark's rows would take longer.

    `work` gives rows of the table, several of one key among them: they are to be merged.
    """

    columns: tuple[str, ...]  # of the source, that are read
    words: tuple[str, ...]  # those of them that are texts, each of few values
    schema: str  # the table's, as Spark's DDL has it
    work: Work

    def of(self, silver: DataFrame, objectives: tuple[Objective, ...]) -> DataFrame:
        """What these rows add."""
        work = self.work
        return silver.select(*self.columns).mapInArrow(lambda rows: work(rows, objectives), self.schema)


@dataclass(frozen=True)
class GoldTable:
    """A table of answers that can be kept up to date from new silver rows alone.

    `delta` makes rows of the table (with all its columns) from silver rows: from all of them, that is the whole table;
    from some new ones, what they add. `merge` makes one row per key from several: what was there, and what was added.
    So merge(delta(a) ∪ delta(b)) = merge(delta(a ∪ b)), and a refresh costs what is new and the partitions it touches.
    """

    spec: TableSpec
    columnar: Mapping[str, Columnar]  # what each of the silver tables that it is made from adds
    merge: Callable[[DataFrame], DataFrame]
    # What `merge` does, of Arrow's rows: a few new ones need no query. In the table's order, if it has one.
    merge_here: Callable[[pa.Table], pa.Table]
    reach: int = 0  # so many days before and after those that `delta` touches take part in a merge
    # The column with a row's minute, if all that `delta` makes lies between the first and the last time of the silver
    # rows, whatever their clocks did. Files without any of these minutes stay as they are.
    minute: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The silver tables it is made from."""
        return tuple(self.columnar)

    def delta(self, silver: Mapping[str, DataFrame], objectives: tuple[Objective, ...] = ()) -> DataFrame:
        """From rows that Spark has; `scan` does the same with files, which is quicker."""
        found = [way.of(silver[name], objectives) for name, way in self.columnar.items()]
        return self.merge(reduce(lambda one, other: one.unionByName(other), found))
