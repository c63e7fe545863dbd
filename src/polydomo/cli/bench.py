"""`polydomo bench`: the rate and latency of requests through a broker.

Clients run in this process, echo workers in another, a broker in a third (or elsewhere, with `--url`), all with the
public SDK. Each client sends its next request after the reply to the last one.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from polydomo.cli import broker_client, common, install_info
from polydomo.cli.latency_stats import LatencySummary, sparkline, summarize
from polydomo.cli.processes import ChildProcess, ProcessGroup, url_of
from polydomo.errors import PolydomoError
from polydomo.sdk import Client
from polydomo.sdk.background_loop import new_loop
from polydomo.server.units import parse_size
from polydomo.wire.frames import frame

# Seconds.
WORKERS_TIMEOUT = 15.0
REQUEST_TIMEOUT = 30.0
# Requests of each client before the measurement: connections are made, caches warm.
WARM_UP = 20


class BenchPlan(msgspec.Struct):
    """The parameters of a measurement."""

    clients: int
    workers: int
    requests: int
    size: int
    dialect: str
    url: str = ""
    service: str = ""
    own_broker: bool = True


def bench(
    clients: Annotated[int, typer.Option("--clients", min=1, help="Number of concurrent clients.")] = 4,
    workers: Annotated[
        int, typer.Option("--workers", min=0, help="Number of echo workers; 0: use those of --service.")
    ] = 4,
    requests: Annotated[
        int, typer.Option("--requests", "-n", min=1, help="Number of requests of all clients together.")
    ] = 20_000,
    size: Annotated[
        str, typer.Option("--size", metavar="SIZE", help="Size of a body: 64, 4KiB, 1MB.")
    ] = "64",
    url: Annotated[
        str | None,
        typer.Option("--url", "-u", metavar="URL", help="Use this broker instead of starting one."),
    ] = None,
    dialect: Annotated[str, typer.Option(metavar="DIALECT", help="mdp or dcp, without --url.")] = "mdp",
    service: Annotated[str | None, typer.Option(help="An existing service, with --workers 0.")] = None,
    as_json: common.Json = False,
) -> None:
    """Measure requests per second and latencies through a broker."""
    try:
        length = parse_size(size)
    except ValueError:
        raise typer.BadParameter(f"{size!r}: write 64, 4KiB or 1MB", param_hint="--size") from None
    if (workers == 0) != (service is not None):
        raise typer.BadParameter("--service and --workers 0 belong together")
    common.check_choice(dialect, ("mdp", "dcp"), "--dialect")
    plan = BenchPlan(clients, workers, requests, length, dialect)
    plan.service = service or f"bench.{os.getpid()}"
    with ProcessGroup() as group:
        if url is None:
            plan.url = url_of(group.start_broker()[1], dialect)
        else:
            plan.url, plan.own_broker = url, False
            plan.dialect = url.partition(":")[0].partition("+")[0]
        latencies, summary = _measure(plan, group, quiet=as_json)
    value = {"plan": plan, "compiled": install_info.compiled(), "result": summary}
    common.print_result(value, as_json, report(plan, latencies, summary))
    if summary.failed:
        raise typer.Exit(common.FAILED)


def report(plan: BenchPlan, latencies: list[float], summary: LatencySummary) -> Group:
    """Return a line about the measurement, a table, and a sparkline of the latencies."""
    own = f"a broker of its own ({install_info.loop_name()}, {'compiled' if install_info.compiled() else 'plain'})"
    broker = own if plan.own_broker else plan.url
    title = (
        f"{plan.requests:,} requests of {common.size(plan.size)} over {plan.dialect.upper()} through {broker}"
    )
    columns = [">clients", ">workers", ">requests/s", ">p50", ">p90", ">p99", ">worst", ">failed"]
    row = [
        plan.clients,
        plan.workers or plan.service,
        Text(f"{summary.rate:,.0f}", "bold green"),
        *[common.duration(value) for value in (summary.p50, summary.p90, summary.p99, summary.worst)],
        Text(str(summary.failed), "bold red" if summary.failed else ""),
    ]
    least = common.duration(min(latencies, default=0.0))
    shape = Text.assemble((f"{least} ", "dim"), (sparkline(latencies), "cyan"))
    shape.append(f" {common.duration(summary.worst)}", "dim")
    return Group(Text(title, "dim"), Text(), common.table(columns, [row]), Text(), shape)


def _measure(plan: BenchPlan, group: ProcessGroup, *, quiet: bool) -> tuple[list[float], LatencySummary]:
    worker = None
    if plan.workers:
        options = ["--service", plan.service, "--codec", "raw", "--url", plan.url]
        options += ["--concurrency", str(plan.workers)]
        worker = group.start("worker", "polydomo.cli.example_services:echo", *options)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(Measurement(plan, worker).run(quiet))


class Measurement:
    """One measurement, and its results so far."""

    def __init__(self, plan: BenchPlan, worker: ChildProcess | None) -> None:
        self.plan = plan
        self.worker = worker
        self.body = frame(b"x" * plan.size)
        self.left = plan.requests
        self.latencies: list[float] = []
        self.failed = 0
        self.first_error = ""

    async def run(self, quiet: bool) -> tuple[list[float], LatencySummary]:
        """Wait for the workers, warm up and measure."""
        plan = self.plan
        clients = [broker_client.connect(plan.url, timeout=REQUEST_TIMEOUT) for _ in range(plan.clients)]
        try:
            await self._wait_for_workers(clients[0])
            await asyncio.gather(*[self._warm_up(client) for client in clients])
            start = time.perf_counter()
            measuring = asyncio.gather(*[self._send_requests(client) for client in clients])
            await self._show_progress(measuring, quiet)
            elapsed = time.perf_counter() - start
        finally:
            for client in clients:
                await client.close()
        if self.first_error:
            common.print_error(f"{self.failed} requests failed, the first with: {self.first_error}")
        return self.latencies, summarize(self.latencies, elapsed, self.failed)

    async def _wait_for_workers(self, client: Client) -> None:
        """Wait until every worker has registered."""
        plan = self.plan
        deadline = time.monotonic() + WORKERS_TIMEOUT
        while True:
            rows: list[dict[str, Any]] = await broker_client.call_task(client, plan.url, "show_services")
            offered = {row["name"]: row["workers"] for row in rows}
            # Over DCP one worker has several jobs at once.
            wanted = plan.workers if plan.dialect == "mdp" else 1
            if offered.get(plan.service, 0) >= max(wanted, 1):
                return
            if self.worker is None:
                raise broker_client.unknown_service(plan.service, rows)
            if not self.worker.running or time.monotonic() > deadline:
                raise PolydomoError("the workers did not start", hint=self.worker.log_tail() or None)
            await asyncio.sleep(0.01)

    async def _warm_up(self, client: Client) -> None:
        for _ in range(WARM_UP):
            await client.exchange(self.plan.service, self.body)

    async def _send_requests(self, client: Client) -> None:
        service, body, add, clock = self.plan.service, self.body, self.latencies.append, time.perf_counter
        while self.left > 0:
            self.left -= 1
            start = clock()
            try:
                await client.exchange(service, body)
            except PolydomoError as error:
                self.failed += 1
                self.first_error = self.first_error or str(error)
            else:
                add(clock() - start)

    async def _show_progress(self, measuring: asyncio.Future[Any], quiet: bool) -> None:
        """Show a progress bar while the measurement runs."""
        columns = (
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[rate]}"),
        )
        with Progress(*columns, console=common.err, transient=True, disable=quiet) as progress:
            task = progress.add_task("", total=self.plan.requests, rate="")
            start = time.perf_counter()
            while not measuring.done():
                await asyncio.wait([measuring], timeout=0.1)
                done = len(self.latencies) + self.failed
                rate = f"{done / (time.perf_counter() - start):,.0f}/s"
                progress.update(task, completed=done, rate=rate)
        await measuring
