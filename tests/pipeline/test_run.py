"""Tests from segments to gold: whatever state the segments are in, every row once, and no silent omissions."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from polydomo.errors import ConfigError
from polydomo.pipeline.compact import compact
from polydomo.pipeline.files import names
from polydomo.pipeline.ingest import Ingest
from polydomo.pipeline.lake import Lake
from polydomo.pipeline.lock import Busy, holding
from polydomo.pipeline.places import places_for
from polydomo.pipeline.run import RunResult, backfill, objectives, run
from polydomo.pipeline.tables.spec import Objective
from polydomo.server.settings import BrokerSection, Settings, SparkSection
from tests.support.gold import SERVICE_DAY
from tests.support.ledger import START, write_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAMES = ("jobs", "attempts", "peers", "service_day")


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(broker=BrokerSection(data=str(tmp_path)), spark=SparkSection(interval=0.1, files=3))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    (tmp_path / "ledger").mkdir()
    return tmp_path / "ledger"


@pytest.fixture
def lake(settings: Settings) -> Iterator[Lake]:
    with Lake(places_for(settings), [SERVICE_DAY]) as made:
        yield made


def contents(spark: SparkSession, lake: Lake) -> dict[str, Counter[tuple[Any, ...]]]:
    """Return all rows of silver and gold."""
    return {name: Counter(map(tuple, lake.read(spark, name).collect())) for name in NAMES}


def jobs(spark: SparkSession, lake: Lake) -> list[str]:
    return sorted(row.job_id for row in lake.read(spark, "jobs").select("job_id").collect())


def gold(spark: SparkSession, lake: Lake) -> dict[str, tuple[int, int]]:
    """Return the contents of the test's gold table by day."""
    found: dict[str, tuple[int, int]] = {}
    for row in lake.read(spark, "service_day").collect():
        assert str(row.day) not in found
        found[str(row.day)] = (row.jobs, row.lost)
    return found


def audited(spark: SparkSession, lake: Lake) -> None:
    """Check that rows of accepted segments = rows in silver + duplicates, and that every job has its attempts."""
    accounts = lake.read(spark, "batches").collect()
    for row in accounts:
        assert row.rows == row.added + row.duplicates
    added = Counter[str]()
    for row in accounts:
        added[row.ledger] += row.added
    sizes = {name: lake.read(spark, name).count() for name in ("jobs", "attempts", "peers")}
    assert added["jobs"] == sizes["jobs"]
    assert added["events"] == sizes["peers"]
    accepted = lake.read(spark, "segments").where("accepted").groupBy().sum("rows").collect()[0][0] or 0
    assert accepted == sum(row.rows for row in accounts)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 3, len(data) // 3 + 200):
        data[at] ^= 0xA5
    path.write_bytes(bytes(data))


