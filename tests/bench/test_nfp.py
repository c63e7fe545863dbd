"""Tests of the benchmark against norfab's broker: it runs and summarises correctly. Nothing here asserts a speed."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))  # the benchmark is a folder of scripts, not a package

nfp = importlib.import_module("nfp")
harness = importlib.import_module("harness")
results = importlib.import_module("results")
versus = importlib.import_module("versus")


def sample(rps, cpu_us=10.0, generator_busy=0.5):
    return results.Sample(rps, 1000, 2000, cpu_us, 3, generator_busy)


def test_each_scenario_is_compared_with_norfab_round_by_round():
    memory, *_ = nfp.scenarios(500, 1000)
    samples = {
        ("memory", "norfab"): [sample(100), sample(50), sample(200)],
        ("memory", "plain"): [sample(400, 5), sample(150, 5), sample(1000, 5)],
    }
    norfab, plain = nfp.summarise([memory], ["norfab", "plain"], samples)
    assert norfab.versus is None
    assert plain.versus == versus.Versus(rps=4.0, rps_low=3.0, rps_high=5.0, cpu=0.5)
    assert (plain.rps, plain.goal) == (400, 3)
    assert nfp.cells(plain)[-3:] == ["4.00 (3.00–5.00)", "0.50", "≥ 3"]


def test_a_saturated_generator_is_noted():
    memory, *_ = nfp.scenarios(500, 1000)
    quiet = nfp.summarise([memory], ["norfab"], {("memory", "norfab"): [sample(1)]})
    loud = nfp.summarise([memory], ["norfab"], {("memory", "norfab"): [sample(1, generator_busy=0.95)]})
    assert (len(nfp.notes(quiet)), len(nfp.notes(loud))) == (0, 1)


def test_an_unknown_scenario_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as found:
        nfp.parse_options(["--scenarios", "memory,fast"])
    assert found.value.code == 2
    assert "unknown scenario 'fast'" in capsys.readouterr().err


def test_the_load_is_one_that_norfabs_own_broker_answers():
    """Every job gets its 202 and then its 200, once."""
    shape = results.Shape("few", clients=2, workers=2, window=4, idle_workers=3, idle_share_service=True)
    raw = harness.find_generator("c")
    broker = harness.Broker("norfab", (sys.executable, str(BENCH / "norfab_broker.py")))
    settings = harness.Settings(rounds=1, seconds=0.2, warmup=0.1)
    found = harness.measure(broker, shape, harness.Generator(raw.name, (*raw.command, "-d", "nfp")), settings)
    assert found.rps > 0
    assert (found.disconnects, found.unannounced) == (0, 0)


@pytest.mark.slow
def test_a_quick_run_against_our_broker_writes_its_results(tmp_path):
    command = [
        sys.executable,
        BENCH / "nfp.py",
        "--quick",
        "--seconds",
        "0.2",
        "--warmup",
        "0.1",
        "--idle",
        "5",
    ]
    command += ["--candidate", f"ours={sys.executable}", "--folder", tmp_path]
    command += ["--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert set(found["environment"]) >= {"date", "python", "cpu", "cores", "load_average"}
    assert [(row["scenario"], row["broker"]) for row in found["results"]] == [
        (scenario, broker) for scenario in ("memory", "idle", "durable") for broker in ("norfab", "ours")
    ]
    assert all(row["rps"] > 0 for row in found["results"])
    assert (tmp_path / "out.md").read_text(encoding="utf-8").count("| ours |") == 3
