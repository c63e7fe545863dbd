"""Brokers and workers in processes of their own, for `bench` and `demo`.

Each child has a session of its own: Ctrl-C reaches only the command, which then ends its children in order.
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
from types import FrameType, TracebackType

import msgspec

from polydomo.errors import PolydomoError

START_PATIENCE = 15.0
STOP_PATIENCE = 5.0


class ChildProcess:
    """`polydomo WORDS…` in the background; what it says is kept in a file in case it fails."""

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

    def last_words(self) -> str:
        """The end of what it said."""
        return self.log_path.read_text(errors="replace").strip()[-2000:]

    def kill(self) -> None:
        """As `kill -9` does."""
        self.process.kill()
        self.process.wait()

    def stop(self, patience: float = STOP_PATIENCE) -> int:
        """Politely, then not."""
        if self.running:
            self.process.terminate()
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode


class ProcessGroup:
    """A temporary folder and the children that use it; all end with the `with` block, the newest first."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="polydomo-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self.data = self.folder  # of the last broker
        self.children: list[ChildProcess] = []

    def start(self, *words: str) -> ChildProcess:
        """A child of any kind."""
        child = ChildProcess(*words, folder=self.folder)
        self.children.append(child)
        return child

    def start_broker(
        self, zmq: str = "tcp://127.0.0.1:*", *flags: str, again: bool = False
    ) -> tuple[ChildProcess, str]:
        """A broker that listens, and the endpoint. `again`: in the folder of the last one, which was killed."""
        if not again:
            self.data = self.folder / f"data{len(self.children)}"
        announced = self.data / "broker.json"
        announced.unlink(missing_ok=True)
        child = self.start("broker", "--zmq", zmq, "--data", str(self.data), *flags)
        deadline = time.monotonic() + START_PATIENCE
        while not announced.exists():
            if not child.running or time.monotonic() > deadline:
                raise PolydomoError("the broker did not start", hint=child.last_words() or None)
            time.sleep(0.005)
        return child, self.places()["zmq"][0]

    def start_another(self, *flags: str) -> tuple[ChildProcess, str]:
        """A broker beside the last one, which `data` and `places` still mean."""
        data = self.data
        try:
            return self.start_broker("tcp://127.0.0.1:*", *flags)
        finally:
            self.data = data

    def places(self) -> dict[str, list[str]]:
        """Where the last broker listens, by kind."""
        found: dict[str, list[str]] = msgspec.json.decode((self.data / "broker.json").read_bytes())
        return found

    def __enter__(self) -> ProcessGroup:
        # However politely we are told to end, the children end first.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _leave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self.children):
            if child.running:
                child.process.terminate()
        deadline = time.monotonic() + STOP_PATIENCE  # for all of them together
        for child in reversed(self.children):
            child.stop(max(0.1, deadline - time.monotonic()))
        self._folder.cleanup()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def port_to_listen_on(preferred: int = 5555) -> str:
    """The preferred port as text if nobody has it, else `*`: whichever the system gives."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            return "*"
    return str(preferred)


def url_of(endpoint: str, dialect: str = "mdp") -> str:
    """`tcp://HOST:PORT` → `mdp://HOST:PORT`, `ipc://PATH` → `mdp+ipc://PATH`."""
    transport, _, place = endpoint.partition("://")
    return f"{dialect}://{place}" if transport == "tcp" else f"{dialect}+{transport}://{place}"
