"""A broker whose disk is full or read-only says so, serves what needs no disk, and recovers by itself.

Here the whole process: log, `/readyz`, `status`, `doctor`, start and stop.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.store.disks import small_disk
from tests.support.broker import free_port, wait_for
from tests.support.peers import Answer, Manager, MdpClient, peers_of

TOML = """
[ledger]
folder = "auto"
roll = "0.1s"
[services.safe]
durable = true
"""


class DegradedBroker:
    """A broker that need not be able to write anything. Its log goes through a pipe, so that a limit on the size of its
    files (`limit`) does not concern it."""

    def __init__(self, data: Path, tmp: Path, limit: int | None = None) -> None:
        self.data = data
        self.limit = limit
        self.log_path = tmp / "log"
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        config = tmp / "polydomo.toml"
        config.write_text(TOML)
        self.command = [
            sys.executable,
            "-m",
            "polydomo",
            "broker",
            "--zmq",
            self.endpoint,
            "--http",
            self.http,
        ]
        self.command += ["--data", str(data), "--config", str(config)]
        self.start()

    def start(self) -> None:
        def limited() -> None:
            if self.limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, resource.RLIM_INFINITY))

        with self.log_path.open("wb") as log:
            self.pipe = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        # Coverage could not write its own file either, and would say so in the broker's log.
        unmeasured = {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_CONFIG"}
        self.process = subprocess.Popen(
            self.command, stdout=self.pipe.stdin, stderr=self.pipe.stdin, preexec_fn=limited, env=unmeasured
        )
        assert self.pipe.stdin is not None
        self.pipe.stdin.close()
        wait_for(lambda: f"http={self.http}" in self.log() or '"http"' in self.log() or self.ended(), 30)

    def ended(self) -> bool:
        return self.process.poll() is not None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def set_limit(self, limit: int) -> None:
        """On the size of its files, as a full disk is one; for the running process too."""
        self.limit = limit
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def ready(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.http}/readyz", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def is_ready(self) -> bool:
        return self.ready()[0] == 200

    def submit(self) -> tuple[int, dict[str, str]]:
        """A durable job, over HTTP: status and answer."""
        request = urllib.request.Request(f"http://{self.http}/v1/services/safe/jobs", b"x", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def trouble(self) -> str:
        with Manager(self.endpoint) as manager:
            told: str = manager.show("show_broker")["store"]["trouble"]
            return told

    def command_line(self, *words: str) -> subprocess.CompletedProcess[str]:
        url = self.endpoint.replace("tcp://", "mdp://")
        return subprocess.run(
            [sys.executable, "-m", "polydomo", *words, "--url", url],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def memory_goes_on(self) -> None:
        with peers_of(self.endpoint) as peers:
            peers.echo(b"volatile")
            assert peers(MdpClient).call(b"volatile", [b"x"]) == Answer([], [b"x"])

    def kill(self) -> None:
        if not self.ended():
            self.process.kill()
        self.process.wait()
        self.pipe.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        self.pipe.wait()
        return code


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., DegradedBroker]]:
    brokers: list[DegradedBroker] = []

    def start(data: Path, limit: int | None = None) -> DegradedBroker:
        brokers.append(DegradedBroker(data, tmp_path, limit))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.kill()


def suffers(broker: DegradedBroker, words: str) -> None:
    """All clients get an error, and only durable jobs are refused."""
    wait_for(lambda: not broker.is_ready(), 20, broker.log())
    status, told = broker.ready()
    assert status == 503
    assert words in json.loads(told)["detail"].lower()
    assert words in broker.trouble().lower()
    status, problem = broker.submit()
    assert status == 503
    assert problem["type"].rpartition("/")[2] == "store"
    assert words in problem["detail"].lower()
    broker.memory_goes_on()
    wait_for(
        lambda: "store in trouble" in broker.log(), 20
    )  # through a pipe: later than what the broker answers
    assert broker.log().count("store in trouble") == 1
    assert "Traceback" not in broker.log()


def recovers(broker: DegradedBroker) -> None:
    wait_for(broker.is_ready, 20, broker.log())
    wait_for(lambda: "store recovered" in broker.log(), 20)
    assert broker.log().count("store recovered") == 1
    assert broker.submit()[0] == 202
    assert not broker.trouble()
    wait_for(lambda: (broker.data / "broker.json").exists(), 20)


def ends_well(broker: DegradedBroker) -> None:
    assert broker.stop() == 0, broker.log()
    assert "Traceback" not in broker.log()
    assert "bug" not in broker.log()


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)


def test_a_start_without_room(tmp_path: Path, started: Callable[..., DegradedBroker]) -> None:
    """A limit on the size of files is a full disk that needs no root."""
    (tmp_path / "data").mkdir()
    broker = started(tmp_path / "data", 0)
    suffers(broker, "full")
    wait_for(lambda: "cannot write the ledger" in broker.log(), 20)
    assert broker.log().count("cannot write the ledger") == 1
    assert "full" in broker.command_line("status").stdout
    doctor = broker.command_line("doctor")
    assert doctor.returncode == 1
    assert "full" in doctor.stdout
    broker.set_limit(resource.RLIM_INFINITY)
    recovers(broker)
    wait_for(lambda: "ledger written again" in broker.log(), 20)
    ends_well(broker)


def test_a_restart_without_room_after_a_kill(tmp_path: Path, started: Callable[..., DegradedBroker]) -> None:
    broker = started(tmp_path / "data")
    assert broker.submit()[0] == 202
    broker.kill()
    broker.limit = 0
    broker.start()
    suffers(broker, "full")
    broker.set_limit(resource.RLIM_INFINITY)
    recovers(broker)
    wait_for(lambda: "recovered unfinished jobs" in broker.log(), 20)
    with peers_of(broker.endpoint) as peers:
        peers.echo(b"safe")
        wait_for(lambda: _done(broker) == 2, 30)
    ends_well(broker)


def test_a_stop_without_room(tmp_path: Path, started: Callable[..., DegradedBroker]) -> None:
    broker = started(tmp_path / "data", 0)
    suffers(broker, "full")
    ends_well(broker)


def test_a_disk_that_fills_up(tmp_path: Path, started: Callable[..., DegradedBroker]) -> None:
    """Without any job, a check of the disk finds the trouble."""
    with small_disk(tmp_path / "small", "8m") as disk:
        broker = started(disk / "data")
        wait_for(broker.is_ready)
        fill(disk)
        suffers(broker, "full")
        broker.kill()
        broker.start()
        suffers(broker, "full")
        (disk / "filler").unlink()
        recovers(broker)
        ends_well(broker)


def test_a_disk_that_turns_read_only(tmp_path: Path, started: Callable[..., DegradedBroker]) -> None:
    with small_disk(tmp_path / "small", "8m") as disk:
        broker = started(disk / "data")
        wait_for(broker.is_ready)
        broker.kill()
        remount(disk, "ro")
        broker.start()  # with the files of one that was killed
        suffers(broker, "read-only")
        ends_well(broker)
        broker.start()
        remount(disk, "rw")
        recovers(broker)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_turns_read_only(tmp_path: Path, started: Callable[..., DegradedBroker]) -> None:
    broker = started(tmp_path / "data")
    ends_well(broker)
    (tmp_path / "data").chmod(0o555)
    try:
        broker.start()
        suffers(broker, "readonly")
    finally:
        (tmp_path / "data").chmod(0o755)
    recovers(broker)


def test_a_place_that_is_no_folder_ends_with_a_plain_error(
    tmp_path: Path, started: Callable[..., DegradedBroker]
) -> None:
    (tmp_path / "data").write_text("a file")
    broker = started(tmp_path / "data")
    assert broker.process.wait(20) == 2
    broker.pipe.wait()
    assert "choose another --data" in broker.log()
    assert "Traceback" not in broker.log()


def _done(broker: DegradedBroker) -> int:
    with Manager(broker.endpoint) as manager:
        return sum(1 for job in manager.show("show_stored_jobs")["jobs"] if job["state"] == "done")
