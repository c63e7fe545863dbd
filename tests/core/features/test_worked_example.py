"""The contributing guide's example of a feature keeps its promise, is short, and is what the guide shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from polydomo.core.states import DELAYED, RUNNING, WAITING
from tests.core.features import night_only
from tests.core.features.night_only import NightOnly
from tests.support.core import Bench
from tests.support.invariants import check

HOUR = 3600.0
SOURCE = Path(night_only.__file__).read_text()


@pytest.fixture
def bench() -> Bench:
    """A broker at noon whose service `batch` runs at night."""
    bench = Bench(wait=12 * HOUR, timeout=HOUR)
    bench.broker.add_feature(lambda tracking: NightOnly(tracking, {b"batch"}))
    bench.jump(12 * HOUR)
    return bench


def test_a_job_waits_for_the_night(bench: Bench) -> None:
    worker, client = bench.worker(b"batch"), bench.client()
    job = client.ask(b"batch")
    assert job is not None
    assert job.state == DELAYED
    check(bench.broker)
    bench.at(22 * HOUR - 1, worker)
    assert worker.jobs == []
    bench.at(22 * HOUR, worker)
    assert (worker.jobs, job.state) == ([job.id], RUNNING)
    worker.answer(b"done")
    assert client.finals() == [b"done"]
    check(bench.broker)


def test_at_night_it_runs_at_once_and_other_services_always_do(bench: Bench) -> None:
    worker, client = bench.worker(b"batch", b"other"), bench.client()
    client.ask(b"other")
    worker.answer()
    bench.at(23 * HOUR, worker)
    client.ask(b"batch")
    worker.answer()
    assert len(client.finals()) == 2


def test_what_no_worker_took_waits_for_the_next_night(bench: Bench) -> None:
    client = bench.client()
    bench.at(23 * HOUR)
    job = client.ask(b"batch")
    assert job is not None
    assert job.state == WAITING
    bench.at(30 * HOUR)
    assert job.state == DELAYED
    worker = bench.worker(b"batch")
    bench.at(45 * HOUR, worker)
    assert worker.jobs == []
    bench.at(46 * HOUR, worker)
    assert worker.jobs == [job.id]


def test_a_held_job_can_be_cancelled(bench: Bench) -> None:
    client = bench.client()
    job = client.ask(b"batch")
    assert job is not None
    assert bench.broker.cancel(job)
    assert client.reasons() == ["cancelled"]
    check(bench.broker)


def test_it_is_one_file_of_less_than_sixty_lines_of_code() -> None:
    lines = [
        line for line in SOURCE.splitlines() if line.strip() and not line.strip().startswith(('"""', "#"))
    ]
    assert len(lines) < 60


def test_the_guide_shows_it_as_it_is() -> None:
    guide = Path(__file__).parents[3] / "CONTRIBUTING.md"
    assert SOURCE in guide.read_text()
