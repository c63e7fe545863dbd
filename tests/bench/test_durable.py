"""Tests of bench/durable.py: it runs and summarises correctly. Nothing here asserts a speed."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

durable = importlib.import_module("durable")


def sample(rps):
    return durable.Sample(rps, 1.0, 2.0, 10.0, 100.0, 0.1)


def test_ratios_are_taken_within_a_round():
    samples = {
        "memory": [sample(1000), sample(250), sample(1100)],
        "durable": [sample(200), sample(50), sample(110)],
        "alone": [sample(20), sample(10), sample(22)],
    }
    shared, memory = durable.ratios(samples)
    assert (shared.way, shared.other, shared.least) == ("durable", "alone", 5)
    assert (shared.median, shared.lowest, shared.highest) == (5.0, 5.0, 10.0)
    assert (memory.other, memory.median) == ("memory", pytest.approx(0.2))
    assert shared.reached
    assert memory.reached


@pytest.mark.slow
def test_it_runs(tmp_path):
    options = [
        "--rounds",
        "1",
        "--seconds",
        "1",  # on a busy machine, a commit per job may take long
        "--warmup",
        "0.5",
        "--outstanding",
        "50",
        "--workers",
        "4",
    ]
    done = subprocess.run(
        [
            sys.executable,
            BENCH / "durable.py",
            *options,
            "--jobs",
            "500",
            "--folder",
            tmp_path,
            "--json",
            tmp_path / "r",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "goal × 0.15" in done.stdout
    result = json.loads((tmp_path / "r").read_text())
    assert set(result["samples"]) == {"memory", "durable", "alone"}
    assert [ratio["other"] for ratio in result["ratios"]] == ["alone", "memory"]
    assert result["samples"]["memory"][0]["commits_per_second"] == 0
    assert (
        result["samples"]["alone"][0]["commits_per_job"] > result["samples"]["durable"][0]["commits_per_job"]
    )
    assert result["return"]["jobs"] == 500
