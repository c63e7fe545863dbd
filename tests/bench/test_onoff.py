"""Tests of bench/onoff.py and the scripts on it: they run and summarise correctly. Nothing here asserts a speed."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

onoff = importlib.import_module("onoff")
results = importlib.import_module("results")

RATE = onoff.Switch("ledger", (), (), {"plain": onoff.Goal(rps=0.75)})
CPU = onoff.Switch("roles", (), (), {"plain": onoff.Goal(cpu=1.05)})


def sample(rps, cpu_us=10.0):
    return results.Sample(rps, 1000, 2000, cpu_us, 3, 0.5)


def measured(*on):
    off = [sample(1000), sample(500), sample(2000)]
    return {("plain", "off"): off[: len(on)], ("plain", "on"): list(on)}


def test_ratios_are_taken_within_a_round():
    samples = measured(sample(900, 11), sample(400, 11), sample(1000, 11))
    off, on = onoff.summarise(RATE, ["plain"], samples)
    assert (off.versus, off.goal) == (None, None)
    assert (on.versus.rps, on.versus.rps_low, on.versus.rps_high) == (0.8, 0.5, 0.9)
    assert on.reached
    assert onoff.cells(on)[-1] == "≥ 0.75 reached"


@pytest.mark.parametrize(
    ("cpu_us", "words"), [(10.5, "CPU ≤ 1.05 reached"), (10.6, "CPU ≤ 1.05 NOT reached")]
)
def test_a_goal_may_be_about_cpu_time(cpu_us, words):
    """However much the rate has fallen: it depends on the load of the machine."""
    _, on = onoff.summarise(CPU, ["plain"], measured(sample(100, cpu_us)))
    assert onoff.cells(on)[-1] == words


def test_other_brokers_have_no_goal():
    samples = {("other", way): [sample(1000)] for way in ("off", "on")}
    assert [onoff.cells(row)[-1] for row in onoff.summarise(CPU, ["other"], samples)] == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize("script", ["ledger", "roles"])
def test_it_runs(tmp_path, script):
    words = ["--rounds", "1", "--seconds", "0.3", "--warmup", "0.1"]
    done = subprocess.run(
        [sys.executable, BENCH / f"{script}.py", *words, "--json", tmp_path / "r"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "r").read_text())
    assert {row["way"] for row in found["results"]} == {"on", "off"}
    assert found["settings"]["switch"] == script
