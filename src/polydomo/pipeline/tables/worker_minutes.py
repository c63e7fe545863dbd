"""`worker_minute`: how busy each worker was in each minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from polydomo.pipeline.tables import spreading
from polydomo.pipeline.tables.counting import MINUTE_US, count_of, micros, minute_start, seconds, total
from polydomo.pipeline.tables.spec import GoldTable, Objective, TableColumn, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPEC: Final = TableSpec(
    "worker_minute",
    "gold",
    "How busy each worker was in each minute, from all attempts it was given: those of parts, too, and those that it "
    "lost. A minute in which it did nothing has no row.",
    ("worker", "service", "minute"),
    "day",
    (
        TableColumn("day", "date", "of the minute, in UTC"),
        TableColumn("worker", "string", "its name, or identity"),
        TableColumn("service", "string", "what it worked for"),
        TableColumn("minute", "timestamp", "its beginning"),
        TableColumn("jobs", "bigint", "that it ended in this minute, with or without a result"),
        TableColumn("lost", "bigint", "attempts that it lost in this minute"),
        TableColumn(
            "busy_s",
            "double",
            "seconds that its attempts ran within this minute, whenever they ended: one over several minutes is spread "
            "over them; two at the same time count twice",
        ),
        TableColumn("utilisation", "double", "busy_s / 60: more than 1 if it did several jobs at once"),
    ),
)


def delta(silver: Mapping[str, DataFrame], objectives: tuple[Objective, ...] = ()) -> DataFrame:
    """From silver's `attempts`."""
    key = ["worker", "service"]
    attempts = silver["attempts"].where("worker IS NOT NULL")
    ended = F.unix_micros("ended")
    begin = F.unix_micros("dispatched")
    ends = attempts.select(
        *key,
        minute_start(ended).alias(spreading.MINUTE),
        F.lit(0).cast("bigint").alias(spreading.SPENT),
        F.col("lost"),
    )
    runs = attempts.select(
        *key,
        begin.alias(spreading.BEGIN),
        F.coalesce(begin + micros("run_s"), ended).alias(spreading.END),
    )
    both = ends.unionByName(spreading.spread(runs, key), allowMissingColumns=True)
    found = both.groupBy(*key, spreading.MINUTE).agg(
        count_of(~F.col("lost")).alias("jobs"),
        count_of(F.col("lost")).alias("lost"),
        total(spreading.SPENT).alias("busy_us"),
    )
    minute = F.timestamp_micros(spreading.MINUTE)
    return _derived(found.select("*", minute.alias("minute"), F.to_date(minute).alias("day")))


def merge(rows: DataFrame) -> DataFrame:
    """One row per worker, service and minute."""
    return _derived(
        rows.groupBy("day", "worker", "service", "minute").agg(
            total("jobs").alias("jobs"), total("lost").alias("lost"), total(micros("busy_s")).alias("busy_us")
        )
    )


def _derived(rows: DataFrame) -> DataFrame:
    busy = F.col("busy_us")
    with_ratio = rows.select(
        "*", seconds(busy).alias("busy_s"), (busy / F.lit(float(MINUTE_US))).alias("utilisation")
    )
    return with_ratio.select(*SPEC.names())


WORKER_MINUTE: Final = GoldTable(SPEC, ("attempts",), delta, merge)
