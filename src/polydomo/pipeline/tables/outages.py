"""`outages`: sessions of failure, per service and per worker.

Failures of one service, or of one worker, that are not more than GAP apart belong together. What comes out is cut at
midnight, so that a refresh never needs more than the days beside the new ones: a service that fails now and then for
weeks would otherwise be one row that begins weeks ago. Two pieces that belong together say so (`before`, `after`), and
`rollup.outages` joins them.

All that can happen to a row when failures are added is that it grows, joins another, or becomes an outage. Nothing is
ever taken back. So what a row says of a day that is out of reach of a refresh stays true.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from polydomo.core.job import EXHAUSTED
from polydomo.ledger.schema import DEAD, FAILED
from polydomo.pipeline.tables.counting import US, is_run, minute_start, seconds, total
from polydomo.pipeline.tables.spec import GoldTable, Objective, TableColumn, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GAP_S: Final = 300  # failures that are further apart are not of one session
ENOUGH: Final = 3  # failures that make a session an outage

SPEC: Final = TableSpec(
    "outages",
    "gold",
    f"Sessions of failure, per service and per worker: failures that are at most {GAP_S} s apart. A failure is a "
    "run that ended as failed or dead, or an attempt that was lost; a cancelled job is none. A session over midnight "
    "has a row for each day.",
    ("what", "name", "start"),
    "day",
    (
        TableColumn("day", "date", "of start and end, in UTC"),
        TableColumn("what", "string", "service or worker"),
        TableColumn("name", "string", "which"),
        TableColumn("start", "timestamp", "the first failure"),
        TableColumn("end", "timestamp", "the last one"),
        TableColumn("duration_s", "double", "seconds between them"),
        TableColumn("failures", "bigint", "lost attempts, and jobs that failed in another way"),
        TableColumn("jobs", "bigint", "that ended as failed or dead"),
        TableColumn("lost", "bigint", "attempts that were lost"),
        TableColumn("before", "boolean", "it goes on from the day before"),
        TableColumn("after", "boolean", "it goes on on the day after"),
        TableColumn(
            "outage",
            "boolean",
            f"there were at least {ENOUGH} failures, those beyond midnight included; the others are kept because more "
            "may be added",
        ),
    ),
)

_SUMS: Final = ("failures", "jobs", "lost")
_FLAGS: Final = ("before", "after", "outage")


def delta(silver: Mapping[str, DataFrame], objectives: tuple[Objective, ...] = ()) -> DataFrame:
    """From silver's `jobs` and `attempts`."""
    one, none = F.lit(1).cast("bigint"), F.lit(0).cast("bigint")
    # Of a job whose attempts were all lost, the last of these is the failure; it is among the attempts.
    had_one = F.col("dispatched").isNotNull() & F.col("worker").isNotNull() & (F.col("attempts") > 0)
    all_lost = (F.col("outcome") == DEAD) | F.col("error").eqNullSafe(F.lit(EXHAUSTED))
    ended = (
        silver["jobs"]
        .where(F.col("outcome").isin(FAILED, DEAD) & is_run())
        .select(
            _whose(),
            F.unix_micros("finished").alias("at"),
            F.when(had_one & all_lost, none).otherwise(one).alias("failures"),
            one.alias("jobs"),
            none.alias("lost"),
        )
    )
    lost = (
        silver["attempts"]
        .where("lost")
        .select(
            _whose(),
            F.unix_micros("ended").alias("at"),
            one.alias("failures"),
            none.alias("jobs"),
            one.alias("lost"),
        )
    )
    # Within a minute all failures are near enough.
    minutes = (
        ended.unionByName(lost)
        .select("whose.*", "at", *_SUMS)
        .where("name IS NOT NULL")
        .groupBy("what", "name", minute_start(F.col("at")).alias("minute"))
        .agg(
            F.min("at").alias("start"), F.max("at").alias("end"), *[total(name).alias(name) for name in _SUMS]
        )
    )
    return _sessions(minutes.select("*", *[F.lit(False).alias(name) for name in _FLAGS]))


def merge(rows: DataFrame) -> DataFrame:
    """Sessions of sessions."""
    return _sessions(
        rows.select(
            *("what", "name", *_SUMS, *_FLAGS),
            F.unix_micros("start").alias("start"),
            F.unix_micros("end").alias("end"),
        )
    )


def _whose() -> Column:
    """A failure is one of its service, and one of its worker if it had one."""
    both = [F.struct(F.lit(what).alias("what"), F.col(what).alias("name")) for what in ("service", "worker")]
    return F.explode(F.array(*both)).alias("whose")


def _sessions(pieces: DataFrame) -> DataFrame:
    """Join pieces of a day that are near each other. Times are in microseconds. One shuffle for everything."""
    in_time = Window.partitionBy("what", "name").orderBy("start", "end")
    earlier = in_time.rowsBetween(Window.unboundedPreceding, -1)
    day = F.to_date(F.timestamp_micros("start"))
    numbered = (
        pieces.withColumn("day", day)
        .withColumn("until", F.max("end").over(earlier))
        .withColumn(
            "first",
            F.coalesce(
                ~_near("until", "start") | (F.col("day") != F.lag("day").over(in_time)), F.lit(True)
            ).cast("int"),
        )
        .withColumn("number", F.sum("first").over(in_time))
    )
    joined = numbered.groupBy("what", "name", "number", "day").agg(
        F.min("start").alias("start"),
        F.max("end").alias("end"),
        *[total(name).alias(name) for name in _SUMS],
        *[F.bool_or(name).alias(name) for name in _FLAGS],
    )
    return _named(_beside(joined))


def _beside(joined: DataFrame) -> DataFrame:
    """What the sessions before and behind say: those that are near are on another day."""
    in_time = Window.partitionBy("what", "name").orderBy("start")
    near = joined.select(
        "*",
        F.lag("end").over(in_time).alias("earlier"),
        F.lead("start").over(in_time).alias("later"),
    ).select(
        "*",
        F.coalesce(_near("earlier", "start"), F.lit(False)).alias("from_before"),
        F.coalesce(_near("end", "later"), F.lit(False)).alias("goes_on"),
        F.lag("failures").over(in_time).alias("failures_before"),
        F.lead("failures").over(in_time).alias("failures_after"),
    )
    # One that goes on at both ends is long enough to be an outage by itself: no more than two are ever to be added.
    nothing = F.lit(0)
    enough = (
        F.col("failures")
        + F.when(F.col("from_before"), F.col("failures_before")).otherwise(nothing)
        + F.when(F.col("goes_on"), F.col("failures_after")).otherwise(nothing)
    ) >= ENOUGH
    return near.withColumns(
        {
            "before": F.col("before") | F.col("from_before"),
            "after": F.col("after") | F.col("goes_on"),
            "outage": F.col("outage") | enough,
        }
    )


def _near(end: str, start: str) -> Column:
    return F.col(start) - F.col(end) <= GAP_S * US


def _named(rows: DataFrame) -> DataFrame:
    return rows.select(
        "*",
        seconds(F.col("end") - F.col("start")).alias("duration_s"),
        F.timestamp_micros("start").alias("start_at"),
        F.timestamp_micros("end").alias("end_at"),
    ).select(
        *[
            F.col(f"{name}_at").alias(name) if name in ("start", "end") else F.col(name)
            for name in SPEC.names()
        ]
    )


OUTAGES: Final = GoldTable(SPEC, ("jobs", "attempts"), delta, merge, reach=1)
