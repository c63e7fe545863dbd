"""Tests of the planner: from rows of jobs to numbers of workers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from polydomo.errors import ConfigError
from polydomo.pipeline import replay
from polydomo.pipeline.plan import Plan, _Task, plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


def rows_of(service: str, came: list[float], runs: list[float]) -> list[tuple[Any, ...]]:
    return [(service, START + timedelta(seconds=at), run) for at, run in zip(came, runs, strict=True)]


def frame(spark: SparkSession, *services: tuple[str, list[float], list[float]]) -> DataFrame:
    rows = [row for service in services for row in rows_of(*service)]
    return spark.createDataFrame(rows, "service string, queued timestamp, run_s double")


def queue(rate: float, mean: float, number: int, seed: int = 0) -> tuple[list[float], list[float]]:
    random = np.random.RandomState(seed)
    came = np.cumsum(random.exponential(1 / rate, number))
    return came.tolist(), random.exponential(mean, number).tolist()


def smallest(came: list[float], runs: list[float], target: float, percentile: float) -> int:
    """Find the number of workers by trying all, over the whole time."""
    made = replay.trace(np.array(came), np.array(runs))
    return next(
        number
        for number in range(1, 1000)
        if np.quantile(replay.waits(made.arrivals, made.seconds, number), percentile) <= target
    )


@pytest.mark.spark
def test_the_smallest_number_that_will_do_and_its_neighbours(spark: SparkSession) -> None:
    busy, calm = queue(10, 0.7, 3000), queue(1, 0.05, 300, seed=1)
    burst = ([0.0] * 40, [1.0] * 40)
    found = plan(
        spark, frame(spark, ("busy", *busy), ("burst", *burst), ("calm", *calm)), target=0.2, percentile=0.95
    )
    assert found.recommended == {
        "busy": smallest(*busy, 0.2, 0.95),
        "burst": 38,  # of 40 at once two may wait, which is 5 %
        "calm": 1,
    }
    for need in found.needs:
        assert need.workers is not None
        tried = {
            row.workers: row for row in found.rows if row.service == need.service and row.window == "hour"
        }
        assert tried[need.workers].ok
        assert need.wait == tried[need.workers].asked <= 0.2
        if need.workers > 1:
            assert not tried[need.workers - 1].ok
            assert need.fewer == tried[need.workers - 1].asked > 0.2
    number = found.recommended["busy"] or 0
    by_hand = replay.waits(np.array(busy[0]), np.array(busy[1]), number)
    row = next(row for row in found.rows if (row.service, row.window, row.workers) == ("busy", "all", number))
    assert row.jobs == 3000
    assert row.mean == pytest.approx(by_hand.mean(), abs=1e-4)
    assert row.p99 == pytest.approx(np.quantile(by_hand, 0.99), abs=1e-4)
    assert row.utilisation == pytest.approx(7 / number, rel=0.1)
    assert json.loads(json.dumps(found.to_json()))["needs"][0]["service"] == "burst"
    assert set(found.frame()["window"]) == {"all", "day", "hour"}


@pytest.mark.spark
def test_every_number_of_a_range_is_a_task_of_its_own(spark: SparkSession) -> None:
    busy = queue(10, 0.25, 500)
    found = plan(
        spark,
        frame(spark, ("busy", *busy), ("other", *busy)),
        service="busy",
        workers=range(1, 6),
        window="all",
    )
    assert {row.service for row in found.rows} == {"busy"}
    tried = [row for row in found.rows if row.window == "all"]
    assert [row.workers for row in tried] == [1, 2, 3, 4, 5]
    assert [row.mean for row in tried] == sorted((row.mean for row in tried), reverse=True)
    assert found.recommended == {"busy": smallest(*busy, 0.2, 0.95)}
    none = plan(spark, frame(spark, ("busy", *busy)), workers=range(1, 2), target=0.0)
    assert none.recommended == {"busy": None}


@pytest.mark.spark
def test_memoised_answers_are_no_work_and_lost_attempts_are(spark: SparkSession) -> None:
    columns = (
        "service string, submitted timestamp, queued timestamp, ran_us long, memo_hit boolean, worker string"
    )
    at = [START + timedelta(seconds=moment) for moment in range(0, 200, 2)]
    jobs = [("s", moment, None, 1_000_000, False, "w1") for moment in at]
    jobs += [("s", moment, None, None, True, None) for moment in at] * 5
    table = spark.createDataFrame(jobs, columns)
    alone = plan(spark, table, target=0.01, percentile=0.9)
    assert alone.recommended == {"s": 1}
    assert alone.needs[0].seen == 1
    assert alone.needs[0].jobs == 100
    lost = spark.createDataFrame(
        [("s", moment, 1_500_000, True) for moment in at]
        + [("s", moment, 9_000_000, False) for moment in at],
        "service string, dispatched timestamp, ran_us long, lost boolean",
    )
    both = plan(spark, table, target=0.01, percentile=0.9, attempts=lost)
    assert both.recommended == {"s": 2}
    assert both.needs[0].jobs == 100  # waits of lost attempts are not counted


def task(**given: Any) -> _Task:
    chosen = {
        "target": 0.2,
        "percentile": 0.95,
        "load": 1.0,
        "speed": 1.0,
        "window": "all",
        "credit": 1,
    } | given
    return _Task(**chosen)


def needed(came: list[float], runs: list[float], **given: Any) -> int:
    """Return the smallest number, from the task that Spark runs, without Spark."""
    doing = task(**given)
    micros = (np.array(came) * 1e6).astype(np.int64)
    table = pd.DataFrame({"service": "s", "came_us": micros, "run_s": runs, "counted": True})
    rows = doing.search(table)
    fine = rows[(rows["window"] == doing.window) & (rows["asked"] <= doing.target)]
    return int(fine["workers"].min())


def test_what_if() -> None:
    came, runs = queue(20, 0.3, 4000)
    now = needed(came, runs)
    # Twice the work keeps twelve busy; many workers need relatively less reserve than few.
    assert 12 < needed(came, runs, load=2.0) < 2 * now
    assert needed(came, runs, load=0.5) < now
    assert needed(came, runs, speed=0.5) == smallest(came, [2 * run for run in runs], 0.2, 0.95)
    assert needed(came, runs, credit=4) == -(-now // 4)
    assert needed(came, runs, target=1e9) == 1  # without a limit on the wait one worker is enough
    assert needed(came, runs, target=0.0, percentile=0.999) > now


def test_the_rush_hour_counts() -> None:
    """A day with one job each half minute, and one hour with one per second."""
    slow = np.arange(0, 86_400, 30.0)
    rush = 36_000 + np.arange(0, 3600, 1.0)
    came = np.sort(np.concatenate([slow, rush])).tolist()
    runs = [4.0] * len(came)
    assert needed(came, runs, window="hour") == 5
    # Only every second job of the whole day arrives in that hour: the median does not show it.
    assert needed(came, runs, window="all", percentile=0.4) < 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": -1.0}, "target is -1"),
        ({"percentile": 95}, "percentile is 95"),
        ({"load": 0}, "load is 0"),
        ({"speed": -2}, "speed is -2"),
        ({"window": "week"}, "no window 'week'"),
        ({"credit": 0}, "credit is 0"),
        ({"workers": range(3, 3)}, "no valid number of workers"),
        ({"workers": range(3)}, "no valid number of workers"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(None, None, **given)  # type: ignore[arg-type]


@pytest.mark.spark
def test_rows_that_cannot_be_planned(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="no run times"):
        plan(spark, spark.createDataFrame([("s", START)], "service string, queued timestamp"))
    with pytest.raises(ConfigError, match="'nobody'"):
        plan(spark, frame(spark, ("s", [0.0], [1.0])), service="nobody")
    empty: Plan = plan(spark, frame(spark))
    assert empty.recommended == {}
    assert empty.frame().empty
