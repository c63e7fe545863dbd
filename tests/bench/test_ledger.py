"""Tests of bench/ledger.py: it runs and summarises correctly. Nothing here asserts a speed."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

ledger = importlib.import_module("ledger")
results = importlib.import_module("results")


def sample(rps, cpu_us=10.0):
    return results.Sample(rps, 1000, 2000, cpu_us, 3, 0.5)


def test_ratios_are_taken_within_a_round():
    samples = {
        ("plain", "off"): [sample(1000), sample(500), sample(2000)],
        ("plain", "on"): [sample(900, 11), sample(400, 11), sample(1000, 11)],
    }
    off, on = ledger.summarise(["plain"], samples)
    assert (off.ratio, off.goal) == (None, None)
    assert (on.ratio, on.ratio_low, on.ratio_high) == (0.8, 0.5, 0.9)
    assert on.reached
    assert ledger.cells(on)[-1] == "≥ 0.75 reached"


@pytest.mark.slow
def test_it_runs(tmp_path):
    words = ["--rounds", "1", "--seconds", "0.3", "--warmup", "0.1"]
    done = subprocess.run(
        [sys.executable, BENCH / "ledger.py", *words, "--json", tmp_path / "r"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "r").read_text())
    assert {row["ledger"] for row in found["results"]} == {"on", "off"}
