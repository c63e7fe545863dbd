"""`polydomo jobs stored|dead|show|cancel|resend|forget` and `services pause|resume`: durable jobs."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.inspect import Service, jobs_app, services_app

# As the store calls them.
STORED_STATES = ("waiting", "delayed", "running", "done", "failed", "cancelled", "dead")
STYLES = {"done": "green", "running": "cyan", "failed": "red", "dead": "red", "cancelled": "magenta"}

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, as 'jobs stored' shows it.")]
Name = Annotated[str, typer.Argument(metavar="SERVICE", help="The service's name.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, newest first.")]
Page = Annotated[str | None, typer.Option(help="Go on where the last listing said so.")]


@jobs_app.command("stored")
def stored(
    url: common.Url = common.DEFAULT_URL,
    service: Service = None,
    state: Annotated[
        str | None,
        typer.Option(
            autocompletion=lambda: list(STORED_STATES),
            metavar="STATE",
            help=f"Only {', '.join(STORED_STATES)}.",
        ),
    ] = None,
    limit: Limit = 20,
    page: Page = None,
    as_json: common.Json = False,
) -> None:
    """Durable jobs, newest first: also those that ended long ago."""
    if state is not None and state not in STORED_STATES:
        raise typer.BadParameter(f"{state!r} is none of {', '.join(STORED_STATES)}", param_hint="--state")
    found = _ask(url, "show_stored_jobs", service=service, state=state, limit=limit, page=page)
    _list(found, as_json)


@jobs_app.command("dead")
def dead(
    url: common.Url = common.DEFAULT_URL,
    service: Service = None,
    limit: Limit = 20,
    page: Page = None,
    as_json: common.Json = False,
) -> None:
    """Dead letters: durable jobs that used up their attempts. They stay until they are resent or forgotten."""
    _list(_ask(url, "show_dead_letters", service=service, limit=limit, page=page), as_json)


@jobs_app.command("show")
def show(job: JobId, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """One durable job: its request, attempts, events and result."""
    row = _ask(url, "show_stored_job", id=job)
    if as_json:
        common.print_json(row)
        return
    table = common.table(["", ""], [[Text(name, "cyan"), _value(name, value)] for name, value in row.items()])
    table.show_header = False
    common.show(table)


@jobs_app.command("cancel")
def cancel(job: JobId, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """A durable job that has not ended will not be run; one that runs is taken from its worker."""
    _do(url, "cancel_job", f"{job} is cancelled", as_json, id=job)


@jobs_app.command("resend")
def resend(job: JobId, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Run a dead, failed or cancelled job again."""
    _do(url, "resend_job", f"{job} waits for a worker again", as_json, id=job)


@jobs_app.command("forget")
def forget(job: JobId, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Remove a durable job that has ended, with its result."""
    _do(url, "forget_job", f"{job} is forgotten", as_json, id=job)


@services_app.command("pause")
def pause(name: Name, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Give the service's jobs to nobody until it is resumed; running ones go on."""
    _do(url, "pause_service", f"{name} is paused", as_json, name=name)


@services_app.command("resume")
def resume(name: Name, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Give the service's jobs to workers again."""
    _do(url, "resume_service", f"{name} goes on", as_json, name=name)


def _ask(url: str, task: str, **kwargs: Any) -> Any:
    given = {name: value for name, value in kwargs.items() if value is not None}

    async def once() -> Any:
        async with broker_client.connect(url) as client:
            return await broker_client.call_task(client, url, task, given)

    return asyncio.run(once())


def _do(url: str, task: str, said: str, as_json: bool, **kwargs: Any) -> None:
    answer = _ask(url, task, **kwargs)
    if as_json:
        common.print_json(answer)
    else:
        common.show(Text(said, "green"))


def _list(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        common.print_json(found)
        return
    common.show(_table(found["jobs"]))
    if found["next"]:
        common.show(Text(f"there are more: --page {found['next']}", "dim"))


def _table(rows: list[dict[str, Any]]) -> RenderableType:
    if not rows:
        return Text("no such jobs", "dim")
    columns = ["job", "service", "state", ">tries", "submitted", ">in", ">out"]
    return common.table(
        columns,
        [
            [
                row["id"],
                Text(row["service"], "bold"),
                Text(
                    f"{row['state']}{': ' if row['reason'] else ''}{row['reason']}",
                    STYLES.get(row["state"], "yellow"),
                ),
                row["attempts"],
                _when(row["submitted"]),
                common.size(row["bytes_in"]),
                common.size(row["bytes_out"]),
            ]
            for row in rows
        ],
    )


def _value(name: str, value: Any) -> str:
    if name in ("submitted", "dispatched", "finished"):
        return _when(value)
    if name in ("bytes_in", "bytes_out"):
        return common.size(value)
    if name == "history":
        return "\n".join(_attempt(one) for one in value)
    if name == "events":
        return "\n".join(
            f"{_when(one['at'])}  {one['worker']}  {one['kind']}  {one['body']}" for one in value
        )
    if isinstance(value, dict):
        return "\n".join(f"{worker}: {_value('', answer)}" for worker, answer in value.items())
    if isinstance(value, list):
        return "\n".join(value)
    return "" if value is None else str(value)


def _attempt(one: dict[str, Any]) -> str:
    took = common.duration((one["ended"] - one["started"]) / 1_000_000) if one["ended"] else ""
    return f"{one['attempt']}  {_when(one['started'])}  {one['worker']}  {one['outcome']}  {took}".rstrip()


def _when(micros: int | None) -> str:
    """Local time, to the second."""
    if not micros:
        return ""
    return datetime.fromtimestamp(micros / 1_000_000).strftime("%Y-%m-%d %H:%M:%S")
