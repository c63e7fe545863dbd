"""Silver: every job, every attempt and every event once, with values derived from its row alone.

Pure functions of DataFrames. They expect each row once: `repeats` removes duplicates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from polydomo.core.failure import EXHAUSTED
from polydomo.ledger import schema as ledger
from polydomo.pipeline.tables.spec import TableColumn, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KINDS: Final = {
    "string": "string",
    "int32": "int",
    "int64": "bigint",
    "bool": "boolean",
    "timestamp": "timestamp",
}


def _from_ledger(table: ledger.LedgerTable, *without: str) -> tuple[TableColumn, ...]:
    return tuple(TableColumn(c.name, _KINDS[c.kind], c.doc) for c in table.columns if c.name not in without)


JOBS: Final = TableSpec(
    "jobs",
    "silver",
    ledger.JOBS.doc,
    ledger.JOBS.key,
    "day",
    (
        *_from_ledger(ledger.JOBS, "rebuilt"),
        TableColumn("day", "date", "of finished, in UTC"),
        TableColumn(
            "wait_s", "double", "seconds in the queue, before its first dispatch; null: none, or unknown"
        ),
        TableColumn("run_s", "double", "run time of its latest attempt, in seconds; null: there was none"),
        TableColumn("total_s", "double", "seconds from submitted to finished"),
        TableColumn("retries", "int", "attempts after the first"),
        TableColumn("root", "string", "the id of its parent; its own id if it has none"),
    ),
)

ATTEMPTS: Final = TableSpec(
    "attempts",
    "silver",
    "One row per attempt: lost ones, and the one that ended the job.",
    ledger.ATTEMPTS.key,
    "day",
    (
        TableColumn("job_id", "string", "the job"),
        TableColumn("number", "int", "1 for the first attempt"),
        TableColumn("service", "string", "the service"),
        TableColumn("worker", "string", "the worker it was dispatched to"),
        TableColumn("dialect_out", "string", "the worker's protocol"),
        TableColumn("broker", "string", "the broker's name"),
        TableColumn("run", "string", "the broker's run"),
        TableColumn("dispatched", "timestamp", "when it began"),
        TableColumn("ended", "timestamp", "when it ended or was given up"),
        TableColumn("day", "date", "of ended, in UTC"),
        TableColumn("outcome", "string", "how the job ended with it, or why it was lost"),
        TableColumn("run_s", "double", "its run time in seconds"),
        TableColumn("lost", "boolean", "it did not end its job"),
    ),
)

PEERS: Final = TableSpec(
    "peers",
    "silver",
    ledger.EVENTS.doc,
    ledger.EVENTS.key,
    "day",
    (*_from_ledger(ledger.EVENTS), TableColumn("day", "date", "of at, in UTC")),
)

SILVER: Final = (JOBS, ATTEMPTS, PEERS)

# Duplicates of a row agree in this column, too, and a file's rows are close to each other in it: only files whose
# bounds overlap those of the new rows can contain duplicates.
TIME: Final = {"jobs": "finished", "attempts": "dispatched", "peers": "at"}


def jobs(rows: DataFrame) -> DataFrame:
    """Return silver jobs from deduplicated ledger rows."""
    first_try = F.col("attempts") <= 1
    return rows.select(
        *[column.name for column in ledger.JOBS.columns if column.name != "rebuilt"],
        F.to_date("finished").alias("day"),
        # After several attempts the ledger's `dispatched` is the latest one's, not the end of the first wait.
        F.coalesce(
            _duration("waited_us"),
            F.when(first_try, _between(F.coalesce("queued", "submitted"), "dispatched")),
        ).alias("wait_s"),
        F.coalesce(_duration("ran_us"), _between("dispatched", "finished")).alias("run_s"),
        F.coalesce(_duration("took_us"), _between("submitted", "finished")).alias("total_s"),
        F.greatest(F.col("attempts") - 1, F.lit(0)).alias("retries"),
        F.coalesce("parent", "job_id").alias("root"),
    )


def attempts(jobs: DataFrame, lost_ones: DataFrame) -> DataFrame:
    """Return all attempts, from silver's jobs and the ledger's lost ones. The latter win where both have a row."""
    given_up = lost(lost_ones)
    key = list(ATTEMPTS.key)
    return given_up.unionByName(ended(jobs).join(given_up.select(*key), key, "left_anti"))


def ended(jobs: DataFrame) -> DataFrame:
    """Return the attempt that ended each silver job. If all were lost, that is the last of them."""
    all_lost = (F.col("outcome") == ledger.DEAD) | F.col("error").eqNullSafe(F.lit(EXHAUSTED))
    return jobs.where("dispatched IS NOT NULL AND worker IS NOT NULL AND attempts > 0").select(
        "job_id",
        F.col("attempts").alias("number"),
        "service",
        "worker",
        "dialect_out",
        "broker",
        "run",
        "dispatched",
        F.col("finished").alias("ended"),
        "day",
        F.when(all_lost, F.coalesce("error", "outcome")).otherwise(F.col("outcome")).alias("outcome"),
        "run_s",
        all_lost.alias("lost"),
    )


def lost(rows: DataFrame) -> DataFrame:
    """Return silver attempts from deduplicated ledger rows of lost attempts."""
    return rows.select(
        "job_id",
        "number",
        "service",
        "worker",
        "dialect_out",
        "broker",
        "run",
        "dispatched",
        "ended",
        F.to_date("ended").alias("day"),
        "outcome",
        F.coalesce(_duration("ran_us"), _between("dispatched", "ended")).alias("run_s"),
        F.lit(True).alias("lost"),
    )


def peers(events: DataFrame) -> DataFrame:
    """Return silver peers from deduplicated ledger events."""
    return events.select(*[column.name for column in ledger.EVENTS.columns], F.to_date("at").alias("day"))


def _duration(microseconds: str) -> Column:
    return _not_negative(F.col(microseconds) / F.lit(1e6))


def _between(start: Column | str, end: Column | str) -> Column:
    """Return the seconds between two times, at least 0: the wall clock may have been set back."""
    return _not_negative((F.unix_micros(end) - F.unix_micros(start)) / F.lit(1e6))


def _not_negative(value: Column) -> Column:
    """Replace negative values by 0. `greatest` would also replace null."""
    return F.when(value < 0, F.lit(0.0)).otherwise(value)
