"""Tests of synthetic ledgers: reproducible by seed, valid for their schema, with all cases a pipeline must handle."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from polydomo.errors import ConfigError
from polydomo.ledger import schema
from polydomo.pipeline.schemas import spark_schema
from polydomo.pipeline.synth import Synthetic, synth
from polydomo.pipeline.synth_world import LOST, WRONG, imagine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOBS = 12_000
SIZE = {"jobs": JOBS, "seed": 5, "days": 3, "services": 5, "clients": 20}


def table(spark: SparkSession, folder: Path, of: schema.LedgerTable) -> DataFrame:
    return spark.read.schema(spark_schema(of)).parquet(f"{folder}/{of.name}")


def test_a_world_has_exactly_so_many_jobs_and_days_and_weeks() -> None:
    world = imagine(200_000, seed=1, days=14, services=10, clients=50)
    cells = world.cells
    assert cells.count.sum() == 200_000
    assert cells.first.tolist() == (np.cumsum(cells.count) - cells.count).tolist()
    of_service = np.bincount(cells.service, cells.count)
    assert of_service[0] > 3 * of_service[9]  # services differ in load
    hour = cells.slot * world.slot_seconds // 3600
    first = cells.service == 0
    by_hour = np.bincount(hour[first] % 24, cells.count[first], 24)
    assert by_hour.max() > 3 * by_hour.min()
    by_day = np.bincount(hour[first] // 24, cells.count[first])
    assert by_day[5] < 0.7 * by_day[4]
    assert {outage.wrong for outage in world.outages} == set(WRONG)
    # Waits are long where the load is high.
    busy = cells.chance > np.quantile(cells.chance, 0.9)
    assert (cells.chance * cells.wait)[busy].mean() > 2 * (cells.chance * cells.wait)[~busy].mean()


def test_a_world_depends_on_its_seed_alone() -> None:
    one, same, other = (imagine(1000, seed, 2, 3, 5) for seed in (1, 1, 2))
    assert one.services == same.services
    assert one.outages == same.outages
    assert one.cells.count.tolist() == same.cells.count.tolist()
    assert one.services != other.services


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Synthetic, Path]:
    folder = tmp_path_factory.mktemp("synth")
    told: list[tuple[str, int, int]] = []
    found = synth(spark, folder, **SIZE, rows=5000, progress=lambda *what: told.append(what))
    assert told[0] == ("jobs", 0, JOBS)
    assert told[-1] == ("jobs", JOBS, JOBS)
    return found, folder


@pytest.mark.spark
def test_segments_are_as_a_brokers(made: tuple[Synthetic, Path]) -> None:
    found, folder = made
    assert {path.name for path in folder.iterdir()} == {"jobs", "attempts", "events"}
    segments = sorted(folder.glob("*/*"))
    assert len(segments) == found.segments
    pattern = re.compile(r"(jobs|attempts|events)-\d{8}T\d{6}Z-synth5r\d{3}-\d{6}\.parquet")
    for path in segments:
        assert pattern.fullmatch(path.name), path
    rows = [pq.read_metadata(path).num_rows for path in sorted((folder / "jobs").iterdir())]
    assert sum(rows) == JOBS
    assert len(rows) == 3
    last = None
    for path in sorted((folder / "jobs").iterdir()):
        submitted = pq.read_table(path, columns=["submitted"]).column("submitted").to_pylist()
        assert last is None or min(submitted) >= last
        last = max(submitted).replace(second=0, microsecond=0)


@pytest.mark.spark
def test_rows_are_as_the_schema_says_and_agree_with_each_other(
    spark: SparkSession, made: tuple[Synthetic, Path]
) -> None:
    found, folder = made
    frames = {of.name: table(spark, folder, of).cache() for of in schema.TABLES}
    for of in schema.TABLES:
        frame = frames[of.name]
        needed = [F.count_if(F.col(c.name).isNull()).alias(c.name) for c in of.columns if not c.nullable]
        counts = frame.agg(
            *needed, F.count_distinct(*of.key).alias("keys"), F.count("*").alias("rows")
        ).first()
        assert counts is not None
        told = counts.asDict()
        rows, keys = told.pop("rows"), told.pop("keys")
        assert keys == rows, of.name
        assert not any(told.values()), told
    jobs, attempts = frames["jobs"], frames["attempts"]
    wrong = jobs.where(
        "finished < submitted OR queued < submitted OR dispatched < queued OR finished < dispatched "
        "OR first_partial NOT BETWEEN dispatched AND finished "
        "OR took_us < coalesce(waited_us, 0) + coalesce(ran_us, 0) "
        "OR (worker IS NULL) <> (attempts = 0) OR (worker IS NULL) <> (ran_us IS NULL) "
        "OR (outcome = 'done') <> (error IS NULL) OR (memo_hit AND worker IS NOT NULL)"
    )
    assert wrong.count() == 0
    told = jobs.agg(
        F.count_distinct("dialect_in").alias("dialects"),
        F.count_distinct("client").alias("clients"),
        F.count_distinct("service").alias("services"),
        F.avg(F.col("durable").cast("int")).alias("durable"),
        F.avg(F.col("memo_hit").cast("int")).alias("memo"),
        F.sum(F.greatest(F.col("attempts") - 1, F.lit(0))).alias("lost"),
        F.collect_set("outcome").alias("outcomes"),
    ).first()
    assert told is not None
    assert (told["clients"], told["services"]) == (20, 5)
    assert told["dialects"] >= 3
    assert 0.2 < told["durable"] < 1
    assert told["lost"] == found.attempts == attempts.count() > 0
    assert {"done", "failed", "cancelled"} <= set(told["outcomes"])
    # Every lost attempt belongs to a job, and ended before the attempt in the job's row.
    joined = attempts.alias("a").join(jobs.alias("j"), "job_id")
    assert joined.where(
        "a.ended <= j.dispatched AND a.dispatched >= j.queued AND number < j.attempts"
    ).count() == (found.attempts)
    assert jobs.where("parent IS NOT NULL").join(
        jobs.select(F.col("job_id").alias("parent")), "parent"
    ).count() == (jobs.where("parent IS NOT NULL").count())
    assert frames["events"].count() == found.events
    for frame in frames.values():
        frame.unpersist()


@pytest.mark.spark
def test_outages_are_in_the_rows(spark: SparkSession, made: tuple[Synthetic, Path]) -> None:
    found, folder = made
    jobs = table(spark, folder, schema.JOBS)
    for service, begin, end, wrong in found.outages:
        inside = (F.col("service") == service) & F.col("submitted").between(begin, end)
        during = jobs.where(inside).agg(
            F.avg((F.coalesce("error", F.lit("")) == "worker-error").cast("int")).alias("failed"),
            F.avg((F.col("attempts") > 1).cast("int")).alias("retried"),
        )
        share = during.first()
        assert share is not None
        if wrong == "failing":
            assert share["failed"] > 0.4
        if wrong == WRONG[LOST]:
            assert share["retried"] > 0.1


@pytest.mark.spark
def test_the_same_rows_in_whatever_pieces(
    spark: SparkSession, made: tuple[Synthetic, Path], tmp_path: Path
) -> None:
    _, folder = made
    synth(spark, tmp_path / "again", **SIZE, rows=1_000_000)
    for of in (schema.JOBS, schema.ATTEMPTS):
        first, again = (table(spark, place, of) for place in (folder, tmp_path / "again"))
        assert first.exceptAll(again).count() == 0
        assert again.count() == first.count()
    assert len(list((tmp_path / "again" / "jobs").iterdir())) == 1


def test_numbers_that_make_no_ledger() -> None:
    with pytest.raises(ConfigError, match="days is 0"):
        synth(None, "nowhere", days=0)  # type: ignore[arg-type]
