"""`polydomo store backup` and `polydomo store check`: the file in which durable jobs are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.config import ConfigFile, print_problems
from polydomo.server import config
from polydomo.server.config import Flag
from polydomo.server.data_dir import folder_for
from polydomo.server.settings import AUTO
from polydomo.store.backup import back_up, store_file
from polydomo.store.damage import quick_check
from polydomo.store.errors import StoreCorrupt, StoreUnusable

app = typer.Typer(no_args_is_help=True, help="Copy and check the file of durable jobs.")

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="FOLDER", help="The broker's data folder; else as configured."),
]


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes.")],
    data: Data = None,
    configuration: ConfigFile = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
    as_json: common.Json = False,
) -> None:
    """Copy the store, also while the broker runs. The copy is checked, synchronised, and appears whole."""
    source = _place(data, configuration)
    columns = TextColumn("copying"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=common.err, transient=True, disable=as_json) as bar:
        task = bar.add_task("copying", total=None)
        copied = back_up(
            source,
            file,
            force=force,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        common.print_json(copied._asdict())
    else:
        said = f"  {copied.file}: {copied.jobs} jobs, {common.size(copied.bytes)}"
        common.show(Text.assemble(("copied", "bold green"), said))


@app.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A store or a copy; else the broker's.")
    ] = None,
    data: Data = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Look for damage in the whole file, however long it takes. Exit code 1: there is some."""
    place = file or _place(data, configuration)
    if not place.exists():
        raise StoreUnusable(f"there is no store at {place}", hint="name it, or give --data")
    problems = quick_check(place, float("inf")).problems
    if as_json:
        common.print_json({"file": str(place), "ok": not problems, "problems": problems})
    elif problems:
        common.print_error(f"{place} is damaged: {problems[0]}", StoreCorrupt.hint)
    else:
        common.show(Text.assemble(("ok", "bold green"), f"  {place}"))
    if problems:
        raise typer.Exit(common.FAILED)


def _place(data: str | None, file: str | None) -> Path:
    """The store's file, as a broker with these settings would find it."""
    found = config.gather(file, [] if data is None else [Flag("--data", "broker.data", data)])
    if found.problems:
        print_problems(found)
        raise typer.Exit(common.USAGE)
    settings = found.settings
    if settings.broker.data == AUTO:
        settings.broker.data = folder_for(settings.broker.zmq)
    return store_file(settings.store_url())
