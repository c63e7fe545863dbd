"""Tests that our folders and files are accessible to their owner only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo import private_files
from polydomo.ledger.segments import SegmentLimits, Segments
from tests.ledger.test_segments import event


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


@pytest.fixture(autouse=True)
def wide_open() -> Iterator[None]:
    """Set a umask that would allow everyone to read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_every_folder_that_is_made_is_private(tmp_path: Path) -> None:
    private_files.make_folder(tmp_path / "a/b/c")
    assert [mode(tmp_path / path) for path in ("a", "a/b", "a/b/c")] == ["0o700"] * 3


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(0o755)
    private_files.make_folder(tmp_path / "a")
    assert mode(tmp_path / "a") == "0o755"
    assert private_files.open_to(tmp_path / "a") == "all users"
    (tmp_path / "a").chmod(0o750)
    assert private_files.open_to(tmp_path / "a") == "its group"
    (tmp_path / "a").chmod(0o2750)
    assert private_files.open_to(tmp_path / "a") == ""
    (tmp_path / "a").chmod(0o700)
    assert private_files.open_to(tmp_path / "a") == ""


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    for path in ("a", "a/b"):
        with pytest.raises(NotADirectoryError):
            private_files.make_folder(tmp_path / path)


@pytest.mark.parametrize(
    ("made", "folders", "files"),
    [(None, "0o700", "0o600"), (0o755, "0o700", "0o600"), (0o2750, "0o2750", "0o640")],
)
def test_segments_are_private_unless_the_folder_was_made_for_a_group(
    tmp_path: Path, made: int | None, folders: str, files: str
) -> None:
    folder = tmp_path / "ledger"
    if made is not None:
        folder.mkdir()
        folder.chmod(made)
    segments = Segments(folder, "house", "run", SegmentLimits(), safe=lambda _: None, warn=lambda *_: None)
    segments.add("events", event(1))
    assert segments.close()
    assert mode(folder / "events") == folders
    (found,) = (folder / "events").glob("*.parquet")
    assert mode(found) == files
