"""`polydomo worker --reload`: detection of changes and restarts."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from polydomo.cli import reloader
from polydomo.cli.reloader import ProcessReloader, difference, files, snapshot
from tests.support.broker import wait_for


def test_only_python_files_outside_of_hidden_folders_and_environments(tmp_path: Path) -> None:
    for name in (
        "a.py",
        "sub/b.py",
        "c.txt",
        ".git/d.py",
        "__pycache__/e.py",
        "env/lib/f.py",
        "env/pyvenv.cfg",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert {path.relative_to(tmp_path).as_posix() for path in files([tmp_path])} == {"a.py", "sub/b.py"}


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({"a": 1.0}, {"a": 1.0}, None),
        ({"a": 1.0}, {"a": 2.0}, "a"),
        ({"a": 1.0}, {"a": 1.0, "b": 1.0}, "b"),
        ({"a": 1.0, "b": 1.0}, {"a": 1.0}, "b"),
    ],
)
def test_a_file_was_changed_added_or_removed(
    old: dict[str, float], new: dict[str, float], changed: str | None
) -> None:
    found = difference(
        {Path(name): time for name, time in old.items()}, {Path(name): time for name, time in new.items()}
    )
    assert found == (None if changed is None else Path(changed))


class Watched:
    """A program in a folder, run by a Reloader in a thread; the program notes each of its starts."""

    def __init__(self, folder: Path, text: str) -> None:
        self.starts = folder / "starts"
        self.starts.touch()
        self.program = folder / "program.py"
        self.said: list[str] = []
        self.write(text)
        self.reloader = ProcessReloader(
            [sys.executable, str(self.program), str(self.starts)], [folder], self.said.append
        )
        self.thread = threading.Thread(target=self.reloader.run)

    def write(self, text: str) -> None:
        self.program.write_text(
            f"import os, sys, time\nopen(sys.argv[1], 'a').write(f'{{os.getpid()}} ')\n{text}"
        )
        stamp = len(self.pids()) + 1_000_000_000
        os.utime(self.program, (stamp, stamp))

    def pids(self) -> list[int]:
        return [int(word) for word in self.starts.read_text().split()]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(reloader, "POLL", 0.02)
    made = Watched(tmp_path, "time.sleep(60)")
    made.thread.start()
    yield made
    made.reloader.stop()
    made.thread.join(15)
    assert not made.thread.is_alive()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_change_ends_the_old_process_and_starts_a_new_one(watched: Watched) -> None:
    wait_for(lambda: len(watched.pids()) == 1)
    watched.write("time.sleep(60) # changed")
    wait_for(lambda: len(watched.pids()) == 2)
    first, second = watched.pids()
    assert not alive(first)
    assert alive(second)
    assert any("program.py changed" in line for line in watched.said)
    watched.reloader.stop()
    watched.thread.join(15)
    assert not alive(second)


def test_a_program_that_fails_is_started_again_only_when_it_changed(watched: Watched) -> None:
    wait_for(lambda: len(watched.pids()) == 1)
    watched.write("sys.exit(3)")
    wait_for(lambda: any("exit code 3; waiting for a change" in line for line in watched.said))
    assert len(watched.pids()) == 2
    watched.write("time.sleep(60)")
    wait_for(lambda: len(watched.pids()) == 3)


def test_what_the_program_started_ends_with_it(watched: Watched) -> None:
    wait_for(lambda: len(watched.pids()) == 1)
    watched.write(
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open(sys.argv[1], 'a').write(f'{child.pid} ')\n"
        "time.sleep(60)"
    )
    wait_for(lambda: len(watched.pids()) == 3)
    grandchild = watched.pids()[2]
    assert alive(grandchild)
    watched.reloader.stop()
    watched.thread.join(15)
    wait_for(lambda: not alive(grandchild))


def test_a_snapshot_survives_files_that_vanish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloader, "files", lambda folders: iter([tmp_path / "gone.py"]))
    assert snapshot([tmp_path]) == {}
