"""Gold tables for tests: a small one (jobs and lost attempts per day and service), and any from silver DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from polydomo.pipeline.tables import columns
from polydomo.pipeline.tables.columns import Batches
from polydomo.pipeline.tables.silver import ATTEMPTS, JOBS
from polydomo.pipeline.tables.spec import GoldTable, Objective, TableColumn, TableSpec, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPEC = TableSpec(
    "service_day",
    "gold",
    "Jobs and lost attempts per day and service.",
    ("day", "service"),
    "day",
    (
        TableColumn("day", "date", "the day"),
        TableColumn("service", "string", "the service"),
        TableColumn("jobs", "bigint", "jobs that ended"),
        TableColumn("lost", "bigint", "attempts that were lost"),
        TableColumn("run_s", "double", "seconds of work"),
    ),
)


def delta(
    table: GoldTable, silver: Mapping[str, DataFrame], objectives: tuple[Objective, ...] = ()
) -> DataFrame:
    """Return the rows of a gold table for DataFrames of silver; `scan` reads files instead."""

    def part(name: str) -> DataFrame:
        columnar = table.columnar[name]
        work = columnar.work
        return (
            silver[name].select(*columnar.columns).mapInArrow(lambda b: work(b, objectives), columnar.schema)
        )

    return table.merge(reduce(lambda one, other: one.unionByName(other), map(part, table.sources)))


def _work(lost: bool) -> Work:
    """Return a closure: Spark pickles it by value, so its processes need not find this file."""
    names = SPEC.names()

    def work(batches: Batches, _: tuple[Objective, ...]) -> Batches:
        for batch in batches:
            rows = batch.filter(batch["lost"]) if lost else batch
            one, none = pa.array([1] * rows.num_rows, pa.int64()), pa.array([0] * rows.num_rows, pa.int64())
            run_s = none.cast(pa.float64()) if lost else rows["run_s"]
            service = rows["service"].cast(pa.string())
            found = [rows["day"], service, none if lost else one, one if lost else none, run_s]
            yield pa.RecordBatch.from_arrays(found, names)

    return work


def _merge(rows: DataFrame) -> DataFrame:
    return rows.groupBy("day", "service").agg(
        F.sum("jobs").alias("jobs"), F.sum("lost").alias("lost"), F.round(F.sum("run_s"), 6).alias("run_s")
    )


def _merge_here(rows: pa.Table) -> pa.Table:
    sums = ("jobs", "lost", "run_s")
    found = rows.group_by(["day", "service"]).aggregate([(name, "sum") for name in sums])
    numbers = {name: found[f"{name}_sum"] for name in sums}
    numbers["run_s"] = pc.round(numbers["run_s"], 6)
    return pa.table({"day": found["day"], "service": found["service"], **numbers})


SERVICE_DAY = GoldTable(
    SPEC,
    {
        "jobs": columns.reading(JOBS, ("day", "service", "run_s"), SPEC, _work(lost=False)),
        "attempts": columns.reading(ATTEMPTS, ("day", "service", "lost"), SPEC, _work(lost=True)),
    },
    _merge,
    _merge_here,
)
