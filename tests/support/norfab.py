"""norfab 0.25.0 as published on PyPI: its workers in a process each, its client in this one, and its broker for
comparison. Nothing here imports polydomo.

`NORFAB_BROKER=own pytest tests/dialects/nfp/test_norfab_jobs.py` runs those tests on norfab's own broker, without the
ones it cannot pass: if a test fails there too, the test is wrong.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq
from norfab.core.client import NFPClient
from norfab.core.inventory import NorFabInventory

from tests.support.broker import wait_for

HERE = Path(__file__).resolve().parent
BENCH = HERE.parents[1] / "bench"
OWN_BROKER = os.environ.get("NORFAB_BROKER") == "own"

# Longer than any successful step takes, even on a busy machine; a worker may wait 30 s for its inventory at start.
PATIENCE = 60

MMI, SID = "mmi.service.broker", "sid.service.broker"

Result = dict[str, Any]


class Process:
    """A script as a process, and its output."""

    def __init__(self, log: Path, script: Path, *arguments: str) -> None:
        # -P: norfab.py in this folder must not hide the package.
        self.command = [sys.executable, "-P", str(script), *arguments]
        self.log_path = log
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            # In another folder: norfab puts the current one on the module path.
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.log_path.parent
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Worker(Process):
    """A `norfab_worker.TestWorker`; `start` after `kill` uses the same name and files."""

    def __init__(self, endpoint: str, service: str, name: str, folder: Path, key: str = "") -> None:
        self.name = name
        self.service = service
        script = HERE / "norfab_worker.py"
        words = (endpoint, service, name, str(folder), *([key] if key else []))
        super().__init__(folder / f"{name}.log", script, *words)


class OwnBroker(Process):
    """norfab's broker on a free port."""

    def __init__(self, folder: Path, inventory: Path | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        arguments = [self.endpoint, str(folder), *([str(inventory)] if inventory else [])]
        super().__init__(folder / "own-broker.log", BENCH / "norfab_broker.py", *arguments)


class Client:
    """norfab's client, with the few calls that the tests need. `key` is the broker's public key; empty: no CURVE."""

    def __init__(self, endpoint: str, folder: Path, name: str = "", key: str = "") -> None:
        # A unique name: a broker treats the newest of two peers with one name as the same peer, and a client of another
        # test may still be looking for its broker on a port that is this one's now.
        name = name or f"tester-{uuid.uuid4().hex[:8]}"
        security = {"shared_key": key} if key else {"zmq_auth": False}
        inventory = NorFabInventory(data={"broker": {"endpoint": endpoint, **security}}, base_dir=str(folder))
        self.norfab = NFPClient(inventory, endpoint, name)

    def run(
        self,
        service: str,
        task: str,
        workers: str | list[str] = "all",
        timeout: float = PATIENCE,
        **kwargs: Any,
    ) -> Result:
        """Return the workers' results by name; empty if the job failed (`job` has the reason)."""
        found = self.norfab.run_job(service, task, workers=workers, timeout=timeout, kwargs=kwargs)
        return found if found is not None else {}

    def submit(
        self,
        service: str,
        task: str,
        workers: str | list[str] = "all",
        timeout: float = PATIENCE,
        **kwargs: Any,
    ) -> Any:
        """Submit a job and return its future."""
        return self.norfab.submit_job(service, task, workers=workers, timeout=timeout, kwargs=kwargs)

    def job(self, uuid: str) -> dict[str, Any]:
        """Return the client's record of a job."""
        found: dict[str, Any] = self.norfab.job_db.get_job(uuid)
        return found

    def mmi(self, task: str, to: str = MMI, /, **kwargs: Any) -> Any:
        answer = self.norfab.mmi(to, task, kwargs=kwargs, timeout=PATIENCE)
        assert answer["status"] == "200", answer
        assert answer["errors"] == [], answer
        return answer["results"]

    def alive(self) -> dict[str, str]:
        """Return the workers that the broker lists, and their services."""
        rows = self.mmi("show_workers", status="alive")
        return {row["name"]: row["service"] for row in rows if row["name"]}

    def close(self) -> None:
        self.norfab.destroy()


class Fabric:
    """A broker's norfab peers, and their folder."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self.endpoint = endpoint
        self.folder = folder
        self.workers: dict[str, Worker] = {}
        self.client = Client(endpoint, folder)
        self.number = 0

    def start(self, **services: Iterable[str]) -> None:
        """Start workers by service; return when the broker has registered all of them."""
        for service, names in services.items():
            for name in names:
                self.workers[name] = Worker(self.endpoint, service, name, self.folder)
        self.await_workers(*self.workers)

    def await_workers(self, *names: str) -> None:
        wait_for(
            lambda: self._running(names) and set(names) <= set(self.client.alive()),
            2 * PATIENCE,
            f"not registered: {names}",
        )

    def _running(self, names: Iterable[str]) -> bool:
        for name in names:
            worker = self.workers[name]
            assert worker.process.poll() is None, f"{name} ended:\n{worker.log()}"
        return True

    def file(self, kind: str) -> Path:
        """Return an unused file name."""
        self.number += 1
        return self.folder / f"{kind}-{self.number}"

    def close(self) -> None:
        self.client.close()
        for worker in self.workers.values():
            worker.kill()

    def __enter__(self) -> Fabric:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Raw:
    """A DEALER that sends norfab's frames directly, for messages that its client never sends."""

    def __init__(self, endpoint: str, identity: bytes = b"") -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        if identity:
            self.socket.setsockopt(zmq.ROUTING_ID, identity)
        self.socket.connect(endpoint)

    def post(self, service: bytes, target: bytes, uuid: bytes, body: bytes, command: bytes = b"0x04") -> None:
        self.socket.send_multipart([b"", b"NFPC01", command, service, target, uuid, body])

    def say(self, command: bytes, *frames: bytes) -> None:
        """Send a command as a worker."""
        self.socket.send_multipart([b"", b"NFPW01", command, *frames])

    def heard(self, timeout: float = PATIENCE) -> list[bytes]:
        assert self.socket.poll(timeout * 1000), f"nothing came within {timeout} s"
        return self.socket.recv_multipart()

    def status(self, uuid: bytes, timeout: float = PATIENCE) -> tuple[str, Any]:
        """Return the next RESPONSE about a job: its status and its decoded JSON."""
        while True:
            frames = self.heard(timeout)
            assert len(frames) == 7, frames
            if frames[2] == b"0x05" and frames[4] == uuid:
                return frames[5].decode(), json.loads(frames[6])

    def fetch(self, service: bytes, uuid: bytes) -> dict[str, Any]:
        """Return a job's results, polled by GET."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.post(service, b"any", uuid, b"{}", b"0x06")
            status, answer = self.status(uuid)
            while status == "202":
                status, answer = self.status(uuid)
            if status == "200":
                return dict(answer)
            assert status == "300", (status, answer)
            time.sleep(0.05)
        raise AssertionError(f"no result of {uuid!r} within {PATIENCE} s")

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def until(condition: Callable[[], object], message: str = "") -> None:
    wait_for(condition, PATIENCE, message)
