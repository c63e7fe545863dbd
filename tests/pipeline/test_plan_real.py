"""Test of the planner's model against a real broker: a short version of bench/plan.py."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))  # a folder of scripts, not a package

bench = importlib.import_module("plan")


@pytest.mark.slow
def test_a_replay_waits_as_the_brokers_jobs_did(tmp_path: Path) -> None:
    """Bursts at eight workers. The run's own arrivals and run times are replayed, so that a busy machine affects the
    replay as well."""
    came, naps = bench.workload("bursty", 1500, 8.0, 8, seed=1)
    run = bench.run(tmp_path / "data", came, naps, 8)
    measured = float(np.quantile(run.waited, 0.95))
    assert measured > 0.1  # there was a queue
    assert bench.p95_by_replay(run, 8) == pytest.approx(measured, rel=0.25)
    # With one worker more or less the replay gives another result, so the agreement is not by chance.
    assert bench.p95_by_replay(run, 6) > 1.5 * measured
    assert bench.p95_by_replay(run, 12) < measured / 1.5


@pytest.mark.parametrize("name", bench.WORKLOADS)
def test_workloads_are_as_long_and_as_heavy_as_they_should_be(name: str) -> None:
    came, naps = bench.workload(name, 5000, 80.0, 24, seed=1)
    assert len(came) == len(naps) == 5000
    assert (np.diff(came) >= 0).all()
    assert came[-1] == pytest.approx(80.0)
    assert naps.min() >= bench.SHORTEST
    assert naps.sum() / (24 * 80.0) == pytest.approx(bench.LOAD, rel=0.02)
    fastest = np.histogram(came, 80)[0].max()
    assert (fastest > 2 * 5000 / 80) == (name == "bursty")
    assert (naps.max() > 20 * naps.mean()) == (name == "heavy-tailed")
