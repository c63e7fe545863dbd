"""Tests of hours and days from minutes, of whole outages from parts, and of the accuracy of percentiles."""

from __future__ import annotations

import importlib
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polydomo.pipeline.tables import rollup
from polydomo.pipeline.tables.outages import OUTAGES
from polydomo.pipeline.tables.service_minutes import SERVICE_MINUTE
from tests.pipeline.tables.silver_rows import at, job, silver
from tests.support.gold import delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
aggregate = importlib.import_module("aggregate")

# DataSketches guarantees this for k = 400 in 99 of 100 cases, and a test has few sketches.
BOUND = 0.01


def test_hours_and_days(spark: SparkSession) -> None:
    """The percentiles are those of all values, not a mean of the minutes' percentiles."""
    jobs = [
        *[job(60 * n, wait_s=0.001, run_s=0.1) for n in range(10)],
        *[job(600, wait_s=1.0, run_s=None, outcome="failed") for _ in range(90)],
        job(3600, wait_s=7200.0, run_s=0.5),
    ]
    minutes = delta(SERVICE_MINUTE, silver(spark, jobs), ()).cache()
    hours = rollup.hours(minutes).orderBy("hour").collect()
    assert [(row.hour, row.jobs, row.failed) for row in hours] == [
        (datetime(2026, 3, 1, 11), 0, 0),
        (datetime(2026, 3, 1, 12), 100, 90),
        (datetime(2026, 3, 1, 13), 1, 0),
    ]
    noon = hours[1]
    assert (noon.wait_p50, noon.run_p50, noon.wait_max) == (1.0, 0.1, 1.0)
    assert (noon.rate, noon.error_rate) == (100 / 3600, 0.9)
    assert noon.queue == pytest.approx((90 + 10 * 0.001 + 3600) / 3600)
    day = rollup.days(minutes).collect()
    assert [(str(row.day), row.jobs, row.wait_p50, row.wait_p99, row.wait_max) for row in day] == [
        ("2026-03-01", 101, 1.0, 1.0, 7200.0)
    ]
    assert day[0].rate == 101 / 86400
    assert "minute" not in day[0].asDict()
    minutes.unpersist()


def test_outages_over_midnights_are_joined(spark: SparkSession) -> None:
    bad: dict[str, Any] = {"outcome": "failed", "worker": None}
    midnight = 12 * 3600 - 30
    long = [job(midnight + off, service="long", **bad) for off in range(-100, 2 * 86400, 250)]
    short = [job(midnight + off, service="short", **bad) for off in (-1, 1)]  # too few failures
    apart = [job(midnight + off, service="apart", **bad) for off in (-200, -199, -198, 103, 104, 105)]
    pieces = delta(OUTAGES, silver(spark, long + short + apart), ())
    found = rollup.outages(pieces).orderBy("name", "start").collect()
    assert [(row.name, row.start, row.failures, row.duration_s) for row in found] == [
        ("apart", at(midnight - 200).replace(tzinfo=None), 3, 2.0),
        ("apart", at(midnight + 103).replace(tzinfo=None), 3, 2.0),
        ("long", at(midnight - 100).replace(tzinfo=None), len(long), 250.0 * (len(long) - 1)),
    ]


def test_percentiles_are_within_their_bound(spark: SparkSession) -> None:
    """Heavy tails, 200,000 rows: thousands of values per minute, and hours and a day merged from sketches."""
    jobs = aggregate.make_jobs(spark, 200_000, days=0.05, services=4).cache()
    minutes = delta(SERVICE_MINUTE, {"jobs": jobs}, ()).cache()
    found = aggregate.rank_errors(jobs, minutes)
    assert found.rows == minutes.groupBy().sum("jobs").collect()[0][0] == 200_000
    assert set(found.worst) == {"minute", "hour", "day"}
    errors = [error for of_unit in found.worst.values() for error in of_unit.values()]
    assert max(errors) < BOUND
    assert max(errors) > 0  # the sketches do not have all values
    wrong = minutes.withColumn("total_sketch", minutes.wait_sketch)
    assert (
        aggregate.rank_errors(jobs, wrong, ("day",)).worst["day"]["p95"] > 0.03
    )  # wrong percentiles are detected
    minutes.unpersist()
    jobs.unpersist()
