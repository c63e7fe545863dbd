"""Bytes of the store's files are changed: what was lost is said, and what is only unfinished is not."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from polydomo.store.damage import quick_check, scan_log
from polydomo.store.records import DONE
from polydomo.store.sqlite import SqliteStore
from tests.store.desk import NOW, Desk, job, name

PAGE = 4096
FRAME = 24 + PAGE


def crashed(folder: Path, jobs: int = 20) -> Path:
    """A store whose broker was killed: its log has a transaction for each job."""
    desk = Desk(f"sqlite:///{folder}/running.db")
    for number in range(1, jobs + 1):
        assert desk.do(desk.store.add, job(number, body=bytes(3000))) is None
    for ending in ("", "-wal"):
        shutil.copyfile(f"{folder}/running.db{ending}", f"{folder}/store.db{ending}")
    desk.close()
    return folder / "store.db"


@pytest.fixture(autouse=True)
def no_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polydomo.store.checkpoint.PAUSE", 3600.0)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


def opened(path: Path) -> tuple[str, int]:
    """What the store says about damage, and how many jobs it has."""
    desk = Desk(f"sqlite:///{path}")
    jobs = sum(count.jobs for count in desk.ask(desk.store.counts()))
    damage = desk.store.damage
    desk.close()
    return damage, jobs


def test_a_log_after_a_crash_is_sound(tmp_path: Path) -> None:
    assert opened(crashed(tmp_path)) == ("", 20)


@pytest.mark.parametrize("place", ["page", "salt", "number"])
def test_a_changed_byte_in_the_middle_of_the_log(tmp_path: Path, place: str) -> None:
    path = crashed(tmp_path)
    log = Path(f"{path}-wal")
    scan = scan_log(log)
    assert scan is not None
    middle = scan.commits[len(scan.commits) // 2]  # the frames before it are whole
    offset = {"number": 0, "salt": 8, "page": 100}[place]
    flip(log, 32 + (middle + 1) * FRAME + offset)
    before = log.read_bytes()
    damage, jobs = opened(path)
    assert f"damaged after frame {middle}" in damage
    assert 0 < jobs < 20
    kept = Path(f"{log}.damaged")
    assert kept.read_bytes() == before
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert opened(path) == ("", jobs)  # it is said once: what is left is sound


def test_a_changed_header_of_the_log(tmp_path: Path) -> None:
    path = crashed(tmp_path)
    flip(Path(f"{path}-wal"), 17)
    assert "header is damaged" in opened(path)[0]


def test_a_last_transaction_that_is_cut_short_is_no_damage(tmp_path: Path) -> None:
    """A power failure does that to a commit that had not returned."""
    path = crashed(tmp_path)
    log = Path(f"{path}-wal")
    scan = scan_log(log)
    assert scan is not None
    flip(log, 32 + (scan.commits[-1] - 1) * FRAME + 100)
    assert opened(path) == ("", 19)


def test_frames_of_an_older_log_do_not_count(tmp_path: Path) -> None:
    """A log that was moved into the database starts over, in front of its old frames."""
    desk = Desk(f"sqlite:///{tmp_path}/running.db")
    assert isinstance(desk.store, SqliteStore)
    for number in range(1, 24):
        assert desk.do(desk.store.add, job(number, body=bytes(3000))) is None
        if number == 20:
            desk.store._writing.pragma("wal_checkpoint(PASSIVE)")
    for ending in ("", "-wal"):
        shutil.copyfile(f"{tmp_path}/running.db{ending}", f"{tmp_path}/store.db{ending}")
    desk.close()
    scan = scan_log(tmp_path / "store.db-wal")
    assert scan is not None
    assert len(scan.commits) == 3
    assert (tmp_path / "store.db-wal").stat().st_size > 32 + 2 * scan.frames * FRAME
    assert opened(tmp_path / "store.db") == ("", 23)


def test_a_damaged_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    desk = Desk(f"sqlite:///{path}")
    for number in range(1, 400):
        desk.store.add(job(number))
    assert desk.do(desk.store.finish, name(1), 0, DONE, b"", NOW) is None
    desk.close()
    assert quick_check(path, 60) == ([], True)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // PAGE * PAGE
    data[middle : middle + PAGE] = b"\xff" * PAGE
    path.write_bytes(data)
    found = quick_check(path, 60)
    assert found.finished
    assert found.problems


def test_a_check_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = crashed(tmp_path)
    monkeypatch.setattr("polydomo.store.damage.STEPS", 1)
    assert quick_check(path, 0) == ([], False)
    assert quick_check(path, 60, lambda: True) == ([], False)
