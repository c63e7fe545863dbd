"""`polydomo services`, `workers`, `clients`, `jobs` and `status`: the state of a running broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text
from typer.core import TyperGroup

from polydomo.cli import broker_client, common
from polydomo.core.states import STATES
from polydomo.sdk import Client

Rows = list[dict[str, Any]]

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second until Ctrl-C.")]
Service = Annotated[
    str | None,
    typer.Option(
        "--service", "-s", autocompletion=broker_client.complete_service, help="Only those of this service."
    ),
]
WATCH_INTERVAL = 1.0


class ListingGroup(TyperGroup):
    """A group whose default command is `ls`: `polydomo jobs -n 5` is `polydomo jobs ls -n 5`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Not while completing (Tab after the group's name): that lists the group's commands.
        bare = not args and not ctx.resilient_parsing
        if bare or (args and args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["ls", *args]
        return super().parse_args(ctx, args)


services_app = typer.Typer(cls=ListingGroup, help="Services of the broker. Without a command: ls.")
workers_app = typer.Typer(cls=ListingGroup, help="Connected workers. Without a command: ls.")
clients_app = typer.Typer(cls=ListingGroup, help="Connected clients. Without a command: ls.")
jobs_app = typer.Typer(
    cls=ListingGroup, help="Jobs: waiting, running and recently finished. Without a command: ls."
)


@services_app.command("ls")
def services(
    url: common.Url = common.DEFAULT_URL, watch: Watch = False, as_json: common.Json = False
) -> None:
    """List services with workers or waiting jobs."""
    _show(url, "services", services_table, watch, as_json)


@workers_app.command("ls")
def workers(
    url: common.Url = common.DEFAULT_URL,
    service: Service = None,
    watch: Watch = False,
    as_json: common.Json = False,
) -> None:
    """List all workers, or those of one service."""
    _show(url, "workers", workers_table, watch, as_json, service=service)


@clients_app.command("ls")
def clients(url: common.Url = common.DEFAULT_URL, watch: Watch = False, as_json: common.Json = False) -> None:
    """List connected clients that have sent a job."""
    _show(url, "clients", clients_table, watch, as_json)


@jobs_app.command("ls")
def jobs(
    url: common.Url = common.DEFAULT_URL,
    service: Service = None,
    state: Annotated[
        str | None,
        typer.Option(autocompletion=lambda: list(STATES), metavar="STATE", help=f"Only {', '.join(STATES)}."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Number of jobs, at most; the newest first.")
    ] = 20,
    watch: Watch = False,
    as_json: common.Json = False,
) -> None:
    """List jobs, newest first."""
    if state is not None and state not in STATES:
        raise typer.BadParameter(f"{state!r} is none of {', '.join(STATES)}", param_hint="--state")
    _show(url, "jobs", jobs_table, watch, as_json, service=service, state=state, limit=limit)


def status(url: common.Url = common.DEFAULT_URL, watch: Watch = False, as_json: common.Json = False) -> None:
    """Show the state of the broker."""
    _show(url, "broker", broker_table, watch, as_json)


def services_table(rows: Rows) -> RenderableType:
    """Return a table of services; those without workers are highlighted."""
    columns = ["service", ">workers", ">idle", ">waiting", ">running", ">done", ">failed", ">retried"]
    return _table_or(
        "no services: start a worker",
        columns,
        [
            [
                Text(row["name"], "bold" if row["workers"] else "yellow"),
                row["workers"],
                row["idle"],
                _highlight(row["waiting"], "yellow"),
                row["running"],
                row["done"],
                _highlight(row["failed"], "red"),
                _highlight(row["retried"], "yellow"),
            ]
            for row in rows
        ],
    )


def workers_table(rows: Rows) -> RenderableType:
    """Return a table of workers."""
    columns = ["worker", "dialect", "services", "state", ">holds", ">done", ">seen", ">since"]
    styles = {"idle": "green", "busy": "cyan", "late": "red"}
    return _table_or(
        "no workers",
        columns,
        [
            [
                row["name"],
                row["dialect"],
                Text(", ".join(row["services"]), "bold"),
                Text(row["state"], styles.get(row["state"], "")),
                f"{row['holds']}/{row['credit']}",
                row["done"],
                f"{common.duration(row['seen'])} ago",
                common.duration(row["since"]),
            ]
            for row in rows
        ],
    )


def clients_table(rows: Rows) -> RenderableType:
    """Return a table of clients."""
    columns = ["client", "dialect", ">unanswered", ">bytes", ">submitted", "state", ">since"]
    return _table_or(
        "no clients",
        columns,
        [
            [
                row["name"],
                row["dialect"],
                row["unanswered"],
                common.size(row["bytes"]),
                row["submitted"],
                Text("held", "red") if row["held"] else Text("reading", "green"),
                common.duration(row["since"]),
            ]
            for row in rows
        ],
    )


def jobs_table(rows: Rows) -> RenderableType:
    """Return a table of jobs, with client, worker and sizes if the terminal is wide."""
    columns = [">job", "service", "state", ">tries", ">waited", ">ran", ">age"]
    if common.is_wide():
        columns += ["client", "worker", "dialect", ">in", ">out"]
    styles = {"waiting": "yellow", "running": "cyan", "done": "green", "failed": "red"}
    return _table_or(
        "no jobs",
        columns,
        [
            [
                row["id"],
                Text(row["service"], "bold"),
                Text(
                    f"{row['state']}{': ' if row['reason'] else ''}{row['reason']}",
                    styles.get(row["state"], "yellow"),
                ),
                _highlight(row["attempts"], "yellow", least=2),
                common.duration(row["waited"]),
                common.duration(row["ran"]),
                common.duration(row["age"]),
                row["client"],
                row["worker"],
                row["dialect"],
                common.size(row["bytes_in"]),
                common.size(row["bytes_out"]),
            ][: len(columns)]
            for row in rows
        ],
    )


def broker_table(row: dict[str, Any]) -> RenderableType:
    """Return a table of the broker's properties."""
    shown = row | {"uptime": common.duration(row["uptime"]), "memory": common.size(row["memory"])}
    return common.properties({name: _format(value) for name, value in shown.items()})


def _format(value: Any) -> str:
    """Format a value for people. Of an object: all lists first, then the fields that are not empty or zero."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if not isinstance(value, dict):
        return str(value)
    places = [place for part in value.values() if isinstance(part, list) for place in part]
    rest = [f"{name} {part}" for name, part in value.items() if part and not isinstance(part, list)]
    return ", ".join([*map(str, places), *rest]) or "-"


def _table_or(placeholder: str, columns: list[str], rows: list[list[object]]) -> RenderableType:
    return common.table(columns, rows) if rows else Text(placeholder, "dim")


def _highlight(number: int, style: str, least: int = 1) -> Text:
    return Text(str(number), style if number >= least else "")


def _show(
    url: str, what: str, render: Callable[[Any], RenderableType], watch: bool, as_json: bool, **filters: Any
) -> None:
    """Print once, or every second with `watch`. JSON is indented then, or one line each time."""
    filters = {name: value for name, value in filters.items() if value is not None}
    if watch:
        asyncio.run(_watch(url, what, render, as_json, filters))
        return
    rows = broker_client.query(url, what, **filters)
    common.print_result(rows, as_json, lambda: render(rows))


async def _watch(
    url: str, what: str, render: Callable[[Any], RenderableType], as_json: bool, filters: dict[str, Any]
) -> None:
    async with Client(url) as client:
        if as_json:
            while True:
                rows = await broker_client.query_with(client, url, what, **filters)
                common.print_json(rows, lines=True)
                await asyncio.sleep(WATCH_INTERVAL)
        with Live(console=common.out, auto_refresh=False, screen=common.out.is_terminal) as live:
            while True:
                shown = render(await broker_client.query_with(client, url, what, **filters))
                live.update(_with_time(shown, url), refresh=True)
                await asyncio.sleep(WATCH_INTERVAL)


def _with_time(shown: RenderableType, url: str) -> RenderableType:
    return Group(Text(f"{url}  {time.strftime('%H:%M:%S')}  Ctrl-C to stop", "dim"), Text(), shown)
