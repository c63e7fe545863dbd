"""Percentiles and sparklines."""

from __future__ import annotations

import pytest

from polydomo.cli.latency_stats import percentile, sparkline, summarize


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (50, 50), (90, 90), (99, 99), (99.5, 100), (100, 100)]
)
def test_a_percentile_is_a_value_that_was_there(percent: float, expected: float) -> None:
    assert percentile(list(range(1, 101)), percent) == expected


def test_of_nothing_everything_is_zero() -> None:
    summary = summarize([], 0.0)
    assert (summary.requests, summary.rate, summary.p99, summary.worst) == (0, 0, 0, 0)
    assert sparkline([]) == ""


def test_a_summary() -> None:
    summary = summarize([0.3, 0.1, 0.2], elapsed=0.5, failed=1)
    assert (summary.requests, summary.failed, summary.rate, summary.p50) == (3, 1, 6.0, 0.2)
    assert summary.mean == pytest.approx(0.2)


def test_a_sparkline_has_its_peak_where_most_values_are() -> None:
    line = sparkline([0.001] + [0.01] * 50 + [0.1], width=9)
    assert len(line) == 9
    assert line[4] == "█"
    assert line[0] == line[8] == "▁"
    assert line[1] == " "


def test_equal_values_are_one_block() -> None:
    assert sparkline([0.5] * 3) == "█"
