"""`service_minute`: statistics of each service by minute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from polydomo.pipeline.tables import columns, minute_merge, minute_parts, sketches
from polydomo.pipeline.tables.counting import ENDS, MINUTE_US, micros, ratio, seconds, total, total_s
from polydomo.pipeline.tables.silver import JOBS
from polydomo.pipeline.tables.spec import GoldTable, Objective, TableColumn, TableSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

# Three times of a job: the column in silver, and a description.
TIMES: Final = {
    "wait": ("wait_s", "of the waits for a first dispatch"),
    "run": ("run_s", "of the times of the latest attempts"),
    "total": ("total_s", "of the times from submitted to finished"),
}

SPEC: Final = TableSpec(
    "service_minute",
    "gold",
    "Statistics of each service by minute, by the minute in which jobs ended. Counts runs: ordinary jobs and the parts "
    "of jobs for several workers. A minute in which no job ended has a row if jobs waited in it.",
    ("service", "minute"),
    "day",
    (
        TableColumn("day", "date", "of the minute, in UTC"),
        TableColumn("service", "string", "the service that ran it, or should have"),
        TableColumn("minute", "timestamp", "its beginning"),
        TableColumn("jobs", "bigint", "that ended in it"),
        *ENDS,
        TableColumn("retries", "bigint", "attempts after the first"),
        TableColumn("memo_hits", "bigint", "jobs with a cached result"),
        TableColumn("bytes_in", "bigint", "of requests"),
        TableColumn("bytes_out", "bigint", "of replies"),
        TableColumn("rate", "double", "jobs per second: jobs / 60"),
        TableColumn("error_rate", "double", "(failed + dead + refused) / jobs; null without jobs"),
        TableColumn(
            "waiting_s",
            "double",
            "seconds that jobs spent in the queue within this minute, whenever they ended: a wait over several minutes "
            "is spread over them. Until the first dispatch; without one, until the job ended",
        ),
        TableColumn(
            "queue",
            "double",
            "mean length of the queue, by Little's law: waiting_s / 60. Jobs that are still waiting are not included",
        ),
        *(
            TableColumn(f"{name}_s", "double", f"sum {what}, in seconds, of jobs that ended in this minute")
            for name, (_, what) in TIMES.items()
        ),
        TableColumn("wait_max", "double", "the longest wait of a job that ended in this minute, in seconds"),
        *(column for name, (_, what) in TIMES.items() for column in sketches.percentile_columns(name, what)),
        *(
            TableColumn(
                f"{name}_sketch", "binary", f"KLL sketch (float, k = {sketches.K}) {what}, in seconds"
            )
            for name, (_, what) in TIMES.items()
        ),
    ),
    order=("day", "minute", "service"),
)

_COUNTS: Final = minute_parts.COUNTS
_SKETCHES: Final = minute_parts.SKETCHES


def merge(rows: DataFrame) -> DataFrame:
    """Merge to one row per service and minute. Most have one already."""
    return summed(rows, sketches.joined)


def summed(rows: DataFrame, join: Callable[[str], Column]) -> DataFrame:
    """Sum to one row per service and `minute`, which may be any time. `join` merges sketches. Rows sorted by these
    columns are not sorted again."""
    found = rows.groupBy("day", "minute", "service").agg(
        *[total(name).alias(name) for name in _COUNTS],
        *[total_s(name).alias(name) for name, _ in TIMES.values()],
        total(micros("waiting_s")).alias("waiting_us"),
        F.max("wait_max").alias("wait_max"),
        *[join(name).alias(name) for name in _SKETCHES],
        # The percentiles of a single row stay valid.
        (F.count(F.lit(1)) == 1).alias("single"),
        *[F.first(name).alias(f"{name}_said") for name in minute_parts.PERCENTILES],
    )
    return _derived(found)


def _work(batches: Iterator[pa.RecordBatch], _: tuple[Objective, ...]) -> Iterator[pa.RecordBatch]:
    """Compute the rows that silver rows add, in a Spark task."""
    for jobs in columns.portions(batches):
        for batch in minute_parts.parts(jobs, sketches.K):
            yield batch.select(SPEC.names())


def _derived(rows: DataFrame) -> DataFrame:
    """Add columns derived from the sums and the sketches, and return all columns in their order."""
    errors = reduce(lambda a, b: a + b, [F.col(name) for name in ("failed", "dead", "refused")])
    waiting = F.col("waiting_us")
    with_arrays = rows.select(
        "*",
        (F.col("jobs") / F.lit(60.0)).alias("rate"),
        ratio(errors, F.col("jobs")).alias("error_rate"),
        seconds(waiting).alias("waiting_s"),
        (waiting / F.lit(float(MINUTE_US))).alias("queue"),
        *[F.when(~_said(name), sketches.values(f"{name}_sketch")).alias(f"{name}_values") for name in TIMES],
    )
    percentiles = [
        F.when(_said(name), F.col(f"{name}_{label}_said")).otherwise(found).alias(f"{name}_{label}")
        for name in TIMES
        for label, found in sketches.percentiles(f"{name}_values").items()
    ]
    return with_arrays.select("*", *percentiles).select(*SPEC.names())


def _said(name: str) -> Column:
    """Return whether the percentiles of this time are known without the sketch."""
    return F.col("single") & F.col(f"{name}_{next(iter(sketches.RANKS))}_said").isNotNull()


COLUMNAR: Final = columns.reading(JOBS, minute_parts.COLUMNS, SPEC, _work)
SERVICE_MINUTE: Final = GoldTable(SPEC, {"jobs": COLUMNAR}, merge, minute_merge.merged, minute="minute")
