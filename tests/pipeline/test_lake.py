"""Tests of tables that change by whole snapshots and can be read by others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polydomo.errors import ConfigError
from polydomo.pipeline.lake import COMPACT, NOTHING, Conflict, Lake
from polydomo.pipeline.places import Places, places_for
from polydomo.pipeline.session import prepare
from polydomo.pipeline.tables.spec import TableColumn
from polydomo.server.settings import BrokerSection, Settings
from tests.support.gold import SERVICE_DAY
from tests.support.lake import append_rows, replace_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DAYS = [date(2026, 3, 1), date(2026, 3, 2)]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return places_for(Settings(broker=BrokerSection(data=str(tmp_path / "it's [here], 100%"))))


@pytest.fixture
def lake(places: Places) -> Iterator[Lake]:
    with Lake(places, [SERVICE_DAY]) as made:
        yield made


def rows(spark: SparkSession, *given: tuple[int, str]) -> DataFrame:
    prepare(spark)
    full = [(DAYS[day], service, 1, 0, 0.5) for day, service in given]
    return spark.createDataFrame(full, SERVICE_DAY.spec.ddl())


def services(frame: DataFrame) -> list[str]:
    return sorted(row.service for row in frame.collect())


def test_what_is_added_is_read_by_spark_and_by_others(spark: SparkSession, lake: Lake) -> None:
    assert lake.snapshot("service_day") is None
    assert services(lake.read(spark, "service_day")) == []
    assert append_rows(lake, spark, "service_day", rows(spark, (0, "a"), (1, "b")), {"batch": "x:1"}) == 2
    append_rows(lake, spark, "service_day", rows(spark, (1, "c")))
    assert services(lake.read(spark, "service_day")) == ["a", "b", "c"]
    assert lake.notes("service_day")["batch"] == "x:1"  # copied to the next snapshot
    table = lake.catalog.load_table(("polydomo", "service_day"))
    theirs = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["service"])
    ours = sorted(
        (row.asDict() for row in lake.read(spark, "service_day").collect()), key=lambda r: r["service"]
    )
    assert theirs == ours
    assert table.scan("day = '2026-03-02'").to_arrow().num_rows == 2
    assert {piece.day for piece in lake.pieces("service_day")} == set(DAYS)
    lake.register(spark)
    assert spark.sql("SELECT count(*) FROM service_day WHERE day > '2026-03-01'").collect()[0][0] == 2


def test_what_is_new_since_a_snapshot(spark: SparkSession, lake: Lake) -> None:
    def new(since: int | None) -> list[str] | None:
        pieces = lake.news("service_day", since)[1]
        return None if pieces is None else services(lake.frame(spark, "service_day", pieces))

    assert new(None) == new(NOTHING) == []
    append_rows(lake, spark, "service_day", rows(spark, (0, "a")))
    first = lake.snapshot("service_day")
    append_rows(lake, spark, "service_day", rows(spark, (0, "b")))
    assert new(first) == ["b"]
    assert new(NOTHING) == ["a", "b"]
    assert new(None) is None
    # Compacted rows are not new; rows appended afterwards are.
    edit = lake.edit("service_day")
    whole = edit.write(spark, lake.read(spark, "service_day").coalesce(1))
    edit.commit(COMPACT, add=whole, remove=edit.pieces())
    assert new(first) == ["b"]
    append_rows(lake, spark, "service_day", rows(spark, (1, "c")))
    assert new(first) == ["b", "c"]
    # After a rebuild, all rows are new.
    replace_rows(lake, spark, "service_day", rows(spark, (1, "d")))
    assert new(first) is None
    assert services(lake.read(spark, "service_day")) == ["d"]


def test_some_days_are_replaced_and_the_others_stay(spark: SparkSession, lake: Lake) -> None:
    append_rows(lake, spark, "service_day", rows(spark, (0, "a"), (1, "b")))
    before = lake.pieces("service_day")
    replace_rows(lake, spark, "service_day", rows(spark, (1, "c")), [DAYS[1]])
    assert services(lake.read(spark, "service_day")) == ["a", "c"]
    # A reader that started before still has its files.
    assert services(lake.frame(spark, "service_day", before)) == ["a", "b"]


def test_who_comes_second_changes_nothing(spark: SparkSession, lake: Lake, places: Places) -> None:
    append_rows(lake, spark, "service_day", rows(spark, (0, "a")))
    edit = lake.edit("service_day")
    late = edit.write(spark, rows(spark, (0, "b")))
    with Lake(places, [SERVICE_DAY]) as other:
        append_rows(other, spark, "service_day", rows(spark, (0, "c")))
    with pytest.raises(Conflict, match="service_day was changed"):
        edit.commit("append", add=late)
    assert services(lake.read(spark, "service_day")) == ["a", "c"]


def test_files_that_may_have_a_value(spark: SparkSession, lake: Lake) -> None:
    from pyspark.sql import functions as F

    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for hour in (0, 2, 4):
        day = rows(spark, (0, "a")).select("day")
        times = day.withColumn("finished", F.lit(at + timedelta(hours=hour)))
        full = times.withColumns(
            {c.name: F.lit(None) for c in lake.spec("jobs").columns if c.name not in times.columns}
        )
        append_rows(lake, spark, "jobs", full)

    def near(low: float, high: float) -> int:
        bounds = (at + timedelta(hours=low), at + timedelta(hours=high))
        return len(lake.edit("jobs").overlapping("finished", *bounds))

    assert [near(-2, -1), near(-1, 0), near(1, 3), near(0, 9), near(5, 6)] == [0, 1, 1, 3, 0]
    assert len(lake.edit("jobs").overlapping("dispatched", at, at)) == 3  # files without bounds always match


def test_a_later_version_adds_a_column(spark: SparkSession, lake: Lake, places: Places) -> None:
    append_rows(lake, spark, "service_day", rows(spark, (0, "a")))
    spec = replace(
        SERVICE_DAY.spec, columns=(*SERVICE_DAY.spec.columns, TableColumn("colour", "string", "new"))
    )
    gold: Any = replace(SERVICE_DAY, spec=spec)
    from pyspark.sql import functions as F

    with Lake(places, [gold]) as later:
        append_rows(later, spark, "service_day", rows(spark, (0, "b")).withColumn("colour", F.lit("red")))
        found = sorted((row.service, row.colour) for row in later.read(spark, "service_day").collect())
        assert found == [("a", None), ("b", "red")]
        theirs = later.catalog.load_table(("polydomo", "service_day")).scan().to_arrow()
        assert (
            sorted(zip(*[theirs[name].to_pylist() for name in ("service", "colour")], strict=True)) == found
        )


def test_history_is_kept_as_long_as_somebody_follows_it(spark: SparkSession, lake: Lake) -> None:
    ids = []
    for service in "abcd":
        append_rows(lake, spark, "service_day", rows(spark, (0, service)))
        ids.append(lake.snapshot("service_day"))
    append_rows(
        lake,
        spark,
        "peers",
        spark.createDataFrame([], lake.spec("peers").ddl()),
        {"from.service_day": str(ids[1])},
    )
    assert lake.expire("service_day", most=1) == 1
    assert len(lake.news("service_day", ids[1])[1] or []) == 2
    assert lake.news("service_day", ids[0])[1] is None
    assert services(lake.read(spark, "service_day")) == ["a", "b", "c", "d"]


def test_no_such_table(lake: Lake) -> None:
    with pytest.raises(ConfigError, match="no table 'nonsense'"):
        lake.spec("nonsense")
