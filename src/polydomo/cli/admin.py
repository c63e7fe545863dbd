"""`polydomo admin`: restart and stop a running broker, send its workers away, read its figures and its log."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.inspect import Service
from polydomo.errors import Unreachable
from polydomo.safe_text import safe_line

app = typer.Typer(help="Look after a running broker.", no_args_is_help=True)

# It finishes its jobs first.
PATIENCE = 60.0
STYLES = {"ERROR": "red", "CRITICAL": "red", "WARNING": "yellow", "DEBUG": "dim"}

Names = Annotated[list[str] | None, typer.Argument(metavar="[RESOURCE]...", help="All of them; none: none.")]


@app.command("restart")
def restart(
    url: common.Url = common.DEFAULT_URL,
    wait: Annotated[bool, typer.Option(help="Until it is back.")] = True,
    as_json: common.Json = False,
) -> None:
    """Let the broker finish its jobs, end, and begin anew with the same command line."""
    before = broker_client.query(url, "broker")["uptime"]
    answer = broker_client.run_task(url, "restart")
    began = time.monotonic()
    if wait:
        _wait_for_another(url, before, began)
    took = round(time.monotonic() - began, 3)
    if as_json:
        common.print_json(answer | ({"seconds": took} if wait else {}))
    else:
        said = f"{answer['name']} is back after {common.duration(took)}" if wait else "it restarts"
        common.show(Text(said, "green"))


def _wait_for_another(url: str, before: float, began: float) -> None:
    while True:
        try:
            if (
                broker_client.query(url, "broker", timeout=1.0)["uptime"]
                < before + time.monotonic() - began - 0.001
            ):
                return
        except Unreachable:
            if time.monotonic() - began > PATIENCE:
                raise
        if time.monotonic() - began > PATIENCE:
            common.fail(f"it has not stopped after {PATIENCE:g} s", "its jobs may take longer: see its log")
        time.sleep(0.1)


@app.command("shutdown")
def shutdown(url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Let the broker finish its jobs and end."""
    answer = broker_client.run_task(url, "shutdown")
    _said(answer, f"{answer['name']} finishes its jobs and stops", as_json)


@app.command("disconnect")
def disconnect(
    worker: Annotated[str | None, typer.Argument(metavar="[WORKER]", help="Only this one.")] = None,
    url: common.Url = common.DEFAULT_URL,
    service: Service = None,
    as_json: common.Json = False,
) -> None:
    """Send all workers away. They come back by themselves; what they were doing goes to others."""
    answer = broker_client.run_task(url, "disconnect", {"name": worker, "service": service})
    gone = answer["disconnected"]
    _said(answer, f"{len(gone)} sent away" + (f": {', '.join(gone[:10])}" if gone else ""), as_json)


@app.command("stats")
def stats(url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """The broker's process: time, memory, descriptors, threads, messages."""
    found = broker_client.run_task(url, "get_stats")
    if as_json:
        common.print_json(found)
        return
    shown = {name: found[name] for name in ("name", "status", "endpoint", "worker_count", "service_count")}
    shown |= found["process"] | {f"messages {name}": value for name, value in found["messaging"].items()}
    table = common.table(["", ""], [[Text(name, "cyan"), value] for name, value in shown.items()])
    table.show_header = False
    common.show(table)


@app.command("logs")
def logs(
    url: common.Url = common.DEFAULT_URL,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, the newest.")] = 20,
    level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning, error: this and worse.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Such as 2026-01-31T12:00, in local time.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="The same.")] = None,
    as_json: common.Json = False,
) -> None:
    """The last lines of the broker's log."""
    asked = {"last": limit, "level": level, "since": since, "until": until}
    rows = broker_client.run_task(url, "get_logs", asked)
    if as_json:
        common.print_json(rows)
        return
    for row in rows:
        facts = "  ".join(f"{name}={value}" for name, value in row.get("facts", {}).items())
        line = Text.assemble(
            (row["ts"], "dim"),
            f" [{row['level'].lower()}] ",
            (safe_line(row["message"]), STYLES.get(row["level"], "")),
        )
        common.show(line.append(f"  {safe_line(facts)}" if facts else ""))


@app.command("resources")
def resources(
    url: common.Url = common.DEFAULT_URL, service: Service = None, as_json: common.Json = False
) -> None:
    """Which worker has which resources now."""
    rows: list[dict[str, Any]] = broker_client.run_task(url, "show_resources", {"service": service})
    if as_json:
        common.print_json(rows)
        return
    shown = [
        [row["worker"], ", ".join(row["services"]), len(row["resources"]), _some(row["resources"])]
        for row in rows
    ]
    columns = ["worker", "services", ">resources", "among them"]
    common.show(common.table(columns, shown) if shown else Text("no workers", "dim"))


@app.command("share-out")
def share_out(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="The service's name.")],
    names: Names = None,
    url: common.Url = common.DEFAULT_URL,
    as_json: common.Json = False,
) -> None:
    """Share resources out among a service's workers, in place of those that were."""
    answer = broker_client.run_task(url, "share_out", {"service": service, "resources": names or []})
    _said(answer, f"{answer['resources']} resources of {service} are shared out", as_json)


def _said(answer: Any, said: str, as_json: bool) -> None:
    if as_json:
        common.print_json(answer)
    else:
        common.show(Text(said, "green"))


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
