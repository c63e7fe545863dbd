"""Duplicate rows: finding the ids to examine closely.

Almost no row is a duplicate. So only the keys are compared first, and without duplicates the rows are not moved or
sorted. Arrow compares the keys of a small batch in this process: that takes milliseconds, while a Spark job takes a
tenth of a second to start. Spark compares those of a large batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Up to this many rows, new and old, are compared in this process.
SMALL: Final = 1_000_000

# Name of the suspects' column.
MARK: Final = "mark"


def by_arrow(
    spark: SparkSession,
    new: Sequence[str],
    there: Sequence[str],
    key: tuple[str, ...],
    within: tuple[str, object, object] | None,
) -> DataFrame | None:
    """Return the first column of keys that occur more than once in these files. None: there are none.

    `within`: a column and its bounds; row groups of `there` outside of them are not read.
    """
    # The column of the bounds is read, too, even if it is not part of the key.
    columns = list(key)
    filters = None if within is None else [(within[0], ">=", within[1]), (within[0], "<=", within[2])]
    parts = [_read(path, columns, None) for path in new] + [_read(path, columns, filters) for path in there]
    keys = pa.concat_tables(parts)
    counted = keys.group_by(columns).aggregate([([], "count_all")])
    several = counted.filter(pc.greater(counted["count_all"], 1))
    if several.num_rows == 0:
        return None
    ids = pc.unique(several[columns[0]])
    return spark.createDataFrame(pa.table({MARK: ids})).select(F.col(MARK).cast("string"))


def by_spark(rows: DataFrame, there: DataFrame | None, key: tuple[str, ...]) -> DataFrame:
    """Return fingerprints that occur more than once in `rows`, or in both. Reads only the key's columns."""
    seen = rows.select(fingerprint(key).alias(MARK))
    if there is not None:
        seen = seen.unionAll(there.select(fingerprint(key).alias(MARK)))
    return seen.groupBy(MARK).agg(F.count(F.lit(1)).alias("n")).where("n > 1").select(MARK)


def fingerprint(key: tuple[str, ...]) -> Column:
    """Return an 8-byte hash of a key. Rows with different fingerprints are different."""
    return F.xxhash64(*key)


def without(
    rows: DataFrame,
    there: DataFrame | None,
    key: tuple[str, ...],
    suspects: DataFrame,
    mark: Column,
    order: Sequence[Column],
) -> DataFrame:
    """Return `rows` without those in `there`, and of several rows with the same key only the first by `order`.

    Only rows whose `mark` is among the suspects are examined. All others pass unchanged.
    """
    marked = rows.withColumn("_mark", mark)
    few = F.broadcast(suspects.withColumnRenamed(MARK, "_mark"))
    passed = marked.join(few, "_mark", "left_anti").drop("_mark")
    near = marked.join(few, "_mark", "left_semi").drop("_mark")
    if there is not None:
        old = there.select(*[F.col(name).alias(f"_{name}") for name in key])
        same = reduce(lambda a, b: a & b, [F.col(name) == F.col(f"_{name}") for name in key])
        near = near.join(old, same, "left_anti")
    first = Window.partitionBy(*key).orderBy(*order)
    return passed.unionByName(near.withColumn("_n", F.row_number().over(first)).where("_n = 1").drop("_n"))


def _read(path: str, columns: list[str], filters: list[tuple[str, str, object]] | None) -> pa.Table:
    """Read key columns with uniform types: timestamps in one unit, no dictionaries."""
    from polydomo.pipeline.tables.bronze import opened

    with opened(path) as source:
        table = pq.read_table(source, columns=columns, filters=filters)
    plan = pa.schema([pa.field(name, _plain(table.schema.field(name).type)) for name in columns])
    return table.select(columns).cast(plan)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    return pa.int32() if pa.types.is_integer(kind) else pa.string()
