"""Run a command and start it anew whenever a Python file below a folder changes.

The command runs in a process group of its own, so that what it starts ends with it. Files are looked at by
their modification time, a few times a second: no extra dependency, and it works on every file system.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

POLL = 0.3
# How long the old process may take to finish its jobs.
PATIENCE = 10.0
IGNORED = {"__pycache__", "node_modules"}


def files(folders: list[Path]) -> Iterator[Path]:
    """Every Python file below the folders; hidden folders and virtual environments are left out."""
    for folder in folders:
        for where, below, names in os.walk(folder):
            below[:] = [
                name
                for name in below
                if not name.startswith(".")
                and name not in IGNORED
                and not Path(where, name, "pyvenv.cfg").exists()
            ]
            for name in names:
                if name.endswith(".py"):
                    yield Path(where, name)


def snapshot(folders: list[Path]) -> dict[Path, float]:
    """When each file was last changed."""
    found = {}
    for path in files(folders):
        try:
            found[path] = path.stat().st_mtime
        except OSError:  # gone between listing and looking
            continue
    return found


def difference(old: dict[Path, float], new: dict[Path, float]) -> Path | None:
    """One file that was changed, added or removed."""
    for path in new.keys() | old.keys():
        if old.get(path) != new.get(path):
            return path
    return None


class ProcessReloader:
    """`run` until `stop` is called (from a signal handler) or, without `stop`, for ever."""

    def __init__(self, command: list[str], folders: list[Path], say: Callable[[str], None]) -> None:
        self.command = command
        self.folders = folders
        self.say = say
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start, watch, start anew."""
        seen = snapshot(self.folders)
        where = ", ".join(map(str, self.folders))
        self.say(f"watching {len(seen)} Python file{'s' * (len(seen) != 1)} below {where}")
        while not self._stopping.is_set():
            self._start()
            changed = self._wait_for_change(seen)
            self._end()
            seen = snapshot(self.folders)
            if changed is not None:
                self.say(f"{changed} changed: starting anew")

    def stop(self) -> None:
        """End the command, then `run`."""
        self._stopping.set()

    def _start(self) -> None:
        self._child = subprocess.Popen(self.command, start_new_session=True)

    def _wait_for_change(self, seen: dict[Path, float]) -> Path | None:
        while not self._stopping.wait(POLL):
            changed = difference(seen, snapshot(self.folders))
            if changed is not None:
                return changed
            if self._child is not None and self._child.poll() is not None:
                self.say(f"it ended with exit code {self._child.returncode}; waiting for a change")
                self._end()
        return None

    def _end(self) -> None:
        """SIGTERM lets it finish its jobs; whatever is left of its group is killed."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.say(f"it did not stop within {PATIENCE:g} s: killed")
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the usual case: nobody is left
        child.wait()
