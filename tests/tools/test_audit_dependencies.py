"""The judgement on pip-audit's reports: what was not looked up is never passed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tools import audit_dependencies
from tools.audit_dependencies import NOT_DONE, VULNERABLE, judge, main

CLEAN = {"name": "six", "version": "1.17.0", "vulns": []}
BAD = {
    "name": "requests",
    "version": "2.19.0",
    "vulns": [{"id": "PYSEC-2018-28", "fix_versions": ["2.20.0"]}, {"id": "GHSA-x", "fix_versions": []}],
}
SKIPPED = {"name": "norfab", "skip_reason": "Dependency not found on PyPI"}


def report(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": list(packages), "fixes": []})


def test_a_clean_report_passes() -> None:
    assert judge(report(CLEAN), "") == (0, ["1 packages, no known vulnerability"])


def test_every_vulnerability_is_named_with_its_fix() -> None:
    assert judge(report(CLEAN, BAD), "Found 2 known vulnerabilities") == (
        VULNERABLE,
        ["requests 2.19.0: PYSEC-2018-28, fixed in 2.20.0", "requests 2.19.0: GHSA-x, not fixed yet"],
    )


def test_a_package_that_the_database_does_not_know_is_no_pass() -> None:
    """pip-audit ends with 0 and "No known vulnerabilities found"."""
    code, lines = judge(report(CLEAN, SKIPPED), "No known vulnerabilities found")
    assert (code, lines) == (NOT_DONE, ["1 of 2 packages are not known there: norfab"])


def test_a_vulnerability_counts_also_if_other_packages_were_not_looked_up() -> None:
    assert judge(report(BAD, SKIPPED), "")[0] == VULNERABLE


def test_few_names_are_printed() -> None:
    packages = [{"name": f"p{number}", "skip_reason": ""} for number in range(100)]
    assert judge(report(*packages), "")[1] == [
        "100 of 100 packages are not known there: p0, p1, p2, p3, p4, …"
    ]


@pytest.mark.parametrize("text", ["", "no JSON", "{}", report()])
def test_a_missing_or_empty_report_is_no_pass(text: str) -> None:
    assert judge(text, "Traceback\nConnectionError: no route\n")[0] == NOT_DONE


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        ({"pypi": report(CLEAN)}, 0),
        ({"pypi": report(SKIPPED), "osv": report(CLEAN)}, 0),
        ({"pypi": "", "osv": report(BAD)}, VULNERABLE),
        ({"pypi": "", "osv": ""}, NOT_DONE),
    ],
)
def test_the_next_database_is_asked_if_one_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reports: dict[str, str], code: int
) -> None:
    monkeypatch.setattr(audit_dependencies, "ask", lambda service: (reports[service], "no route"))
    assert main() == code
    assert ("NOT AUDITED" in capsys.readouterr().err) == (code == NOT_DONE)
