"""Tests of the report: its data, its page and its CSV files."""

from __future__ import annotations

import csv
import json
import re
from datetime import date, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polydomo.ledger import schema
from polydomo.pipeline.plan import plan
from polydomo.pipeline.report import page, report
from polydomo.pipeline.report_data import SECTIONS, report_data, to_csv
from polydomo.pipeline.schemas import spark_schema
from polydomo.pipeline.tables import silver
from polydomo.pipeline.tables.gold import GOLD
from polydomo.pipeline.tables.spec import Objective
from tests.support import ledger
from tests.support.gold import delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NASTY = "a<script>alert(1)</script>$x_1$&\"' 漢字"


def rows() -> list[dict[str, Any]]:
    """Return eight days of two services with a job of each per hour; on the sixth day one of them fails all day."""
    found = []
    for hour in range(8 * 24):
        at = ledger.START.replace(hour=0) + timedelta(hours=hour)
        bad = hour // 24 == 5
        for service, ran in (("echo", 30_000), (NASTY, 900_000)):
            failed = bad and service == "echo"
            found.append(
                ledger.job(
                    service=service,
                    submitted=at,
                    ran_us=ran,
                    outcome=schema.FAILED if failed else schema.DONE,
                    error="worker-error" if failed else None,
                    principal="team" if hour % 2 else None,
                    client=f"client-{hour % 3}",
                )
            )
            found.append(
                ledger.job(
                    service=service,
                    submitted=at,
                    memo_hit=True,
                    worker=None,
                    attempts=0,
                    ran_us=None,
                    waited_us=None,
                )
            )
    return found


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, DataFrame]:
    """Return gold of those rows, cached: each table is queried more than once."""

    def frame(of: schema.LedgerTable, some: list[dict[str, Any]]) -> DataFrame:
        return spark.createDataFrame(
            [tuple(row.get(c.name) for c in of.columns) for row in some], spark_schema(of)
        )

    jobs = silver.jobs(frame(schema.JOBS, rows())).cache()
    made = {"jobs": jobs, "attempts": silver.attempts(jobs, frame(schema.ATTEMPTS, [])), "peers": None}
    for table in GOLD:
        made[table.spec.name] = delta(table, made, (Objective("*", 0.5, 0.9),)).cache()
    return made


@pytest.mark.spark
def test_what_the_tables_say(spark: SparkSession, tables: dict[str, DataFrame], tmp_path: Path) -> None:
    found = plan(spark, tables["jobs"], target=0.2)
    told: list[float] = []
    data = report(
        tables,
        tmp_path / "out" / "report.html",
        plan=found,
        csv=tmp_path / "csv",
        progress=lambda share, _: told.append(share),
    )
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert json.loads(json.dumps(data)) == data
    assert (data["begin"], data["end"]) == ("2026-03-01", "2026-03-08")
    assert data["totals"]["jobs"] == 8 * 24 * 4
    assert data["totals"]["errors"] == 24
    assert data["totals"]["memo_hits"] == 8 * 24 * 2
    by_name = {row["service"]: row for row in data["services"]}
    assert by_name["echo"]["failed"] == 24
    assert by_name[NASTY]["run_p95"] == pytest.approx(0.9, rel=0.001)
    assert (
        sum(row["jobs"] for row in data["traffic"])
        == sum(row["jobs"] for row in data["latency"])
        == 8 * 24 * 4
    )
    assert [(row["service"], row["day"], row["what"]) for row in data["anomalies"]] == [
        ("echo", "2026-03-06", "errors")
    ]
    assert [row["service"] for row in data["slo"]] == [NASTY, "echo"]
    assert [row["kept"] for row in data["slo"]] == [False, True]
    assert sum(row["jobs"] for row in data["clients"]) == 8 * 24 * 4
    assert {row["hits"] for row in data["memo"]} == {8 * 24}
    assert {row["service"]: row["workers"] for row in data["capacity"]} == {"echo": 1, NASTY: 1}
    # One hour with 0.93 s of work by one worker.
    assert max(row["busy"] for row in data["utilisation"]) == pytest.approx(0.9 / 3600, abs=1e-4)
    text = (tmp_path / "out" / "report.html").read_text()
    check_page(text)
    for name in ("services", "traffic", "capacity", "slo"):
        with (tmp_path / "csv" / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(data[name])


@pytest.mark.spark
def test_only_some_days(tables: dict[str, DataFrame]) -> None:
    data = report_data(tables, begin=date(2026, 3, 3), end=date(2026, 3, 4))
    assert (data["begin"], data["end"]) == ("2026-03-03", "2026-03-04")
    assert data["totals"]["jobs"] == 2 * 24 * 4
    assert data["capacity"] == []


def test_a_page_about_nothing() -> None:
    totals = dict.fromkeys(("jobs", "services", "outages", "retries", "memo_hits", "run_s"), 0)
    empty = {"made": "now", "begin": None, "end": None, "plan": None, "totals": totals | {"error_rate": None}}
    text = page(empty | {name: [] for name in SECTIONS})
    assert "no jobs in the tables yet" in text
    check_page(text)


class Looker(HTMLParser):
    """Parser that checks that every element is closed, and records external references."""

    EMPTY = ("meta", "br", "hr", "img", "link", "input", "image")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith(("#", "data:")):
                self.outside.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag


def check_page(text: str) -> None:
    """Check that the page is self-contained and names given by peers are escaped."""
    looker = Looker()
    looker.feed(text)
    looker.close()
    assert looker.open == []
    assert looker.outside == []
    assert "script" not in looker.seen
    assert "@import" not in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert "prefers-color-scheme: dark" in text


def test_csv_has_a_heading_and_quotes_what_needs_it() -> None:
    assert to_csv([{"a": 1, "b": 'x,"y"'}, {"a": None, "b": "z"}]) == 'a,b\n1,"x,""y"""\n,z\n'
    assert to_csv([]) == ""
