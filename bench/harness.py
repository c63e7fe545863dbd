"""Brokers and load generators as processes, and single measurements.

Every measurement gets a fresh broker process, so that nothing left over from earlier load (disconnected
workers, queues, a grown heap) affects the numbers, and no second broker is running.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from results import YARDSTICK, Sample, Shape

HERE = Path(__file__).resolve().parent
START_SECONDS = 20.0  # until a broker accepts connections
STOP_SECONDS = 3.0  # between SIGTERM and SIGKILL
GENERATOR_SLACK = 60.0  # for connecting, settling and detecting a stall, on a slow machine
OPEN_FILES = 16_384


class BenchError(Exception):
    """The run cannot continue; the text says what happened and where to look."""


@dataclass(frozen=True)
class Broker:
    """A program under test; its last argument will be the endpoint."""

    label: str
    command: tuple[str, ...]
    extra: tuple[str, ...] = ()
    info: tuple[tuple[str, str | bool | None], ...] = ()


@dataclass(frozen=True)
class Generator:
    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Settings:
    rounds: int = 3
    seconds: float = 3.0
    warmup: float = 0.5
    size: int = 64


# -- brokers


def yardstick() -> Broker:
    return Broker(YARDSTICK, (sys.executable, str(HERE / "yardstick.py")))


def candidate(python: str, label: str | None = None, extra: Sequence[str] = ()) -> Broker:
    """Return our broker as installed for that interpreter; the default label is its build."""
    found = shutil.which(python)
    if found is None:
        raise BenchError(f"there is no Python interpreter {python!r}")
    # Not resolved: a virtual environment's interpreter is a link that must be started by its own name.
    path = os.path.abspath(found)
    compiled = _is_compiled(path)
    version = _output(path, "-c", "import platform; print(platform.python_version())")
    return Broker(
        label or ("compiled" if compiled else "plain"),
        (path, "-m", "polydomo", "broker", "--zmq"),
        tuple(extra),
        (("python", version.strip() or None), ("compiled", compiled)),
    )


def _is_compiled(python: str) -> bool | None:
    """Return what `polydomo doctor` reports; None if unknown."""
    try:
        answer = json.loads(_output(python, "-m", "polydomo", "doctor", "--json"))
        return bool(answer["compiled"])
    except (ValueError, KeyError, TypeError):
        return None


def _output(*command: str) -> str:
    with tempfile.TemporaryDirectory() as elsewhere:
        try:
            # In an empty folder, because `-m` would prefer a package polydomo in the current one.
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=elsewhere)
        except (OSError, subprocess.TimeoutExpired):
            return ""
    return done.stdout


# -- the load generator


def find_generator(kind: str = "auto") -> Generator:
    """Return mdpraw, built on first use, or pyload without a C compiler or epoll."""
    python = Generator("pyload", (sys.executable, str(HERE / "pyload.py")))
    if kind == "python":
        return python
    compiler = find_compiler()
    if compiler and sys.platform == "linux":
        return Generator("mdpraw", (str(_build(compiler, HERE / "mdpraw.c")),))
    if kind == "c":
        raise BenchError("the C load generator needs Linux and a C compiler (cc, gcc or clang)")
    return python


def find_compiler() -> str | None:
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def build_library(source: Path) -> Path:
    """Return the shared object of a generator that loads a C library of its own, built on first use."""
    compiler = find_compiler()
    if compiler is None:
        raise BenchError(f"the load of {source.name} needs a C compiler (cc, gcc or clang)")
    return _build(compiler, source, ".so", "-Wall", "-shared", "-fPIC", "-ldl")


def _build(compiler: str, source: Path, suffix: str = "", *options: str) -> Path:
    # The name contains the source's hash, so that only a changed source is built again.
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    built = cache_folder() / f"{source.stem}-{digest}{suffix}"
    if not built.exists():
        unfinished = built.with_name(f"{built.name}.{os.getpid()}")
        command = [compiler, "-O2", "-o", unfinished, source, *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{source.name} does not compile:\n{done.stderr}")
        unfinished.replace(built)  # atomic: two runs at once may both build it
    return built


def cache_folder() -> Path:
    if cache := os.environ.get("XDG_CACHE_HOME"):
        folder = Path(cache, "polydomo-bench")
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    folder = Path(tempfile.gettempdir(), f"polydomo-bench-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    # A program in a world-writable folder is run only if no other user can have put it there.
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
        raise BenchError(f"{folder} belongs to another user; set XDG_CACHE_HOME to a folder of your own")
    return folder


# -- processes


def raise_file_limit() -> None:
    """Raise the limit of open files, which the broker inherits, for thousands of idle peers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass
