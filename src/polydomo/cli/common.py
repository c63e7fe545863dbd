"""What the commands share: how they end, how they say that something is wrong, tables and `--json`.

Everything a command prints passes `out`, `err` or `print_json`, because much of it comes from peers: control characters
in it are shown and not obeyed by the terminal (`polydomo.safe_text`). In JSON they are JSON's escapes, so that programs
read what was sent. Only what a person asked for as it is (`call` into a pipe, `call --raw`, `files get -o -`) is not
touched.

Exit codes, the same for every command:

| code | meaning |
| --- | --- |
| 0 | it went well |
| 1 | the job failed, or a check found something wrong |
| 2 | the command line or the configuration is wrong |
| 3 | no broker could be reached |
| 4 | nobody offers the service |
| 5 | no answer in time |
| 6 | the store cannot be used |
| 130 | ended with Ctrl-C |
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from polydomo.core.job import EXPIRED
from polydomo.errors import ConfigError, JobFailed, PolydomoError, Timeout, UnknownService, Unreachable
from polydomo.redaction import redact
from polydomo.safe_text import safe, safe_json
from polydomo.store.errors import StoreError

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
UNKNOWN_SERVICE = 4
TIMEOUT = 5
STORE = 6
INTERRUPTED = 130

CODES: dict[type[PolydomoError], int] = {
    ConfigError: USAGE,
    Unreachable: UNREACHABLE,
    UnknownService: UNKNOWN_SERVICE,
    Timeout: TIMEOUT,
    StoreError: STORE,
}

# Columns.
WIDE = 120
PIPE_WIDTH = 240

DEFAULT_URL = "mdp://127.0.0.1:5555"


class SafeConsole(Console):
    """A console that shows control characters in text; its own, for colours and the cursor, work as ever."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=safe(segment.text))


out = SafeConsole(highlight=False)
err = SafeConsole(stderr=True, highlight=False)


class OutputMode:
    """How this run of the command speaks. One command per process, so one of these is enough."""

    json = False


def _note_json(wanted: bool) -> bool:
    OutputMode.json = wanted
    return wanted


Json = Annotated[
    bool, typer.Option("--json", callback=_note_json, is_eager=True, help="Print JSON, for programs.")
]
Url = Annotated[
    str,
    typer.Option("--url", "-u", envvar="POLYDOMO_URL", metavar="URL", help="The broker, and the dialect."),
]


def exit_code(error: PolydomoError) -> int:
    """See the module's table. A job that no worker took in time is a matter of time, too."""
    if isinstance(error, JobFailed) and error.reason == EXPIRED:
        return TIMEOUT
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), FAILED)


def print_error(message: str, hint: str = "") -> None:
    """One red line, and a hint below it if there is one."""
    err.print(Text.assemble(("error: ", "bold red"), (safe(redact(message)), "red")), soft_wrap=True)
    if hint:
        err.print(Text.assemble(("hint: ", "cyan"), safe(redact(hint))), soft_wrap=True)


def show_traceback(error: Exception) -> None:
    """Where it went wrong: here, and in the worker if that has sent its own."""
    said = "".join(traceback.format_exception(error))
    err.print(Text(safe(redact(getattr(error, "traceback", "") + said))), soft_wrap=True)


def fail(message: str, hint: str = "", code: int = FAILED) -> NoReturn:
    """End the command with an error."""
    print_error(message, hint)
    raise typer.Exit(code)


def show(renderable: RenderableType) -> None:
    """A table fits the terminal; in a pipe or a file it is as wide as it likes."""
    console = out if out.is_terminal else SafeConsole(highlight=False, width=PIPE_WIDTH)
    console.print(renderable)


def is_wide() -> bool:
    """Is there room for more than the most important columns?"""
    return not out.is_terminal or out.width >= WIDE


def report(error: PolydomoError) -> int:
    """Tell a person, or a program that asked for `--json`, what went wrong; the exit code."""
    if OutputMode.json:
        said = {"code": error.code, "message": redact(error.message), "hint": redact(error.advice)}
        print_json({"error": said})
    else:
        print_error(error.message, error.advice)
    return exit_code(error)


def debugging() -> bool:
    """POLYDOMO_DEBUG=1: show tracebacks."""
    return os.environ.get("POLYDOMO_DEBUG", "") not in ("", "0")


def print_json(value: Any, *, lines: bool = False) -> None:
    """Indented, on stdout, never wrapped or coloured. `lines`: in one line, and at once."""
    data = msgspec.json.encode(value, enc_hook=str)
    text = safe_json((data if lines else msgspec.json.format(data, indent=2)).decode())
    print(text, flush=lines)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> Table:
    """A plain table; columns whose name begins with `>` hold numbers and are set to the right."""
    made = Table(
        box=None, pad_edge=False, header_style="bold cyan", title=title or None, title_justify="left"
    )
    for column in columns:
        made.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        made.add_row(*map(_cell, row))
    return made


def _cell(value: object) -> Text:
    """A cell that is as wide as what will be shown of it."""
    if not isinstance(value, Text):
        return Text(safe(str(value)))
    plain = safe(value.plain)
    return value if plain == value.plain else Text(plain, value.style)


class SafeFormatter(logging.Formatter):
    """Lines of the standard library's log, in commands that have set up no log of their own."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(redact(super().format(record)))


def default_url() -> str:
    """What `--url` is when it is not given."""
    return os.environ.get("POLYDOMO_URL") or DEFAULT_URL


def command_name() -> str:
    """How this person starts the command: by its name if the shell finds it, else by its place."""
    if shutil.which("polydomo"):
        return "polydomo"
    beside = Path(sys.executable).with_name("polydomo")
    if not beside.exists():
        return f"{sys.executable} -m polydomo"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def was_given(ctx: typer.Context, parameter: str) -> bool:
    """On the command line or in the environment, rather than left at its default."""
    source = ctx.get_parameter_source(parameter)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def duration(seconds: float) -> str:
    """Short, with about three digits: 45µs, 12.3ms, 4.56s, 3m20s, 2h05m, 4d03h."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f}µs"
    if seconds < 0.9995:  # what is rounded to a second is one
        return f"{seconds * 1e3:.3g}ms"
    if seconds < 59.95:
        return f"{seconds:.3g}s"
    seconds = round(seconds)
    for limit, unit, factor, below, lower in (
        (3600, "m", 60, "s", 1),
        (86400, "h", 3600, "m", 60),
        (float("inf"), "d", 86400, "h", 3600),
    ):
        if seconds < limit:
            whole = int(seconds // factor)
            return f"{whole}{unit}{int(seconds % factor // lower):02d}{below}"
    raise AssertionError


def size(number: float) -> str:
    """Short: 512B, 1.5KiB, 64MiB."""
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number /= 1024
        unit = larger
    return f"{number:.0f}{unit}" if unit == "B" or number >= 100 else f"{number:.3g}{unit}"
