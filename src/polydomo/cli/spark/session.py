"""A Spark session for the duration of one command, with a progress bar and without Java's output."""

from __future__ import annotations

import logging
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from polydomo.cli import common
from polydomo.cli.processes import exit_on_signal
from polydomo.errors import ConfigError, PolydomoError
from polydomo.redaction import redact
from polydomo.server.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds between two updates of Spark's tasks.
REFRESH = 0.5


class ProgressBar:
    """The command's progress, shown on a terminal only."""

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
        self._has_fraction = False
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._watcher is not None:
            self._watcher.join(REFRESH * 4)
        self._progress.stop()

    def update(self, fraction: float, text: str) -> None:
        """Show the completed fraction, 0 to 1, and the current step."""
        self._has_fraction = True
        self._progress.update(self._task, total=1.0, completed=min(1.0, fraction), detail=text)

    def count(self, what: str, done: int, of: int) -> None:
        """Show the completed fraction as numbers."""
        self.update(done / max(1, of), f"{done:,} of {of:,} {what}")

    def show_step(self, text: str) -> None:
        """Show the current step without a fraction."""
        self._progress.update(self._task, detail=text)

    def watch(self, spark: SparkSession) -> None:
        """Show the progress of Spark's tasks until `update` is called."""
        if self.shown:
            self._watcher = threading.Thread(target=self._watch, args=(spark,), daemon=True)
            self._watcher.start()

    def _watch(self, spark: SparkSession) -> None:
        tracker = spark.sparkContext.statusTracker()
        while not self._closed.wait(REFRESH):
            if self._has_fraction:
                continue
            try:
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            except Exception:  # Spark is stopping
                return
            tasks = sum(stage.numTasks for stage in stages if stage is not None)
            done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            if tasks:
                self.show_step(f"{done} of {tasks} tasks")


def need_spark() -> None:
    """Raise ConfigError if the extra `spark` is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pandas", "pyiceberg") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)}: not installed", hint="pip install 'polydomo[spark]'")


@contextmanager
def spark_session(
    settings: Settings, title: str, *, verbose: bool = False, conf: tuple[str, ...] | list[str] = ()
) -> Iterator[tuple[SparkSession, ProgressBar]]:
    """Yield a session and a progress bar. Java ends with the block, also on SIGTERM and Ctrl-C."""
    need_spark()
    from polydomo.pipeline.session import active, end, session

    logging.getLogger("py4j").setLevel(logging.ERROR)  # it logs every connection

    existing = active() is not None  # of a program that calls this command
    with (
        _exit_on_signals(),
        ProgressBar(title) as bar,
        # With `verbose`, Java's output stays on the terminal.
        nullcontext() if verbose else tempfile.TemporaryFile(prefix="polydomo-spark-") as output,
    ):
        bar.show_step("starting Spark")
        try:
            spark = session(settings.spark.master, [*conf, *settings.spark.conf], stderr=output)
        except ConfigError as error:
            raise ConfigError(error.message, hint=_last_lines(output) or error.advice) from error
        if not existing:
            _set_handlers(EXIT_HANDLERS)  # Spark has replaced the handlers
        try:
            bar.show_step("")
            bar.watch(spark)
            yield spark, bar
        except PolydomoError:
            raise
        except Exception as error:
            raise short_error(error) from error
        finally:
            if not existing:
                bar.show_step("stopping Spark")
                end(spark)


def short_error(error: Exception) -> Exception:
    """Return Spark's errors as a short PolydomoError, and other errors unchanged."""
    module = type(error).__module__.partition(".")[0]
    if module not in ("pyspark", "py4j"):
        return error
    message = str(getattr(error, "java_exception", None) or error)
    hint = "--verbose shows Spark's output, POLYDOMO_DEBUG=1 the traceback"
    text = "\n".join(message.strip().split("\n\n")[0].splitlines()[:6])
    return PolydomoError(f"Spark failed: {text}", hint=hint)


def _last_lines(output: IO[Any] | None) -> str:
    """Return the last lines of Java's output."""
    if output is None:
        return ""
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-8:])


# The handlers that end the `with` block with an exception, so that Java is ended, too.
EXIT_HANDLERS = {
    signal.SIGTERM: exit_on_signal,
    signal.SIGHUP: exit_on_signal,
    signal.SIGINT: signal.default_int_handler,
}


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Let SIGTERM, SIGHUP and Ctrl-C raise an exception in the block."""
    before = {number: signal.getsignal(number) for number in EXIT_HANDLERS}
    _set_handlers(EXIT_HANDLERS)
    try:
        yield
    finally:
        _set_handlers(before)


def _set_handlers(handlers: Mapping[signal.Signals, Any]) -> None:
    """Set signal handlers, which only the main thread can do."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)


def stop_on_signals(stop: threading.Event) -> None:
    """Set `stop` on the first SIGTERM, SIGHUP or Ctrl-C; raise an exception on the second."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        stop.set()

    _set_handlers(dict.fromkeys(EXIT_HANDLERS, handle))


def shown_path(url: str) -> str:
    """Return a URL for people: a local path without file://, relative if below the current folder."""
    if not url.startswith("file://"):
        return redact(url)
    path = Path(url.removeprefix("file://"))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
