"""Tests of bench/web.py: it runs and summarises correctly. Nothing here asserts a speed."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

web = importlib.import_module("web")
results = importlib.import_module("results")


def sample(rps, cpu_us=10.0, generator_busy=0.5):
    return results.Sample(rps, 1000, 2000, cpu_us, 3, generator_busy)


def test_ratios_are_taken_within_a_round():
    samples = {
        "fastapi": [sample(1000), sample(500), sample(2000)],
        "plain": [sample(500, 20), sample(200, 20), sample(600, 20)],
    }
    echo, plain = web.summarise(["fastapi", "plain"], samples)
    assert echo.ratio is None
    assert (plain.ratio, plain.ratio_low, plain.ratio_high) == (0.4, 0.3, 0.5)
    assert (plain.rps, plain.cpu_ratio, plain.reached) == (500, 2.0, True)
    assert web.cells(plain)[-3:] == ["0.40 (0.30–0.50)", "2.00", "≥ 0.4 reached"]


def test_a_saturated_generator_is_noted():
    quiet = web.summarise(["fastapi"], {"fastapi": [sample(1)]})
    loud = web.summarise(["fastapi"], {"fastapi": [sample(1, generator_busy=0.95)]})
    assert (len(web.notes(quiet)), len(web.notes(loud))) == (0, 1)


@pytest.mark.slow
def test_it_runs(tmp_path):
    words = ["--rounds", "1", "--seconds", "0.3", "--warmup", "0.1", "--connections", "8", "--workers", "2"]
    done = subprocess.run(
        [sys.executable, BENCH / "web.py", *words, "--json", tmp_path / "r"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r").read_text())
    assert result["results"][0]["server"] == "fastapi"
    assert result["results"][1]["ratio"] > 0
