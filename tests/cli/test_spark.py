"""`polydomo spark`, without starting Spark: options, settings, and errors where something is missing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from polydomo.cli import common
from tests.cli.support import CLEAN, here
from tests.support.ledger import write_segment

COMMANDS = ("run", "backfill", "compact", "plan", "report", "sql", "serve", "doctor", "synth")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    done = here("spark", command, "--help")
    assert done.exit_code == 0
    assert "--master" in done.stdout
    assert "--config" in done.stdout


def test_help_and_broker_need_no_spark() -> None:
    """Neither the command's help nor its broker wait for libraries that they do not use."""
    code = (
        "import sys, polydomo.cli.main, polydomo.cli.broker_runner, polydomo.spark; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'pyspark', 'py4j', 'pandas', 'pyiceberg', 'pyarrow', 'numpy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=CLEAN, check=True)
    assert done.stdout.strip() == "[]"


def test_no_ledger_says_how_to_have_one(tmp_path: Path) -> None:
    for command in (("run", "--once"), ("backfill",)):
        done = here("spark", *command, "--data", str(tmp_path / "data"))
        assert done.exit_code == common.USAGE
        assert f"there is no ledger at {tmp_path / 'data' / 'ledger'}" in done.stderr
        assert "polydomo broker --ledger auto" in done.stderr


def test_an_empty_ledger_says_so(tmp_path: Path) -> None:
    (tmp_path / "ledger" / "jobs").mkdir(parents=True)
    done = here("spark", "run", "--once", "--data", str(tmp_path), "--json")
    assert done.exit_code == common.USAGE
    error = json.loads(done.stdout)["error"]
    assert "no segments" in error["message"]
    assert "ledger.roll" in error["hint"]


def test_nothing_to_plan_from_says_what_to_do(tmp_path: Path) -> None:
    write_segment(tmp_path / "ledger", "jobs", [{}])
    for command in (("plan", "echo", "--p95", "200ms"), ("report",)):
        done = here("spark", *command, "--data", str(tmp_path))
        assert done.exit_code == common.USAGE, done.stderr
        assert "is empty" in done.stderr
        assert "polydomo spark run --once" in done.stderr


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name == "pyspark" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    for command in COMMANDS:
        if command == "doctor":
            continue  # it goes on, and tells of everything that is missing
        words = ["echo", "--p95", "1s"] if command == "plan" else ["SELECT 1"] if command == "sql" else []
        done = here("spark", command, *words)
        assert done.exit_code == common.USAGE, command
        assert "pyspark: not installed" in done.stderr
        assert "pip install 'polydomo[spark]'" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--set", "nonsense"), "not KEY=VALUE"),
        (("run", "--set", "spark.mster=x"), "did you mean"),
        (("run", "--config", "missing.toml"), "cannot be read"),
        (("synth", "--jobs", "many"), "10_000_000"),
        (("backfill", "--since", "yesterday"), "write 2026-11-16"),
        (("sql", "SELECT 1", "--format", "xml"), "none of table, json, csv"),
        (("plan", "echo", "--p95", "soon"), "250ms"),
        (("serve", "--url", "memo://127.0.0.1:5556"), "NFP"),
        (("serve", "--size", "big"), "--size"),
    ],
)
def test_wrong_words_are_told(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    data = () if words[0] == "synth" else ("--data", str(tmp_path))
    done = here("spark", *words, *data)
    assert done.exit_code == common.USAGE, done.stdout
    assert said in done.stderr


def test_tables_are_listed_without_spark(tmp_path: Path) -> None:
    done = here("spark", "sql", "--data", str(tmp_path), "--json")
    assert done.exit_code == 0, done.stderr
    names = {table["table"] for table in json.loads(done.stdout)}
    assert {"jobs", "attempts", "peers", "service_minute", "client_day"} <= names


def test_the_doctor_without_a_job(tmp_path: Path) -> None:
    done = here("spark", "doctor", "--no-job", "--data", str(tmp_path), "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.exit_code == 0, done.stdout
    assert checks["pyspark"]["status"] == "ok"
    assert checks["ledger"]["status"] == "warning"
    assert "--ledger auto" in checks["ledger"]["hint"]
    done = here(
        "spark",
        "doctor",
        "--no-job",
        "--data",
        str(tmp_path),
        "--set",
        "spark.catalog=sqlite:////nowhere/x.db",
    )
    assert done.exit_code == common.FAILED
    assert "✗ tables" in done.stdout
    assert "spark.catalog" in done.stdout
