"""A process that runs queries for the SQL service: Spark, its Java, and the tables.

Untrusted queries may block a thread forever or exhaust Java's memory. They run here, where the service can end them for
certain by killing this process and its Java (a process group) and starting another. Java exits when it is out of
memory, and this process with it; both exit when the service does, however it ends, because the pipe is closed.
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Final
from uuid import uuid4

import msgspec

from polydomo.errors import PolydomoError
from polydomo.pipeline import engine_wire as wire
from polydomo.pipeline import sql
from polydomo.pipeline.sql import MIB, Bounds, Engine, Heavy, QueryProgress

# Seconds between two progress checks.
LOOK: Final = 0.25

# Seconds for Java to exit by itself.
PATIENCE: Final = 5.0


def conf(bounds: Bounds) -> list[str]:
    """Return Spark's settings for untrusted queries, which the user's settings override."""
    return [
        "spark.driver.memory=1g",
        "spark.scheduler.mode=FAIR",
        "spark.sql.variable.substitute=false",
        # A result far over the limit ends its query before it fills the driver. Broadcasts count, too.
        f"spark.driver.maxResultSize={max(4 * bounds.bytes, 64 * MIB)}",
        # History of ended queries.
        "spark.ui.retainedJobs=50",
        "spark.ui.retainedStages=50",
        "spark.sql.ui.retainedExecutions=10",
    ]


def java_options(folder: str) -> str:
    """Return the mandatory options of Java: exit when out of memory, and write no files outside of `folder`."""
    return (
        "-XX:+ExitOnOutOfMemoryError -XX:-UsePerfData "
        f'"-XX:ErrorFile={folder}/java.log" "-Djava.io.tmpdir={folder}"'
    )


class Server:
    """Runs queries from `source` and writes replies to `sink` until `source` ends. `on_lost`: Spark has ended."""

    def __init__(
        self, engine: Engine, source: BinaryIO, sink: BinaryIO, on_lost: Callable[[], None] = lambda: None
    ) -> None:
        self._engine = engine
        self._source = source
        self._sink = sink
        self._on_lost = on_lost
        self._running: dict[
            int, QueryProgress | None
        ] = {}  # the last progress sent; None: no progress wanted
        self._lock = threading.Lock()
        # A cancelled query may take a moment to end: the next one does not wait for it.
        self._queries = ThreadPoolExecutor(2 * engine.bounds.queries, thread_name_prefix="query")
        self._looks = ThreadPoolExecutor(2, thread_name_prefix="look")
        self._over = threading.Event()
        self._name = uuid4().hex  # job groups are shared by all users of one Spark

    def serve(self) -> None:
        """Run queries until the service closes the pipe."""
        self._looks.submit(self._watch)
        self._send(wire.Ready())
        while (message := wire.read(self._source)) is not None:
            if isinstance(message, wire.Run):
                self._running[message.id] = QueryProgress() if message.request.progress else None
                self._queries.submit(self._run, message)
            elif isinstance(message, wire.Cancel) and message.id in self._running:
                self._looks.submit(self._engine.cancel, self._group(message.id))
        self._over.set()
        self._queries.shutdown(wait=False, cancel_futures=True)
        self._looks.shutdown(wait=False, cancel_futures=True)

    def _run(self, asked: wire.Run) -> None:
        number, request = asked.id, asked.request
        last: wire.Done | wire.Failed | wire.TooHeavy
        try:
            if request.progress:
                self._send(wire.Told(number, QueryProgress()))
            result = self._engine.run(request, self._group(number), heavy=asked.heavy)
            *parts, rest = sql.pieces(result, request, self._engine.bounds)
            for part in parts:
                self._send(wire.ResultPart(number, part))
            last = wire.Done(number, rest)
        except Heavy:
            last = wire.TooHeavy(number)
        except sql.SparkLost:
            self._on_lost()
            return
        except PolydomoError as error:
            last = wire.Failed(number, type(error).__name__, error.message, error.advice)
        except Exception as error:
            last = wire.Failed(number, "", f"the query could not be run: {type(error).__name__}", "")
        self._running.pop(number, None)
        self._send(last)

    def _watch(self) -> None:
        """Send the progress of queries when it changes."""
        while not self._over.wait(LOOK):
            for number, told in list(self._running.items()):
                if told is None:
                    continue
                try:
                    seen = self._engine.progress(self._group(number))
                except Exception:  # Spark is ending
                    return
                if msgspec.structs.replace(seen, seconds=told.seconds) != told and number in self._running:
                    self._running[number] = seen
                    self._send(wire.Told(number, seen))

    def _group(self, number: int) -> str:
        """Return the name of a query's job group in Spark."""
        return f"sql-{self._name}-{number}"

    def _send(self, message: wire.ToService) -> None:
        try:
            with self._lock:
                self._sink.write(wire.encode(message))
                self._sink.flush()
        except (OSError, ValueError):  # the service has exited: `serve` sees the end of the pipe and returns
            pass


def main() -> None:
    """Run queries for the service at the other end of stdin and stdout, until either is closed."""
    source, sink = _pipes()
    start = wire.read(source)
    if not isinstance(start, wire.Start):
        return
    tempfile.tempdir = start.folder
    logging.getLogger("py4j").setLevel(logging.ERROR)  # it logs every connection
    _when(lambda: _until_hung_up(source), start.folder)
    try:
        engine = _engine(start)
    except Exception as error:
        advice = error.advice if isinstance(error, PolydomoError) else ""
        message = error.message if isinstance(error, PolydomoError) else f"Spark does not start: {error}"
        sink.write(wire.encode(wire.Failed(0, "", message, advice)))
        sink.flush()
    else:
        Server(engine, source, sink, lambda: _leave(start.folder)).serve()
    _leave(start.folder)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take over stdin and stdout, so that neither Java nor a library's output can reach them."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return source, sink


def _engine(start: wire.Start) -> Engine:
    from polydomo.pipeline.lake import Lake
    from polydomo.pipeline.session import session, settings_for

    settings = settings_for(start.master, [*conf(start.bounds), *start.conf])
    options = "spark.driver.extraJavaOptions"
    settings[options] = f"{settings.get(options, '')} {java_options(start.folder)}".strip()
    spark = session(start.master, settings, app="polydomo-sql")
    java = _java()
    if java is not None:
        _when(java.wait, start.folder)
    engine = Engine(spark, Lake(start.places), start.bounds)
    engine.warm()
    if start.nice:  # also for Java
        os.setpriority(os.PRIO_PGRP, 0, os.getpriority(os.PRIO_PROCESS, 0) + start.nice)
    return engine


def _java() -> subprocess.Popen[bytes] | None:
    """Return the Java process; None before it is started."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def _when(happens: Callable[[], object], folder: str) -> None:
    """Exit as soon as a call returns."""

    def wait() -> None:
        happens()
        _leave(folder)

    threading.Thread(target=wait, daemon=True).start()


def _until_hung_up(source: BinaryIO) -> None:
    """Wait for the other end of the pipe to be closed, read or not."""
    poll = select.poll()
    poll.register(source.fileno(), 0)
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
        pass


def _leave(folder: str) -> None:
    """End Java, gracefully if it is quick, remove the folder and end this process group."""
    with _leaving:
        java = _java() if "pyspark" in sys.modules else None
        if java is not None and java.stdin is not None:
            try:
                java.stdin.close()
                java.wait(PATIENCE)
            except (OSError, subprocess.TimeoutExpired):
                java.kill()
                java.wait()
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(os.getpgrp(), signal.SIGKILL)


_leaving: Final = threading.Lock()

if __name__ == "__main__":
    main()
