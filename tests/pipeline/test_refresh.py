"""Tests of which days and minutes a refresh merges, by the files' bounds."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow.parquet as pq
import pytest
from pyspark.testing import assertDataFrameEqual

from polydomo.pipeline import edit, rewrite
from polydomo.pipeline.lake import Lake, TableFile
from polydomo.pipeline.places import places_for
from polydomo.pipeline.refresh import Span, _span, refresh
from polydomo.pipeline.session import prepare
from polydomo.pipeline.tables.accounting import CLIENT_DAY
from polydomo.pipeline.tables.outages import OUTAGES
from polydomo.pipeline.tables.service_minutes import SERVICE_MINUTE
from polydomo.pipeline.tables.silver import JOBS
from polydomo.server.settings import BrokerSection, Settings
from tests.pipeline.tables.silver_rows import at as after_noon
from tests.pipeline.tables.silver_rows import job, silver
from tests.pipeline.tables.test_gold import OBJECTIVES, anything, told
from tests.support.lake import append_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400_000_000
FIRST = date(2026, 3, 1)


def at(days: float) -> int:
    """Return the time this many days after FIRST, in microseconds."""
    return int(((FIRST - date(1970, 1, 1)).days + days) * DAY)


def span(bounds: tuple[int, int] | None, day: date | None = FIRST) -> Span | None:
    asked: list[str] = []

    def found(_name: str, _pieces: object, *columns: str) -> tuple[int, int] | None:
        asked.extend(columns)
        return bounds

    lake = SimpleNamespace(spec=lambda _name: JOBS, bounds=found)
    found_span = _span(cast(Lake, lake), {"jobs": [TableFile("file", 1, 1, day, cast(Any, None))]})
    assert "deadline" not in asked
    return found_span


def test_all_days_between_the_first_and_the_last_time() -> None:
    one, three = span((at(0.25), at(0.5))), span((at(0.75), at(2.0)))
    assert one
    assert one.days() == {date(2026, 3, 1)}
    assert three
    assert three.days() == {date(2026, 3, 1), date(2026, 3, 2), date(2026, 3, 3)}


@pytest.mark.parametrize("bounds", [(at(0), at(4.5)), (-(2**62), 2**62), None])
def test_too_many_or_unknown_days_must_be_looked_for(bounds: tuple[int, int] | None) -> None:
    assert span(bounds) is None


def test_so_must_those_of_rows_without_a_day() -> None:
    assert span((at(0), at(1)), day=None) is None


@pytest.mark.spark
def test_in_steps_as_all_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of all kinds are distributed at random over four batches, so later ones add late rows to existing days. The
    second is merged in this process, the third and the fourth by Spark, the fourth without known days. One table of
    each kind: by minute, by day, and of sessions; the others merge like these (`tables/test_gold.py`)."""
    dice = random.Random(5)
    jobs, attempts = anything(dice, 240)
    batches: list[tuple[list[Any], list[Any]]] = [([], []) for _ in range(4)]
    for kind, rows in enumerate((jobs, attempts)):
        for row in rows:
            dice.choice(batches)[kind].append(row)
    settings = Settings(broker=BrokerSection(data=str(tmp_path)))
    with Lake(places_for(settings), [SERVICE_MINUTE, CLIENT_DAY, OUTAGES]) as lake:
        prepare(spark)
        for number, batch in enumerate(batches):
            if number == 2:
                monkeypatch.setattr("polydomo.pipeline.refresh._NEW_HERE", 0)
            if number == 3:
                monkeypatch.setattr("polydomo.pipeline.refresh._FEW_DAYS", 0)
            for name, rows in zip(("jobs", "attempts"), batch, strict=True):
                append_rows(lake, spark, name, silver(spark, **{name: rows})[name])
            made = refresh(spark, lake, OBJECTIVES)
            assert {one.table for one in made} == {gold.spec.name for gold in lake.gold}
        in_steps = {gold.spec.name: told(gold, lake.read(spark, gold.spec.name)) for gold in lake.gold}
        refresh(spark, lake, OBJECTIVES, rebuild=True)
        for gold in lake.gold:
            assert in_steps[gold.spec.name] == told(gold, lake.read(spark, gold.spec.name)), gold.spec.name
            assert len(in_steps[gold.spec.name]) > 2
            # pyiceberg reads files written by Arrow as well as those by Spark.
            theirs = lake.catalog.load_table(("polydomo", gold.spec.name)).scan().to_arrow()
            assert theirs.num_rows == len(in_steps[gold.spec.name])


