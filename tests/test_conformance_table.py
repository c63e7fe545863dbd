"""Tests of docs/reference/conformance.md: the tests it names exist, and tests marked with a clause are named there."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "reference" / "conformance.md"

CLAUSE = re.compile(r"^\| ([A-Z]+(?:-[A-Z])?-\d\d) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")

# Words that make a sentence a requirement (RFC 2119). A row without one is a format, a goal, or our own.
DUTY = re.compile(r"\b(MUST|SHALL|SHOULD|REQUIRED)\b")

# How often the specifications use them. Count again only when a specification changes:
# RFC 18: https://rfc.zeromq.org/spec/18/, DCP: DagBox's protocol.md, NFP: norfab's protocol document, up to §Security.
# MemoDB: its protocol document, where they are not in capitals.
DUTIES = {"MDP": 22, "DCP": 25, "NFP": 33, "MEMO": 11}


@cache
def marked(path: Path) -> dict[str, set[str]]:
    """Return the tests of a file with the clauses they are marked with."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            marks = [call for call in node.decorator_list if isinstance(call, ast.Call)]
            found[node.name] = {
                ast.literal_eval(call.args[0])
                for call in marks
                if ast.unparse(call.func) == "pytest.mark.clause"
            }
    return found


def rows() -> dict[str, tuple[str, set[tuple[str, str]]]]:
    """Return each clause's text and the tests named in its row."""
    text = PAGE.read_text(encoding="utf-8")
    return {clause: (says, set(TEST.findall(tests))) for clause, says, _, tests in CLAUSE.findall(text)}


def test_every_test_it_names_exists():
    named = TEST.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 100
    missing = [f"{file}::{name}" for file, name in named if name not in marked(TESTS / file)]
    assert not missing


def test_every_marked_test_is_named_beside_its_clause():
    listed = rows()
    missing = [
        f"{clause}: {path.relative_to(TESTS)}::{name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for name, clauses in marked(path).items()
        for clause in clauses
        if clause not in listed or (path.relative_to(TESTS).as_posix(), name) not in listed[clause][1]
    ]
    assert not missing


def test_every_clause_is_proved():
    assert [clause for clause, (_, tests) in rows().items() if not tests] == []


def test_clauses_are_numbered_without_gaps():
    for group, numbers in groupby((clause.rpartition("-") for clause in rows()), lambda parts: parts[0]):
        assert [int(number) for _, _, number in numbers] == list(range(1, len(rows_of(group)) + 1)), group


@pytest.mark.parametrize("specification", DUTIES)
def test_every_duty_of_the_specification_is_listed(specification: str):
    """The table has as many requirement words as the specification's text."""
    said = " ".join(says for clause, (says, _) in rows().items() if clause.startswith(specification))
    assert len(DUTY.findall(said)) == DUTIES[specification]


def rows_of(group: str) -> list[str]:
    return [clause for clause in rows() if clause.rpartition("-")[0] == group]
