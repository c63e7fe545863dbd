"""Tests of silver rows computed from the ledger's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polydomo.ledger import schema as ledger
from polydomo.pipeline import repeats
from polydomo.pipeline.schemas import spark_schema
from polydomo.pipeline.tables import silver
from tests.support.ledger import START, attempt, event, job, write_segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def frame(spark: SparkSession, table: ledger.LedgerTable, rows: list[dict[str, Any]]) -> DataFrame:
    plain = [tuple(row.get(column.name) for column in table.columns) for row in rows]
    return spark.createDataFrame(plain, spark_schema(table))


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


# Values missing from a row are those of `job`: 10 ms of waiting, 30 ms of work.
UNKNOWN = {"waited_us": None, "ran_us": None, "took_us": None}
JOBS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("as measured", {}, {"wait_s": 0.01, "run_s": 0.03, "total_s": 0.04, "retries": 0, "root": "j"}),
    (
        "by its times",
        UNKNOWN | {"queued": after(1), "dispatched": after(3), "finished": after(7)},
        {"wait_s": 2.0, "run_s": 4.0, "total_s": 7.0},
    ),
    (
        "not on disk for a while: the queue is not known, the client's wait is",
        UNKNOWN | {"queued": None, "dispatched": after(3), "finished": after(7)},
        {"wait_s": 3.0},
    ),
    (
        "several attempts: the first one's wait is not known",
        UNKNOWN | {"attempts": 3, "dispatched": after(3), "finished": after(7)},
        {"wait_s": None, "run_s": 4.0, "retries": 2},
    ),
    (
        "the clock stepped back",
        UNKNOWN | {"dispatched": after(-5), "finished": after(-9)},
        {"wait_s": 0.0, "run_s": 0.0, "total_s": 0.0},
    ),
    (
        "the clock stepped back, and a clock that does not step was looked at",
        {"dispatched": after(-5), "finished": after(-9)},
        {"wait_s": 0.01, "run_s": 0.03, "total_s": 0.04},
    ),
    (
        "never given to a worker",
        {"waited_us": None, "ran_us": None, "dispatched": None, "worker": None, "attempts": 0},
        {"wait_s": None, "run_s": None, "total_s": 0.0, "retries": 0},
    ),
    ("a part", {"parent": "whole", "part": 1}, {"root": "whole"}),
    ("at midnight", {"finished": datetime(2026, 3, 2, tzinfo=UTC)}, {"day": datetime(2026, 3, 2).date()}),
]


def test_jobs(spark: SparkSession) -> None:
    rows = [job(**{"job_id": "j", "key": name} | given) for name, given, _ in JOBS]
    made = silver.jobs(frame(spark, ledger.JOBS, rows))
    assert made.columns == silver.JOBS.names()
    found = {row["key"]: row.asDict() for row in made.collect()}
    for name, _, expected in JOBS:
        assert {what: found[name][what] for what in expected} == expected, name


def test_attempts(spark: SparkSession) -> None:
    rows = [
        job(job_id="simple"),
        job(job_id="third time", attempts=3, dispatched=after(9), finished=after(10), ran_us=900_000),
        job(job_id="expired", attempts=0, dispatched=None, worker=None, outcome="failed", error="expired"),
        job(job_id="dead", attempts=2, dispatched=after(5), outcome="dead", error="retries-exhausted"),
        job(job_id="lost", outcome="failed", error="retries-exhausted"),
    ]
    gone = [
        attempt(job_id="third time", number=1, dispatched=after(1)),
        attempt(job_id="third time", number=2, dispatched=after(4), outcome="overrun", ran_us=None),
        attempt(job_id="dead", number=1, dispatched=after(1)),
        attempt(job_id="dead", number=2, dispatched=after(5)),
    ]
    lost = frame(spark, ledger.ATTEMPTS, gone)
    made = silver.attempts(silver.jobs(frame(spark, ledger.JOBS, rows)), lost)
    assert sorted(made.columns) == sorted(silver.ATTEMPTS.names())
    found = sorted((r.job_id, r.number, r.outcome, r.lost, r.run_s) for r in made.collect())
    assert found == [
        ("dead", 1, "worker-lost", True, 0.05),
        ("dead", 2, "worker-lost", True, 0.05),
        ("lost", 1, "retries-exhausted", True, 0.03),
        ("simple", 1, "done", False, 0.03),
        ("third time", 1, "worker-lost", True, 0.05),
        ("third time", 2, "overrun", True, 0.0),
        ("third time", 3, "done", False, 0.9),
    ]


def test_peers(spark: SparkSession) -> None:
    made = silver.peers(frame(spark, ledger.EVENTS, [event(event_id="e", at=after(86400))]))
    assert made.columns == silver.PEERS.names()
    assert [(row.event_id, str(row.day)) for row in made.collect()] == [("e", "2026-03-02")]


def test_both_ways_to_find_repeated_rows_find_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Of two duplicates the one that was not rebuilt stays; rows that are in silver are removed."""
    from pyspark.sql import functions as F

    new = [
        {"job_id": "once", "finished": after(1)},
        {"job_id": "ended twice", "finished": after(1)},
        {"job_id": "ended twice", "finished": after(2)},
        {"job_id": "twin", "finished": after(3), "rebuilt": True, "worker": None},
        {"job_id": "twin", "finished": after(3), "worker": "w"},
        {"job_id": "old", "finished": after(4)},
    ]
    paths = [str(write_segment(tmp_path, "jobs", [row])) for row in new]
    old = str(
        write_segment(tmp_path / "silver", "jobs", [new[-1], {"job_id": "older", "finished": after(0)}])
    )
    key = ledger.JOBS.key
    rows, there = (spark.read.schema(spark_schema(ledger.JOBS)).parquet(*names) for names in (paths, [old]))
    here = repeats.by_arrow(spark, paths, [old], key, ("finished", after(1), after(4)))
    assert here is not None
    order = [F.col("rebuilt").asc()]
    for suspects, mark in (
        (here, F.col("job_id")),
        (repeats.by_spark(rows, there, key), repeats.fingerprint(key)),
    ):
        kept = repeats.without(rows, there, key, suspects, mark, order).select("job_id", "worker", "rebuilt")
        assert sorted(map(tuple, kept.collect())) == [
            ("ended twice", "worker-1", False),
            ("ended twice", "worker-1", False),
            ("once", "worker-1", False),
            ("twin", "w", False),
        ]
    assert repeats.by_arrow(spark, paths[:3], [old], key, ("finished", after(1), after(4))) is None
    assert repeats.by_spark(rows.limit(3), None, key).isEmpty()