class Running:
    """A broker process that accepts connections."""

    label: str
    endpoint: str
    popen: subprocess.Popen[bytes]
    log: Path

    def check(self, doing: str) -> None:
        if (code := self.popen.poll()) is not None:
            raise BenchError(
                f"{self.label} ended with code {code} {doing}; its last output:\n{self.last_output()}"
            )

    def last_output(self, size: int = 2000) -> str:
        return self.log.read_bytes()[-size:].decode(errors="replace").strip() or "(none)"

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process and its children, running and reaped."""
        total = 0.0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])  # user, system, and both of reaped children
        return total

    def rss_bytes(self) -> int:
        total = 0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def _family(self) -> list[psutil.Process]:
        try:
            process = psutil.Process(self.popen.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


@contextlib.contextmanager
def running(broker: Broker) -> Iterator[Running]:
    port = free_port()
    endpoint = f"tcp://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [*broker.command, endpoint, *broker.extra],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        process = Running(broker.label, endpoint, popen, log)
        try:
            await_port(process, port)
            yield process
        finally:
            _stop(popen)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_port(process: Running, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        process.check("before it accepted connections")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise BenchError(
        f"{process.label} did not accept connections within {START_SECONDS:.0f} s; its last output:\n"
        f"{process.last_output()}"
    )


def _stop(popen: subprocess.Popen[bytes]) -> None:
    popen.terminate()
    try:
        popen.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()


# -- a measurement


def measure(broker: Broker, shape: Shape, generator: Generator, settings: Settings) -> Sample:
    """Measure one broker under one shape: a fresh process, a warm-up, then the measured window."""
    with running(broker) as process:
        marks: dict[str, float] = {}
        rss: list[int] = []

        def on_mark(mark: str) -> None:
            # The generator marks the start and end of its window, so CPU time is read over exactly those requests.
            marks[mark] = process.cpu_seconds()
            if mark == "measured":
                rss.append(process.rss_bytes())

        where = f"under {shape.name}"
        try:
            load = run_generator(
                load_command(generator, process.endpoint, shape, settings), settings, on_mark
            )
        except BenchError as error:
            process.check(where)  # a dead broker is the better explanation
            raise BenchError(f"{broker.label} {where}: {error}") from None
        process.check(where)
    if load["stalled"] or not load["n"]:
        raise BenchError(
            f"{broker.label} {where}: stalled, {load['done']} of {load['sent']} requests answered"
        )
    if load["wrong"]:
        wrong = f"{broker.label} {where}: {load['wrong']} replies differ from what the worker sent"
        raise BenchError("\n".join([wrong, *load["said"]]))
    return Sample(
        rps=load["rps"],
        p50_us=load["p50_us"],
        p99_us=load["p99_us"],
        cpu_us=(marks["measured"] - marks["measuring"]) * 1e6 / load["n"],
        rss_mib=rss[0] / 2**20,
        generator_busy=load["gen_cpu_us"] * load["rps"] / 1e6,
        disconnects=load["disconnects"],
        unannounced=load.get("unannounced", 0),
    )


def load_command(generator: Generator, endpoint: str, shape: Shape, settings: Settings) -> list[str]:
    options = {
        "-e": endpoint,
        "-c": shape.clients,
        "-k": shape.workers,
        "-n": shape.window,
        "-i": shape.idle_workers,
        "-x": shape.idle_clients,
        "-s": settings.size,
        "-t": settings.seconds,
        "-W": settings.warmup,
    }
    flags = ["-m", *(["-j"] if shape.idle_share_service else [])]
    return [*generator.command, *flags, *(str(word) for pair in options.items() for word in pair)]


def run_generator(command: list[str], settings: Settings, on_mark: Callable[[str], None]) -> dict[str, Any]:
    limit = settings.warmup + settings.seconds + GENERATOR_SLACK
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as popen:
        assert popen.stdout is not None
        assert popen.stderr is not None
        watchdog = threading.Timer(limit, popen.kill)
        watchdog.start()
        try:
            said = []
            for line in popen.stderr:
                if line.strip() in ("measuring", "measured"):
                    on_mark(line.strip())
                else:
                    said.append(line)
            answer = popen.stdout.read()
            popen.wait()
        finally:
            watchdog.cancel()
            popen.kill()
    try:
        result: dict[str, Any] = json.loads(answer)
    except ValueError:
        reason = "".join(said).strip() or f"no result within {limit:.0f} s"
        raise BenchError(f"the load generator failed: {reason}") from None
    result["said"] = [line.strip() for line in said]
    return result
