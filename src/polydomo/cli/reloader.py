"""A command that is restarted whenever a Python file below a folder changes.

The command runs in a process group of its own, so that its children end with it. Changes are found by comparing
modification times a few times a second: no dependency, and it works on every file system.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

# Seconds between two checks for changes.
POLL = 0.3
# Seconds that the old process may take to finish its jobs.
STOP_TIMEOUT = 10.0
IGNORED = {"__pycache__", "node_modules"}


def files(folders: list[Path]) -> Iterator[Path]:
    """Yield every Python file below the folders, except in hidden folders and virtual environments."""
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
    """Return the modification time of each file."""
    found = {}
    for path in files(folders):
        try:
            found[path] = path.stat().st_mtime
        except OSError:  # removed since it was listed
            continue
    return found


def difference(old: dict[Path, float], new: dict[Path, float]) -> Path | None:
    """Return a file that was changed, added or removed."""
    for path in new.keys() | old.keys():
        if old.get(path) != new.get(path):
            return path
    return None


class ProcessReloader:
    """Runs a command, and restarts it after each change, until `stop` is called."""

    def __init__(self, command: list[str], folders: list[Path], log: Callable[[str], None]) -> None:
        self.command = command
        self.folders = folders
        self.log = log
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Run the command until `stop` is called."""
        seen = snapshot(self.folders)
        where = ", ".join(map(str, self.folders))
        self.log(f"watching {len(seen)} Python file{'s' * (len(seen) != 1)} below {where}")
        while not self._stopping.is_set():
            self._child = subprocess.Popen(self.command, start_new_session=True)
            changed = self._wait_for_change(seen)
            self._end()
            seen = snapshot(self.folders)
            if changed is not None:
                self.log(f"{changed} changed: restarting")

    def stop(self) -> None:
        """Stop the command and end `run`; may be called from a signal handler."""
        self._stopping.set()

    def _wait_for_change(self, seen: dict[Path, float]) -> Path | None:
        while not self._stopping.wait(POLL):
            changed = difference(seen, snapshot(self.folders))
            if changed is not None:
                return changed
            if self._child is not None and self._child.poll() is not None:
                self.log(f"the command ended with exit code {self._child.returncode}; waiting for a change")
                self._end()
        return None

    def _end(self) -> None:
        """Stop the command with SIGTERM, then kill what is left of its process group."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.log(f"the command did not stop within {STOP_TIMEOUT:g} s: killed")
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing is left
        child.wait()
