"""`polydomo inventory`: what workers are told about themselves."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import yaml
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.inspect import ListingGroup
from polydomo.errors import PolydomoError

SERVICE = "sid.service.broker"

app = typer.Typer(cls=ListingGroup, help="What workers are told about themselves. Without a command: ls.")


@app.command("ls")
def ls(url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """The names and patterns in the inventory, and where what they get comes from."""
    found = broker_client.run_task(url, "list_inventory", service=SERVICE)
    if as_json:
        common.print_json(found)
        return
    if not found["file"]:
        common.show(Text("this broker has no inventory: start it with --inventory FILE", "dim"))
        return
    rows = [[Text(name, "bold"), ", ".join(items)] for name, items in found["workers"].items()]
    common.show(common.table(["workers", "from"], rows) if rows else Text("nothing in it", "dim"))
    for name, count in found["services"].items():
        common.show(Text(f"{name}: {count} resources are shared out", "dim"))
    if found["error"]:
        common.print_error(f"the files have changed and cannot be used: {found['error']}")


@app.command("show")
def show(
    worker: Annotated[
        str | None, typer.Argument(metavar="[WORKER]", help="A worker's name; without it, the main file.")
    ] = None,
    url: common.Url = common.DEFAULT_URL,
    as_json: common.Json = False,
) -> None:
    """What a worker is told, put together from all names and patterns that fit."""
    found = broker_client.run_task(url, "show_inventory", {"name": worker}, service=SERVICE)
    if worker is not None and found is None:
        raise PolydomoError(
            f"nothing in the inventory is for {worker!r}", hint="'polydomo inventory ls' shows what there is"
        )
    _print(found, as_json)


@app.command("reload")
def reload(url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Read the files again now. If they are wrong, the old ones stay in use."""
    answer = broker_client.run_task(url, "reload", service=SERVICE)
    if as_json:
        common.print_json(answer)
    else:
        names = ", ".join(answer["changed"]) or "none of the workers that are here"
        common.show(Text.assemble(("read again", "green"), f"; it is another one for {names}"))


@app.command("check")
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The main file.")],
    worker: Annotated[
        str | None, typer.Argument(metavar="[WORKER]", help="Show what this worker would be told.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Read an inventory without a broker, with the environment of this shell."""
    from polydomo.services import inventory  # only here: the other commands need none of the broker

    found = inventory.load(file)
    if worker is not None:
        told = found.get(worker)
        if told is None:
            raise PolydomoError(f"nothing in {file} is for {worker!r}", hint="patterns are *, ? and [abc]")
        _print(told, as_json)
    elif as_json:
        common.print_json({"workers": list(found.workers), "files": [str(path) for path in found.stamps]})
    else:
        said = f"{file}: {len(found.workers)} names and patterns in {len(found.stamps)} files, no mistakes"
        common.show(Text.assemble(("ok", "green"), "  ", said))


def _print(value: Any, as_json: bool) -> None:
    if as_json:
        common.print_json(value)
    else:
        common.show(Text(yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip()))
