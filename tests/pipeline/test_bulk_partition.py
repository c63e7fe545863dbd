"""Tests of one partition of a bulk call with a real broker, without Spark: all outcomes of a row, and all losses."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from polydomo.pipeline.bulk import COLUMNS
from polydomo.pipeline.bulk_partition import BODY, KEY, Order, Partition
from polydomo.sdk.sync import SyncWorker
from polydomo.sdk.testing import SyncLocalBroker
from tests.support.broker import BrokerProcess, wait_for

TOML = """
[services.mortal]
timeout = "200ms"
retries = 0
[services.narrow]
queue = 2
"""


class Crew:
    """Workers that count their executions."""

    def __init__(self) -> None:
        self.done: Counter[Any] = Counter()

    def count(self, body: Any) -> Any:
        self.done[json.dumps(body)] += 1
        return body

    def fails(self, body: Any) -> None:
        self.done[json.dumps(body)] += 1
        raise ValueError(f"no {body}")

    async def slow(self, body: Any) -> Any:
        await asyncio.sleep(1.5)
        return self.count(body)


@pytest.fixture
def crew() -> Crew:
    return Crew()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml=TOML) as started:
        yield started


@pytest.fixture
def worker(broker: BrokerProcess, crew: Crew) -> Iterator[SyncWorker]:
    made = SyncWorker(place(broker, "dcp"), concurrency=32)
    made.add("count", crew.count)
    made.add("fails", crew.fails)
    made.add("mortal", crew.slow)
    made.add("narrow", crew.count)
    with made:
        yield made


def place(broker: BrokerProcess, dialect: str) -> str:
    return broker.endpoint.replace("tcp", dialect)


def order(broker: BrokerProcess, service: str, run: str, **more: Any) -> Order:
    usual: dict[str, Any] = {
        "durable": True,
        "window": 16,
        "timeout": 30.0,
        "patience": 20.0,
        "frames": False,
    }
    url = place(broker, "nfp")
    return Order(**{"url": url, "service": service, "run": run} | usual | more)


def batch(bodies: Iterable[Any], keys: Iterable[str | None] | None = None) -> pa.RecordBatch:
    sent = [None if body is None else json.dumps(body).encode() for body in bodies]
    known = [None] * len(sent) if keys is None else [key and key.encode() for key in keys]
    return pa.RecordBatch.from_pydict(
        {
            "n": pa.array(range(len(sent))),
            BODY: pa.array(sent, pa.binary()),
            KEY: pa.array(known, pa.binary()),
        }
    )


def run(asked: Order, *batches: pa.RecordBatch, attempt: int = 0) -> list[dict[str, Any]]:
    return [row for out in Partition(asked, 0, attempt).run(batches) for row in out.to_pylist()]


def test_rows_come_back_in_order_with_all_that_is_known(broker, worker, crew, monkeypatch):
    monkeypatch.setattr("polydomo.pipeline.bulk_partition.PIECE", 7)
    rows = run(order(broker, "count", "r1"), batch(range(50)), batch(range(50, 60)))
    assert [json.loads(row["result"]) for row in rows] == list(range(60))
    assert {(row["outcome"], row["error"], row["message"], row["attempts"]) for row in rows} == {
        ("done", None, None, 1)
    }
    assert all(row["submitted"] <= row["finished"] for row in rows)
    assert list(rows[0]) == ["n", *(name for name, _, _ in COLUMNS)]
    assert crew.done == Counter(str(number) for number in range(60))


def test_a_repeated_task_finds_the_jobs_of_the_first_and_same_rows_are_one_job(broker, worker, crew):
    asked = order(broker, "count", "r2")
    first = run(asked, batch([1, 2, 3, 1, 2]))
    again = run(asked, batch([1, 2, 3, 4]), attempt=1)
    assert [json.loads(row["result"]) for row in [*first, *again]] == [1, 2, 3, 1, 2, 1, 2, 3, 4]
    assert [row["submitted"] for row in again[:3]] == [row["submitted"] for row in first[:3]]
    assert [row["attempts"] for row in again] == [1, 1, 1, 1]
    assert crew.done == Counter({"1": 1, "2": 1, "3": 1, "4": 1})
    run(order(broker, "count", "another run"), batch([1]))
    assert crew.done["1"] == 2


def test_failures_are_rows(broker, worker, crew):
    (failed, *_) = rows = run(order(broker, "fails", "r3"), batch([1, 2]))
    assert (failed["outcome"], failed["error"], failed["result"]) == ("failed", "worker-error", None)
    assert failed["message"] == "ValueError: no 1"
    assert run(order(broker, "fails", "r3"), batch([1, 2])) == rows  # failures are stored as well
    (dead,) = run(order(broker, "mortal", "r3"), batch([1]))
    assert (dead["outcome"], dead["error"], dead["attempts"]) == ("dead", "retries-exhausted", 1)


def test_two_rows_with_one_key(broker, worker, crew):
    rows = run(order(broker, "count", "r4"), batch([1, 1, 2, 3], ["a", "a", "a", "b"]))
    assert [row["outcome"] for row in rows] == ["done", "done", "refused", "done"]
    assert rows[2]["error"] == "duplicate-id"
    assert crew.done == Counter({"1": 1, "3": 1})


def test_nobody_offers_the_service(broker, worker):
    rows = run(order(broker, "nobody", "r5", patience=0.4), batch(range(3)))
    assert {(row["outcome"], row["error"], row["submitted"]) for row in rows} == {
        ("refused", "unknown-service", None)
    }
    assert "no worker offered 'nobody' for 0.4 s" in rows[0]["message"]


def test_a_row_whose_time_is_over_can_be_had_later(broker, crew):
    made = SyncWorker(place(broker, "dcp"))
    made.add("slow", crew.slow)
    with made:
        (late,) = run(order(broker, "slow", "r6", timeout=0.3), batch([1]))
        assert (late["outcome"], late["error"]) == ("timeout", "timeout")
        (had,) = run(order(broker, "slow", "r6"), batch([1]))
    assert (had["outcome"], had["result"]) == ("done", b"1")
    assert crew.done == Counter({"1": 1})


def test_a_full_queue_is_no_failure(broker, worker, crew):
    rows = run(order(broker, "narrow", "r7", window=64), batch(range(200)))
    assert {row["outcome"] for row in rows} == {"done"}
    assert sum(crew.done.values()) == 200


def test_a_broker_that_keeps_nothing_is_refused_unless_that_is_wanted(broker, crew):
    with SyncLocalBroker() as memory:
        made = SyncWorker(memory.url_for("dcp"), concurrency=8)
        made.add("count", crew.count)
        with made:
            (row,) = run(order(broker, "count", "r8", url=memory.url_for("nfp")), batch([1]))
            assert (row["outcome"], row["error"]) == ("refused", "not-kept")
            assert "durable=False" in row["message"]
            for dialect in ("mdp", "dcp"):
                asked = order(broker, "count", "r8", durable=False, url=memory.url_for(dialect))
                rows = run(asked, batch(range(30)))
                assert [json.loads(row["result"]) for row in rows] == list(range(30))
                assert {row["attempts"] for row in rows} == {None}


@pytest.mark.parametrize("durable", [True, False])
def test_no_broker_for_longer_than_patience(durable):
    asked = Order(
        "nfp://127.0.0.1:1" if durable else "dcp://127.0.0.1:1", "x", "r", durable, 4, 5.0, 0.4, False
    )
    rows = run(asked, batch(range(20)))
    assert {(row["outcome"], row["error"]) for row in rows} == {("unreachable", "unreachable")}
    assert "no broker for 0.4 s" in rows[0]["message"]


def test_a_broker_that_comes_late_and_is_killed_on_the_way(crew):
    with BrokerProcess() as broker:
        made = SyncWorker(place(broker, "nfp"), name="anna", concurrency=4)
        made.add("count", crew.count)
        asked = order(broker, "count", "r9", patience=60.0)
        broker.kill()
        found: list[dict[str, Any]] = []
        task = threading.Thread(target=lambda: found.extend(run(asked, batch(range(1500)))))
        task.start()
        broker.start_again()
        with made:
            wait_for(lambda: sum(crew.done.values()) > 200, 60)
            broker.kill()
            broker.start_again()
            task.join(90)
    assert [json.loads(row["result"]) for row in found] == list(range(1500))
    assert len(crew.done) == 1500


def test_a_deadline_is_the_brokers_and_needs_an_object_to_stand_in(broker, worker, crew):
    asked = order(broker, "count", "r11", deadline=20.0)
    rows = run(asked, batch([{"n": 1}, [2]]))
    assert [(row["outcome"], row["error"]) for row in rows] == [("done", None), ("refused", "body")]
    assert "must be a JSON object" in rows[1]["message"]
    assert crew.done == Counter(
        {'{"n": 1, "options": {"deadline": 20.0}}': 1}
    )  # visible to a worker of another dialect
    made = SyncWorker(place(broker, "dcp"))
    made.add("slow", crew.slow)
    with made:
        (late,) = run(order(broker, "slow", "r11", deadline=0.3), batch([{"n": 1}]))
    assert (late["outcome"], late["error"]) == ("failed", "deadline")


def test_large_results_come_in_small_pieces(broker, worker, monkeypatch):
    monkeypatch.setattr("polydomo.pipeline.bulk_partition.PIECE_BYTES", 4000)
    rows = batch("x" * 200 for _ in range(60))
    sizes = [out.num_rows for out in Partition(order(broker, "count", "r12"), 0, 0).run([rows])]
    assert sum(sizes) == 60
    assert max(sizes) < 20
    assert min(sizes) < sizes[0]  # pieces shrink when the results turn out to be large


def test_frames(broker, worker):
    made = SyncWorker(place(broker, "dcp"))
    made.add("several", lambda body: [b"a", b"b"], codec="raw")
    with made:
        (row,) = run(order(broker, "several", "r10", frames=True), batch([1]))
    assert row["result"] == [b"a", b"b"]
