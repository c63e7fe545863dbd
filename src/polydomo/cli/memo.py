"""`polydomo memo`: what memoised services have saved, and forgetting it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.inspect import Service

app = typer.Typer(help="Memoised services: answers that are kept.", no_args_is_help=True)


@app.command("show")
def show(url: common.Url = common.DEFAULT_URL, service: Service = None, as_json: common.Json = False) -> None:
    """Which services remember their answers, how often that was asked for, and the workers' time it saved."""
    rows: list[dict[str, Any]] = broker_client.run_task(url, "show_memos", {"service": service})
    if as_json:
        common.print_json(rows)
        return
    if not rows:
        common.show(Text("no service is memoised; set services.NAME.memo = true for one", "dim"))
        return
    shown = [
        [
            row["name"],
            row["entries"],
            common.size(row["bytes"]),
            row["misses"],
            row["hits"],
            row["joined"],
            common.duration(row["saved_seconds"]),
        ]
        for row in rows
    ]
    columns = ["service", ">answers", ">in memory", ">run", ">repeated", ">at once", ">saved"]
    common.show(common.table(columns, shown))


@app.command("forget")
def forget(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="The service's name.")],
    request: Annotated[
        str | None, typer.Argument(metavar="[REQUEST]", help="Only the answer to this text.")
    ] = None,
    url: common.Url = common.DEFAULT_URL,
    as_json: common.Json = False,
) -> None:
    """Let the next request go to a worker again, in memory and on disk."""
    answer = broker_client.run_task(url, "forget_memos", {"name": service, "request": request})
    if as_json:
        common.print_json(answer)
    else:
        common.show(Text(f"{answer['forgotten']} answers in memory forgotten, and those on disk", "green"))