@pytest.mark.spark
def test_files_with_other_minutes_are_left_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (edit, rewrite):
        monkeypatch.setattr(module, "FILE_ROWS", 10)
    settings = Settings(broker=BrokerSection(data=str(tmp_path)))
    with Lake(places_for(settings), [SERVICE_MINUTE]) as lake:
        prepare(spark)
        append_rows(lake, spark, "jobs", silver(spark, [job(60.0 * n) for n in range(45)])["jobs"])
        refresh(spark, lake)
        before = {piece.path for piece in lake.pieces("service_minute")}
        assert sorted(piece.rows for piece in lake.pieces("service_minute")) == [5, 10, 10, 10, 10]
        append_rows(lake, spark, "jobs", silver(spark, [job(60.0 * n) for n in range(42, 50)])["jobs"])
        (made,) = refresh(spark, lake)
        after = lake.pieces("service_minute")
        assert len(before & {piece.path for piece in after}) == 4
        assert made.rows == 10
        assert rewrite.rewrite(spark, lake, "service_minute") == 0  # there are no small files
        rows = lake.read(spark, "service_minute").orderBy("minute").collect()
        assert [row.jobs for row in rows] == [1] * 42 + [2] * 3 + [1] * 5


@pytest.mark.spark
def test_minutes_that_nothing_new_belongs_to_stay_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """A batch of a whole day, and one of ten minutes of it: with a wait that began earlier, and one that would end
    later because a clock was set back."""
    settings = Settings(broker=BrokerSection(data=str(tmp_path)))
    whole_day = [job(60.0 * minute, run_s=0.001 * (1000 + minute)) for minute in range(-600, 600, 20)]
    new = [
        *[job(60.0 * minute, wait_s=0.5) for minute in range(5)],
        job(130.0, wait_s=400.0),
        job(200.0, queued=after_noon(190.0), wait_s=5000.0),
    ]
    with Lake(places_for(settings), [SERVICE_MINUTE]) as lake:
        prepare(spark)
        append_rows(lake, spark, "jobs", silver(spark, whole_day)["jobs"])
        refresh(spark, lake)
        before = sketches_by_minute(spark, lake)
        append_rows(lake, spark, "jobs", silver(spark, new)["jobs"])
        (made,) = refresh(spark, lake)
        assert (made.source_rows, made.days) == (len(new), 1)
        numbers = [name for name in SERVICE_MINUTE.spec.names() if not name.endswith("_sketch")]
        refreshed = lake.read(spark, "service_minute").select(*numbers).collect()
        after = sketches_by_minute(spark, lake)
        (piece,) = lake.pieces("service_minute")
        minutes = pq.read_table(piece.path.removeprefix("file://"), columns=["minute"])["minute"].to_pylist()
        refresh(spark, lake, rebuild=True)
        assertDataFrameEqual(lake.read(spark, "service_minute").select(*numbers), refreshed)
    changed = {minute for minute, sketch in after.items() if before.get(minute) != sketch}
    assert changed == {after_noon(60.0 * minute).replace(second=0) for minute in range(-5, 5)}
    assert minutes == sorted(minutes)


def sketches_by_minute(spark: SparkSession, lake: Lake) -> dict[datetime, bytes]:
    found = lake.read(spark, "service_minute").collect()
    return {row.minute.replace(tzinfo=UTC): bytes(row.run_sketch) for row in found}
