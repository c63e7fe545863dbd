"""`service_minute`: how each service did in each minute."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from polydomo.ledger.schema import OUTCOMES
from polydomo.pipeline.tables import sketches, spreading
from polydomo.pipeline.tables.counting import (
    ENDS,
    MINUTE_US,
    is_run,
    micros,
    minute_start,
    ratio,
    seconds,
    total,
    total_s,
    truth,
)
from polydomo.pipeline.tables.spec import GoldTable, Objective, TableColumn, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Three times of a job: the column in silver, and what it is of.
TIMES: Final = {
    "wait": ("wait_s", "of the waits for a first dispatch"),
    "run": ("run_s", "of the times of the latest attempts"),
    "total": ("total_s", "of the times from submitted to finished"),
}

SPEC: Final = TableSpec(
    "service_minute",
    "gold",
    "How each service did in each minute, by the minute in which jobs ended. Counts runs: ordinary jobs and the parts "
    "of jobs for several workers. A minute without any end has a row if jobs waited in it.",
    ("service", "minute"),
    "day",
    (
        TableColumn("day", "date", "of the minute, in UTC"),
        TableColumn("service", "string", "who did it, or should have"),
        TableColumn("minute", "timestamp", "its beginning"),
        TableColumn("jobs", "bigint", "that ended in it"),
        *ENDS,
        TableColumn("retries", "bigint", "attempts after the first"),
        TableColumn("memo_hits", "bigint", "jobs that were answered from memory"),
        TableColumn("bytes_in", "bigint", "of requests"),
        TableColumn("bytes_out", "bigint", "of answers"),
        TableColumn("rate", "double", "jobs per second: jobs / 60"),
        TableColumn("error_rate", "double", "(failed + dead + refused) / jobs; null without jobs"),
        TableColumn(
            "waiting_s",
            "double",
            "seconds that jobs spent in the queue within this minute, whenever they ended: a wait over several minutes "
            "is spread over them. Until the first dispatch; of jobs that never had one, until they ended",
        ),
        TableColumn(
            "queue",
            "double",
            "mean length of the queue, by Little's law: waiting_s / 60. Jobs that still wait are not in it yet",
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
)

_SUMS: Final = ("retries", "memo_hits", "bytes_in", "bytes_out")
_COUNTS: Final = ("jobs", *OUTCOMES, *_SUMS)

# How a job ended, as one small number instead of a text or five counters: rows are moved and compared once per job.
_CODES: Final = {outcome: code for code, outcome in enumerate(OUTCOMES, 1)}
_SKETCHES: Final = tuple(f"{name}_sketch" for name in TIMES)


def delta(silver: Mapping[str, DataFrame], objectives: tuple[Objective, ...] = ()) -> DataFrame:
    """From silver's `jobs`."""
    found = (
        _rows(silver["jobs"])
        .groupBy("service", "minute_us")
        .agg(
            F.sum(_one_if(F.col("end_code") > 0)).alias("jobs"),
            *[F.sum(_one_if(F.col("end_code") == code)).alias(outcome) for outcome, code in _CODES.items()],
            *[F.sum(name).alias(name) for name in (*_SUMS, "waiting_us")],
            *[seconds(F.sum(f"{name}_us")).alias(f"{name}_s") for name in TIMES],
            seconds(F.max("wait_us")).alias("wait_max"),
            *[sketches.sketch(f"{name}_value").alias(f"{name}_sketch") for name in TIMES],
        )
    )
    minute = F.timestamp_micros("minute_us")
    known = F.when(sketches.has_any("wait_sketch"), F.col("wait_max"))
    with_minute = found.select("*", minute.alias("minute"), F.to_date(minute).alias("day"))
    return _derived(with_minute.withColumn("wait_max", known))


def merge(rows: DataFrame) -> DataFrame:
    """One row per service and minute."""
    found = rows.groupBy("day", "service", "minute").agg(
        *[total(name).alias(name) for name in _COUNTS],
        *[total_s(name).alias(name) for name, _ in TIMES.values()],
        total(micros("waiting_s")).alias("waiting_us"),
        F.max("wait_max").alias("wait_max"),
        *[sketches.merged(name).alias(name) for name in _SKETCHES],
    )
    return _derived(found)


