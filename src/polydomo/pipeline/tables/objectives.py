"""`slo`: how well each service kept its objective on each day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from polydomo.ledger.schema import CANCELLED, DONE
from polydomo.pipeline.tables.counting import count_of, is_asked, ratio, total
from polydomo.pipeline.tables.spec import GoldTable, Objective, TableColumn, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SPEC: Final = TableSpec(
    "slo",
    "gold",
    "How well each service kept its objective (setting spark.slo) on each day. Counts what was asked for, without "
    "cancelled jobs. A day on which the objective was changed has a row for each; a service without one has none.",
    ("day", "service", "objective_s", "objective_share"),
    "day",
    (
        TableColumn("day", "date", "on which the jobs ended, in UTC"),
        TableColumn("service", "string", "the service"),
        TableColumn(
            "objective_s", "double", "a job is to be done within these seconds, from submitted to finished"
        ),
        TableColumn("objective_share", "double", "this share of the jobs is: 0.99 for 99 %"),
        TableColumn("jobs", "bigint", "that ended, but for cancelled ones"),
        TableColumn("good", "bigint", "of these, with a result, and in time"),
        TableColumn("attainment", "double", "good / jobs"),
        TableColumn("kept", "boolean", "attainment is at least objective_share"),
        TableColumn(
            "budget_used",
            "double",
            "jobs that were not good / those that may be: 1 if the error budget is just used up; null if there is none",
        ),
    ),
)


def delta(silver: Mapping[str, DataFrame], objectives: tuple[Objective, ...] = ()) -> DataFrame:
    """From silver's `jobs`."""
    jobs = silver["jobs"].where(is_asked() & (F.col("outcome") != CANCELLED))
    limit, share = limits(objectives)
    found = (
        jobs.select(
            "day", "service", "outcome", "total_s", limit.alias("objective_s"), share.alias("objective_share")
        )
        .where("objective_s IS NOT NULL")
        .groupBy("day", "service", "objective_s", "objective_share")
        .agg(
            F.count(F.lit(1)).alias("jobs"),
            count_of((F.col("outcome") == DONE) & (F.col("total_s") <= F.col("objective_s"))).alias("good"),
        )
    )
    return _derived(found)


def merge(rows: DataFrame) -> DataFrame:
    """One row per key."""
    return _derived(rows.groupBy(*SPEC.key).agg(total("jobs").alias("jobs"), total("good").alias("good")))


def limits(objectives: tuple[Objective, ...]) -> tuple[Column, Column]:
    """Seconds and share for a row's service: those of the most specific pattern; null if none fits.

    A whole name comes before prefixes, a longer prefix before a shorter one; of two that are the same the later one
    counts, as the later line of a configuration does.
    """
    found = {objective.service: objective for objective in objectives}
    ordered = sorted(
        found.values(), key=lambda one: (one.service.endswith("*"), -len(one.service), one.service)
    )
    columns: list[Column] = []
    for field in ("seconds", "share"):
        column = F.lit(None).cast("double")
        for objective in reversed(ordered):
            value = F.lit(float(getattr(objective, field)))
            column = F.when(_fits(objective.service), value).otherwise(column)
        columns.append(column)
    return columns[0], columns[1]


def _fits(pattern: str) -> Column:
    if pattern == "*":
        return F.lit(True)
    if pattern.endswith("*"):
        return F.col("service").startswith(pattern[:-1])
    return F.col("service") == pattern


def _derived(rows: DataFrame) -> DataFrame:
    jobs, good, share = F.col("jobs"), F.col("good"), F.col("objective_share")
    with_ratios = rows.select(
        "*",
        ratio(good, jobs).alias("attainment"),
        # The same question as attainment >= share, without the rounding of a division.
        (good >= share * jobs).alias("kept"),
        ratio(jobs - good, (F.lit(1.0) - share) * jobs).alias("budget_used"),
    )
    return with_ratios.select(*SPEC.names())


SLO: Final = GoldTable(SPEC, ("jobs",), delta, merge)