def test_segments_in_every_state(spark: SparkSession, lake: Lake, settings: Settings, ledger: Path) -> None:
    # Valid input: three days of jobs, in order, including columns of an older and of a newer broker.
    write_segment(ledger, "jobs", [{"job_id": f"a{n}", "submitted": after(n)} for n in range(20)])
    write_segment(ledger, "jobs", [{"job_id": "b", "submitted": after(86400)}], extra={"colour": pa.string()})
    write_segment(ledger, "jobs", [{"job_id": "c", "submitted": after(2 * 86400)}], without=["principal"])
    write_segment(ledger, "attempts", [{"job_id": "a1", "number": 1}])
    write_segment(ledger, "events", [{"event_id": "e"}])
    (ledger / "jobs" / ".jobs-unfinished.parquet").write_bytes(b"half")
    first = run(spark, lake, settings, once=True)
    assert (first.segments, first.rows, first.added, first.rejected) == (5, 24, 24, [])
    assert first.batches == 2  # of at most three segments
    assert gold(spark, lake) == {"2026-03-01": (20, 1), "2026-03-02": (1, 0), "2026-03-03": (1, 0)}
    assert run(spark, lake, settings, once=True).segments == 0

    # Faulty input: a copy of a file, a truncated file, one with a damaged page, a wrong type, a clock that was set
    # back, a rebuilt job that had been written, rows that arrive two days late.
    copied = sorted((ledger / "jobs").glob("jobs*.parquet"))[0]
    shutil.copy(copied, ledger / "jobs" / "copy of [a].parquet")
    torn = write_segment(ledger, "jobs", [{"job_id": f"torn{n}"} for n in range(9)], name="torn.parquet")
    good = torn.read_bytes()
    torn.write_bytes(good[:-300])
    rows = [{"job_id": f"page{n:08}", "key": f"{n * 7919:060}"} for n in range(3000)]
    bad_page = write_segment(ledger, "jobs", rows, name="page.parquet")
    damage(bad_page)
    write_segment(ledger, "jobs", [{"bytes_in": None}], without=["bytes_in"], name="column.parquet")
    write_segment(ledger, "jobs", [{"job_id": "late", "submitted": after(-5)}])
    write_segment(ledger, "jobs", [{"job_id": "stepped", "submitted": after(-400 * 86400)}])
    twin = {"job_id": "twin", "submitted": after(7)}
    write_segment(
        ledger,
        "jobs",
        [twin | {"rebuilt": True, "worker": None}, twin, {"job_id": "a3", "submitted": after(3)}],
    )
    second = run(spark, lake, settings, once=True)
    reasons = {Path(v.segment.path).name: v.reason for v in second.rejected}
    assert sorted(reasons) == ["column.parquet", "page.parquet", "torn.parquet"]
    assert reasons["column.parquet"] == "bytes_in is missing"
    assert (second.segments, second.added, second.duplicates) == (4, 3, 22)
    expected = sorted([f"a{n}" for n in range(20)] + ["b", "c", "late", "stepped", "twin"])
    assert jobs(spark, lake) == expected
    kept = lake.read(spark, "jobs").where("job_id = 'twin'").collect()
    assert [row.worker for row in kept] == ["worker-1"]
    assert gold(spark, lake) == {
        "2025-01-25": (1, 0),
        "2026-03-01": (22, 1),
        "2026-03-02": (1, 0),
        "2026-03-03": (1, 0),
    }
    audited(spark, lake)
    # They are quarantined and recorded.
    assert not torn.exists()
    rejected = lake.read(spark, "segments").where("NOT accepted").collect()
    assert {Path(row.path).name for row in rejected} == set(reasons)
    for row in rejected:
        assert Path(row.aside.removeprefix("file://")).exists()

    # A good file under the bad one's name is accepted.
    torn.write_bytes(good)
    third = run(spark, lake, settings, once=True)
    assert (third.segments, third.added, third.rejected) == (1, 9, [])


def test_other_files_and_a_backfill_give_the_same_rows(
    spark: SparkSession, lake: Lake, settings: Settings, ledger: Path
) -> None:
    kept = write_segment(ledger, "jobs", [{"job_id": "b", "submitted": after(86400)}])
    for number in range(3):
        jobs_of_it = [{"job_id": f"{number}-{n}", "submitted": after(n)} for n in range(5)]
        write_segment(ledger, "jobs", jobs_of_it)
        shutil.copy(write_segment(ledger, "attempts", [{}]), ledger / "attempts" / f"copy-{number}.parquet")
        write_segment(ledger, "events", [{"at": after(number * 86400)}])
    first = run(spark, lake, settings, once=True)
    assert (first.added, first.duplicates, first.batches) == (22, 3, 5)
    before = contents(spark, lake)
    audited(spark, lake)

    # Compaction changes nothing for readers, and pyiceberg sees the same.
    many = len(lake.pieces("jobs"))
    tidy = compact(spark, lake, settings, keep=timedelta(0))
    assert len(lake.pieces("jobs")) == 2 < many  # one per day
    assert tidy.removed > 0
    assert contents(spark, lake) == before
    for name in NAMES:
        theirs = lake.catalog.load_table(("polydomo", name)).scan().to_arrow()
        assert theirs.num_rows == sum(before[name].values())

    # A backfill gives the same rows; and the stream continues from there, even without Spark's checkpoint.
    again = backfill(spark, lake, settings)
    assert (again.added, again.duplicates) == (22, 3)
    assert contents(spark, lake) == before
    audited(spark, lake)
    shutil.rmtree(lake.places.checkpoint.removeprefix("file://"))
    write_segment(ledger, "jobs", [{"job_id": "last", "submitted": after(9)}])
    last = run(spark, lake, settings, once=True)
    assert (last.rows, last.added) == (1, 1)
    assert gold(spark, lake)["2026-03-01"] == (16, 3)

    # A backfill of one day keeps the others.
    before = contents(spark, lake)
    some = backfill(spark, lake, settings, since=date(2026, 3, 2), until=date(2026, 3, 2))
    assert some.added == 2  # a job and an event
    assert contents(spark, lake) == before

    # Rows of deleted segments stay in the tables unless fewer rows are allowed.
    for path in (ledger / "jobs").glob("*.parquet"):
        if path != kept:
            path.unlink()
    with pytest.raises(ConfigError, match=r"jobs has 17 rows, but the ledger has only 1"):
        backfill(spark, lake, settings)
    assert contents(spark, lake) == before
    backfill(spark, lake, settings, fewer=True)
    assert jobs(spark, lake) == ["b"]


