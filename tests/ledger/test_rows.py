"""Ended jobs as columns: what stands in a row for each kind of job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow
import pytest

from polydomo.core.columns import Rows
from polydomo.core.extras import Options
from polydomo.core.job import Job
from polydomo.core.ports import Journal
from polydomo.core.targets import ALL, Target
from polydomo.core.worker import Worker
from polydomo.ledger.rows import arrow_schema, batch_of, batch_of_rows, outcome, text, with_ids
from polydomo.ledger.schema import JOBS
from tests.support.core import Bench

EPOCH = 1_700_000_000.0


class Ends(Journal):
    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def finished(self, job: Job) -> None:
        self.jobs.append(job)

    def event(self, kind: str, worker: Worker, reason: str) -> None:
        pass

    def rows(self) -> list[dict[str, Any]]:
        batch = batch_of(rows_of(self.jobs), EPOCH, "house", "run")
        table = with_ids(pyarrow.Table.from_batches([batch]), "run").cast(arrow_schema(JOBS))
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows


def rows_of(jobs: list[Job]) -> Rows:
    rows = Rows(len(jobs))
    for job in jobs:
        rows.add(job)
    return rows


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def ends(bench: Bench) -> Ends:
    bench.broker.journal = ends = Ends()
    return ends


def at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=EPOCH + seconds)


def test_a_job_that_went_well(bench: Bench, ends: Ends) -> None:
    client = bench.client(b"\x00\xffme")
    bench.broker.now = 1.0
    client.ask(b"echo", b"12345", b"env")
    bench.broker.now = 1.5
    worker = bench.worker(b"echo", name=b"w")
    bench.broker.now = 1.75
    worker.partial(b"part")
    bench.broker.now = 2.0
    worker.answer(b"answer")
    (row,) = ends.rows()
    assert row == {
        "job_id": "run-1",
        "parent": None,
        "part": None,
        "key": None,
        "service": "echo",
        "asked": "echo",
        "dialect_in": "fake",
        "dialect_out": "fake",
        "client": "0x00ff6d65",
        "principal": None,
        "worker": "w",
        "broker": "house",
        "run": "run",
        "target": "any",
        "submitted": at(1.0),
        "queued": at(1.0),
        "dispatched": at(1.5),
        "first_partial": at(1.75),
        "finished": at(2.0),
        "outcome": "done",
        "error": None,
        "attempts": 1,
        "partials": 1,
        "bytes_in": 8,
        "bytes_out": 10,
        "durable": False,
        "memo_hit": False,
        "repeat": False,
        "priority": 0,
        "deadline": None,
        "waited_us": 500_000,
        "ran_us": 500_000,
        "took_us": 1_000_000,
        "rebuilt": False,
    }


def test_a_job_that_was_passed_on_counts_for_the_service_that_ended_it(bench: Bench, ends: Ends) -> None:
    first, second = bench.worker(b"first"), bench.worker(b"second", name=b"two")
    bench.broker.now = 1.0
    bench.client().ask(b"first")
    bench.broker.now = 3.0
    first.forward(b"second")
    bench.broker.now = 4.0
    second.answer()
    (row,) = ends.rows()
    assert (row["asked"], row["service"], row["worker"]) == ("first", "second", "two")
    assert (row["waited_us"], row["ran_us"], row["took_us"]) == (0, 1_000_000, 3_000_000)


def test_a_retried_job_waited_until_its_first_dispatch_and_ran_since_its_last(
    bench: Bench, ends: Ends
) -> None:
    client = bench.client()
    bench.broker.now = 1.0
    client.ask(b"echo")
    bench.broker.now = 2.0
    lost = bench.worker(b"echo")
    bench.broker.now = 4.0
    lost.leave()
    bench.broker.now = 5.0
    worker = bench.worker(b"echo")
    bench.broker.now = 5.5
    worker.answer()
    (row,) = ends.rows()
    assert (row["attempts"], row["waited_us"], row["ran_us"]) == (2, 1_000_000, 500_000)


def test_a_job_that_nobody_took(bench: Bench, ends: Ends) -> None:
    bench.client().ask(b"nobody")
    bench.at(61.0)
    (row,) = ends.rows()
    assert (row["outcome"], row["error"], row["attempts"]) == ("failed", "expired", 0)
    assert row["worker"] is row["dispatched"] is row["waited_us"] is row["ran_us"] is None
    assert row["took_us"] >= 60_000_000


def test_a_job_that_was_refused() -> None:
    bench = Bench(queue=0)
    bench.broker.journal = ends = Ends()
    bench.client().ask(b"full")
    (row,) = ends.rows()
    assert (row["outcome"], row["error"]) == ("refused", "queue-full")


def test_jobs_with_options_and_those_without_in_one_batch(bench: Bench, ends: Ends) -> None:
    client = bench.client()
    worker = bench.worker(b"echo")
    bench.broker.now = 1.0
    client.ask(b"echo")
    worker.answer()
    options = Options(key=b"key", deadline=10.0, uid="mine", priority=3)
    bench.broker.submit(client.core, b"echo", b"body", b"", options)
    follower = bench.client()
    bench.broker.submit(follower.core, b"echo", b"body", b"", Options(key=b"key"))
    worker.answer()
    plain, keyed, repeated = ends.rows()
    assert (plain["job_id"], plain["key"], plain["deadline"]) == ("run-1", None, None)
    assert (keyed["job_id"], keyed["key"], keyed["priority"]) == ("mine", "key", 3)
    assert keyed["deadline"] == at(11.0)
    assert not keyed["repeat"]
    assert repeated["repeat"]
    assert repeated["key"] == "key"


def test_a_job_for_all_workers_has_a_row_for_each_part(bench: Bench, ends: Ends) -> None:
    one, two = bench.worker(b"echo", name=b"one"), bench.worker(b"echo", name=b"two")
    bench.broker.submit(bench.client().core, b"echo", b"body", b"", Options(uid="whole", target=Target(ALL)))
    one.answer(b"\x00\x01a")
    two.answer(b"\x00\x01b")
    rows = {row["job_id"]: row for row in ends.rows()}
    assert set(rows) == {"whole", "whole/0", "whole/1"}
    assert rows["whole"]["target"] == "all"
    assert rows["whole"]["part"] is None
    assert {rows[f"whole/{part}"]["worker"] for part in (0, 1)} == {"one", "two"}
    assert {(rows[f"whole/{part}"]["parent"], rows[f"whole/{part}"]["part"]) for part in (0, 1)} == {
        ("whole", 0),
        ("whole", 1),
    }


@pytest.mark.parametrize(
    ("reason", "durable", "expected"),
    [
        ("worker-error", True, "failed"),
        ("retries-exhausted", True, "dead"),
        ("retries-exhausted", False, "failed"),
        ("cancelled", True, "cancelled"),
        ("cancelled", False, "cancelled"),
        ("queue-full", False, "refused"),
        ("deadline", False, "failed"),
    ],
)
def test_how_a_job_ended(reason: str, durable: bool, expected: str) -> None:
    assert outcome(reason, durable) == expected


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"plain", "plain"),
        ("größe".encode(), "größe"),
        (b"", ""),
        (b"\x00\x80", "0x0080"),
        (b"line\nbreak", "0x6c696e650a627265616b"),
        (b"\xff\xfe", "0xfffe"),
    ],
)
def test_names_of_peers_are_readable_and_never_ambiguous_bytes(name: bytes, shown: str) -> None:
    assert text(name) == shown


def test_rows_that_were_made_otherwise_fit_into_the_same_segment(bench: Bench, ends: Ends) -> None:
    worker = bench.worker(b"echo")
    bench.client().ask(b"echo")
    worker.answer()
    live = batch_of(rows_of(ends.jobs), EPOCH, "house", "run")
    made = batch_of_rows([with_ids(pyarrow.Table.from_batches([live]), "run").to_pylist()[0]])
    table = with_ids(pyarrow.Table.from_batches([live, made]), "run").cast(arrow_schema(JOBS))
    assert table.to_pylist()[0] == table.to_pylist()[1]
