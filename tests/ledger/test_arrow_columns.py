"""Ended jobs as columns: what stands in a row for each kind of job."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.core.job_columns import ColumnBuffer
from polydomo.core.model import Job, Worker
from polydomo.core.ports import Journal
from polydomo.core.targets import ALL, Target
from polydomo.core.tracked_job import Options
from polydomo.ledger.arrow_columns import arrow_schema, batch_of, table_of
from polydomo.ledger.job_batch import job_batch
from polydomo.ledger.schema import EVENTS, JOBS
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
        """On two batches, if there are several."""
        half = len(self.jobs) // 2
        parts = [part for part in (self.jobs[:half], self.jobs[half:]) if part]
        table = table_of([job_batch(rows_of(part), EPOCH) for part in parts], "house", "run")
        rows: list[dict[str, Any]] = table.cast(arrow_schema(JOBS)).to_pylist()
        return rows


def rows_of(jobs: list[Job]) -> ColumnBuffer:
    rows = ColumnBuffer(len(jobs))
    for job in jobs:
        rows.add(job)
    return rows


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def ends(bench: Bench) -> Ends:
    bench.broker.accounting.journal = ends = Ends()
    return ends


def at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=EPOCH + seconds)


def test_a_job_that_went_well(bench: Bench, ends: Ends) -> None:
    client = bench.client(b"\x00\xffme")
    bench.broker.advance(1.0)
    client.ask(b"echo", b"12345", b"env")
    bench.broker.advance(1.5)
    worker = bench.worker(b"echo", name=b"w")
    bench.broker.advance(1.75)
    worker.partial(b"part")
    bench.broker.advance(2.0)
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


@pytest.mark.parametrize(
    "owners", [["ann"], ["ann", "ann"], ["ann", "anonymous"], ["ann", "berta", "anonymous", "ann"]]
)
def test_a_job_has_the_principal_that_submitted_it_unless_nobody_authenticated(
    bench: Bench, ends: Ends, owners: list[str]
) -> None:
    worker = bench.worker(b"echo", name=b"w")
    worker.core.principal = bench.broker.principals.get("serving")
    for owner in owners:
        client = bench.client()
        client.core.principal = bench.broker.principals.get(owner)
        client.ask(b"echo")
        worker.answer()
    assert [row["principal"] for row in ends.rows()] == [
        None if owner == "anonymous" else owner for owner in owners
    ]


def test_a_job_that_was_passed_on_counts_for_the_service_that_ended_it(bench: Bench, ends: Ends) -> None:
    first, second = bench.worker(b"first"), bench.worker(b"second", name=b"two")
    bench.broker.advance(1.0)
    bench.client().ask(b"first")
    bench.broker.advance(3.0)
    first.forward(b"second")
    bench.broker.advance(4.0)
    second.answer()
    (row,) = ends.rows()
    assert (row["asked"], row["service"], row["worker"]) == ("first", "second", "two")
    assert (row["waited_us"], row["ran_us"], row["took_us"]) == (0, 1_000_000, 3_000_000)


def test_a_retried_job_waited_until_its_first_dispatch_and_ran_since_its_last(
    bench: Bench, ends: Ends
) -> None:
    client = bench.client()
    bench.broker.advance(1.0)
    client.ask(b"echo")
    bench.broker.advance(2.0)
    lost = bench.worker(b"echo")
    bench.broker.advance(4.0)
    lost.leave()
    bench.broker.advance(5.0)
    worker = bench.worker(b"echo")
    bench.broker.advance(5.5)
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
    bench.broker.accounting.journal = ends = Ends()
    bench.client().ask(b"full")
    (row,) = ends.rows()
    assert (row["outcome"], row["error"]) == ("refused", "queue-full")


def test_jobs_with_options_and_those_without_in_one_batch(bench: Bench, ends: Ends) -> None:
    client = bench.client()
    worker = bench.worker(b"echo")
    bench.broker.advance(1.0)
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


def test_rows_that_were_made_otherwise_are_the_same(bench: Bench, ends: Ends) -> None:
    worker = bench.worker(b"echo")
    bench.client().ask(b"echo")
    worker.answer()
    (row,) = ends.rows()
    micros = {
        name: (value - at(-EPOCH)) // timedelta(microseconds=1) if isinstance(value, datetime) else value
        for name, value in row.items()
    }
    assert pyarrow.Table.from_batches([batch_of(JOBS, [micros], "house", "run")]).to_pylist() == [row]


def test_jobs_of_different_peers_on_different_batches(bench: Bench, ends: Ends) -> None:
    workers = [bench.worker(b"one", name=b"w1"), bench.worker(b"two", name=b"w2")]
    for client, number in ((b"a", 0), (b"b", 1), (b"b", 0), (b"c", 1)):
        bench.client(client).ask((b"one", b"two")[number])
        workers[number].answer()
    assert [(row["client"], row["service"], row["worker"]) for row in ends.rows()] == [
        ("a", "one", "w1"),
        ("b", "two", "w2"),
        ("b", "one", "w1"),
        ("c", "two", "w2"),
    ]


def test_a_clock_that_steps_moves_only_the_batches_behind_it(bench: Bench, ends: Ends) -> None:
    worker = bench.worker(b"echo")
    for now in (1.0, 2.0):
        bench.broker.advance(now)
        bench.client().ask(b"echo")
        worker.answer()
    batches = [job_batch(rows_of([job]), EPOCH + 100 * place) for place, job in enumerate(ends.jobs)]
    table = table_of(batches, "house", "run")
    assert table["finished"].to_pylist() == [at(1.0), at(102.0)]
    assert table["took_us"].to_pylist() == [0, 0]


KINDS = st.sampled_from(["plain", "partial", "keyed", "deadline", "forwarded", "refused", "lost", "all"])


@settings(max_examples=30, deadline=None)
@given(kinds=st.lists(KINDS, min_size=1, max_size=12), cuts=st.sets(st.integers(1, 20), max_size=4))
def test_how_jobs_are_put_on_batches_makes_no_difference(kinds: list[str], cuts: set[int]) -> None:
    bench = Bench()
    bench.broker.accounting.journal = ends = Ends()
    for number, kind in enumerate(kinds):
        bench.broker.advance(bench.broker.now + 0.25)
        _live_through(bench, kind, number)
    assert len(ends.jobs) >= len(kinds)
    whole = table_of([job_batch(rows_of(ends.jobs), EPOCH)], "house", "run")
    places = [0, *sorted(cut for cut in cuts if cut < len(ends.jobs)), len(ends.jobs)]
    parts = [ends.jobs[begin:end] for begin, end in pairwise(places)]
    several = table_of([job_batch(rows_of(part), EPOCH) for part in parts], "house", "run")
    assert several.cast(arrow_schema(JOBS)).to_pylist() == whole.cast(arrow_schema(JOBS)).to_pylist()
    singly = [table_of([job_batch(rows_of([job]), EPOCH)], "house", "run") for job in ends.jobs]
    rows = [table.cast(arrow_schema(JOBS)).to_pylist()[0] for table in singly]
    assert rows == whole.cast(arrow_schema(JOBS)).to_pylist()


def _live_through(bench: Bench, kind: str, number: int) -> None:
    """One job of a client of its own, to its end."""
    client = bench.client(b"c%d" % (number % 3))
    service = b"echo%d" % (number % 2)
    if kind == "refused":
        client.ask(b"")
        return
    worker = bench.worker(service, name=b"w%d" % number)
    if kind == "keyed":
        bench.broker.submit(client.core, service, b"body", b"", Options(key=b"k%d" % number, priority=2))
    elif kind == "deadline":
        bench.broker.submit(client.core, service, b"body", b"", Options(deadline=5.0, uid=f"mine-{number}"))
    elif kind == "all":
        bench.broker.submit(client.core, service, b"body", b"", Options(target=Target(ALL)))
    else:
        client.ask(service, b"x" * number)
    bench.broker.advance(bench.broker.now + 0.125)
    if kind == "partial":
        worker.partial(b"part")
    elif kind == "forwarded":
        worker.forward(b"other")
        worker.leave()
        worker = bench.worker(b"other", name=b"o%d" % number)
    elif kind == "lost":
        worker.leave()
        worker = bench.worker(service, name=b"v%d" % number)
    bench.broker.advance(bench.broker.now + 0.125)
    worker.answer(b"\x00\x01a")
    worker.leave()


def test_pandas_is_not_loaded_even_if_it_is_there() -> None:
    """Arrow asks it about values that it is to look at itself; a broker has no other use for it."""
    code = """
import sys
from polydomo.core.job_columns import FIELDS
from polydomo.ledger.arrow_columns import batch_of, table_of
from polydomo.ledger.schema import EVENTS
from polydomo.ledger.job_batch import JobBatch, Overrides, PeerName
row = {"event_id": "e1", "at": 1, "kind": "joined", "role": "worker"}
assert batch_of(EVENTS, [row], "house", "run").num_rows == 1
fields = {name: bytes(int(kind[2:])) for name, kind in FIELDS.items()}
overrides = Overrides()
overrides.add("key", 0, "k")
overrides.add("job_id", 0, "j")
overrides.add("priority", 0, 1)
batch = JobBatch(1, fields, 0.0, ["s"], [PeerName("c", "mdp", "p")], [PeerName("w", "mdp", None)], overrides)
assert table_of([batch], "house", "run").num_rows == 1
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_text_that_is_no_unicode_is_no_reason_to_stop() -> None:
    batch = batch_of(
        EVENTS, [{"event_id": "e1", "at": 1, "kind": "denied", "peer": "a\udcff"}], "house", "run"
    )
    assert batch.to_pylist()[0]["peer"] == "a\\udcff"
