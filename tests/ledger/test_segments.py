"""Segments: whole files only, rolled by time and by rows, safe when it is said, through full disks and old age."""

from __future__ import annotations

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

from polydomo.ledger import segments as module
from polydomo.ledger.journal import rows_batch
from polydomo.ledger.rows import batch_of_rows
from polydomo.ledger.schema import ATTEMPTS, EVENTS, JOBS, TABLES
from polydomo.ledger.segments import Limits, Segments
from tests.support.broker import wait_for

_runs = count(1)
NOW = 1_700_000_000_000_000


class Desk:
    """Segments, and what they had to say."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.folder = folder
        self.safe: list[int] = []
        self.warnings: list[str] = []
        self.segments = Segments(
            folder,
            "house",
            f"run{next(_runs)}",
            Limits(**limits),
            safe=self.safe.append,
            warn=lambda what, reason: self.warnings.append(what),
        )

    def add(self, *numbers: int, ending: int = 0) -> None:
        self.segments.add(JOBS.name, batch_of_rows([job_row(number) for number in numbers]), ending)

    def flush(self) -> None:
        done = threading.Event()
        self.segments.flush(done.set)
        assert done.wait(10)

    def files(self, table: str = "jobs") -> list[Path]:
        return sorted((self.folder / table).glob("[!.]*.parquet"))

    def ids(self) -> list[str]:
        return [value for path in self.files() for value in parquet.read_table(path)["job_id"].to_pylist()]


def job_row(number: int) -> dict[str, object]:
    times = dict.fromkeys(("submitted", "finished"), NOW + number)
    words = dict.fromkeys(("service", "asked", "dialect_in", "client", "broker", "run", "target"), "x")
    counts = dict.fromkeys(("attempts", "bytes_in", "bytes_out", "priority"), 1)
    flags = dict.fromkeys(("durable", "memo_hit", "repeat", "rebuilt"), False)
    return {"job_id": f"job-{number}", "outcome": "done", **times, **words, **counts, **flags}


def event(number: int) -> Any:
    row: dict[str, object] = {"event_id": f"e{number}", "at": NOW, "kind": "joined", "role": "worker"}
    return rows_batch(EVENTS, [row], "house", "run")


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
    assert desk.warnings == ["the ledger cannot be written; it is tried again", "the ledger is written again"]
    assert not list(desk.folder.rglob(".*.parquet"))


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
    assert desk.warnings == ["segments of the ledger were removed to make room"]


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
    desk.segments.add(ATTEMPTS.name, rows_batch(ATTEMPTS, [row], "house", "run"))
    desk.flush()
    (written,) = parquet.read_table(desk.files("attempts")[0]).to_pylist()
    assert {name: written[name] for name in row if name not in ("dispatched", "ended")} == {
        name: value for name, value in row.items() if name not in ("dispatched", "ended")
    }
