"""One of norfab's workers, unmodified, with a few tasks for tests, in its own process:

    python norfab_worker.py ENDPOINT SERVICE NAME FOLDER [BROKER_KEY]

Nothing here imports polydomo. Tasks wait for a file (`gate`), so that the test controls when they continue.
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
    """A worker that loads its inventory from the broker before READY, like norfab's own workers."""

    def __init__(self, endpoint: str, service: str, name: str, folder: str, key: str = "") -> None:
        security = {"shared_key": key} if key else {"zmq_auth": False}
        inventory = NorFabInventory(data={"broker": {"endpoint": endpoint, **security}}, base_dir=folder)
        super().__init__(inventory, endpoint, service, name, threading.Event(), "WARNING")
        self.loaded = self.load_inventory()

    @Task(fastapi=False)
    def whoami(self, word: str = "") -> Result:
        """Return the worker's name and what it received."""
        return Result(result={"name": self.name, "pid": os.getpid(), "word": word})

    @Task(fastapi=False)
    def get_inventory(self) -> Result:
        """Return the inventory from the broker's SID."""
        return Result(result=self.loaded)

    @Task(fastapi=False)
    def count(self, job: Job, steps: int) -> Result:
        """Send an event per step."""
        for step in range(steps):
            job.event(f"step {step}", extras={"step": step})
        return Result(result=steps)

    @Task(fastapi=False)
    def question(self, job: Job, text: str) -> Result:
        """Return the client's answer to a question."""
        return Result(result=job.request_input(text, timeout=60))

    @Task(fastapi=False)
    def listen(self, job: Job, pieces: int) -> Result:
        """Return what the client sent to the running job."""
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
        """Record that the job runs, its worker and process; then wait for the gate, if given."""
        with Path(log).open("a") as file:
            file.write(f"{line} {self.name} {os.getpid()}\n")
        while gate and not Path(gate).exists():
            time.sleep(0.02)
        return Result(result={"line": line, "name": self.name, "pid": os.getpid()})


def main(arguments: list[str]) -> Any:
    TestWorker(*arguments).work()


if __name__ == "__main__":
    main(sys.argv[1:])
