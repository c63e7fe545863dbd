"""`polydomo config check` and `polydomo config show`, and the configuration of other commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.option_groups import SettingOption
from polydomo.server import config
from polydomo.server.config import Config, Flag
from polydomo.server.settings import Settings

ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="TOML file; default: $POLYDOMO_CONFIG, or ./polydomo.toml if it exists.",
        show_default=False,
    ),
]

INSECURE = SettingOption(
    "broker.insecure", None, "Listen where other machines can connect, although anybody there could use it."
)
LOG_OPTIONS = {
    "--log-level": SettingOption("log.level", "LEVEL", "debug, info, warning or error."),
    "--log-format": SettingOption("log.format", "FORMAT", "auto, text or json."),
}
Port = Annotated[
    int | None,
    typer.Option(help="TCP port; default: 5555, or a free one if that is taken.", show_default=False),
]

app = typer.Typer(no_args_is_help=True, help="Check and show the configuration.")


@app.command()
def check(file: ConfigFile = None, as_json: common.Json = False) -> None:
    """Check the configuration file and the environment. Exit code 2: there are mistakes."""
    found = config.gather(file)
    if as_json:
        common.print_json({"ok": not found.problems, "file": found.file, "problems": found.problems})
    elif found.problems:
        print_problems(found)
    else:
        common.out.print(Text.assemble(("ok", "bold green"), f"  {_summary(found)}"))
    if found.problems:
        raise typer.Exit(common.USAGE)


@app.command()
def show(
    file: ConfigFile = None,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Show the defaults, ignoring all settings.")
    ] = False,
    docs: Annotated[bool, typer.Option("--docs", help="Add a description of each.")] = False,
    as_json: common.Json = False,
) -> None:
    """Show every setting, its value, and its source."""
    rows = config.rows(Config(Settings(), {}, [], "") if defaults else load(file))
    columns = ["key", "value", "from", *(["description"] if docs else [])]
    cells = [
        [row.key, Text(row.value, "" if row.source == "default" else "bold green"), Text(row.source, "dim")]
        + ([Text(row.doc)] if docs else [])
        for row in rows
    ]
    common.print_result([row._asdict() for row in rows], as_json, common.table(columns, cells))


def load(file: str | None, flags: Iterable[Flag] = ()) -> Config:
    """Return the configuration; if there are mistakes, print all of them and exit."""
    found = config.gather(file, flags)
    if found.problems:
        print_problems(found)
        raise typer.Exit(common.USAGE)
    return found


def parse_set(text: str) -> Flag:
    """Return the flag that an argument of `--set` means."""
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return Flag(f"--set {key}", key.strip(), value.strip())


def print_problems(found: Config) -> None:
    """Print all mistakes to stderr."""
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


def _summary(found: Config) -> str:
    if not found.sources:
        return f"{found.file} has no settings" if found.file else "no settings: the defaults apply"
    number = len(found.sources)
    return f"{found.file or 'the environment'}: {number} setting{'s' * (number != 1)}, no mistakes"
