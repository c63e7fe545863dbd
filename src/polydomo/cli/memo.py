"""`polydomo memo`: the caches of memoised services."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.inspect import Service, ServiceName

app = typer.Typer(help="Caches of memoised services.", no_args_is_help=True)


@app.command("show")
def show(url: common.Url = common.DEFAULT_URL, service: Service = None, as_json: common.Json = False) -> None:
    """List memoised services, the hits of their caches, and the workers' time that was saved."""
    rows = broker_client.run_task(url, "show_memos", {"service": service})
    columns: common.Columns = {
        "service": "name",
        ">answers": "entries",
        ">in memory": lambda row: common.size(row["bytes"]),
        ">run": "misses",
        ">repeated": "hits",
        ">at once": "joined",
        ">saved": lambda row: common.duration(row["saved_seconds"]),
    }
    nothing = "no service is memoised; set services.NAME.memo = true for one"
    common.print_result(rows, as_json, common.listing(columns, rows, nothing))


@app.command("forget")
def forget(
    service: ServiceName,
    request: Annotated[
        str | None, typer.Argument(metavar="[REQUEST]", help="Only the result of this request.")
    ] = None,
    url: common.Url = common.DEFAULT_URL,
    as_json: common.Json = False,
) -> None:
    """Remove cached results from memory and disk, so that the next request goes to a worker."""
    reply = broker_client.run_task(url, "forget_memos", {"name": service, "request": request})
    text = f"removed {reply['forgotten']} results from memory, and those on disk"
    common.print_result(reply, as_json, Text(text, "green"))
