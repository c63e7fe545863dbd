"""Which days a refresh merges, by what the files' footers say."""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace
from typing import Any, cast

import pytest

from polydomo.pipeline.lake import Lake, Piece
from polydomo.pipeline.refresh import _span
from polydomo.pipeline.tables.silver import JOBS

DAY = 86_400_000_000
FIRST = date(2026, 3, 1)


def at(days: float) -> int:
    """Microseconds of so many days after FIRST."""
    return int(((FIRST - date(1970, 1, 1)).days + days) * DAY)


def span(bounds: tuple[int, int] | None, day: date | None = FIRST) -> set[date | None]:
    asked: list[str] = []

    def found(_name: str, _pieces: object, *columns: str) -> tuple[int, int] | None:
        asked.extend(columns)
        return bounds

    lake = SimpleNamespace(spec=lambda _name: JOBS, bounds=found)
    days = _span(cast(Lake, lake), {"jobs": [Piece("file", 1, 1, day, cast(Any, None))]})
    assert "deadline" not in asked
    return days


def test_all_days_between_the_first_and_the_last_time() -> None:
    assert span((at(0.25), at(0.5))) == {date(2026, 3, 1)}
    assert span((at(0.75), at(2.0))) == {date(2026, 3, 1), date(2026, 3, 2), date(2026, 3, 3)}


@pytest.mark.parametrize("bounds", [(at(0), at(4.5)), (-(2**62), 2**62), None])
def test_too_many_or_unknown_days_must_be_looked_for(bounds: tuple[int, int] | None) -> None:
    assert span(bounds) == set()


def test_so_must_those_of_rows_without_a_day() -> None:
    assert span((at(0), at(1)), day=None) == set()
