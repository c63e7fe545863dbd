"""Segments: whole files only, rolled by time and by rows, safe when it is said, through full disks and old age."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from polydomo.core.job_columns import ColumnJournal, ColumnSink
from polydomo.core.model import Client, Job, Worker
from polydomo.ledger import segments as module
from polydomo.ledger.arrow_columns import batch_of
from polydomo.ledger.job_batch import job_batch
from polydomo.ledger.schema import ATTEMPTS, EVENTS, JOBS, TABLES
from polydomo.ledger.segments import SegmentLimits, Segments
from tests.support.broker import wait_for
from tests.support.core import Bench

_runs = count(1)
NOW = 1_700_000_000_000_000


class Desk:
    """Segments, and what they had to say."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.folder = folder
        self.safe: list[int] = []
        self.warnings: list[str] = []
        self.run = f"run{next(_runs)}"
        self.segments = Segments(
            folder,
            "house",
            self.run,
            SegmentLimits(**limits),
            safe=self.safe.append,
            warn=lambda what, reason: self.warnings.append(what),
        )

    def add(self, *numbers: int, ending: int = 0) -> None:
        self.segments.add(JOBS.name, batch_of(JOBS, map(job_row, numbers), "house", "run"), ending)

    def flush(self) -> None:
        done = threading.Event()
        self.segments.flush(done.set)
        assert done.wait(10)

    def files(self, table: str = "jobs") -> list[Path]:
        return sorted((self.folder / table).glob("[!.]*.parquet"))

    def ids(self) -> list[str]:
        return [value for path in self.files() for value in parquet.read_table(path)["job_id"].to_pylist()]


class Taken(ColumnSink):
    """Rows of a broker that is told nothing else."""

    def __init__(self) -> None:
        self.journal = ColumnJournal(100, self)

    def full(self) -> None:
        pass

    def event(self, kind: str, worker: Worker, reason: str) -> None:
        pass

    def attempt(self, job: Job, reason: str) -> None:
        pass

    def client(self, kind: str, client: Client, reason: str) -> None:
        pass


def job_row(number: int) -> dict[str, object]:
    times = dict.fromkeys(("submitted", "finished"), NOW + number)
    words = dict.fromkeys(("service", "asked", "dialect_in", "client", "broker", "run", "target"), "x")
    counts = dict.fromkeys(("attempts", "bytes_in", "bytes_out", "priority"), 1)
    flags = dict.fromkeys(("durable", "memo_hit", "repeat", "rebuilt"), False)
    return {"job_id": f"job-{number}", "outcome": "done", **times, **words, **counts, **flags}


def event(number: int) -> Any:
    row: dict[str, object] = {"event_id": f"e{number}", "at": NOW, "kind": "joined", "role": "worker"}
    return batch_of(EVENTS, [row], "house", "run")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "ledger", roll=3600.0)
    yield desk
    desk.segments.close()


def test_a_segment_holds_what_came_in_its_order_and_says_where_it_is_from(desk: Desk) -> None:
    desk.add(1, 2)
    desk.add(3)
    desk.flush()
    assert desk.ids() == ["job-1", "job-2", "job-3"]
    (path,) = desk.files()
    metadata = parquet.read_schema(path).metadata
    assert metadata[b"polydomo.ledger"] == b"1"
    assert metadata[b"polydomo.run"].startswith(b"run")
    assert parquet.read_schema(path).field("finished").type == pyarrow.timestamp("us", "UTC")
    assert parquet.read_schema(path).names == [column.name for column in JOBS.columns]


def test_what_is_on_disk_is_said_to_be_safe_with_the_other_tables_rows(desk: Desk) -> None:
    desk.segments.add(EVENTS.name, event(1))
    desk.add(1, ending=5)
    desk.add(2, ending=9)
    assert desk.safe == []
    desk.flush()
    assert desk.safe == [9]
    assert len(desk.files("events")) == len(desk.files()) == 1


def test_it_rolls_by_time(tmp_path: Path) -> None:
    desk = Desk(tmp_path, roll=0.05)
    desk.add(1)
    wait_for(desk.files)
    desk.add(2)
    wait_for(lambda: len(desk.files()) == 2)
    desk.segments.close()


def test_it_rolls_by_rows(tmp_path: Path) -> None:
    desk = Desk(tmp_path, roll=3600.0, rows=3)
    desk.add(1, 2)
    time.sleep(0.05)
    assert desk.files() == []
    desk.add(3)
    wait_for(desk.files)
    desk.segments.close()


