"""Brokers and workers as child processes, for `bench` and `demo`.

Each child has a session of its own: Ctrl-C reaches only the command, which then stops its children in order.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

import msgspec

from polydomo.errors import PolydomoError

START_TIMEOUT = 15.0
STOP_TIMEOUT = 5.0


class ChildProcess:
    """`polydomo WORDS…` in the background, with its output in a file."""

    def __init__(self, *words: str, folder: Path) -> None:
        handle, name = tempfile.mkstemp(".log", f"{words[0]}-", folder)
        self.log_path = Path(name)
        with os.fdopen(handle, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "polydomo", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def log_tail(self) -> str:
        """Return the end of the child's output."""
        return self.log_path.read_text(errors="replace").strip()[-2000:]

    def kill(self) -> None:
        """Kill the child with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = STOP_TIMEOUT) -> int:
        """Stop the child with SIGTERM, or with SIGKILL after `timeout` seconds; return its exit code."""
        if self.running:
            self.process.terminate()
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode


class ProcessGroup:
    """A temporary folder and the children that use it. The `with` block stops them, the newest first."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="polydomo-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self.data = self.folder  # of the last broker
        self.children: list[ChildProcess] = []

    def start(self, *words: str) -> ChildProcess:
        """Start a child with any command."""
        child = ChildProcess(*words, folder=self.folder)
        self.children.append(child)
        return child

    def start_broker(
        self, zmq: str = "tcp://127.0.0.1:*", *flags: str, again: bool = False
    ) -> tuple[ChildProcess, str]:
        """Start a broker; return it and its endpoint. `again`: in the folder of the last one, which was killed."""
        if not again:
            self.data = self.folder / f"data{len(self.children)}"
        announced = self.data / "broker.json"
        announced.unlink(missing_ok=True)
        child = self.start("broker", "--zmq", zmq, "--data", str(self.data), *flags)
        deadline = time.monotonic() + START_TIMEOUT
        while not announced.exists():
            if not child.running or time.monotonic() > deadline:
                raise PolydomoError("the broker did not start", hint=child.log_tail() or None)
            time.sleep(0.005)
        return child, self.endpoints()["zmq"][0]

    def start_another(self, *flags: str) -> tuple[ChildProcess, str]:
        """Start another broker; `data` and `endpoints` stay those of the last one."""
        data = self.data
        try:
            return self.start_broker("tcp://127.0.0.1:*", *flags)
        finally:
            self.data = data

    def endpoints(self) -> dict[str, list[str]]:
        """Return the endpoints of the last broker, by kind."""
        found: dict[str, list[str]] = msgspec.json.decode((self.data / "broker.json").read_bytes())
        return found

    def __enter__(self) -> ProcessGroup:
        # SIGTERM and SIGHUP stop the children, too.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, exit_on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self.children):
            if child.running:
                child.process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT  # for all of them together
        for child in reversed(self.children):
            child.stop(max(0.1, deadline - time.monotonic()))
        self._folder.cleanup()


def exit_on_signal(number: int, frame: FrameType | None) -> None:
    """Exit with the shell's code for a signal; a signal handler."""
    raise SystemExit(128 + number)


def port_to_listen_on(preferred: int = 5555) -> str:
    """Return the preferred port if it is free, otherwise `*`: any free port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            return "*"
    return str(preferred)


def url_of(endpoint: str, dialect: str = "mdp") -> str:
    """Return the URL of an endpoint: `tcp://HOST:PORT` → `mdp://HOST:PORT`, `ipc://PATH` → `mdp+ipc://PATH`."""
    transport, _, place = endpoint.partition("://")
    return f"{dialect}://{place}" if transport == "tcp" else f"{dialect}+{transport}://{place}"
