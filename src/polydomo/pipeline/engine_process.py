"""A process that runs queries for the SQL service: Spark, its Java, and the tables.

Queries of strangers may keep a thread for ever or use up Java's memory. So they run here, where the service can put an
end to them for certain: it kills this process and its Java (they are a process group of their own), and starts another.
Java ends by itself when it is out of memory, and this process with it; and both end when the service does, however
that happens, because the pipe to it ends.
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
from polydomo.pipeline.sql import MIB, Bounds, Engine, Heavy, Progress

# Seconds between two looks at how far queries are.
LOOK: Final = 0.25

# Seconds that Java gets to end by itself.
PATIENCE: Final = 5.0


def conf(bounds: Bounds) -> list[str]:
    """What Spark is started with for queries of strangers, unless the user says otherwise."""
    return [
        "spark.driver.memory=1g",
        "spark.scheduler.mode=FAIR",
        "spark.sql.variable.substitute=false",
        # A result that is far too big ends its query before it fills the driver. Broadcasts count, too.
        f"spark.driver.maxResultSize={max(4 * bounds.bytes, 64 * MIB)}",
        # What is remembered of queries that have ended.
        "spark.ui.retainedJobs=50",
        "spark.ui.retainedStages=50",
        "spark.sql.ui.retainedExecutions=10",
    ]


def java_options(folder: str) -> str:
    """Return what Java must be started with, whatever else it is: it ends when it is out of memory, and leaves nothing
    behind outside of `folder`."""
    return (
        "-XX:+ExitOnOutOfMemoryError -XX:-UsePerfData "
        f'"-XX:ErrorFile={folder}/java.log" "-Djava.io.tmpdir={folder}"'
    )


class Server:
    """Runs the queries that come in and answers them, until there are no more. `on_lost`: Spark has ended."""

    def __init__(
        self, engine: Engine, source: BinaryIO, sink: BinaryIO, on_lost: Callable[[], None] = lambda: None
    ) -> None:
        self._engine = engine
        self._source = source
        self._sink = sink
        self._on_lost = on_lost
        self._running: dict[int, Progress | None] = {}  # what was told of each last; None: nothing shall be
        self._lock = threading.Lock()
        # A query that was cancelled may take a moment to end: the next one need not wait for it.
        self._queries = ThreadPoolExecutor(2 * engine.bounds.queries, thread_name_prefix="query")
        self._looks = ThreadPoolExecutor(2, thread_name_prefix="look")
        self._over = threading.Event()
        self._name = uuid4().hex  # groups of jobs are known to all that use the same Spark

    def serve(self) -> None:
        """Return when the service has gone."""
        self._looks.submit(self._watch)
        self._send(wire.Ready())
        while (message := wire.read(self._source)) is not None:
            if isinstance(message, wire.Run):
                self._running[message.id] = Progress() if message.request.progress else None
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
                self._send(wire.Told(number, Progress()))
            result = self._engine.run(request, self._group(number), heavy=asked.heavy)
            *parts, rest = sql.pieces(result, request, self._engine.bounds)
            for part in parts:
                self._send(wire.Piece(number, part))
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
        """Tell how far queries are, where that has changed."""
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
        """A query's name in Spark."""
        return f"sql-{self._name}-{number}"

    def _send(self, message: wire.ToService) -> None:
        try:
            with self._lock:
                self._sink.write(wire.encode(message))
                self._sink.flush()
        except (OSError, ValueError):  # the service has gone, and so shall we: `serve` sees it, too
            pass


def main() -> None:
    """Run queries for the service at the other end of stdin and stdout, until one of both ends."""
    source, sink = _pipes()
    start = wire.read(source)
    if not isinstance(start, wire.Start):
        return
    tempfile.tempdir = start.folder
    logging.getLogger("py4j").setLevel(logging.ERROR)  # it tells of every connection
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
    """Take stdin and stdout, so that neither Java nor what a library prints can get at them."""
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
    """The Java of this process; None: it has none yet."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def _when(happens: Callable[[], object], folder: str) -> None:
    """Leave as soon as a call returns."""

    def wait() -> None:
        happens()
        _leave(folder)

    threading.Thread(target=wait, daemon=True).start()


def _until_hung_up(source: BinaryIO) -> None:
    """Wait for the other end of the pipe to be closed, whether or not all of it was read."""
    poll = select.poll()
    poll.register(source.fileno(), 0)
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
        pass


def _leave(folder: str) -> None:
    """End Java, by its own means if it is quick, and this process; nothing stays behind."""
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
