"""Aggregation of minutes to hours and days, and of parts of outages to whole ones.

Percentiles of an hour are computed from the merged sketches of its minutes, with the same error bound, never as
averages of percentiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from polydomo.pipeline.tables import outages as _outages
from polydomo.pipeline.tables import service_minutes, sketches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SECONDS: Final = {"hour": 3600, "day": 86400}


def hours(service_minute: DataFrame) -> DataFrame:
    """Return one row per service and hour, with the columns of `service_minute` and `hour` instead of `minute`."""
    return _longer(service_minute, "hour")


def days(service_minute: DataFrame) -> DataFrame:
    """Return one row per service and day, with the columns of `service_minute` without `minute`."""
    return _longer(service_minute, "day")


def outages(pieces: DataFrame) -> DataFrame:
    """Join the rows of the table `outages` to sessions across midnight and return those that are outages."""
    in_time = Window.partitionBy("what", "name").orderBy("start")
    gap = F.unix_micros("start") - F.unix_micros(F.lag("end").over(in_time))
    first = F.coalesce(gap > _outages.GAP_S * 1_000_000, F.lit(True)).cast("int")
    numbered = pieces.withColumn("first", first).withColumn("number", F.sum("first").over(in_time))
    whole = numbered.groupBy("what", "name", "number").agg(
        F.min("start").alias("start"),
        F.max("end").alias("end"),
        *[F.sum(name).alias(name) for name in ("failures", "jobs", "lost")],
    )
    lasted = (F.unix_micros("end") - F.unix_micros("start")) / F.lit(1e6)
    return whole.where(F.col("failures") >= _outages.ENOUGH).select(
        "what", "name", "start", "end", lasted.alias("duration_s"), "failures", "jobs", "lost"
    )


def _longer(minutes: DataFrame, unit: str) -> DataFrame:
    start = F.date_trunc(unit, "minute")
    longer = minutes.withColumns({"minute": start, "day": F.to_date(start)})
    merged = service_minutes.summed(longer, sketches.merged)
    per_second = F.lit(float(_SECONDS[unit]))
    found = merged.withColumns({"rate": F.col("jobs") / per_second, "queue": F.col("waiting_s") / per_second})
    return found.drop("minute") if unit == "day" else found.withColumnRenamed("minute", unit)
