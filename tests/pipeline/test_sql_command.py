"""Tests of the commands on the session of this run: from segments to tables to results."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polydomo.cli import common
from tests.cli.support import here
from tests.support.ledger import START, job, write_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

JOBS = 120


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """Return a broker's data folder with tables."""
    folder = tmp_path_factory.mktemp("data")
    rows = [
        job(service=f"s{number % 2}", submitted=START + timedelta(seconds=number)) for number in range(JOBS)
    ]
    write_segment(folder / "ledger", "jobs", rows)
    bad = folder / "ledger" / "jobs" / "jobs-broken.parquet"
    bad.write_bytes(b"PAR1 and then nothing")
    done = here("spark", "run", "--once", "--data", str(folder), "--json")
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert (made["added"], made["counts"]["jobs"]["added"]) == (JOBS, JOBS)
    assert [Path(one["segment"]).name for one in made["rejected"]] == [bad.name]
    return folder


def ask(data: Path, *words: str) -> Any:
    done = here("spark", "sql", *words, "--data", str(data))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_sql_as_a_table_as_json_and_as_csv(data: Path) -> None:
    text = "SELECT service, count(*) AS n, max(day) AS day FROM jobs GROUP BY 1 ORDER BY 1"
    rows = [["s0", JOBS // 2, "2026-03-01"], ["s1", JOBS // 2, "2026-03-01"]]
    assert [line.split() for line in ask(data, text).splitlines()] == [
        ["service", "n", "day"],
        *[[str(cell) for cell in row] for row in rows],
    ]
    told = json.loads(ask(data, text, "--json"))
    assert told["rows"] == rows
    assert [column["type"] for column in told["columns"]] == ["string", "bigint", "date"]
    found = list(csv.reader(io.StringIO(ask(data, text, "--format", "csv"))))
    assert found == [["service", "n", "day"], *[[str(cell) for cell in row] for row in rows]]
    assert json.loads(ask(data, "SELECT * FROM jobs", "--json", "-n", "7"))["truncated"] is True


def test_wrong_sql_is_told_in_a_line(data: Path) -> None:
    done = here("spark", "sql", "SELECT nothing FROM jobs", "--data", str(data))
    assert done.exit_code == common.FAILED
    assert "nothing" in done.stderr
    assert "lists the tables" in done.stderr


def test_everything_anew_and_few_files(data: Path) -> None:
    done = here("spark", "backfill", "--data", str(data), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["counts"]["jobs"]["added"] == JOBS
    done = here("spark", "compact", "--data", str(data), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["after"] >= 1
    assert json.loads(ask(data, "SELECT count(*) FROM jobs", "--json"))["rows"] == [[JOBS]]


def test_the_doctor_finds_everything_in_order(data: Path) -> None:
    done = here("spark", "doctor", "--data", str(data))
    assert done.exit_code == 0, done.output
    assert "✓ a small job" in done.stdout
    assert "✗" not in done.stdout


def test_a_plan_for_one_service_and_for_all(data: Path) -> None:
    done = here("spark", "plan", "s0", "--p95", "100ms", "--data", str(data), "--json")
    assert done.exit_code == 0, done.output
    planned = json.loads(done.stdout)
    assert (planned["service"], planned["workers"], planned["target"]) == ("s0", 1, 0.1)
    done = here("spark", "plan", "s0", "--workers", "1-2", "--data", str(data))
    assert "s0 needs 1 worker; 1 was seen" in done.stdout
    done = here("spark", "plan", "--p99", "1s", "--window", "all", "--data", str(data))
    assert "p99 wait within 1s, over all of it" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["s0", "s1"]
    done = here("spark", "plan", "nothing", "--data", str(data))
    assert done.exit_code == common.USAGE
    assert "'nothing'" in done.stderr


def test_a_report(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = here("spark", "report", str(out), "--csv", str(tmp_path / "csv"), "--data", str(data))
    assert done.exit_code == 0, done.output
    assert "<svg" in out.read_text()
    assert list((tmp_path / "csv").glob("*.csv"))


def test_a_made_up_ledger(spark: SparkSession, tmp_path: Path) -> None:
    done = here("spark", "synth", str(tmp_path / "ledger"), "--jobs", "2_000", "--days", "1", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["jobs"] == 2000
    assert list((tmp_path / "ledger" / "jobs").glob("*.parquet"))


def test_the_public_face(data: Path, spark: SparkSession) -> None:
    import polydomo.spark

    found = polydomo.spark.tables(spark, data=str(data))
    assert found.jobs.count() == found["jobs"].count() == JOBS
    assert {"jobs", "service_minute"} <= set(found)
    assert "of finished" in found.describe("jobs")
    with pytest.raises(AttributeError, match="there is no table 'nothing'"):
        _ = found.nothing
    found.close()
    assert polydomo.spark.plan("s0", p95=0.1, spark=spark, data=str(data)).recommended == {"s0": 1}
    assert polydomo.spark.session() is not None
    assert spark.read.format("polydomo") is not None
