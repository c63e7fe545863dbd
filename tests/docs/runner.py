"""Runner of a page's blocks: in order, in one temporary folder, each in its own terminal.

Changes on the way: the ports 5555 to 5559 and 8080 become free ones, so that pages can run in parallel and next to a
developer's own broker; `POLYDOMO_URL` and `POLYDOMO_BROKER_ZMQ` pass them to commands that name no port.

Programs that use Spark share one Java (`SparkFolder`), page after page; programs in the background start their own, as
for a reader.

`python -m tests.docs.runner PAGE` runs a page and prints the output of its blocks, to be copied into it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

from polydomo.errors import PolydomoError
from polydomo.sdk import SyncClient
from tests.docs.pages import RUN, Block, Page, read
from tests.support.warm_java import WarmJava

PATIENCE = 240.0  # Spark takes long to start, especially next to other tests
WIDTH = 110
PORTS = ("5555", "5556", "5557", "5558", "5559", "8080")
# The pages' data is small: Java's second compiler would take more time than it saves.
QUICK = "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
PORT = re.compile(rf"\b({'|'.join(PORTS)})\b")
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")

# Patterns that vary between runs, and their replacements before outputs are compared.
VARYING = [
    (re.compile(r'("(?:uptime|seen|since|age|waited|ran)"): [\d.e-]+'), r"\1: <seconds>"),
    (re.compile(r"^\s*\d+\s+(?=[a-z])"), "<number> "),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\b\d\d:\d\d:\d\d\b"), "<time>"),
    (
        re.compile(r"\b(?:mdp|dcp|nfp)-[0-9a-f]{8}\b|\b(?:0x)?[0-9a-f]{10}\b|\b\d{4,}\b|\b\d+\.\d{3,}\b"),
        "<number>",
    ),
    (re.compile(r"\b\d+(\.\d+)?(µs|ms|s|m\d\ds|h\d\dm|d\d\dh)(?!\w)"), "<duration>"),
    (re.compile(r"\b\d+\.\d+\.\d+\b"), "<version>"),
    (re.compile(r"\b(build|loop)=\w+"), r"\1=<this one>"),
    (re.compile(r"\b(pid=|process )\d+"), r"\1<number>"),  # may be a small number
    (re.compile(r"\s+"), " "),
]


class SparkFolder:
    """A folder in which the pages that use Spark are run one after the other, and the Java started there: Java resolves
    relative paths against the folder it was started in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._java: WarmJava | None = None

    def java(self) -> dict[str, str]:
        """Return the environment of a program that uses the shared Java."""
        if self._java is None:
            self._java = WarmJava(self.folder, dict(os.environ), QUICK)
        self._java.clear()
        return self._java.environment

    def empty(self) -> None:
        """Remove a page's files."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def stop(self) -> None:
        if self._java is not None:
            self._java.stop()


class Stage:
    """A folder, its ports, and its open terminals. A page that uses Spark is run in the folder of `spark`."""

    def __init__(self, page: Page, folder: Path, spark: SparkFolder | None = None) -> None:
        self.page = page
        self.folder = spark.folder if spark else folder / "here"
        self.folder.mkdir(exist_ok=True)
        self.ports = _free_ports()
        self.environment = self._environment(folder / "bin")
        self.terminals: list[Terminal] = []
        self._spark = spark

    def play(self, block: Block) -> None:
        """Run a block as a reader would."""
        if block.kind == "file":
            (self.folder / block.note).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / block.note).write_text(self._moved(block.text), encoding="utf-8")
        elif block.language in RUN and not block.note.startswith("skip"):
            background = block.note.startswith("background")
            terminal = self._open(block, {} if background else self._java_for(block))
            if background:
                self._wait_until_up(block, terminal)
            else:
                self._finish(block, terminal)

    def close(self) -> None:
        """Close all terminals."""
        for terminal in reversed(self.terminals):
            terminal.kill()
        if self._spark:
            self._spark.empty()

    def _java_for(self, block: Block) -> dict[str, str]:
        if self._spark is None or block not in self.page.on_spark():
            return {}
        return self._spark.java()

    def _finish(self, block: Block, terminal: Terminal) -> None:
        code = terminal.wait(PATIENCE)
        wanted = int(block.note.removeprefix("fails")) if block.note.startswith("fails") else 0
        if code != wanted:
            self._fail(block, terminal, f"exit code {code} instead of {wanted}")
        missing = first_missing(block.expected, self.seen(terminal))
        if missing:
            self._fail(block, terminal, f"it did not say: {missing}")

    def _wait_until_up(self, block: Block, terminal: Terminal) -> None:
        service = block.note.partition("until service ")[2]

        def up() -> bool:
            if service and not self._offered(service):
                return False
            return not first_missing(block.expected, self.seen(terminal))

        deadline = time.monotonic() + PATIENCE
        while not up():
            if not terminal.running or time.monotonic() > deadline:
                missing = first_missing(block.expected, self.seen(terminal)) or f"service {service}"
                self._fail(block, terminal, f"it ended or took too long, without: {missing}")
            time.sleep(0.02)

    def _offered(self, service: str) -> bool:
        url = f"mdp://127.0.0.1:{self.ports['5555']}"
        try:
            with SyncClient(url, timeout=2, connect_timeout=0.2) as client:
                return client.offered(service)
        except PolydomoError:
            return False

    def _open(self, block: Block, more: dict[str, str]) -> Terminal:
        text = self._moved(block.text)
        if block.language == "python":
            script = self.folder / f".line{block.line}.py"
            script.write_text(text, encoding="utf-8")
            command = [sys.executable, script.name]
        else:
            command = ["bash", "-e", "-c", text]
        terminal = Terminal(text, command, self.folder, self.environment | more)
        self.terminals.append(terminal)
        return terminal

    def _moved(self, text: str) -> str:
        """Replace the page's ports by ours."""
        text = re.sub(r"(?m)^polydomo dev\b(?!.*--port)", f"polydomo dev --port {self.ports['5555']}", text)
        return PORT.sub(lambda found: self.ports[found[0]], text)

    def seen(self, terminal: Terminal) -> str:
        """Return a terminal's output with the page's ports."""
        text = terminal.output().replace(f"{self.folder}/", "").replace(str(self.folder), ".")
        for named, used in self.ports.items():
            text = text.replace(used, named)
        return text

    def _fail(self, block: Block, terminal: Terminal, why: str) -> None:
        terminal.kill()
        others = "".join(
            f"\n--- another terminal ---\n{other.output()}"
            for other in self.terminals
            if other is not terminal
        )
        raise AssertionError(
            f"{self.page.name}:{block.line}: {why}\n--- block ---\n{block.text}--- said ---\n"
            f"{terminal.output()}{others[-3000:]}"
        )

    def _environment(self, programs: Path) -> dict[str, str]:
        programs.mkdir()
        for name, command in (("python", ""), ("polydomo", " -m polydomo"), ("pytest", " -m pytest")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{command} "$@"\n')
            program.chmod(0o755)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("POLYDOMO_", "PYTEST_"))
        }
        kept |= {"PATH": f"{programs}:{kept.get('PATH', '')}", "NO_COLOR": "1", "TERM": "xterm"}
        kept.pop("COLUMNS", None)
        kept["XDG_CONFIG_HOME"] = str(programs.with_name("config"))  # the page's own profiles
        if self.page.own_settings:
            return kept
        place = f"127.0.0.1:{self.ports['5555']}"
        return kept | {
            "POLYDOMO_URL": f"mdp://{place}",
            "POLYDOMO_BROKER_ZMQ": f"tcp://{place}",
            "POLYDOMO_SPARK_CONF": QUICK,
        }


