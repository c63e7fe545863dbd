"""Tests of the WMP benchmark: it runs and summarises correctly. Nothing here asserts a speed."""

import importlib
import json
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))  # the benchmark is a folder of scripts, not a package

wmp = importlib.import_module("wmp")


def way(rps, cpu_us=10.0, away_us=0.0):
    return wmp.Way(rps, 1000, cpu_us, away_us)


def test_each_way_is_compared_with_mdp_round_by_round():
    own, mdp = [way(50, 20), way(30, 40), way(100, 10)], [way(100), way(50), way(200)]
    row = wmp.summarise("plain", 10, "wmp-1", own, mdp)
    assert (row.rps, row.rps_ratio, row.rps_low, row.rps_high, row.cpu_ratio) == (50, 0.5, 0.5, 0.6, 2.0)
    assert wmp.cells(row, True)[-3:] == ["0.50 (0.50–0.60)", "2.00", "≥ 0.5"]


def test_wrong_words_are_wrong_usage(capsys):
    for words in (["--ways", "pigeon"], ["--workers", "some"]):
        with pytest.raises(SystemExit) as found:
            wmp.parse_options(words)
        assert found.value.code == 2


def test_all_ways_work(tmp_path, capsys):
    told = tmp_path / "told.json"
    words = ["--rounds", "1", "--seconds", "0.2", "--warmup", "0.1", "--workers", "3", "--json", str(told)]
    assert wmp.main(words) == 0
    rows = json.loads(told.read_text())["results"]
    assert [row["way"] for row in rows] == list(wmp.WAYS)
    assert all(row["rps"] > 0 for row in rows)
    # Only these use one process; what the others' second process took may be less than a tick of the kernel's clock.
    assert [row["away_us"] for row in rows[:3]] == [0, 0, 0]


def test_cpu_time_of_the_second_process_is_shown_where_there_is_one():
    alone, joined = (
        wmp.summarise("plain", 3, "join", [way(50, 20, away)], [way(100)]) for away in (0.0, 13.2)
    )
    assert (alone.away_us, joined.away_us) == (0.0, 13.2)
    assert ("13.2" in wmp.cells(joined, False), "13.2" in wmp.cells(alone, False)) == (True, False)
