"""Tests of the data source's options: errors name the value and the remedy before the broker is contacted."""

from __future__ import annotations

import pytest

from polydomo.errors import ConfigError
from polydomo.pipeline.source.options import Wanted, reading, writing


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tabel": "jobs"}, "unknown option tabel for reading (options: url, table"),
        ({"table": "job"}, "no table 'job' (option table is one of jobs, results, dead, events"),
        ({"url": "http://x"}, "'http://x' is not a broker's URL"),
        ({"state": "open"}, "no state 'open' (states: waiting"),
        ({"table": "dead", "state": "done"}, "the table dead has no jobs in state done"),
        ({"table": "events", "key": "k"}, "events cannot be filtered by state or key"),
        ({"since": "yesterday"}, "since='yesterday' is not a time (write 2026-11-16"),
        ({"partitions": "0"}, "partitions='0' (must be a whole number from 1"),
        ({"page": "many"}, "page='many' (must be a whole number"),
        ({"timeout": "-1"}, "timeout='-1' (must be a positive number of seconds"),
        ({"maxRowsPerBatch": "1.5"}, "maxRowsPerBatch='1.5'"),
        ({"startingOffset": "7"}, "startingOffset='7' (must be earliest or latest"),
    ],
)
def test_wrong_options_for_reading(given, said):
    with pytest.raises(ConfigError) as error:
        reading(given)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"table": "jobs"}, "unknown option table for writing"),
        ({"url": "memo://127.0.0.1:1"}, "MemoDB has no durable jobs"),
        ({"window": "5000"}, "window='5000'"),
    ],
)
def test_wrong_options_for_writing(given, said):
    with pytest.raises(ConfigError) as error:
        writing(given)
    assert said in str(error.value)


def test_options_are_found_in_any_spelling_and_the_url_in_the_environment(monkeypatch):
    monkeypatch.setenv("POLYDOMO_URL", "mdp://10.0.0.1:7")
    found = reading({"MAXROWSPERBATCH": "10", "Since": "2026-11-16T01:00:00+01:00"})
    assert (found.url, found.max_rows, found.wanted.since) == ("mdp://10.0.0.1:7", 10, 1_794_787_200_000_000)
    assert writing({}).url == "nfp://10.0.0.1:7"


def test_conditions_add_up():
    wanted = Wanted(states=("done", "dead")).narrowed("states", ("dead", "failed"))
    assert wanted.states == ("dead",)
    assert not wanted.nothing
    assert wanted.narrowed("states", ("done",)).nothing
    assert wanted.from_time(5).from_time(3).to_time(9).to_time(8) == Wanted(
        states=("dead",), since=5, before=8
    )
