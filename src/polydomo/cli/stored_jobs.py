"""`polydomo jobs stored|dead|show|cancel|resend|forget` and `services pause|resume`: durable jobs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.inspect import SIZES, Limit, Service, ServiceName, job_state, jobs_app, services_app

# The states of stored jobs.
STORED_STATES = ("waiting", "delayed", "running", "done", "failed", "cancelled", "dead")

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, as 'jobs stored' shows it.")]
Page = Annotated[str | None, typer.Option(help="Continue a listing that ended with this value.")]


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
    """List durable jobs, newest first, including finished ones."""
    common.check_choice(state, STORED_STATES, "--state")
    filters = {"service": service, "state": state, "limit": limit, "page": page}
    _list(url, "show_stored_jobs", filters, as_json)


@jobs_app.command("dead")
def dead(
    url: common.Url = common.DEFAULT_URL,
    service: Service = None,
    limit: Limit = 20,
    page: Page = None,
    as_json: common.Json = False,
) -> None:
    """List dead letters: durable jobs that used up their attempts. They are kept until they are resent or forgotten."""
    filters = {"service": service, "limit": limit, "page": page}
    _list(url, "show_dead_letters", filters, as_json)


@jobs_app.command("show")
def show(job: JobId, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Show a durable job: its request, attempts, events and result."""
    row = broker_client.run_task(url, "show_stored_job", {"id": job})
    shown = {name: _value(name, value) for name, value in row.items()}
    common.print_result(row, as_json, common.properties(shown))


@jobs_app.command("cancel")
def cancel(job: JobId, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Cancel a durable job. If it is running, it is revoked from its worker."""
    _run(url, "cancel_job", f"{job} is cancelled", as_json, id=job)


@jobs_app.command("resend")
def resend(job: JobId, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Run a dead, failed or cancelled job again."""
    _run(url, "resend_job", f"{job} waits for a worker again", as_json, id=job)


@jobs_app.command("forget")
def forget(job: JobId, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Remove a finished durable job and its result."""
    _run(url, "forget_job", f"{job} is removed", as_json, id=job)


@services_app.command("pause")
def pause(name: ServiceName, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Stop dispatching the service's jobs. Running jobs continue."""
    _run(url, "pause_service", f"{name} is paused", as_json, name=name)


@services_app.command("resume")
def resume(name: ServiceName, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Dispatch the service's jobs again."""
    _run(url, "resume_service", f"{name} is resumed", as_json, name=name)


def _run(url: str, task: str, text: str, as_json: bool, **kwargs: Any) -> None:
    common.print_result(broker_client.run_task(url, task, kwargs), as_json, Text(text, "green"))


def _list(url: str, task: str, filters: dict[str, Any], as_json: bool) -> None:
    found = broker_client.run_task(url, task, filters)
    columns: common.Columns = {
        "job": "id",
        "service": lambda row: Text(row["service"], "bold"),
        "state": job_state,
        ">tries": "attempts",
        "submitted": lambda row: _time(row["submitted"]),
    }
    shown = [common.listing(columns | SIZES, found["jobs"], "no jobs")]
    if found["next"]:
        shown.append(Text(f"more: --page {found['next']}", "dim"))
    common.print_result(found, as_json, Group(*shown))


def _value(name: str, value: Any) -> str:
    if name in ("submitted", "dispatched", "finished"):
        return _time(value)
    if name in ("bytes_in", "bytes_out"):
        return common.size(value)
    if name == "history":
        return "\n".join(_attempt(one) for one in value)
    if name == "events":
        return "\n".join(
            f"{_time(one['at'])}  {one['worker']}  {one['kind']}  {one['body']}" for one in value
        )
    if isinstance(value, dict):
        return "\n".join(f"{worker}: {_value('', answer)}" for worker, answer in value.items())
    if isinstance(value, list):
        return "\n".join(value)
    return "" if value is None else str(value)


def _attempt(one: dict[str, Any]) -> str:
    took = common.duration((one["ended"] - one["started"]) / 1_000_000) if one["ended"] else ""
    return f"{one['attempt']}  {_time(one['started'])}  {one['worker']}  {one['outcome']}  {took}".rstrip()


def _time(micros: int | None) -> str:
    return common.local_time(micros / 1_000_000) if micros else ""
