"""A real broker in its own process, for tests over real sockets."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


class BrokerProcess:
    """`polydomo broker` on a free port. `toml` is the text of its configuration file; `nng` and `http` open these
    listeners, on a free port or at the given address."""

    def __init__(
        self,
        *flags: str,
        toml: str = "",
        zmq: str = "tcp://127.0.0.1:*",
        nng: bool | str = False,
        http: bool | str = False,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="polydomo-test-", ignore_cleanup_errors=True)
        self.data = Path(self.folder.name, "data")
        self.log_path = Path(self.folder.name, "log")
        command = [sys.executable, "-m", "polydomo", "broker", "--zmq", zmq, "--data", str(self.data)]
        if toml:
            config = Path(self.folder.name, "polydomo.toml")
            config.write_text(toml)
            command += ["--config", str(config)]
        if nng:
            command += ["--nng", nng if isinstance(nng, str) else "tcp://127.0.0.1:*"]
        if http:
            command += ["--http", http if isinstance(http, str) else "127.0.0.1:0"]
        self.command = [*command, *flags]
        self.process: subprocess.Popen[bytes]
        self._start()

    def start_again(self) -> None:
        """Start the same broker on the same folder and port again, after `kill` or `stop`."""
        for flag, place in (("--zmq", self.endpoint), ("--nng", self.nng), ("--http", self.http)):
            if flag in self.command:
                self.command[self.command.index(flag) + 1] = place
        self._start()

    def _start(self) -> None:
        announced = self.data / "broker.json"
        announced.unlink(missing_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        wait_for(lambda: announced.exists() or self.process.poll() is not None, 20)
        if self.process.poll() is not None:
            log = self.log()
            self.folder.cleanup()
            raise RuntimeError(f"the broker did not start:\n{log}")
        told = json.loads(announced.read_text())
        self.endpoints: list[str] = told["zmq"]
        self.events: list[str] = told["events"]
        self.endpoint = self.endpoints[0]
        self.nng: str = next(iter(told.get("nng", [])), "")
        self.http: str = next(iter(told.get("http", [])), "")

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = 15) -> int:
        """Send SIGTERM and return the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not stop:\n{self.log()}") from None

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        end(self.process)
        self.folder.cleanup()


class DeviceProcess:
    """`polydomo device` on its own port."""

    def __init__(self, *up: str, endpoint: str = "", http: str = "", name: str = "") -> None:
        self.endpoint = endpoint or f"tcp://127.0.0.1:{free_port()}"
        self.http = http
        self.log_file = tempfile.NamedTemporaryFile(prefix="polydomo-device-")  # noqa: SIM115
        urls = [text.replace("tcp://", "wmp://") for text in up]
        command = [sys.executable, "-m", "polydomo", "device", *urls, "--zmq", self.endpoint]
        command += ["--http", http] if http else []
        command += ["--name", name] if name else []
        self.process = subprocess.Popen(command, stdout=self.log_file, stderr=self.log_file)
        wait_for(lambda: "listening" in self.log() or self.process.poll() is not None, 20)
        assert self.process.poll() is None, self.log()

    @property
    def url(self) -> str:
        return self.endpoint.replace("tcp://", "wmp://")

    def log(self) -> str:
        return Path(self.log_file.name).read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(15)

    def __enter__(self) -> DeviceProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        end(self.process)
        self.log_file.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that a test no longer needs, whatever it is doing.

    A killed process leaves no coverage data: where coverage is measured, give it the time to end by itself.
    """
    if process.poll() is None and "COVERAGE_PROCESS_CONFIG" in os.environ:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            pass
    if process.poll() is None:
        process.kill()
    process.wait()


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(condition: Callable[[], object], timeout: float = 10.0, message: str = "") -> None:
    """Wait until `condition` is true; raise AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(message or f"not true within {timeout} s: {condition}")
        time.sleep(0.005)
