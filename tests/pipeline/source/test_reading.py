"""Tests of the batch source with a real broker: every table, filter push-down, several partitions, clear errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from polydomo.errors import Unreachable
from polydomo.pipeline import session
from polydomo.pipeline.source import register, tables
from polydomo.pipeline.source.options import reading
from polydomo.pipeline.source.reading import Reader, cut
from polydomo.sdk.sync import SyncClient
from tests.pipeline.source.conftest import DONE, FAILED

NOBODY = "mdp://127.0.0.1:1"


def rows_of(reader: Reader) -> list[dict[str, object]]:
    """Return the broker's rows directly, without Spark's own filters."""
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_every_table_has_what_the_store_has(live):
    jobs = rows_of(Reader(reading({"url": live.url})))
    assert len(jobs) == DONE + FAILED + 2
    assert [job["seq"] for job in jobs] == sorted(job["seq"] for job in jobs)
    assert {job["state"] for job in jobs} == {"done", "failed", "dead"}
    assert all(job["submitted"] <= job["finished"] for job in jobs)

    results = rows_of(Reader(reading({"url": live.url, "table": "results"})))
    doubled = sorted(int(row["result"]) for row in results if row["service"] == "double")
    assert doubled == [2 * number for number in range(DONE)]
    assert [row["result"] for row in results if row["state"] != "done"] == [None] * (FAILED + 1)
    assert {row["error"] for row in results if row["service"] == "fails"} == {"worker-error"}

    (dead,) = rows_of(Reader(reading({"url": live.nfp, "table": "dead"})))
    assert (dead["service"], dead["error"], dead["request"]) == (
        "mortal",
        "retries-exhausted",
        b'"the last words"',
    )

    events = rows_of(Reader(reading({"url": live.url, "table": "events"})))
    assert [(row["service"], row["worker"], row["kind"], row["body"]) for row in events] == [
        ("talks", "anna", "begun", b'"hello"'),
        ("talks", "anna", "ended", b'{"of":"hello"}'),
    ]


def test_small_pages_and_many_partitions_give_the_same_rows(live, monkeypatch):
    whole = rows_of(Reader(reading({"url": live.url})))
    monkeypatch.setattr("polydomo.pipeline.source.reading.WORTH", 10)
    cut_up = Reader(reading({"url": live.url, "page": "3", "partitions": "7"}))
    assert len(cut_up.partitions()) > 2
    assert rows_of(cut_up) == whole


MIDDLE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("service",), "fails")], FAILED),
        ([In(("service",), ("fails", "talks"))], FAILED + 1),
        ([EqualTo(("service",), "double"), EqualTo(("state",), "failed")], 0),
        ([In(("state",), ("failed", "dead"))], FAILED + 1),
        ([EqualTo(("client",), "tester"), EqualTo(("state",), "dead")], 1),
        ([EqualTo(("key",), "none")], 0),
        ([GreaterThan(("submitted",), MIDDLE), EqualTo(("service",), "talks")], 1),
        ([GreaterThanOrEqual(("submitted",), MIDDLE), EqualTo(("service",), "talks")], 1),
        ([LessThan(("submitted",), MIDDLE)], 0),
        ([LessThanOrEqual(("submitted",), MIDDLE)], 0),
    ],
)
def test_the_broker_is_asked_only_for_what_is_wanted(live, filters, expected):
    reader = Reader(reading({"url": live.url}))
    assert list(reader.pushFilters(filters)) == []
    assert len(rows_of(reader)) == expected


def test_what_the_broker_cannot_look_for_is_left_to_spark(live):
    reader = Reader(reading({"url": live.url}))
    left = [IsNotNull(("service",)), EqualTo(("worker",), "anna")]
    assert list(reader.pushFilters(left)) == left
    assert reader.wanted == reading({"url": live.url}).wanted


def test_options_ask_the_broker_too(live):
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for options, expected in (
        ({"service": "fails"}, FAILED),
        ({"state": "failed,dead"}, FAILED + 1),
        ({"client": "tester", "before": soon, "service": "talks"}, 1),
        ({"since": soon}, 0),
    ):
        assert len(rows_of(Reader(reading({"url": live.url, **options})))) == expected


def test_ranges_cover_everything_once():
    for span, most in ((0, 4), (1, 4), (20_000, 4), (20_001, 4), (1_000_003, 7)):
        ranges = cut(10, 10 + span, most)
        assert len(ranges) <= most
        edges = [(one.after, one.until) for one in ranges]
        assert [edge[0] for edge in edges[1:]] == [edge[1] for edge in edges[:-1]]
        assert not edges or (edges[0][0], edges[-1][1]) == (10, 10 + span)


def test_spark_and_arrow_agree_about_the_tables():
    from pyspark.sql.pandas.types import from_arrow_schema

    for table in tables.TABLES.values():
        assert from_arrow_schema(tables.arrow_schema(table)) == tables.spark_schema(table)
        assert isinstance(tables.arrow_schema(table), pa.Schema)


@pytest.mark.spark
def test_spark_reads_and_pushes_filters_down(spark, live, capsys):
    register(spark)
    source = spark.read.format("polydomo").option("url", live.url)
    results = source.option("table", "results").load()
    wanted = results.where("service = 'double' AND submitted > '2026-01-01' AND worker = 'anna'")
    doubled = wanted.select(fn.col("result").cast("string").cast("int").alias("n")).agg(fn.sum("n")).collect()
    assert doubled[0][0] == sum(2 * number for number in range(DONE))
    wanted.explain()
    shown = capsys.readouterr().out
    assert "= anna" in shown  # left to Spark; the other filters were pushed down
    assert "= double" not in shown
    assert "2026-01-01" not in shown
    by_state = {row["state"]: row["count"] for row in source.load().groupBy("state").count().collect()}
    assert by_state == {"done": DONE + 1, "failed": FAILED, "dead": 1}


@pytest.mark.spark
def test_every_session_can_know_the_format_whichever_is_the_threads(spark):
    other = spark.newSession()
    register(other)
    with session.entered(other):
        register(spark)
        register(spark.newSession())
        register(other)


@pytest.mark.spark
def test_errors_come_before_any_task_and_say_what_to_do(spark, live):
    register(spark)

    def read(**options):
        return spark.read.format("polydomo").options(**options).load()

    with pytest.raises(PySparkException, match=r"no table 'job' .option table is one of jobs, results"):
        read(url=live.url, table="job")
    with pytest.raises(
        PySparkException, match=r"cannot reach a broker at mdp://127.0.0.1:1.*check that it is running"
    ):
        read(url=NOBODY, timeout="0.5").count()


def test_an_unreachable_broker_and_one_that_keeps_nothing(live):
    with pytest.raises(
        Unreachable, match=r"cannot reach a broker at mdp://127.0.0.1:1: .*option url gives its address"
    ):
        Reader(reading({"url": NOBODY, "timeout": "0.5"})).partitions()
    with SyncClient(live.url) as client:
        assert client.offered("double")
