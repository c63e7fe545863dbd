"""Tests of each gold table with a few hand-made rows, and of all of them computed in parts and merged."""

from __future__ import annotations

import random
from datetime import date, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

from polydomo.pipeline.tables import columns
from polydomo.pipeline.tables.gold import GOLD
from polydomo.pipeline.tables.spec import GoldTable, Objective
from tests.pipeline.tables.silver_rows import at, attempt, job, silver
from tests.support.gold import delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLES = {table.spec.name: table for table in GOLD}
OBJECTIVES = (Objective("*", 1.0, 0.99), Objective("ec*", 0.5, 0.9), Objective("echo", 0.1, 0.5))
PART = {"parent": "whole", "part": 0, "root": "whole"}
WHOLE = {"target": "all", "attempts": 0, "worker": None, "dialect_out": None, "wait_s": None, "run_s": None}


def rows_of(
    spark: SparkSession,
    name: str,
    jobs: list[dict[str, Any]] | None = None,
    attempts: list[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Return the table's rows for these inputs, in the order of its key."""
    table = TABLES[name]
    made = delta(table, silver(spark, jobs or (), attempts or ()), OBJECTIVES)
    assert made.columns == table.spec.names()
    assert [kind for _, kind in made.dtypes] == [column.kind for column in table.spec.columns]
    rows = [row.asDict() for row in made.collect()]
    return sorted(rows, key=lambda row: [str(row[name]) for name in table.spec.key])


def picked(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def minute(number: int) -> datetime:
    """Return the minute this many minutes after 12:00."""
    return datetime(2026, 3, 1, 12, number)


def test_a_service_s_minute(spark: SparkSession) -> None:
    found = rows_of(
        spark,
        "service_minute",
        [
            *[job(0.1, wait_s=0.001 * n, run_s=0.01, total_s=0.5, attempts=2) for n in range(1, 101)],
            job(1, outcome="failed", error="worker-error", bytes_in=5, bytes_out=0),
            job(1, outcome="cancelled"),
            job(1, outcome="dead"),
            job(1, outcome="refused", queued=None, wait_s=None, run_s=None),
            job(2, memo_hit=True, wait_s=None, run_s=None, total_s=0.0001),
            job(3, repeat=True),  # not counted
            job(3, service="mail"),
            job(3, service="mail", **PART),
            job(3, service="mail", **WHOLE, total_s=9.0),  # a parent, which does not run itself
            job(
                3, service="mail", **WHOLE | {"outcome": "failed", "error": "expired"}
            ),  # no worker was available
            job(3, service="kept", repeat=True, durable=True),  # stored as a job of its own
        ],
    )
    assert picked(
        found, "service", "minute", "day", "jobs", "done", "failed", "cancelled", "dead", "refused"
    ) == [
        ("echo", minute(0), date(2026, 3, 1), 105, 101, 1, 1, 1, 1),
        ("kept", minute(0), date(2026, 3, 1), 1, 1, 0, 0, 0, 0),
        ("mail", minute(0), date(2026, 3, 1), 3, 2, 1, 0, 0, 0),
    ]
    echo = found[0]
    assert picked([echo], "retries", "memo_hits", "bytes_in", "bytes_out") == [(100, 1, 10405, 104000)]
    assert echo["rate"] == 105 / 60
    assert echo["error_rate"] == 3 / 105
    assert (echo["wait_s"], echo["run_s"], echo["wait_max"]) == (5.08, 1.09, 0.1)
    assert (echo["wait_p50"], echo["wait_p90"], echo["wait_p99"]) == (0.049, 0.09, 0.099)
    assert (echo["run_p50"], echo["total_p50"], echo["total_p95"]) == (0.01, 0.5, 0.5)
    assert echo["waiting_s"] == pytest.approx(5.08)
    assert echo["queue"] == pytest.approx(5.08 / 60)


def test_a_wait_is_spread_over_its_minutes(spark: SparkSession) -> None:
    """The job arrives at 12:00:30, waits for 140 s until 12:02:50 and ends at 12:03:00 after 10 s of work."""
    found = rows_of(
        spark,
        "service_minute",
        [
            job(150, wait_s=140.0, run_s=10.0),
            job(150, wait_s=140.0, run_s=10.0),
            # A job that never ran: it waited until it expired at 12:01:10.
            job(40, wait_s=None, run_s=None, total_s=50.0, outcome="failed", error="expired", attempts=0),
            # A job whose wait is longer than its wall-clock life, because the clock was set back.
            job(5, service="mail", wait_s=3600.0, run_s=None, queued=at(0)),
        ],
    )
    assert picked(found, "service", "minute", "jobs", "waiting_s", "queue") == [
        ("echo", minute(0), 0, 2 * 30.0 + 40.0, 100 / 60),
        ("echo", minute(1), 1, 2 * 60.0 + 10.0, 130 / 60),
        ("echo", minute(2), 0, 2 * 50.0, 100 / 60),
        ("echo", minute(3), 2, 0.0, 0.0),
        ("mail", minute(0), 1, 5.0, 5 / 60),
    ]
    empty, ended = found[0], found[3]
    assert (empty["error_rate"], empty["wait_p50"], empty["wait_max"], empty["wait_s"]) == (
        None,
        None,
        None,
        0.0,
    )
    assert (ended["wait_p50"], ended["wait_max"], ended["wait_s"]) == (140.0, 140.0, 280.0)


def test_a_wait_over_midnight_is_given_to_both_days(spark: SparkSession) -> None:
    midnight = 12 * 3600 - 30
    found = rows_of(spark, "service_minute", [job(midnight + 20, wait_s=30.0, run_s=0.0)])
    assert picked(found, "day", "jobs", "waiting_s") == [
        (date(2026, 3, 1), 0, 10.0),
        (date(2026, 3, 2), 1, 20.0),
    ]


def test_a_worker_s_minute(spark: SparkSession) -> None:
    """One attempt from 12:00:10 to 12:02:20, a second in parallel from 12:01:00 on; one attempt is lost."""
    found = rows_of(
        spark,
        "worker_minute",
        attempts=[
            attempt(110, run_s=130.0),
            attempt(110, run_s=80.0, lost=True, outcome="worker-lost"),
            attempt(0, run_s=0.0),
            attempt(0, worker="w2", service="mail", run_s=1.5),
        ],
    )
    assert picked(found, "worker", "service", "minute", "jobs", "lost", "busy_s", "utilisation") == [
        ("w1", "echo", minute(0), 1, 0, 50.0, 50 / 60),
        ("w1", "echo", minute(1), 0, 0, 120.0, 2.0),
        ("w1", "echo", minute(2), 1, 1, 40.0, 40 / 60),
        ("w2", "mail", minute(0), 1, 0, 1.5, 1.5 / 60),
    ]


def test_a_client_s_day(spark: SparkSession) -> None:
    found = rows_of(
        spark,
        "client_day",
        [
            job(0, durable=True),
            job(1, durable=True, outcome="dead"),
            job(2),
            job(2, repeat=True, wait_s=None, run_s=None),
            job(2, memo_hit=True, wait_s=None, run_s=None),
            job(3, **WHOLE, durable=True),
            job(3, **PART, run_s=2.0, bytes_in=0),
            job(3, **PART | {"part": 1}, run_s=3.0, bytes_in=0),
            job(4, client="bob", principal="team"),
            job(-86400),
        ],
    )
    names = ("day", "principal", "client", "service", "durable", "jobs", "done", "dead", "repeats", "parts")
    first, second = date(2026, 2, 28), date(2026, 3, 1)
    assert picked(found, *names, "memo_hits") == [
        (first, None, "ada", "echo", False, 1, 1, 0, 0, 0, 0),
        (second, None, "ada", "echo", False, 2, 2, 0, 1, 2, 1),
        (second, None, "ada", "echo", True, 3, 2, 1, 0, 0, 0),
        (second, "team", "bob", "echo", False, 1, 1, 0, 0, 0, 0),
    ]
    assert picked(found[1:3], "run_s", "wait_s", "bytes_in", "bytes_out") == [
        (5.03, 0.01, 300, 5000),
        (0.06, 0.02, 300, 3000),
    ]


def test_outages(spark: SparkSession) -> None:
    bad: dict[str, Any] = {"outcome": "failed", "error": "worker-error"}
    midnight = 12 * 3600 - 30
    found = rows_of(
        spark,
        "outages",
        [
            *[job(at_, **bad) for at_ in (0, 300, 600)],  # exactly at the maximum gap
            job(901, **bad, worker=None),  # just beyond it: another session
            job(902),
            job(903, outcome="cancelled"),
            job(904, outcome="refused"),
            job(905, repeat=True, **bad),
            job(1000, service="mail", worker="w2", outcome="dead", error="retries-exhausted", attempts=2),
            job(midnight - 60, service="night", worker=None, **bad),
            job(midnight - 30, service="night", worker=None, **bad),
            job(midnight + 100, service="night", worker=None, **bad),
        ],
        [
            attempt(990, service="mail", worker="w1", lost=True, outcome="worker-lost"),
            attempt(1000, service="mail", worker="w2", number=2, lost=True, outcome="retries-exhausted"),
            attempt(1000, service="mail", worker="w2"),
        ],
    )
    assert picked(
        found, "what", "name", "duration_s", "failures", "jobs", "lost", "before", "after", "outage"
    ) == [
        ("service", "echo", 600.0, 3, 3, 0, False, False, True),
        ("service", "echo", 0.0, 1, 1, 0, False, False, False),
        ("service", "mail", 10.0, 2, 1, 2, False, False, False),
        ("service", "night", 30.0, 2, 2, 0, False, True, True),
        ("service", "night", 0.0, 1, 1, 0, True, False, True),
        ("worker", "w1", 600.0, 3, 3, 0, False, False, True),
        ("worker", "w1", 0.0, 1, 0, 1, False, False, False),
        ("worker", "w2", 0.0, 1, 1, 1, False, False, False),
    ]
    assert (found[0]["start"], found[0]["end"]) == (at(0).replace(tzinfo=None), at(600).replace(tzinfo=None))
    assert [row["day"].day for row in found[3:5]] == [1, 2]


def test_objectives(spark: SparkSession) -> None:
    """The most specific pattern applies: the exact name, else the longest prefix."""
    found = rows_of(
        spark,
        "slo",
        [
            job(0, total_s=0.1),  # exactly at the limit
            job(0, total_s=0.11),
            job(0, total_s=0.01, outcome="failed"),
            job(0, total_s=0.01, outcome="refused"),
            job(0, total_s=0.01, outcome="cancelled"),
            job(0, total_s=0.01, repeat=True),
            job(0, total_s=9.0, **PART),
            job(0, service="echo2", total_s=0.4),
            job(0, service="mail", total_s=0.9),
        ],
    )
    names = ("service", "objective_s", "objective_share", "jobs", "good", "attainment", "kept", "budget_used")
    assert picked(found, *names) == [
        ("echo", 0.1, 0.5, 4, 1, 0.25, False, 1.5),
        ("echo2", 0.5, 0.9, 1, 1, 1.0, True, 0.0),
        ("mail", 1.0, 0.99, 1, 1, 1.0, True, 0.0),
    ]
    strict = delta(
        TABLES["slo"], silver(spark, [job(0)]), (Objective("ec*", 1.0, 1.0), Objective("x", 1.0, 1.0))
    )
    assert [(row.service, row.budget_used) for row in strict.collect()] == [("echo", None)]


def test_what_memory_saved(spark: SparkSession) -> None:
    hit: dict[str, Any] = {"memo_hit": True, "wait_s": None, "run_s": None, "bytes_out": 7}
    found = rows_of(
        spark,
        "memo_savings",
        [
            *[job(0, run_s=run) for run in (1.0, 2.0)],
            job(0, run_s=50.0, outcome="failed"),
            *[job(0, **hit) for _ in range(4)],
            job(0, service="mail", **hit),
            job(0, service="none", outcome="refused", run_s=None),
        ],
    )
    assert picked(found, "service", "hits", "misses", "hit_rate", "misses_s", "saved_s", "bytes_out") == [
        ("echo", 4, 2, 4 / 6, 3.0, 6.0, 28),
        ("mail", 1, 0, 1.0, 0.0, None, 7),
        ("none", 0, 0, None, 0.0, None, 0),
    ]


def test_dialects(spark: SparkSession) -> None:
    found = rows_of(
        spark,
        "dialect_mix",
        [
            job(0),
            job(0, repeat=True),
            job(0, dialect_in="nfp", **WHOLE),
            job(0, dialect_in="nfp", **PART),
        ],
    )
    assert picked(found, "dialect_in", "dialect_out", "service", "jobs", "bytes_in", "bytes_out") == [
        ("mdp", "mdp", "echo", 2, 200, 2000),
        ("nfp", None, "echo", 1, 100, 1000),
    ]


def anything(dice: random.Random, number: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return jobs of all kinds around two midnights, and their attempts."""
    jobs, attempts = [], []
    for _ in range(number):
        ended = dice.choice((0, 43_170, 43_170, 129_570)) + dice.uniform(-900, 900)
        service, worker = dice.choice(("echo", "mail")), dice.choice(("w1", "w2", None))
        wait = dice.choice((None, 0.0, dice.expovariate(10), dice.expovariate(0.01)))
        run = None if worker is None else dice.choice((dice.expovariate(10), dice.expovariate(0.02)))
        outcome = dice.choice(("done", "done", "failed", "dead", "cancelled", "refused"))
        one = job(
            ended,
            service=service,
            worker=worker,
            wait_s=wait,
            run_s=run,
            outcome=outcome,
            client=dice.choice(("ada", "bob")),
            principal=dice.choice((None, "team")),
            durable=dice.random() < 0.5,
            memo_hit=dice.random() < 0.2,
            repeat=dice.random() < 0.1,
            part=dice.choice((None, None, 1)),
            target=dice.choice(("any", "all")),
            attempts=dice.choice((0, 1, 3)),
            dialect_in=dice.choice(("mdp", "nfp")),
        )
        jobs.append(one)
        if worker is not None and run is not None:
            lost = dice.random() < 0.3
            attempts.append(attempt(ended, service=service, worker=worker, run_s=run, lost=lost))
    return jobs, attempts


def told(table: GoldTable, made: Any) -> list[Any]:
    """Return all rows without the sketches' bytes, in order."""
    names = [column.name for column in table.spec.columns if column.kind != "binary"]
    return sorted((tuple(row) for row in made.select(*names).collect()), key=repr)


@pytest.mark.parametrize("table", GOLD, ids=lambda table: table.spec.name)
def test_in_steps_is_as_in_one(spark: SparkSession, table: GoldTable) -> None:
    """The rows are distributed at random over three batches and an empty one. With so few values sketches are exact, so
    percentiles must agree, too."""
    dice = random.Random(table.spec.name)
    jobs, attempts = anything(dice, 200)
    wanted = told(table, delta(table, silver(spark, jobs, attempts), OBJECTIVES))
    places = [table.spec.names().index(name) for name in table.spec.key]
    assert len({tuple(row[place] for place in places) for row in wanted}) == len(wanted) > 2
    batches: list[tuple[list[Any], list[Any]]] = [([], []) for _ in range(4)]
    for kind, rows in enumerate((jobs, attempts)):
        for row in rows:
            dice.choice(batches[:3])[kind].append(row)
    deltas = [delta(table, silver(spark, *batch), OBJECTIVES) for batch in batches]
    several = reduce(type(deltas[0]).unionByName, deltas)
    assert told(table, table.merge(several)) == wanted
    here = table.merge_here(several.toArrow().cast(columns.schema(table.spec)))
    assert told(table, spark.createDataFrame(here)) == wanted
    if table.spec.order:
        assert here.sort_by([(name, "ascending") for name in table.spec.order]) == here


def test_a_refresh_within_reach_is_as_good_as_all(spark: SparkSession) -> None:
    """Failures on four consecutive days; those of one day arrive later, and only the adjacent days are read."""
    outages = TABLES["outages"]
    bad: dict[str, Any] = {"outcome": "failed", "worker": None}
    midnight = 12 * 3600 - 30
    early = [job(midnight + day * 86400 + off, **bad) for day in range(4) for off in (-200, 50)]
    late = [job(midnight + 2 * 86400 + off, **bad) for off in range(-86000, -300, 250)]
    wanted = told(outages, delta(outages, silver(spark, early + late)))
    old = delta(outages, silver(spark, early)).cache()
    near = [date(2026, 3, 2), date(2026, 3, 3), date(2026, 3, 4)]
    new = delta(outages, silver(spark, late))
    assert {row.day for row in new.select("day").collect()} == {near[1]}
    merged = outages.merge(new.unionByName(old.where(old.day.isin(near))))
    assert told(outages, merged.unionByName(old.where(~old.day.isin(near)))) == wanted
    old.unpersist()


def test_specifications_are_whole() -> None:
    assert len(TABLES) == 7
    for table in GOLD:
        names = table.spec.names()
        assert len(set(names)) == len(names)
        assert {*table.spec.key, table.spec.partition} <= set(names)
        assert table.spec.layer == "gold"
        assert all(column.doc for column in table.spec.columns)
