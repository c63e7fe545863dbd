"""web/api/times: microseconds inside, RFC 3339 outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.web.api import times


@given(st.integers(0, 4_000_000_000_000_000))
def test_there_and_back(micros: int) -> None:
    text = times.format_time(micros)
    assert text is not None
    assert times.parse_time(text) == micros


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:01+01:00", 1_000_000),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1.5", 1_500_000),
        ("1970-01-02", 86_400_000_000),
    ],
)
def test_what_is_a_time(text: str, micros: int) -> None:
    assert times.parse_time(text) == micros


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e300", "yesterday", "0001-01-01T00:00:00+23:59x"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        times.parse_time(text)


def test_rows_of_the_catalogue() -> None:
    row = {"id": "x", "submitted": 0, "finished": None, "history": [{"started": 1_000_000}], "events": []}
    assert times.format_times(row) == {
        "id": "x",
        "submitted": "1970-01-01T00:00:00.000000Z",
        "finished": None,
        "history": [{"started": "1970-01-01T00:00:01.000000Z"}],
        "events": [],
    }