def _rows(jobs: DataFrame) -> DataFrame:
    """One row per job in its minute, and one for each earlier minute that it waited in.

    Everything is computed here, without nulls but for the sketches' values, where Spark compiles it to one loop. Beside
    a sketch an aggregate's own expressions are interpreted, and take several times as long. That loop goes over the
    rows once: reading them again for the waits alone costs more than it saves.
    """
    finished = F.unix_micros("finished")
    begin, end = _waiting(finished)
    numbers: dict[str, Column] = {
        "end_code": _code(),
        "retries": F.greatest(F.col("attempts") - 1, F.lit(0)),
        "memo_hits": _one_if(F.col("memo_hit")),
        "bytes_in": F.col("bytes_in"),
        "bytes_out": F.col("bytes_out"),
        **{f"{name}_us": micros(column) for name, (column, _) in TIMES.items()},
    }
    values = {f"{name}_value": F.col(column).cast("float") for name, (column, _) in TIMES.items()}
    ended = jobs.where(is_run()).select(
        "service",
        minute_start(finished).alias("ended"),
        begin.alias("begin"),
        end.alias("end"),
        *[F.coalesce(value, F.lit(0)).cast("bigint").alias(name) for name, value in numbers.items()],
        *[value.alias(name) for name, value in values.items()],
    )
    both = ended.select("*", F.explode_outer(_minutes()).alias("waited"))
    minute = F.coalesce("waited", "ended")
    own = minute == F.col("ended")
    return both.select(
        "service",
        minute.alias("minute_us"),
        *[F.when(own, F.col(name)).otherwise(F.lit(0)).alias(name) for name in numbers],
        *[F.when(own, F.col(name)).alias(name) for name in values],
        spreading.inside(F.col("begin"), F.col("end"), minute).alias("waiting_us"),
    )


def _minutes() -> Column:
    """Those in which a job waited, and then the one in which it ended; null if that is the only one."""
    begin, end, ended = F.col("begin"), F.col("end"), F.col("ended")
    step = F.lit(MINUTE_US).cast("bigint")
    last = F.least(minute_start(end - 1), ended - step)
    return F.when(
        (begin < ended) & (end > begin), F.concat(F.sequence(minute_start(begin), last, step), F.array(ended))
    )


def _code() -> Column:
    """Of the outcome; one that is not known is only counted."""
    code = F.when(F.lit(False), F.lit(0))
    for outcome, number in _CODES.items():
        code = code.when(F.col("outcome") == outcome, F.lit(number))
    return code.otherwise(F.lit(len(_CODES) + 1))


def _one_if(so: Column) -> Column:
    return F.when(so, F.lit(1)).otherwise(F.lit(0))


def _waiting(finished: Column) -> tuple[Column, Column]:
    """When a job was in the queue, in microseconds; null if it never was."""
    begin = F.unix_micros("queued")
    gone = F.when((F.col("attempts") == 0) & ~truth("memo_hit"), finished)
    end = F.coalesce(begin + micros("wait_s"), gone)
    # The wall clock may have been set back meanwhile: nothing waits longer than until its end.
    return begin, _not_after(end, finished)


def _not_after(time: Column, limit: Column) -> Column:
    """Null stays null: `least` would give the limit."""
    return F.when(time > limit, limit).otherwise(time)


def _derived(rows: DataFrame) -> DataFrame:
    """What follows from the sums and the sketches; and all columns in their order."""
    errors = reduce(lambda a, b: a + b, [F.col(name) for name in ("failed", "dead", "refused")])
    waiting = F.col("waiting_us")
    with_arrays = rows.select(
        "*",
        (F.col("jobs") / F.lit(60.0)).alias("rate"),
        ratio(errors, F.col("jobs")).alias("error_rate"),
        seconds(waiting).alias("waiting_s"),
        (waiting / F.lit(float(MINUTE_US))).alias("queue"),
        *[sketches.values(name).alias(f"{name}_values") for name in _SKETCHES],
    )
    percentiles = [column for name in TIMES for column in sketches.percentiles(name, f"{name}_sketch_values")]
    return with_arrays.select("*", *percentiles).select(*SPEC.names())


SERVICE_MINUTE: Final = GoldTable(SPEC, ("jobs",), delta, merge)
