"""Appends to an audit log that are killed in the middle of each step: `python -m tests.support.killed_write FOLDER`.

Each append runs in a process of its own, which is killed before its n-th call of the system, or after half of a write.
The process here forks and has one thread only.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from polydomo.security.audit_folder import segment_name
from polydomo.security.audit_log import AuditLog
from polydomo.security.audit_record import ACT, AuditEntry

CALLS = ("open", "write", "fsync", "replace", "rename", "truncate", "ftruncate", "stat")


class Killer:
    """Counter of the calls of the system that remain before the process is killed."""

    def __init__(self, left: int) -> None:
        self.left = left

    def wrap(self, name: str) -> None:
        call: Callable[..., Any] = getattr(os, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                if name == "write":
                    call(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        setattr(os, name, counted)


def append(folder: Path, target: str) -> None:
    AuditLog(folder, lambda damage: None).append([AuditEntry(ACT, "ann", target=target)])


def append_and_die(folder: Path, target: str, calls: int) -> bool:
    """Append in another process and return whether it was killed."""
    child = os.fork()
    if not child:
        killer = Killer(calls)
        for name in CALLS:
            killer.wrap(name)
        append(folder, target)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def main(folder: Path) -> None:
    """Write one log for each step, FOLDER/N. If a torn record was left, kill its repair as well, in FOLDER/N-M."""
    for step in count():
        log = folder / f"{step}"
        append(log, "before")
        if not append_and_die(log, "killed", step):
            return
        for later in count():
            again = folder / f"{step}-{later}"
            shutil.copytree(log, again)
            killed = append_and_die(again, "killed too", later)
            if not killed or (log / segment_name(1)).read_bytes().endswith(b"\n"):
                break


if __name__ == "__main__":
    main(Path(sys.argv[1]))
