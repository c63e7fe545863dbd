"""Tests of bulk calls from Spark: bodies, keys, results and columns; errors are raised on the driver."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import functions as fn

from polydomo.errors import ConfigError
from polydomo.pipeline.bulk import COLUMNS, address, call
from polydomo.pipeline.bulk_progress import Progress, Tally, watch
from polydomo.sdk.sync import SyncWorker
from tests.support.broker import BrokerProcess

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with BrokerProcess() as broker:
        place = broker.endpoint.replace("tcp", "mdp")
        worker = SyncWorker(place.replace("mdp", "dcp"), concurrency=8)
        worker.add("echo", bytes, codec="raw")
        worker.add("size", len)
        worker.add("odd", lambda body: body if body["id"] % 2 else [1, 2])
        with worker:
            yield place


@pytest.mark.spark
def test_bodies_and_results_of_every_kind(spark, url):
    rows = spark.range(0, 4, 1, 2).selectExpr("id", "concat('t', id) AS text", "array(id, null) AS list")
    for body, decode, expected in (
        (None, "text", '{"id":2,"text":"t2","list":[2,null]}'),
        ("text", "text", "t2"),
        (fn.encode("text", "UTF-8"), "binary", bytearray(b"t2")),
        ("list", "array<int>", [2, None]),
        ("id", "bigint", 2),
        (fn.struct("id"), "id bigint, gone string", (2, None)),
        (fn.struct("id"), "frames", [bytearray(b'{"id":2}')]),
    ):
        found = call(rows, "echo", body, url=url, decode=decode).where("id = 2").collect()
        assert [row["outcome"] for row in found] == ["done"]
        result = found[0]["result"]
        assert (tuple(result) if isinstance(expected, tuple) else result) == expected


@pytest.mark.spark
def test_rows_keep_their_columns_and_a_result_of_another_kind_is_a_failure(spark, url):
    rows = spark.range(4).withColumn("outcome", fn.lit("mine"))
    named = call(rows, "odd", fn.struct("id"), url=url, prefix="call_", decode="id int", key="id", run="a/b")
    assert named.columns == ["id", "outcome", *(f"call_{name}" for name, _, _ in COLUMNS)]
    found = {row["id"]: row for row in named.collect()}
    assert {row["outcome"] for row in found.values()} == {"mine"}
    assert (found[1]["call_outcome"], found[1]["call_result"]["id"]) == ("done", 1)
    assert (found[2]["call_outcome"], found[2]["call_error"]) == ("failed", "not-decoded")
    assert found[2]["call_message"] == "the result is not struct<id:int> in JSON: [1,2]"
    # Another program with the same run finds the same jobs.
    again = {
        row["id"]: row["submitted"]
        for row in call(spark.range(4), "odd", fn.struct("id"), url=url, key=["id"], run="a/b").collect()
    }
    assert again == {number: row["call_submitted"] for number, row in found.items()}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "memo://127.0.0.1:1"}, "MemoDB has no durable jobs (give the broker's ZeroMQ address"),
        ({"url": "tcp://x"}, "'tcp://x' is not a broker's URL"),
        ({"service": ""}, "a service name has 1 to 255 bytes"),
        ({"run": "no blanks"}, "run='no blanks' is not a valid run name"),
        ({"window": 0}, "window=0: must be between 1 and 1000"),
        ({"timeout": -1}, "timeout=-1: must be a positive number of seconds"),
        ({"patience": 0}, "patience=0: must be a positive number"),
        ({"deadline": 5, "durable": False}, "deadline= requires NFP"),
        ({"decode": "jsn"}, "decode='jsn' is not a type"),
        ({"key": []}, "at least one key column is required"),
        ({"body": fn.current_date}, "a column of type date cannot be sent (put it into a struct"),
        ({"rows": "result"}, "already have columns named result (rename them, or give a prefix="),
    ],
)
def test_what_is_wrong_is_said_at_once(spark, options, said):
    given = {"service": "echo", "body": "id", **options}
    rows = spark.range(1).withColumnRenamed("id", given.pop("rows", "id"))
    if rows.columns != ["id"]:
        given["body"] = None
    if callable(given["body"]):
        given["body"] = given["body"]()
    with pytest.raises(ConfigError) as error:
        call(rows, **given)
    assert said in str(error.value)


def test_the_dialect_is_one_that_can_say_what_is_asked_for(monkeypatch):
    monkeypatch.setenv("POLYDOMO_URL", "mdp://h:1,i:2")
    assert address(None, durable=True) == "nfp://h:1,i:2"
    assert address(None, durable=False) == "mdp://h:1,i:2"
    assert address("dcp+ipc:///x", durable=True) == "nfp+ipc:///x"
    assert address("nfp://h", durable=False) == "dcp://h"
    assert address("memo://h", durable=False) == "memo://h"


def test_progress_counts_each_partition_once():
    tally = Tally("r", total=100)

    def client(name: str, submitted: int, unanswered: int) -> dict[str, object]:
        return {"name": name, "submitted": submitted, "unanswered": unanswered}

    first = tally.add(
        [client("r.0.0", 20, 5), client("r.1.0", 10, 10), client("r2.0.0", 9, 0), client("r", 1, 0)]
    )
    assert first[:4] == ("r", 15, 15, 2)
    second = tally.add([client("r.0.1", 8, 2), client("r.1.0", 30, 0)])  # the first task was retried
    assert second[:4] == ("r", 45, 2, 2)
    assert str(Progress("r", 45, 2, 2, 9.0, 100)) == "r: 45 of 100 (45%) rows, 5/s, 2 under way, 2 tasks"


@pytest.mark.spark
def test_an_action_can_be_watched(spark, url):
    seen: list[Progress] = []
    rows = call(spark.range(0, 3000, 1, 2), "echo", "id", url=url, run="watched")
    with watch("watched", url, total=3000, every=0.02, show=seen.append):
        rows.write.format("noop").mode("overwrite").save()
    assert seen
    assert 0 < max(one.rows for one in seen) <= 3000


@pytest.mark.spark
@pytest.mark.slow
def test_every_row_is_run_once_with_workers_killed_and_a_task_repeated(no_java, tmp_path):
    """A small version of `python bench/bulk.py --check`, which uses 100,000 rows."""
    out = tmp_path / "found.json"
    command = [sys.executable, str(BENCH / "bulk.py"), "--check", "--rows", "3000", "--json", str(out)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    found = json.loads(out.read_text())
    assert found["executions"] == found["different rows"] == 2700
    assert (found["rows"], found["done"], found["wrong results"]) == (3000, 3000, 0)
    assert found["workers killed"] > 0
    assert found["tasks repeated"] == 2


def test_the_benchmark_sends_the_rows_that_spark_sends():
    sys.path.insert(0, str(BENCH))
    peers = importlib.import_module("bulk_peers")
    assert peers.body_of(7) == b'{"id":7,"text":"row 7"}'
