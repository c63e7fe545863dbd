"""Hand-made silver rows, for tests of the tables computed from them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from polydomo.pipeline.tables.silver import ATTEMPTS, JOBS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The middle of a minute.
NOON: Final = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)

_numbers = count(1)


def at(seconds: float) -> datetime:
    """Return the time this many seconds after NOON."""
    return NOON + timedelta(seconds=seconds)


def job(ended: float = 0.0, **given: Any) -> dict[str, Any]:
    """Return a job that ended this many seconds after NOON, after 10 ms in the queue and 30 ms of work, by default."""
    finished = at(ended)
    wait, run = given.get("wait_s", 0.01), given.get("run_s", 0.03)
    total = given.get("total_s", (wait or 0.0) + (run or 0.0))
    submitted = finished - timedelta(seconds=total)
    attempts = given.get("attempts", 1)
    number = next(_numbers)
    row: dict[str, Any] = dict.fromkeys(JOBS.names()) | {
        "job_id": f"job-{number}",
        "root": f"job-{number}",
        "service": "echo",
        "asked": "echo",
        "dialect_in": "mdp",
        "dialect_out": "mdp",
        "client": "ada",
        "worker": "w1",
        "broker": "polydomo",
        "run": "run-1",
        "target": "any",
        "submitted": submitted,
        "queued": submitted,
        "dispatched": None if run is None else finished - timedelta(seconds=run),
        "finished": finished,
        "day": finished.date(),
        "outcome": "done",
        "attempts": attempts,
        "partials": 0,
        "bytes_in": 100,
        "bytes_out": 1000,
        "durable": False,
        "memo_hit": False,
        "repeat": False,
        "priority": 0,
        "wait_s": wait,
        "run_s": run,
        "total_s": total,
        "retries": max(attempts - 1, 0),
    }
    return row | given


def attempt(ended: float = 0.0, **given: Any) -> dict[str, Any]:
    """Return an attempt that ended its job this many seconds after NOON, by default."""
    run = given.get("run_s", 0.03)
    row: dict[str, Any] = dict.fromkeys(ATTEMPTS.names()) | {
        "job_id": f"job-{next(_numbers)}",
        "number": 1,
        "service": "echo",
        "worker": "w1",
        "broker": "polydomo",
        "run": "run-1",
        "dispatched": at(ended - run),
        "ended": at(ended),
        "day": at(ended).date(),
        "outcome": "done",
        "run_s": run,
        "lost": False,
    }
    return row | given


def silver(
    spark: SparkSession, jobs: Iterable[dict[str, Any]] = (), attempts: Iterable[dict[str, Any]] = ()
) -> dict[str, DataFrame]:
    """Return silver tables as the gold tables take them."""
    found = {}
    for spec, rows in ((JOBS, jobs), (ATTEMPTS, attempts)):
        values = [tuple(row[name] for name in spec.names()) for row in rows]
        found[spec.name] = spark.createDataFrame(values, spec.ddl())
    return found
