"""A gold table for tests of what keeps gold tables up to date: jobs and lost attempts per day and service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from polydomo.pipeline.tables.spec import GoldTable, Objective, TableColumn, TableSpec

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


def _delta(silver: Mapping[str, DataFrame], objectives: tuple[Objective, ...]) -> DataFrame:
    none = F.lit(0).cast("bigint")
    jobs = silver["jobs"].select("day", "service", F.lit(1).alias("jobs"), none.alias("lost"), "run_s")
    lost = (
        silver["attempts"]
        .where("lost")
        .select("day", "service", none.alias("jobs"), F.lit(1).alias("lost"), F.lit(0.0).alias("run_s"))
    )
    return _merge(jobs.unionAll(lost))


def _merge(rows: DataFrame) -> DataFrame:
    return rows.groupBy("day", "service").agg(
        F.sum("jobs").alias("jobs"), F.sum("lost").alias("lost"), F.round(F.sum("run_s"), 6).alias("run_s")
    )


SERVICE_DAY = GoldTable(SPEC, ("jobs", "attempts"), _delta, _merge)
