"""Tables that are sums by key, worked out from Arrow's columns.

What some silver rows add to such a table is the same kind of rows as the table's own, so one function serves for both:
for what is new, and for what is new together with what was there. Spark's tasks call it for large amounts, each for
some files and then for some days; for a few new rows it is called right here (`refresh`), because to plan and compile
a query takes Spark longer than all of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from polydomo.pipeline.tables import columns
from polydomo.pipeline.tables.columns import Batches
from polydomo.pipeline.tables.counting import US
from polydomo.pipeline.tables.spec import GoldTable, Objective, TableSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

# A column of numbers for each that is summed; seconds as whole microseconds.
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Sums:
    """`counts` and `times` are added up, the latter as whole microseconds; `derive` tells the other columns."""

    spec: TableSpec
    counts: tuple[str, ...]
    times: tuple[str, ...] = ()
    derive: Callable[[Mapping[str, NDArray[Any]]], Numbers] = lambda _: {}

    @property
    def key(self) -> list[str]:
        """With the day, which follows from it or is part of it."""
        return list(dict.fromkeys((self.spec.partition, *self.spec.key)))

    def summed(self, keys: Mapping[str, Any], numbers: Numbers) -> pa.Table:
        """One row per key, with all columns of the table."""
        rows = pa.table({**{name: _plain(keys[name]) for name in self.key}, **numbers})
        found = rows.group_by(self.key, use_threads=False).aggregate([(name, "sum") for name in numbers])
        totals: dict[str, Any] = {name: found[f"{name}_sum"].to_numpy() for name in self.counts}
        totals |= {name: found[f"{name}_sum"].to_numpy() / US for name in self.times}
        given = {name: found[name] for name in self.key}
        # What a table's own key says may decide what follows from its sums.
        asked = {name: found[name].to_numpy(zero_copy_only=False) for name in self.key} | totals
        whole = given | totals | self.derive(asked)
        return pa.table({name: whole[name] for name in self.spec.names()}).cast(columns.schema(self.spec))

    def merged(self, rows: pa.Table) -> pa.Table:
        """Rows of the table, several of one key among them."""
        numbers = {name: columns.ints(rows[name]) for name in self.counts}
        numbers |= {name: columns.micros(rows[name]) for name in self.times}
        return self.summed({name: rows[name] for name in self.key}, numbers)

    def table(
        self,
        source: TableSpec,
        read: tuple[str, ...],
        parts: Callable[[pa.Table, tuple[Objective, ...]], pa.Table],
    ) -> GoldTable:
        """`parts`: what some rows of `source` add, by `summed`. Of these it needs the columns `read`."""
        ddl, day, merged = self.spec.ddl(), self.spec.partition, self.merged

        def work(batches: Batches, objectives: tuple[Objective, ...]) -> Batches:
            for rows in columns.portions(batches):
                yield from parts(rows, objectives).to_batches()

        def add_up(batches: Batches) -> Batches:
            several = [merged(rows) for rows in columns.portions(batches)]
            if several:
                yield from (merged(pa.concat_tables(several)) if several[1:] else several[0]).to_batches()

        def merge(rows: DataFrame) -> DataFrame:
            # One task has all rows of a day.
            return rows.repartition(day).mapInArrow(add_up, ddl)

        way = columns.reading(source, read, self.spec, work)
        return GoldTable(self.spec, {source.name: way}, merge, merged)


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> pa.Array:
    """Null if there is nothing to divide by."""
    nothing = whole == 0
    return pa.array(part / np.where(nothing, 1, whole), mask=nothing)


def _plain(column: Any) -> Any:
    """Words themselves instead of their numbers: parts of a table have different ones."""
    dictionary = isinstance(column, pa.ChunkedArray | pa.Array) and pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if dictionary else column