def test_closing_writes_the_rest(tmp_path: Path) -> None:
    desk = Desk(tmp_path, roll=3600.0)
    desk.add(1)
    assert desk.segments.close()
    assert desk.ids() == ["job-1"]


def test_nobody_sees_half_a_segment(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Path]] = []
    write = parquet.ParquetWriter.write_table

    def slow(*args: Any, **options: Any) -> None:
        write(*args, **options)
        seen.append(desk.files())

    monkeypatch.setattr(module.parquet.ParquetWriter, "write_table", slow)
    desk.add(1)
    desk.flush()
    assert seen == [[]]
    assert len(desk.files()) == 1


def test_what_a_killed_broker_left_half_written_is_removed(tmp_path: Path) -> None:
    for table in TABLES:
        (tmp_path / table.name).mkdir()
        (tmp_path / table.name / ".half.parquet").write_bytes(b"PAR1")
    Desk(tmp_path).segments.close()
    assert not list(tmp_path.rglob(".half*"))


def test_a_full_disk_delays_rows_and_loses_none(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)
    write = parquet.ParquetWriter.write_table
    full = True

    def fails(*args: Any, **options: Any) -> None:
        if full:
            raise OSError(28, "No space left on device")
        write(*args, **options)

    monkeypatch.setattr(module.parquet.ParquetWriter, "write_table", fails)
    desk.add(1, ending=4)
    desk.segments.flush()
    wait_for(lambda: desk.segments.trouble)
    desk.add(2, ending=5)
    assert desk.safe == []
    full = False
    wait_for(lambda: desk.safe == [5])
    assert desk.ids() == ["job-1", "job-2"]
    assert desk.segments.trouble == ""
    assert desk.warnings == ["cannot write the ledger; retrying", "ledger written again"]
    assert not list(desk.folder.rglob(".*.parquet"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_start_on_a_full_or_read_only_disk_waits_for_a_better_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)
    tries = count(1)
    prepare = Segments._prepare

    def fails(self: Segments) -> None:
        if next(tries) < 5:
            raise OSError(number, os.strerror(number))
        prepare(self)

    monkeypatch.setattr(Segments, "_prepare", fails)
    desk = Desk(tmp_path, roll=0.01)
    assert os.strerror(number) in desk.segments.trouble
    desk.add(1, ending=3)
    wait_for(lambda: desk.safe == [3])
    assert desk.ids() == ["job-1"]
    assert desk.warnings == ["cannot write the ledger; retrying", "ledger written again"]
    desk.segments.close()


def test_a_place_that_will_never_do_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        Desk(tmp_path / "file")


def test_nothing_ends_the_thread(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)
    whole = Segments._table

    def fails(*args: Any) -> Any:
        monkeypatch.setattr(Segments, "_table", whole)
        raise ValueError("a bug")

    monkeypatch.setattr(Segments, "_table", fails)
    desk.add(1, ending=4)
    desk.segments.flush()
    wait_for(lambda: desk.safe == [4])
    assert desk.ids() == ["job-1"]
    assert desk.warnings == ["cannot write the ledger; retrying", "ledger written again"]


def test_if_too_much_waits_the_oldest_go_and_nothing_is_called_safe_any_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the durable ones among them are made from the store after a restart."""
    monkeypatch.setattr(module, "RETRY", 0.01)
    monkeypatch.setattr(module, "BACKLOG", 4)
    write = parquet.ParquetWriter.write_table
    full = True

    def fails(*args: Any, **options: Any) -> None:
        if full:
            raise OSError(28, "No space left on device")
        write(*args, **options)

    monkeypatch.setattr(module.parquet.ParquetWriter, "write_table", fails)
    desk.add(1, 2, ending=2)
    desk.segments.flush()
    wait_for(lambda: desk.segments.trouble)
    desk.add(3, 4, ending=4)
    desk.add(5, ending=5)
    wait_for(lambda: desk.segments.lost == 2)
    full = False
    wait_for(desk.files)
    assert desk.ids() == ["job-3", "job-4", "job-5"]
    desk.flush()
    assert desk.safe == []


def test_old_segments_are_removed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, roll=3600.0)
    desk.add(1)
    desk.flush()
    desk.segments.close()
    (old,) = desk.files()
    os.utime(old, (1, 1))
    desk = Desk(tmp_path, roll=3600.0, keep=60.0)
    desk.add(2)
    desk.flush()
    wait_for(lambda: desk.segments.pruned == 1)
    assert desk.ids() == ["job-2"]
    assert desk.warnings == []
    desk.segments.close()


def test_the_oldest_make_room_when_all_together_are_too_large(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        desk = Desk(tmp_path, roll=3600.0)
        desk.add(number)
        desk.segments.close()
    for age, path in enumerate(sorted(desk.files(), key=lambda path: path.stat().st_mtime)):
        os.utime(path, (1000 + age, 1000 + age))
    size = desk.files()[0].stat().st_size
    desk = Desk(tmp_path, bytes=int(size * 1.5))
    desk.segments.close()
    assert desk.ids() == ["job-3"]
    assert desk.warnings == ["removed segments of the ledger to make room"]


def test_events_make_room_for_jobs_and_not_the_other_way_round(tmp_path: Path) -> None:
    """Anybody who can connect makes events, as many as they like."""
    desk = Desk(tmp_path, roll=3600.0)
    desk.add(1)
    desk.flush()
    for number in range(40):
        desk.segments.add(EVENTS.name, event(number))
        desk.flush()
    desk.segments.close()
    (job,) = desk.files()
    os.utime(job, (1000, 1000))
    size = job.stat().st_size + 20 * desk.files("events")[0].stat().st_size
    desk = Desk(tmp_path, bytes=size)
    desk.segments.close()
    assert desk.ids() == ["job-1"], "the oldest of all, and still there"
    assert 15 <= len(desk.files("events")) <= 20


def test_events_are_dropped_before_jobs_while_nothing_can_be_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)
    monkeypatch.setattr(module, "BACKLOG", 4)
    write = parquet.ParquetWriter.write_table
    full = True

    def fails(*args: Any, **options: Any) -> None:
        if full:
            raise OSError(28, "No space left on device")
        write(*args, **options)

    monkeypatch.setattr(module.parquet.ParquetWriter, "write_table", fails)
    desk.add(1, 2, ending=2)
    for number in range(10):
        desk.segments.add(EVENTS.name, event(number))
    wait_for(lambda: desk.segments.lost == 8)
    full = False
    desk.flush()
    assert desk.ids() == ["job-1", "job-2"]
    assert desk.safe == [2], "all rows about jobs are there"


def test_every_table_can_be_written(desk: Desk) -> None:
    row: dict[str, object] = {
        "job_id": "job-1",
        "number": 1,
        "service": "s",
        "worker": "w",
        "dispatched": NOW,
        "ended": NOW + 5,
        "outcome": "overrun",
        "ran_us": 5,
        "rebuilt": False,
    }
    desk.segments.add(ATTEMPTS.name, batch_of(ATTEMPTS, [row], "house", "run"))
    desk.flush()
    (written,) = parquet.read_table(desk.files("attempts")[0]).to_pylist()
    assert {name: written[name] for name in row if name not in ("dispatched", "ended")} == {
        name: value for name, value in row.items() if name not in ("dispatched", "ended")
    }


def test_live_jobs_and_rows_from_the_store_share_a_segment(desk: Desk) -> None:
    bench = Bench()
    taken = Taken()
    bench.broker.accounting.journal = taken.journal
    worker = bench.worker(b"echo")
    bench.client(b"c").ask(b"echo")
    worker.answer()
    desk.add(1)
    desk.segments.add(JOBS.name, job_batch(taken.journal.take(), NOW / 1_000_000), ending=7)
    desk.flush()
    assert desk.ids() == ["job-1", f"{desk.run}-1"]
    assert desk.safe == [7]
    (path,) = desk.files()
    schema = parquet.read_schema(path)
    assert schema.field("client").type == pyarrow.string()
    assert parquet.read_table(path)["client"].to_pylist() == ["x", "c"]


def test_what_waited_for_long_becomes_several_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)
    desk = Desk(tmp_path, roll=3600.0, rows=3)
    (tmp_path / "jobs").rename(tmp_path / "away")
    for number in range(1, 8, 2):
        desk.add(number, number + 1, ending=number)
    wait_for(lambda: desk.segments.trouble)
    (tmp_path / "away").rename(tmp_path / "jobs")
    wait_for(lambda: desk.safe == [7])
    assert [parquet.read_metadata(path).num_rows for path in desk.files()] == [4, 4]
    assert desk.ids() == [f"job-{number}" for number in range(1, 9)]
    desk.segments.close()
