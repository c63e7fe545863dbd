"""A copy of the store while it is written to."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from polydomo.store import backup
from polydomo.store.backup import back_up, store_file
from polydomo.store.errors import StoreCorrupt, StoreError, StoreUnusable
from tests.store.desk import Desk, job


def jobs_in(path: Path) -> int:
    desk = Desk(f"sqlite:///{path}")
    jobs = sum(count.jobs for count in desk.ask(desk.store.counts()))
    desk.close()
    return jobs


def test_a_copy_of_a_store_that_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is of one moment, and is finished although there is a commit after every step."""
    monkeypatch.setattr(backup, "PAGES", 8)
    desk = Desk(f"sqlite:///{tmp_path}/jobs.db")
    for number in range(1, 101):
        assert desk.do(desk.store.add, job(number, body=bytes(5000))) is None
    steps: list[tuple[int, int]] = []

    def write(done: int, total: int) -> None:
        steps.append((done, total))
        assert desk.do(desk.store.add, job(100 + len(steps), body=bytes(5000))) is None

    target = tmp_path / "copy.db"
    copied = back_up(tmp_path / "jobs.db", target, progress=write)
    assert copied.jobs == 100
    assert copied.bytes == target.stat().st_size
    assert len(steps) > 5
    assert steps[-1][0] == steps[-1][1]
    desk.close()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == ["copy.db"]
    with closing(sqlite3.connect(target)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)  # one file is all of it
    assert jobs_in(target) == 100


def test_a_copy_replaces_nothing_unasked(tmp_path: Path) -> None:
    Desk(f"sqlite:///{tmp_path}/jobs.db").close()
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(StoreUnusable, match="exists already") as caught:
        back_up(tmp_path / "jobs.db", target)
    assert "--force" in caught.value.advice
    assert target.read_text() == "precious"
    assert back_up(tmp_path / "jobs.db", target, force=True).jobs == 0


def test_a_damaged_store_is_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    desk = Desk(f"sqlite:///{path}")
    for number in range(1, 200):
        desk.store.add(job(number))
    assert desk.do(desk.store.add, job(1000)) is None
    desk.close()
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match=r"damaged|malformed"):
        back_up(path, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
    assert not list(tmp_path.glob(".copy*"))


def test_there_is_nothing_to_copy(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="no store"):
        back_up(tmp_path / "jobs.db", tmp_path / "copy.db")
    (tmp_path / "jobs.db").write_text("something else")
    with pytest.raises(StoreError):
        back_up(tmp_path / "jobs.db", tmp_path / "copy.db")
    Desk(f"sqlite:///{tmp_path}/other.db").close()
    with pytest.raises(StoreUnusable, match="cannot use"):
        back_up(tmp_path / "other.db", tmp_path / "nowhere" / "copy.db")


def test_where_a_store_is() -> None:
    assert store_file("sqlite:////var/jobs.db") == Path("/var/jobs.db")
    with pytest.raises(StoreUnusable) as caught:
        store_file("postgresql://host/base")
    assert "pg_dump" in caught.value.advice
    with pytest.raises(StoreError, match="no store"):
        store_file("")
