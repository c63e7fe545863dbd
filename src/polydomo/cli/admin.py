"""`polydomo admin`: restart and stop a running broker, disconnect its workers, read its statistics and its log."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.inspect import Service, ServiceName
from polydomo.errors import Unreachable
from polydomo.safe_text import safe_line

app = typer.Typer(help="Administer a running broker.", no_args_is_help=True)

# How long to wait for a restart, in seconds: the broker finishes its jobs first.
PATIENCE = 60.0
STYLES = {"ERROR": "red", "CRITICAL": "red", "WARNING": "yellow", "DEBUG": "dim"}

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RESOURCE]...", help="All resources of the service; none: remove all."),
]


@app.command("restart")
def restart(
    url: common.Url = common.DEFAULT_URL,
    wait: Annotated[bool, typer.Option(help="Wait until the broker is back.")] = True,
    as_json: common.Json = False,
) -> None:
    """Restart the broker, with the same command line, after its jobs have finished."""
    uptime = broker_client.query(url, "broker")["uptime"]
    reply = broker_client.run_task(url, "restart")
    watch = common.Stopwatch()
    text = f"{reply['name']} restarts"
    if wait:
        _wait_for_restart(url, uptime, watch)
        took = round(watch.seconds, 3)
        reply |= {"seconds": took}
        text = f"{reply['name']} is back after {common.duration(took)}"
    common.print_result(reply, as_json, Text(text, "green"))


def _wait_for_restart(url: str, uptime: float, watch: common.Stopwatch) -> None:
    """Wait for a broker whose uptime is less than that of the old one would be."""
    while True:
        try:
            new = broker_client.query(url, "broker", timeout=1.0)["uptime"]
            if new < uptime + watch.seconds - 0.001:
                return
        except Unreachable:
            if watch.seconds > PATIENCE:
                raise
        if watch.seconds > PATIENCE:
            common.fail(
                f"the broker has not stopped after {PATIENCE:g} s",
                "its jobs may take longer: see its log",
            )
        time.sleep(0.1)


@app.command("shutdown")
def shutdown(url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Stop the broker after its jobs have finished."""
    reply = broker_client.run_task(url, "shutdown")
    common.print_result(reply, as_json, Text(f"{reply['name']} finishes its jobs and stops", "green"))


@app.command("disconnect")
def disconnect(
    worker: Annotated[str | None, typer.Argument(metavar="[WORKER]", help="Only this worker.")] = None,
    url: common.Url = common.DEFAULT_URL,
    service: Service = None,
    as_json: common.Json = False,
) -> None:
    """Disconnect all workers. They connect again by themselves; their jobs are given to other workers."""
    reply = broker_client.run_task(url, "disconnect", {"name": worker, "service": service})
    names = reply["disconnected"]
    text = f"{len(names)} disconnected" + (f": {', '.join(names[:10])}" if names else "")
    common.print_result(reply, as_json, Text(text, "green"))


@app.command("stats")
def stats(url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Show statistics of the broker's process: time, memory, descriptors, threads, messages."""
    found = broker_client.run_task(url, "get_stats")
    shown = {name: found[name] for name in ("name", "status", "endpoint", "worker_count", "service_count")}
    shown |= found["process"] | {f"messages {name}": value for name, value in found["messaging"].items()}
    common.print_result(found, as_json, common.properties(shown))


@app.command("logs")
def logs(
    url: common.Url = common.DEFAULT_URL,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Number of lines, at most; the newest.")
    ] = 20,
    level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error, and above.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this local time on, such as 2026-01-31T12:00.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Up to this local time.")] = None,
    as_json: common.Json = False,
) -> None:
    """Show the last lines of the broker's log."""
    filters = {"last": limit, "level": level, "since": since, "until": until}
    rows = broker_client.run_task(url, "get_logs", filters)
    common.print_result(rows, as_json, Group(*map(_log_line, rows)))


def _log_line(row: dict[str, Any]) -> Text:
    facts = "  ".join(f"{name}={value}" for name, value in row.get("facts", {}).items())
    return Text.assemble(
        (row["ts"], "dim"),
        f" [{row['level'].lower()}] ",
        (safe_line(row["message"]), STYLES.get(row["level"], "")),
        f"  {safe_line(facts)}" if facts else "",
    )


@app.command("resources")
def resources(
    url: common.Url = common.DEFAULT_URL, service: Service = None, as_json: common.Json = False
) -> None:
    """Show which worker has which resources."""
    rows = broker_client.run_task(url, "show_resources", {"service": service})
    columns: common.Columns = {
        "worker": "worker",
        "services": lambda row: ", ".join(row["services"]),
        ">resources": lambda row: len(row["resources"]),
        "such as": lambda row: ", ".join(row["resources"][:5]) + (" …" if len(row["resources"]) > 5 else ""),
    }
    common.print_result(rows, as_json, common.listing(columns, rows, "no workers"))


@app.command("share-out")
def share_out(
    service: ServiceName,
    names: Names = None,
    url: common.Url = common.DEFAULT_URL,
    as_json: common.Json = False,
) -> None:
    """Distribute resources among a service's workers, replacing the ones it had."""
    reply = broker_client.run_task(url, "share_out", {"service": service, "resources": names or []})
    text = f"{reply['resources']} resources of {service} are distributed"
    common.print_result(reply, as_json, Text(text, "green"))
