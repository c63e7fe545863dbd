"""Spark for the time of one command: a bar for people, quiet Java, and an end whatever happens."""

from __future__ import annotations

import logging
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from polydomo.cli import common
from polydomo.cli.spark import options
from polydomo.errors import ConfigError, PolydomoError
from polydomo.redaction import redact
from polydomo.server.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds between two looks at Spark's tasks.
LOOK = 0.5


class ProgressBar:
    """How far the command is: on a terminal, and nowhere else."""

    def __init__(self, title: str) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}", style="dim"),
            TimeElapsedColumn(),
        )
        self.shown = common.err.is_terminal and not common.OutputMode.json
        self._progress = Progress(*columns, console=common.err, transient=True, disable=not self.shown)
        self._task = self._progress.add_task(title, total=None, detail="")
        self._told = False
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._watcher is not None:
            self._watcher.join(LOOK * 4)
        self._progress.stop()

    def tell(self, share: float, text: str) -> None:
        """How much is done, 0 to 1, and what is being done."""
        self._told = True
        self._progress.update(self._task, total=1.0, completed=min(1.0, share), detail=text)

    def count(self, what: str, done: int, of: int) -> None:
        """The same in numbers."""
        self.tell(done / max(1, of), f"{done:,} of {of:,} {what}")

    def say(self, text: str) -> None:
        """Nobody knows how far: only what."""
        self._progress.update(self._task, detail=text)

    def watch(self, spark: SparkSession) -> None:
        """Spark's own tasks, where the command has nothing better to tell."""
        if self.shown:
            self._watcher = threading.Thread(target=self._watch, args=(spark,), daemon=True)
            self._watcher.start()

    def _watch(self, spark: SparkSession) -> None:
        tracker = spark.sparkContext.statusTracker()
        while not self._over.wait(LOOK):
            if self._told:
                continue
            try:
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            except Exception:  # Spark is ending
                return
            tasks = sum(stage.numTasks for stage in stages if stage is not None)
            done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            if tasks:
                self.say(f"{done} of {tasks} tasks")


@contextmanager
def spark_session(
    settings: Settings, title: str, *, verbose: bool = False, conf: tuple[str, ...] | list[str] = ()
) -> Iterator[tuple[SparkSession, ProgressBar]]:
    """A session and a bar. Java ends with the block, whatever ends that: also SIGTERM and Ctrl-C."""
    options.need_spark()
    from polydomo.pipeline.session import active, end, session

    logging.getLogger("py4j").setLevel(logging.ERROR)  # it tells of every connection

    there = active() is not None  # a program that calls us has one of its own
    with _told_to_end(), ProgressBar(title) as bar, _place_for_noise(verbose) as noise:
        bar.say("starting Spark")
        try:
            spark = session(settings.spark.master, [*conf, *settings.spark.conf], stderr=noise)
        except ConfigError as error:
            raise ConfigError(error.message, hint=_last_words(noise) or error.advice) from error
        if not there:
            handle_ending()  # Spark has put its own in place of them
        try:
            bar.say("")
            bar.watch(spark)
            yield spark, bar
        except PolydomoError:
            raise
        except Exception as error:
            raise failed(error, noise) from error
        finally:
            if not there:
                bar.say("stopping Spark")
                end(spark)


def failed(error: Exception, noise: IO[Any] | None = None) -> Exception:
    """Spark's own errors in a few lines; others as they are."""
    module = type(error).__module__.partition(".")[0]
    if module not in ("pyspark", "py4j"):
        return error
    said = str(getattr(error, "java_exception", None) or error)
    hint = "--verbose shows what Spark says; POLYDOMO_DEBUG=1 where it was"
    text = "\n".join(said.strip().split("\n\n")[0].splitlines()[:6])
    return PolydomoError(f"Spark failed: {text}", hint=hint)


@contextmanager
def _place_for_noise(verbose: bool) -> Iterator[IO[Any] | None]:
    """A file for what Java has to say, or none: then it says it to the person."""
    if verbose:
        yield None
        return
    with tempfile.TemporaryFile(prefix="polydomo-spark-") as noise:
        yield noise


def _last_words(noise: IO[Any] | None) -> str:
    """The end of what Java said before it gave up."""
    if noise is None:
        return ""
    noise.seek(0)
    lines = noise.read().decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-8:])


@contextmanager
def _told_to_end() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as an exception does, so that Java is ended, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    handle_ending()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def handle_ending() -> None:
    """From now on."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _leave)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def on_ending(stop: threading.Event) -> None:
    """The first SIGTERM, SIGHUP or Ctrl-C asks to come to an end; the second ends it."""

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        stop.set()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, ask)


def rate(rows: int, seconds: float) -> str:
    """For people: 12,345 rows/s."""
    return f"{rows / seconds:,.0f} rows/s" if seconds > 0 else "–"


def day(text: str | None, flag: str) -> Any:
    """A date, if one was given."""
    from datetime import date

    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no day: write 2026-11-16", param_hint=flag) from None


def number(text: str, flag: str) -> int:
    """Also with _ and commas between the digits, and with k or M behind them."""
    factor = {"k": 1000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    digits = (text[:-1] if factor > 1 else text).replace("_", "").replace(",", "")
    if not digits.isdigit() or int(digits) * factor < 1:
        raise typer.BadParameter(f"{text!r}: write 10_000_000, 10000000 or 10M", param_hint=flag)
    return int(digits) * factor


def clock() -> float:
    """Seconds, for telling how long something took."""
    return time.monotonic()


def shown_path(place: str) -> str:
    """A folder of this machine without file://, short where it is below the current one."""
    if not place.startswith("file://"):
        return redact(place)
    path = Path(place.removeprefix("file://"))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