class Terminal:
    """A command on a pseudo-terminal, so that its output is that for people."""

    def __init__(self, title: str, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.title = title
        self._near, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=far,
            stderr=far,
            start_new_session=True,
        )
        os.close(far)
        self._said: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout: float) -> int:
        """Return the exit code; that of SIGKILL after a timeout."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        # A background child may hold the terminal open; the command's own output is complete.
        self._reader.join(5.0)
        return self._process.wait()

    def output(self) -> str:
        return ANSI.sub("", b"".join(self._said).decode(errors="replace"))

    def kill(self) -> None:
        """Kill the command with its children."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._reader.join(1.0)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._near, 65536)
            except OSError:  # EIO: the other end is closed
                data = b""
            if not data:
                os.close(self._near)
                return
            self._said.append(data)


def first_missing(expected: str, said: str) -> str:
    """Return the first expected line that is missing, in order. `…` stands for any text, and alone for any lines."""
    lines = iter([plain(line) for line in said.splitlines()])
    for line in expected.splitlines():
        if line.strip() in ("", "…"):
            continue
        matches = _matcher(plain(line))
        if not any(matches(found) for found in lines):
            return line
    return ""


def plain(line: str) -> str:
    """Return a line without what varies between runs."""
    for pattern, replacement in VARYING:
        line = pattern.sub(replacement, line)
    return line.strip()


def _matcher(line: str) -> Callable[[str], object]:
    parts = [re.escape(part) for part in line.split("…")]
    return re.compile(".*".join(parts)).fullmatch


def _free_ports() -> dict[str, str]:
    """Return a free port for each port in the pages, below the system's ephemeral ports."""
    ports: dict[str, str] = {}
    while len(ports) < len(PORTS):
        with socket.socket() as probe:
            port = random.randint(20_000, 32_000)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if str(port) not in ports.values():
            ports[PORTS[len(ports)]] = str(port)
    return ports


def show(page: Page) -> None:
    """Run a page and print the output of each block, for authors."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spark").mkdir()
        spark = SparkFolder(Path(folder) / "spark")
        stage = Stage(page, Path(folder), spark if page.on_spark() else None)
        try:
            for block in page.blocks:
                stage.play(block)
        finally:
            stage.close()
            spark.stop()
            for terminal in stage.terminals:
                print(f"{'-' * 40}\n{terminal.title}\n{'-' * 10}\n{stage.seen(terminal)}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        show(read(Path(name).resolve()))
