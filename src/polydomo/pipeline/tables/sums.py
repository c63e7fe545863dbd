"""Tables that are sums by key, computed from Arrow columns.

The rows that silver rows add to such a table are rows of the table, so one function sums new rows alone and new rows
together with existing ones. Spark tasks call it for large amounts, each for some files and then for some days; for a
few new rows it is called in this process (`refresh`), because planning and compiling a query takes Spark longer than
all of the work.
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

# One column of numbers per sum; seconds as whole microseconds.
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Sums:
    """A table of sums. `counts` and `times` are added, the latter as whole microseconds; `derive` computes the rest."""

    spec: TableSpec
    counts: tuple[str, ...]
    times: tuple[str, ...] = ()
    derive: Callable[[Mapping[str, NDArray[Any]]], Numbers] = lambda _: {}

    @property
    def key(self) -> list[str]:
        """Return the key including the day, which is part of it or determined by it."""
        return list(dict.fromkeys((self.spec.partition, *self.spec.key)))

    def summed(self, keys: Mapping[str, Any], numbers: Numbers) -> pa.Table:
        """Sum to one row per key, with all columns of the table."""
        rows = pa.table({**{name: _plain(keys[name]) for name in self.key}, **numbers})
        found = rows.group_by(self.key, use_threads=False).aggregate([(name, "sum") for name in numbers])
        totals: dict[str, Any] = {name: found[f"{name}_sum"].to_numpy() for name in self.counts}
        totals |= {name: found[f"{name}_sum"].to_numpy() / US for name in self.times}
        given = {name: found[name] for name in self.key}
        # Derived columns may depend on the key.
        asked = {name: found[name].to_numpy(zero_copy_only=False) for name in self.key} | totals
        whole = given | totals | self.derive(asked)
        return pa.table({name: whole[name] for name in self.spec.names()}).cast(columns.schema(self.spec))

    def merged(self, rows: pa.Table) -> pa.Table:
        """Merge rows of the table with the same key."""
        numbers = {name: columns.ints(rows[name]) for name in self.counts}
        numbers |= {name: columns.micros(rows[name]) for name in self.times}
        return self.summed({name: rows[name] for name in self.key}, numbers)

    def table(
        self,
        source: TableSpec,
        read: tuple[str, ...],
        parts: Callable[[pa.Table, tuple[Objective, ...]], pa.Table],
    ) -> GoldTable:
        """Return the gold table. `parts` computes what rows of `source`, with the columns `read`, add, by `summed`."""
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
    """Return the quotient; null if the divisor is 0."""
    nothing = whole == 0
    return pa.array(part / np.where(nothing, 1, whole), mask=nothing)


def _plain(column: Any) -> Any:
    """Decode a dictionary column: dictionaries differ between parts of a table."""
    dictionary = isinstance(column, pa.ChunkedArray | pa.Array) and pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if dictionary else column