def test_a_ledger_that_may_only_be_read(
    spark: SparkSession, lake: Lake, settings: Settings, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad segment stays in place, is examined once, and again after it changed."""
    monkeypatch.setattr("polydomo.pipeline.ingest.os.access", lambda *_: False)
    path = write_segment(ledger, "events", [{}], name="bad.parquet")
    good = path.read_bytes()
    path.write_bytes(good[:50])
    assert len(run(spark, lake, settings, once=True).rejected) == 1
    assert path.exists()
    assert run(spark, lake, settings, once=True).rejected == []
    path.write_bytes(good)
    assert run(spark, lake, settings, once=True).added == 1


class Crash(Exception):
    """Simulates a power cut for the tables."""


STEPS = ("commit jobs", "commit attempts", "commit peers", "bronze", "note segments", "gold")


def test_a_batch_that_ended_anywhere_is_done_again_without_harm(
    spark: SparkSession, lake: Lake, settings: Settings, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, step in enumerate(STEPS):
        write_segment(ledger, "jobs", [{"job_id": f"{number}-{n}", "submitted": after(n)} for n in range(5)])
        write_segment(ledger, "attempts", [{"job_id": f"{number}-1"}])
        write_segment(ledger, "events", [{}])

        def crash(at: str, step: str = step) -> None:
            if at == step:
                raise Crash(at)

        with monkeypatch.context() as patch:
            patch.setattr(Ingest, "before", staticmethod(crash))
            if step == "gold":
                patch.setattr("polydomo.pipeline.run.refresh", lambda *_, **__: crash("gold"))
            with pytest.raises(Crash):
                run(spark, lake, settings, once=True)
    run(spark, lake, settings, once=True)
    assert jobs(spark, lake) == [f"{number}-{n}" for number in range(len(STEPS)) for n in range(5)]
    assert gold(spark, lake) == {"2026-03-01": (5 * len(STEPS), len(STEPS))}
    sizes = {name: lake.read(spark, name).count() for name in ("attempts", "peers", "segments")}
    assert sizes == {"attempts": 6 * len(STEPS), "peers": len(STEPS), "segments": 3 * len(STEPS)}
    assert names(lake.places.intake) == []
    audited(spark, lake)


def test_a_stream_until_it_is_told_to_stop(
    spark: SparkSession, lake: Lake, settings: Settings, ledger: Path
) -> None:
    stop = threading.Event()
    results: list[RunResult] = []
    told: list[tuple[float, str]] = []

    def work() -> None:
        results.append(run(spark, lake, settings, stop=stop, progress=lambda *said: told.append(said)))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(3):
            write_segment(ledger, "jobs", [{"job_id": f"s{number}"}])
            deadline = time.monotonic() + 120
            while len(jobs(spark, lake)) <= number:
                assert thread.is_alive()
                assert time.monotonic() < deadline
                time.sleep(0.2)
        # Only one writer at a time.
        with pytest.raises(Busy, match="run by process"):
            run(spark, lake, settings, once=True)
        with pytest.raises(Busy):
            compact(spark, lake, settings)
    finally:
        stop.set()
        thread.join(120)
    assert not thread.is_alive()
    assert results[0].added == 3
    assert gold(spark, lake) == {"2026-03-01": (3, 0)}
    assert told[-1] == (1.0, "done")
    assert all(0 <= share <= 1 for share, _ in told)
    with holding(lake.places, "test"):  # the lock is free again
        pass


def test_what_is_wrong_with_the_configuration_is_said(
    spark: SparkSession, lake: Lake, settings: Settings
) -> None:
    with pytest.raises(ConfigError, match="there is no ledger at"):
        run(spark, lake, settings, once=True)
    settings.spark.slo = ["echo 200ms 99.9%", "* 1s 99%"]
    assert objectives(settings) == (Objective("echo", 0.2, 0.999), Objective("*", 1.0, 0.99))
    for bad in ("echo", "echo x 99%", "echo 1s 0%", "echo 1s 101%"):
        settings.spark.slo = [bad]
        with pytest.raises(ConfigError, match=r"spark\.slo"):
            objectives(settings)
