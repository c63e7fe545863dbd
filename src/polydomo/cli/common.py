"""Shared parts of all commands: exit codes, error messages, tables and `--json`.

All output of a command goes through `out`, `err` or `print_json`, because much of it comes from peers: control
characters are made visible, so that the terminal does not obey them (`polydomo.safe_text`). In JSON they are escaped,
so that programs read what was sent. Only output that the user requested as it is (`call` into a pipe, `call --raw`,
`files get -o -`) is not changed.

Exit codes, the same for every command:

| code | meaning |
| --- | --- |
| 0 | success |
| 1 | the job failed, or a check found something wrong |
| 2 | the command line or the configuration is wrong |
| 3 | no broker could be reached |
| 4 | no worker offers the service |
| 5 | no reply in time |
| 6 | the store cannot be used |
| 130 | ended with Ctrl-C |
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from polydomo.core.failure import EXPIRED
from polydomo.errors import ConfigError, JobFailed, PolydomoError, Timeout, UnknownService, Unreachable
from polydomo.redaction import redact
from polydomo.safe_text import safe, safe_json
from polydomo.server import units
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

# Widths in columns.
WIDE = 120
PIPE_WIDTH = 240

DEFAULT_URL = "mdp://127.0.0.1:5555"

# The columns of a listing: each header, and the row's field or a function of the row.
Columns = dict[str, str | Callable[[Any], object]]


class SafeConsole(Console):
    """A console that makes control characters in text visible. Its own, for colours and the cursor, still work."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=safe(segment.text))


out = SafeConsole(highlight=False)
err = SafeConsole(stderr=True, highlight=False)


class OutputMode:
    """The output format of this process, which runs one command."""

    json = False


def _set_json(wanted: bool) -> bool:
    OutputMode.json = wanted
    return wanted


Json = Annotated[
    bool, typer.Option("--json", callback=_set_json, is_eager=True, help="Print JSON, for programs.")
]


def _find_url(ctx: typer.Context, value: str | None) -> str | None:
    """Return the URL that was given, else the one for commands with a default."""
    return value if value is None or was_given(ctx, "url") else default_url()


URL_OPTION: Any = typer.Option(
    "--url",
    "-u",
    envvar="POLYDOMO_URL",
    metavar="URL",
    callback=_find_url,
    help="The broker, and the dialect.",
)
Url = Annotated[str, URL_OPTION]


def exit_code(error: PolydomoError) -> int:
    """Return the exit code for an error. A job that expired in the queue counts as a timeout."""
    if isinstance(error, JobFailed) and error.reason == EXPIRED:
        return TIMEOUT
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), FAILED)


def print_error(message: str, hint: str = "") -> None:
    """Print a message in red to stderr, and a hint below it."""
    err.print(Text.assemble(("error: ", "bold red"), (safe(redact(message)), "red")), soft_wrap=True)
    if hint:
        err.print(Text.assemble(("hint: ", "cyan"), safe(redact(hint))), soft_wrap=True)


def show_traceback(error: Exception) -> None:
    """Print the traceback of an error, and the worker's if the worker sent one, if POLYDOMO_DEBUG asks for it."""
    if os.environ.get("POLYDOMO_DEBUG", "") in ("", "0"):
        return
    text = getattr(error, "traceback", "") + "".join(traceback.format_exception(error))
    err.print(Text(safe(redact(text))), soft_wrap=True)


def fail(message: str, hint: str = "", code: int = FAILED) -> NoReturn:
    """Print an error and exit."""
    print_error(message, hint)
    raise typer.Exit(code)


def show(renderable: RenderableType) -> None:
    """Print a table or a text: as wide as the terminal, or up to PIPE_WIDTH columns elsewhere."""
    console = out if out.is_terminal else SafeConsole(highlight=False, width=PIPE_WIDTH)
    console.print(renderable)


def is_wide() -> bool:
    """Return whether there is space for more than the most important columns."""
    return not out.is_terminal or out.width >= WIDE


def report(error: PolydomoError) -> int:
    """Print an error, as JSON with `--json`, and return the exit code."""
    if OutputMode.json:
        fields = {"code": error.code, "message": redact(error.message), "hint": redact(error.advice)}
        print_json({"error": fields})
    else:
        print_error(error.message, error.advice)
    return exit_code(error)


def print_json(value: Any, *, lines: bool = False) -> None:
    """Print indented JSON to stdout, without wrapping or colours. `lines`: one line, flushed."""
    data = msgspec.json.encode(value, enc_hook=str)
    text = safe_json((data if lines else msgspec.json.format(data, indent=2)).decode())
    print(text, flush=lines)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> Table:
    """Return a plain table. Columns whose name begins with `>` are right-aligned."""
    made = Table(
        box=None, pad_edge=False, header_style="bold cyan", title=title or None, title_justify="left"
    )
    for column in columns:
        made.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        made.add_row(*map(_cell, row))
    return made


