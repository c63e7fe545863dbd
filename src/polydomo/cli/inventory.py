"""`polydomo inventory`: the data that a broker provides to its workers."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import yaml
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.inspect import ListingGroup
from polydomo.errors import PolydomoError

SERVICE = "sid.service.broker"

app = typer.Typer(
    cls=ListingGroup, help="Data that the broker provides to its workers. Without a command: ls."
)


@app.command("ls")
def ls(url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """List the names and patterns in the inventory, and the files of their data."""
    found = broker_client.run_task(url, "list_inventory", service=SERVICE)
    if as_json:
        common.print_json(found)
        return
    if not found["file"]:
        common.show(Text("this broker has no inventory: start it with --inventory FILE", "dim"))
        return
    rows = [[Text(name, "bold"), ", ".join(items)] for name, items in found["workers"].items()]
    common.show(common.table(["workers", "from"], rows) if rows else Text("the inventory is empty", "dim"))
    for name, count in found["services"].items():
        common.show(Text(f"{name}: {count} resources are distributed", "dim"))
    if found["error"]:
        common.print_error(f"the files have changed and cannot be used: {found['error']}")


@app.command("show")
def show(
    worker: Annotated[
        str | None, typer.Argument(metavar="[WORKER]", help="A worker's name; default: the main file.")
    ] = None,
    url: common.Url = common.DEFAULT_URL,
    as_json: common.Json = False,
) -> None:
    """Show the data of a worker, merged from all names and patterns that match."""
    found = broker_client.run_task(url, "show_inventory", {"name": worker}, service=SERVICE)
    if worker is not None and found is None:
        raise PolydomoError(
            f"the inventory has nothing for {worker!r}", hint="'polydomo inventory ls' lists its names"
        )
    _print(found, as_json)


@app.command("reload")
def reload(url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Read the files again. If they have mistakes, the old data stays in use."""
    reply = broker_client.run_task(url, "reload", service=SERVICE)
    names = ", ".join(reply["changed"]) or "no connected worker"
    common.print_result(reply, as_json, Text.assemble(("reloaded", "green"), f"; changed for {names}"))


@app.command("check")
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The main file.")],
    worker: Annotated[
        str | None, typer.Argument(metavar="[WORKER]", help="Show the data of this worker.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Check an inventory without a broker, with the environment of this shell."""
    from polydomo.services import inventory  # here, because importing the broker is slow

    found = inventory.load(file)
    if worker is not None:
        data = found.get(worker)
        if data is None:
            raise PolydomoError(f"{file} has nothing for {worker!r}", hint="patterns are *, ? and [abc]")
        _print(data, as_json)
        return
    text = f"{file}: {len(found.workers)} names and patterns in {len(found.stamps)} files, no mistakes"
    value = {"workers": list(found.workers), "files": [str(path) for path in found.stamps]}
    common.print_result(value, as_json, Text.assemble(("ok", "green"), "  ", text))


def _print(value: Any, as_json: bool) -> None:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip()
    common.print_result(value, as_json, Text(text))
