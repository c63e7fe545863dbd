"""One of norfab's workers, unmodified, with a few tasks to test with, in a process of its own:

    python norfab_worker.py ENDPOINT SERVICE NAME FOLDER

Nothing here imports polydomo. What a task waits for is a file (`gate`), so that the test decides when it goes on.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from norfab.core.inventory import NorFabInventory
from norfab.core.worker import Job, NFPWorker, Task
from norfab.models import Result


class TestWorker(NFPWorker):
    """Loads its inventory from the broker as norfab's own workers do, before it says READY."""

    def __init__(self, endpoint: str, service: str, name: str, folder: str) -> None:
        inventory = NorFabInventory(
            data={"broker": {"endpoint": endpoint, "zmq_auth": False}}, base_dir=folder
        )
        super().__init__(inventory, endpoint, service, name, threading.Event(), "WARNING")
        self.loaded = self.load_inventory()

    @Task(fastapi=False)
    def whoami(self, word: str = "") -> Result:
        """Who answered, and what it was sent."""
        return Result(result={"name": self.name, "pid": os.getpid(), "word": word})

    @Task(fastapi=False)
    def get_inventory(self) -> Result:
        """What the broker's SID gave it."""
        return Result(result=self.loaded)

    @Task(fastapi=False)
    def count(self, job: Job, steps: int) -> Result:
        """An event per step."""
        for step in range(steps):
            job.event(f"step {step}", extras={"step": step})
        return Result(result=steps)

    @Task(fastapi=False)
    def question(self, job: Job, text: str) -> Result:
        """What the client answered to the question."""
        return Result(result=job.request_input(text, timeout=60))

    @Task(fastapi=False)
    def listen(self, job: Job, pieces: int) -> Result:
        """What the client put into the running job, whatever it was."""
        job.event("listening")
        return Result(result=[job.wait_client_input(timeout=60) for _ in range(pieces)])

    @Task(fastapi=False)
    def fail(self, text: str) -> Result:
        raise RuntimeError(text)

    @Task(fastapi=False)
    def big(self, size: int) -> Result:
        return Result(result="x" * size)

    @Task(fastapi=False)
    def hold(self, line: str, log: str, gate: str = "") -> Result:
        """Note down that it runs, by whom and in which process; then wait for the gate, if there is one."""
        with Path(log).open("a") as file:
            file.write(f"{line} {self.name} {os.getpid()}\n")
        while gate and not Path(gate).exists():
            time.sleep(0.02)
        return Result(result={"line": line, "name": self.name, "pid": os.getpid()})


def main(arguments: list[str]) -> Any:
    TestWorker(*arguments).work()


if __name__ == "__main__":
    main(sys.argv[1:])
