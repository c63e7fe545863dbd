"""Denied peers are counted: a flood of them is a handful of rows."""

from __future__ import annotations

from polydomo.ledger.denials import OTHERS, PERIOD, REASONS, Denials


class Rows:
    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []
        self.denials = Denials(lambda peer, reason: self.rows.append((peer, reason)))


def test_the_first_of_its_kind_is_a_row_at_once() -> None:
    noted = Rows()
    noted.denials.add("a:1", "too slow", 10.0)
    assert noted.rows == [("a:1", "too slow")]
    assert not noted.denials.is_due(10.0)


def test_the_others_of_a_minute_are_one_row_with_their_number() -> None:
    noted = Rows()
    for number in range(1000):
        noted.denials.add(f"a:{number}", "too slow", 10.0)
    assert noted.denials.is_due(10.0 + PERIOD)
    noted.denials.collect()
    assert noted.rows == [("a:0", "too slow"), ("", "too slow (999 more)")]
    assert not noted.denials.is_due(1e9)
    noted.denials.collect()
    assert len(noted.rows) == 2


def test_a_new_minute_begins_by_itself() -> None:
    noted = Rows()
    for now in (10.0, 20.0, 10.0 + PERIOD):
        noted.denials.add("a:1", "too slow", now)
    assert [reason for _, reason in noted.rows] == ["too slow", "too slow (1 more)", "too slow"]


def test_reasons_that_a_stranger_makes_up_share_a_row() -> None:
    noted = Rows()
    for number in range(10_000):
        noted.denials.add("a:1", f"no mechanism {number}", 10.0)
    noted.denials.collect()
    assert len(noted.rows) == REASONS + 1
    assert noted.rows[-1] == ("", f"{OTHERS} ({10_000 - REASONS} more)")
