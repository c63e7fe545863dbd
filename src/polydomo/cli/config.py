"""`polydomo config check` and `polydomo config show`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.server import config
from polydomo.server.config import Config
from polydomo.server.settings import Settings

ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="TOML file; else $POLYDOMO_CONFIG, else ./polydomo.toml if there.",
        show_default=False,
    ),
]

app = typer.Typer(no_args_is_help=True, help="Check and show the configuration.")


@app.command()
def check(file: ConfigFile = None, as_json: common.Json = False) -> None:
    """Find every mistake in the file and the environment. Exit code 0: none, 2: some."""
    found = config.gather(file)
    if as_json:
        common.print_json({"ok": not found.problems, "file": found.file, "problems": found.problems})
    elif found.problems:
        print_problems(found)
    else:
        common.out.print(Text.assemble(("ok", "bold green"), f"  {_what(found)}"))
    if found.problems:
        raise typer.Exit(common.USAGE)


@app.command()
def show(
    file: ConfigFile = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="Only the defaults, whatever is set.")] = False,
    docs: Annotated[bool, typer.Option("--docs", help="With a sentence about each.")] = False,
    as_json: common.Json = False,
) -> None:
    """Every setting, its value, and where that came from."""
    found = Config(Settings(), {}, [], "") if defaults else config.gather(file)
    if found.problems:
        print_problems(found)
        raise typer.Exit(common.USAGE)
    rows = config.rows(found)
    if as_json:
        common.print_json([row._asdict() for row in rows])
        return
    columns = ["key", "value", "from", *(["what it is"] if docs else [])]
    cells = [
        [row.key, Text(row.value, "" if row.source == "default" else "bold green"), Text(row.source, "dim")]
        + ([Text(row.doc)] if docs else [])
        for row in rows
    ]
    common.show(common.table(columns, cells))


def print_problems(found: Config) -> None:
    """All mistakes, to stderr."""
    problems = found.problems
    number = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
    common.print_error(f"{number} in the configuration")
    for problem in problems:
        line = Text.assemble("  ", (problem.where, "bold"))
        if problem.key:
            line.append(": ").append(problem.key, "yellow")
        if problem.value:
            line.append(f" = {problem.value}", "yellow")
        line.append(f"\n      {problem.message}")
        if problem.hint:
            line.append("\n      ").append(problem.hint, "cyan")
        common.err.print(line, soft_wrap=True)


def _what(found: Config) -> str:
    if not found.sources:
        return f"{found.file} sets nothing" if found.file else "nothing is set: the defaults apply"
    number = len(found.sources)
    return f"{found.file or 'the environment'}: {number} setting{'s' * (number != 1)}, no mistakes"
