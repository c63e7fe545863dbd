"""`polydomo services`, `workers`, `clients`, `jobs` and `status`: the state of a running broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
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
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, help="Number of jobs, at most; the newest first.")
]
ServiceName = Annotated[str, typer.Argument(metavar="SERVICE", help="The service's name.")]
WATCH_INTERVAL = 1.0

JOB_STYLES = {"done": "green", "running": "cyan", "failed": "red", "dead": "red", "cancelled": "magenta"}
SIZES: common.Columns = {
    ">in": lambda row: common.size(row["bytes_in"]),
    ">out": lambda row: common.size(row["bytes_out"]),
}


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
    limit: Limit = 20,
    watch: Watch = False,
    as_json: common.Json = False,
) -> None:
    """List jobs, newest first."""
    common.check_choice(state, STATES, "--state")
    _show(url, "jobs", jobs_table, watch, as_json, service=service, state=state, limit=limit)


def status(url: common.Url = common.DEFAULT_URL, watch: Watch = False, as_json: common.Json = False) -> None:
    """Show the state of the broker."""
    _show(url, "broker", broker_table, watch, as_json)


def services_table(rows: Rows) -> RenderableType:
    """Return a table of services; those without workers are highlighted."""
    columns: common.Columns = {
        "service": lambda row: Text(row["name"], "bold" if row["workers"] else "yellow"),
        ">workers": "workers",
        ">idle": "idle",
        ">waiting": lambda row: _highlight(row["waiting"], "yellow"),
        ">running": "running",
        ">done": "done",
        ">failed": lambda row: _highlight(row["failed"], "red"),
        ">retried": lambda row: _highlight(row["retried"], "yellow"),
    }
    return common.listing(columns, rows, "no services: start a worker")


def workers_table(rows: Rows) -> RenderableType:
    """Return a table of workers."""
    styles = {"idle": "green", "busy": "cyan", "late": "red"}
    columns: common.Columns = {
        "worker": "name",
        "dialect": "dialect",
        "services": lambda row: Text(", ".join(row["services"]), "bold"),
        "state": lambda row: Text(row["state"], styles.get(row["state"], "")),
        ">holds": lambda row: f"{row['holds']}/{row['credit']}",
        ">done": "done",
        ">seen": lambda row: f"{common.duration(row['seen'])} ago",
        ">since": lambda row: common.duration(row["since"]),
    }
    return common.listing(columns, rows, "no workers")


def clients_table(rows: Rows) -> RenderableType:
    """Return a table of clients."""
    columns: common.Columns = {
        "client": "name",
        "dialect": "dialect",
        ">unanswered": "unanswered",
        ">bytes": lambda row: common.size(row["bytes"]),
        ">submitted": "submitted",
        "state": lambda row: Text("held", "red") if row["held"] else Text("reading", "green"),
        ">since": lambda row: common.duration(row["since"]),
    }
    return common.listing(columns, rows, "no clients")


def jobs_table(rows: Rows) -> RenderableType:
    """Return a table of jobs, with client, worker and sizes if the terminal is wide."""
    columns: common.Columns = {
        ">job": "id",
        "service": lambda row: Text(row["service"], "bold"),
        "state": job_state,
        ">tries": lambda row: _highlight(row["attempts"], "yellow", least=2),
        ">waited": lambda row: common.duration(row["waited"]),
        ">ran": lambda row: common.duration(row["ran"]),
        ">age": lambda row: common.duration(row["age"]),
    }
    if common.is_wide():
        columns |= {"client": "client", "worker": "worker", "dialect": "dialect"} | SIZES
    return common.listing(columns, rows, "no jobs")


def job_state(row: dict[str, Any]) -> Text:
    """Return the cell of a job's state and of the reason for it."""
    text = f"{row['state']}: {row['reason']}" if row["reason"] else row["state"]
    return Text(text, JOB_STYLES.get(row["state"], "yellow"))


def broker_table(row: dict[str, Any]) -> RenderableType:
    """Return a table of the broker's properties."""
    shown = row | {"uptime": common.duration(row["uptime"]), "memory": common.size(row["memory"])}
    properties: dict[str, object] = {name: _format(value) for name, value in shown.items()}
    if "insecure" in shown:
        properties["insecure"] = Text(f"anybody may use {_format(shown['insecure'])}", "bold red")
    return common.properties(properties)


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


def _highlight(number: int, style: str, least: int = 1) -> Text:
    return Text(str(number), style if number >= least else "")


def _show(
    url: str, what: str, render: Callable[[Any], RenderableType], watch: bool, as_json: bool, **filters: Any
) -> None:
    """Print once, or every second with `watch`. JSON is indented then, or one line each time."""
    if watch:
        asyncio.run(_watch(url, what, render, as_json, filters))
        return
    rows = broker_client.query(url, what, **filters)
    common.print_result(rows, as_json, lambda: render(rows))


async def _watch(
    url: str, what: str, render: Callable[[Any], RenderableType], as_json: bool, filters: dict[str, Any]
) -> None:
    async with Client(url) as client:
        live = Live(console=common.out, auto_refresh=False, screen=common.out.is_terminal)
        with nullcontext() if as_json else live:
            while True:
                rows = await broker_client.call_task(client, url, f"show_{what}", filters)
                if as_json:
                    common.print_json(rows, lines=True)
                else:
                    title = Text(f"{url}  {time.strftime('%H:%M:%S')}  Ctrl-C to stop", "dim")
                    live.update(Group(title, Text(), render(rows)), refresh=True)
                await asyncio.sleep(WATCH_INTERVAL)
