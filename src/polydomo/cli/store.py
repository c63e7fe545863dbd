"""`polydomo store backup` and `polydomo store check`: the file of durable jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.config import ConfigFile, load
from polydomo.server.config import Flag
from polydomo.server.data_dir import folder_for
from polydomo.server.settings import AUTO
from polydomo.store.backup import back_up, store_file
from polydomo.store.damage import quick_check
from polydomo.store.errors import StoreCorrupt, StoreUnusable

app = typer.Typer(no_args_is_help=True, help="Back up and check the file of durable jobs.")

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="FOLDER", help="The broker's data folder; default: as configured."),
]


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    data: Data = None,
    configuration: ConfigFile = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: common.Json = False,
) -> None:
    """Copy the store, also while the broker runs. The copy appears when it is complete, checked and on disk."""
    source = _store_path(data, configuration)
    columns = TextColumn("copying"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=common.err, transient=True, disable=as_json) as bar:
        task = bar.add_task("copying", total=None)
        copied = back_up(
            source,
            file,
            force=force,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    text = f"  {copied.file}: {copied.jobs} jobs, {common.size(copied.bytes)}"
    common.print_result(copied._asdict(), as_json, Text.assemble(("copied", "bold green"), text))


@app.command()
def check(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A store or a backup; default: the broker's store."),
    ] = None,
    data: Data = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Check the whole file for damage, without a time limit. Exit code 1: the file is damaged."""
    path = file or _store_path(data, configuration)
    if not path.exists():
        raise StoreUnusable(f"there is no store at {path}", hint="name it, or give --data")
    problems = quick_check(path, float("inf")).problems
    if as_json:
        common.print_json({"file": str(path), "ok": not problems, "problems": problems})
    elif problems:
        common.print_error(f"{path} is damaged: {problems[0]}", StoreCorrupt.hint)
    else:
        common.show(Text.assemble(("ok", "bold green"), f"  {path}"))
    if problems:
        raise typer.Exit(common.FAILED)


def _store_path(data: str | None, file: str | None) -> Path:
    """Return the store's file for a broker with these settings."""
    settings = load(file, [] if data is None else [Flag("--data", "broker.data", data)]).settings
    if settings.broker.data == AUTO:
        settings.broker.data = folder_for(settings.broker.zmq)
    return store_file(settings.store_url())
