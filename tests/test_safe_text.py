"""Tests of text from peers, made safe for terminals and spreadsheets."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.pipeline.report_data import to_csv
from polydomo.safe_text import safe, safe_cell, safe_json, safe_line

CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u202a\u202e\u2066\u2069\u200f\u2028"]


@pytest.mark.parametrize("letter", [letter for letter in CONTROLS if letter not in "\n\t"])
def test_a_control_character_is_shown(letter: str) -> None:
    shown = safe(f"a{letter}b")
    assert letter not in shown
    assert shown.isascii()
    assert shown.startswith("a\\")
    assert shown.endswith("b")


def test_text_of_any_language_stays() -> None:
    for text in ("grüß dich", "日本語", "שלום", "👩‍💻", "a\tb\nc"):
        assert safe(text) == text


def test_a_line_is_one_line_and_bounded() -> None:
    assert safe_line("a\nb\tc\r") == "a\\nb\\tc\\r"
    assert safe_line("x" * 100, 10) == "x" * 9 + "…"


def test_halves_of_surrogates_can_be_written() -> None:
    safe(b"\x9b[2J".decode(errors="surrogateescape")).encode()


@given(st.text())
def test_json_means_the_same(text: str) -> None:
    encoded = json.dumps([text], ensure_ascii=False)
    shown = safe_json(encoded)
    assert json.loads(shown) == [text]
    assert not set(CONTROLS) & set(shown)


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", "-1+1", "+49 30"]
)
def test_a_formula_becomes_text(text: str) -> None:
    shown = safe_cell(text)
    assert isinstance(shown, str)
    assert shown.startswith("'")


@pytest.mark.parametrize("value", [-1, 1.5, None, True, "-1", "+1.5e3", "-.5", "plain", "a=b", ""])
def test_numbers_and_plain_text_stay(value: object) -> None:
    assert safe_cell(value) is value or safe_cell(value) == value


def test_the_reports_csv_has_no_formula() -> None:
    rows = [{"service": '=HYPERLINK("http://x")', "jobs": -3, "worker": "a\x1b[2J"}]
    (found,) = csv.DictReader(io.StringIO(to_csv(rows)))
    assert found == {"service": '\'=HYPERLINK("http://x")', "jobs": "-3", "worker": "a\\x1b[2J"}
