"""Time that is spent over several minutes, given to each minute that it falls into.

Intervals are grouped first by the minutes that they begin and end in: a million of them, each an hour long, that begin
within one hour are a few thousand such pairs, and not 60 million rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from polydomo.pipeline.tables.counting import MINUTE_US, minute_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The columns of an interval: its first and last moment, in microseconds since 1970.
BEGIN: Final = "begin_us"
END: Final = "end_us"

# The columns that come out: the minute's beginning and the microseconds spent in it.
MINUTE: Final = "minute_us"
SPENT: Final = "spent_us"


def spread(intervals: DataFrame, key: Sequence[str]) -> DataFrame:
    """Rows of `key`, MINUTE and SPENT; several rows of a minute are possible, and are to be added up."""
    first, last = minute_start(F.col(BEGIN)), minute_start(F.col(END))
    pairs = (
        intervals.where(F.col(END) > F.col(BEGIN))
        .groupBy(*key, first.alias("first"), last.alias("last"))
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.sum(F.col(BEGIN) - first).alias("before"),
            F.sum(F.col(END) - last).alias("behind"),
        )
    )
    minutes = pairs.select(
        "*", F.explode(F.sequence("first", "last", F.lit(MINUTE_US).cast("bigint"))).alias(MINUTE)
    )
    # Every interval has the whole minute, but for what lies before its begin and behind its end.
    spent = (
        F.col("n") * F.when(F.col(MINUTE) < F.col("last"), F.lit(MINUTE_US)).otherwise(F.lit(0))
        - F.when(F.col(MINUTE) == F.col("first"), F.col("before")).otherwise(F.lit(0))
        + F.when(F.col(MINUTE) == F.col("last"), F.col("behind")).otherwise(F.lit(0))
    )
    return minutes.select(*key, MINUTE, spent.alias(SPENT))