def listing(columns: Columns, rows: Sequence[Any], nothing: str = "", *, title: str = "") -> RenderableType:
    """Return a table with one line per row, or the text `nothing` if there are no rows."""
    if nothing and not rows:
        return Text(nothing, "dim")
    cells = [itemgetter(cell) if isinstance(cell, str) else cell for cell in columns.values()]
    return table(list(columns), [[cell(row) for cell in cells] for row in rows], title=title)


def _cell(value: object) -> Text:
    """Return a cell whose width is that of the text after control characters are made visible."""
    if not isinstance(value, Text):
        return Text(safe(str(value)))
    plain = safe(value.plain)
    return value if plain == value.plain else Text(plain, value.style)


def properties(pairs: Mapping[str, object]) -> Table:
    """Return a table of names and values, without a header."""
    made = table(["", ""], [[Text(name, "cyan"), value] for name, value in pairs.items()])
    made.show_header = False
    return made


def print_result(value: Any, as_json: bool, shown: RenderableType | Callable[[], RenderableType]) -> None:
    """Print a command's result: the value as JSON, or `shown` for people."""
    if as_json:
        print_json(value)
    else:
        show(shown() if callable(shown) else shown)


def print_done(value: Any, as_json: bool, *parts: str | tuple[str, str]) -> None:
    """Print the result of a command that has done its work: the value as JSON, or a line with a check mark."""
    if as_json:
        print_json(value)
    else:
        out.print(Text.assemble(("✓ ", "bold green"), *parts), soft_wrap=True)


class SafeFormatter(logging.Formatter):
    """The formatter for the standard library's log in commands that set up no log of their own."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(redact(super().format(record)))


def default_url() -> str:
    """Return the broker's URL from the environment or the profile, or the default."""
    from polydomo.sdk import url  # here, because commands that need no broker start faster without the SDK

    return url.default_url()


def command_name() -> str:
    """Return how to start the command: its name if the shell finds it, otherwise its path."""
    if shutil.which("polydomo"):
        return "polydomo"
    beside = Path(sys.executable).with_name("polydomo")
    if not beside.exists():
        return f"{sys.executable} -m polydomo"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def commands_to_try(url: str, commands: Iterable[str]) -> Text:
    """Return commands to copy, for the broker at this URL."""
    option = "" if url == default_url() else f" --url {url}"
    text = Text("\nTry, in another terminal:\n\n")
    for words in commands:
        text.append(f"  {command_name()} {words}{option}\n", "cyan")
    return text


def was_given(ctx: typer.Context, parameter: str) -> bool:
    """Return whether a parameter was set on the command line or in the environment."""
    source = ctx.get_parameter_source(parameter)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


class Stopwatch:
    """The time since the object was made, as text for people."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def __str__(self) -> str:
        return duration(self.seconds)


def check_choice(value: str | None, choices: Sequence[str], flag: str) -> None:
    """Raise BadParameter if a value was given that is not one of the choices."""
    if value is not None and value not in choices:
        raise typer.BadParameter(f"{value!r} is none of {', '.join(choices)}", param_hint=flag)


def duration(seconds: float) -> str:
    """Format a duration with about three digits: 45µs, 12.3ms, 4.56s, 3m20s, 2h05m, 4d03h."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f}µs"
    if seconds < 0.9995:  # not 1000ms
        return f"{seconds * 1e3:.3g}ms"
    if seconds < 59.95:
        return f"{seconds:.3g}s"
    seconds = round(seconds)
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600:02d}h"


def optional_duration(seconds: float | None) -> str:
    """Format a duration that may be unknown or zero."""
    return "–" if seconds is None else "0" if seconds < 1e-6 else duration(seconds)


def lifetime(text: str, flag: str) -> float:
    """Parse a duration above 0, possibly infinite; raise BadParameter if it is none."""
    try:
        found = units.parse_duration(text)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise typer.BadParameter(f"{text!r} is no duration such as 30m, 12h, 90d", param_hint=flag)
    return found


def local_time(seconds: float) -> str:
    """Format a time since 1970 in local time, to the second."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def size(number: float) -> str:
    """Format a number of bytes: 512B, 1.5KiB, 64MiB."""
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number /= 1024
        unit = larger
    return f"{number:.0f}{unit}" if unit == "B" or number >= 100 else f"{number:.3g}{unit}"
