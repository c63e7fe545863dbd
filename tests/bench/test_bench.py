"""Tests of the benchmark: it runs and summarises correctly. Nothing here asserts a speed."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))  # the benchmark is a folder of scripts, not a package

harness = importlib.import_module("harness")
report = importlib.import_module("report")
results = importlib.import_module("results")
run = importlib.import_module("run")

TINY = harness.Settings(rounds=1, seconds=0.2, warmup=0.1)


def sample(rps, cpu_us=10.0, **more):
    values = {"p50_us": 1, "p99_us": 2, "rss_mib": 3, "generator_busy": 0.5, **more}
    return results.Sample(rps=rps, cpu_us=cpu_us, **values)


def test_a_ratio_is_the_median_of_the_rounds_ratios():
    # The machine is four times slower in the second round: the ratio within each round is still 2.
    ours = [sample(200, 5), sample(50, 20), sample(220, 6)]
    theirs = [sample(100, 10), sample(25, 40), sample(100, 10)]
    assert results.ratio_of(ours, theirs) == results.Ratio(rps=2.0, cpu=0.5)


def test_ratios_need_the_same_number_of_rounds():
    with pytest.raises(ValueError):
        results.ratio_of([sample(1)], [sample(1), sample(2)])


def test_a_summary_has_medians_spread_and_both_ratios():
    many, idle_peers, _ = [results.SHAPES[-1], *results.scale_shapes(10)]
    samples = {
        ("yardstick", "many"): [sample(100), sample(110), sample(90)],
        ("plain", "many"): [sample(300), sample(330), sample(270)],
        ("yardstick", "idle-peers"): [sample(50), sample(55), sample(45)],
        ("plain", "idle-peers"): [sample(300), sample(330), sample(270)],
    }
    found = results.summarise(["yardstick", "plain"], [many, idle_peers], samples)
    assert [(s.shape, s.broker) for s in found] == [
        ("many", "yardstick"),
        ("many", "plain"),
        ("idle-peers", "yardstick"),
        ("idle-peers", "plain"),
    ]
    yardstick, plain, yardstick_idle, plain_idle = found
    assert (plain.rps, plain.spread) == (300, pytest.approx(0.2))
    assert yardstick.versus_yardstick is None
    assert plain.versus_yardstick.rps == pytest.approx(3)
    assert plain.versus_base is None
    assert yardstick_idle.versus_base.rps == pytest.approx(0.5)
    assert plain_idle.versus_base == results.Ratio(rps=1, cpu=1)


def test_a_saturated_generator_and_lost_workers_are_noted():
    shape = results.SHAPES[0]
    quiet = results.summarise(["plain"], [shape], {("plain", shape.name): [sample(1)]})
    loud = results.summarise(
        ["plain"], [shape], {("plain", shape.name): [sample(1, generator_busy=0.97, disconnects=2)]}
    )
    assert results.notes(quiet) == []
    assert len(results.notes(loud)) == 2


def test_scale_brings_the_shape_it_is_compared_with():
    shapes = run.choose_shapes("lockstep", scale=True, idle=7)
    assert [shape.name for shape in shapes] == ["lockstep", "many", "idle-peers", "idle-services"]
    assert {shape.idle_workers for shape in shapes} == {0, 7}
    with pytest.raises(ValueError, match="unknown shape 'few'"):
        run.choose_shapes("few", scale=False, idle=0)


@pytest.mark.parametrize("kind", ["auto", "python"])
def test_both_generators_serve_busy_and_idle_peers(kind):
    shape = results.Shape("both", clients=2, workers=2, window=4, idle_workers=5, idle_clients=5)
    found = harness.measure(harness.yardstick(), shape, harness.find_generator(kind), TINY)
    assert found.rps > 0
    assert found.rss_mib > 0
    assert found.disconnects == 0


def test_a_broker_that_dies_is_named_with_its_last_words():
    dead = harness.Broker("dead", (sys.executable, "-c", "raise SystemExit('no luck today')"))
    with pytest.raises(harness.BenchError, match=r"dead ended with code 1(.|\n)*no luck today"):
        harness.measure(dead, results.SHAPES[0], harness.find_generator("python"), TINY)


def test_a_load_without_answers_is_an_error():
    without_workers = results.Shape("deaf", clients=1, workers=0, window=1)
    with pytest.raises(harness.BenchError, match="yardstick under deaf: stalled, 0 of 1 requests answered"):
        harness.measure(harness.yardstick(), without_workers, harness.find_generator(), TINY)


def test_a_quick_run_against_our_broker_writes_its_json(tmp_path):
    path = tmp_path / "out.json"
    command = [sys.executable, BENCH / "run.py", "--quick", "--seconds", "0.2", "--warmup", "0.1"]
    command += ["--candidate", f"ours={sys.executable}", "--json", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "round 1/1" in done.stderr

    text = path.read_text(encoding="utf-8")
    found = json.loads(text)
    assert set(found) == {"format", "environment", "settings", "brokers", "shapes", "results", "notes"}
    assert set(found["environment"]) >= {"date", "python", "cpu", "cores", "load_average"}
    assert set(found["brokers"]) == {"yardstick", "ours"}
    assert [(row["shape"], row["broker"]) for row in found["results"]] == [
        (shape.name, broker) for shape in results.SHAPES for broker in ("yardstick", "ours")
    ]
    for row in found["results"]:
        assert len(row["rounds"]) == 1
        assert row["rps"] > 0
        assert row["disconnects"] == 0
        assert (row["versus_yardstick"] is None) == (row["broker"] == "yardstick")
        assert row["versus_base"] is None
    assert str(BENCH.parent) not in text


def test_a_report_with_scale_becomes_two_tables_and_a_plot(tmp_path, capsys):
    shapes = [results.SHAPES[-1], *results.scale_shapes(10)]
    brokers = [harness.yardstick(), harness.Broker("ours", ("unused",))]
    samples = {(b.label, s.name): [sample(100), sample(120)] for b in brokers for s in shapes}
    summaries = results.summarise([b.label for b in brokers], shapes, samples)
    made = report.Report(
        report.environment(), TINY, harness.find_generator("python"), brokers, shapes, summaries
    )

    report.print_tables(made)
    assert "…" not in capsys.readouterr().out  # no number is truncated
    report.write_markdown(made, tmp_path / "out.md")
    markdown = (tmp_path / "out.md").read_text(encoding="utf-8")
    assert markdown.count("| shape |") == 2
    assert markdown.count("| ours |") == len(shapes)
    assert str(BENCH.parent) not in markdown
    report.write_plot(made, tmp_path / "out.svg")
    assert "<svg" in (tmp_path / "out.svg").read_text(encoding="utf-8")
