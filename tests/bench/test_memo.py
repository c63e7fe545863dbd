"""Tests of the benchmark against pynng's contexts: it runs and summarises correctly. Nothing here asserts a speed."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))  # the benchmark is a folder of scripts, not a package

memo = importlib.import_module("memo")
harness = importlib.import_module("harness")
nngload = importlib.import_module("nngload")
results = importlib.import_module("results")
versus = importlib.import_module("versus")

LOOP = harness.Broker("loop", (sys.executable, str(BENCH / "pynng_broker.py")))
FEW = results.Shape("few", clients=2, workers=3, window=4, idle_workers=20, idle_share_service=True)


def sample(rps, cpu_us=10.0, generator_busy=0.5):
    return results.Sample(rps, 1000, 2000, cpu_us, 3, generator_busy)


def test_each_scenario_is_compared_with_the_loop_round_by_round():
    many = next(scenario for scenario in memo.scenarios(10) if scenario.name == "many")
    samples = {
        ("many", memo.LOOP): [sample(100), sample(50), sample(200)],
        ("many", "plain"): [sample(400, 5), sample(150, 5), sample(1000, 5)],
    }
    loop, plain = memo.summarise([many], [memo.LOOP, "plain"], samples)
    assert loop.versus is None
    assert plain.versus == versus.Versus(rps=4.0, rps_low=3.0, rps_high=5.0, cpu=0.5)
    assert memo.cells(plain)[-3:] == ["4.00 (3.00–5.00)", "0.500", "≥ 3"]


def test_peers_that_are_the_limit_are_noted():
    many = next(scenario for scenario in memo.scenarios(10) if scenario.name == "many")
    quiet = memo.summarise([many], [memo.LOOP], {("many", memo.LOOP): [sample(1)]})
    loud = memo.summarise([many], [memo.LOOP], {("many", memo.LOOP): [sample(1, generator_busy=0.95)]})
    assert (len(memo.notes(quiet)), len(memo.notes(loud))) == (0, 1)


def test_an_unknown_scenario_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as found:
        memo.parse_options(["--scenarios", "many,fast"])
    assert found.value.code == 2
    assert "unknown scenario 'fast'" in capsys.readouterr().err


@pytest.mark.parametrize("generator", ["c", "python"])
def test_the_load_is_one_that_the_loop_answers(generator):
    peers = nngload.find_generator() if generator == "c" else memo.PYTHON_PEERS
    found = harness.measure(LOOP, FEW, peers, harness.Settings(rounds=1, seconds=0.2, warmup=0.1))
    assert found.rps > 0
    assert found.disconnects == 0


@pytest.mark.slow
def test_a_quick_run_against_our_broker_writes_its_results(tmp_path):
    command = [
        sys.executable,
        BENCH / "memo.py",
        "--quick",
        "--seconds",
        "0.2",
        "--warmup",
        "0.1",
        "--parked",
        "20",
    ]
    command += ["--scenarios", "parked", "--candidate", f"ours={sys.executable}"]
    command += ["--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert set(found["environment"]) >= {"date", "python", "cpu", "cores", "load_average"}
    assert [(row["scenario"], row["broker"]) for row in found["results"]] == [
        (scenario, broker) for scenario in ("parked",) for broker in (memo.LOOP, "ours")
    ]
    assert all(row["rps"] > 0 for row in found["results"])
    assert (tmp_path / "out.md").read_text(encoding="utf-8").count("| ours |") == 1
