"""`polydomo spark plan` and `report`: a capacity plan and a report from the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.call import seconds
from polydomo.cli.option_groups import takes_groups
from polydomo.cli.spark import options

if TYPE_CHECKING:
    from polydomo.pipeline.plan import Need, Plan

WINDOWS = ("all", "day", "hour")
PERCENTILES = {"--p50": 0.5, "--p95": 0.95, "--p99": 0.99}


@takes_groups
def plan(
    service: Annotated[
        str | None,
        typer.Argument(
            metavar="SERVICE",
            help="The service; default: all of them.",
            autocompletion=broker_client.complete_service,
        ),
    ] = None,
    p50: Annotated[
        str | None, typer.Option("--p50", metavar="TIME", help="Half of the jobs wait no longer than this.")
    ] = None,
    p95: Annotated[
        str | None,
        typer.Option(
            "--p95", metavar="TIME", help="95 % of the jobs wait no longer than this; default: 200ms."
        ),
    ] = None,
    p99: Annotated[
        str | None, typer.Option("--p99", metavar="TIME", help="99 % of the jobs wait no longer than this.")
    ] = None,
    window: Annotated[
        str, typer.Option(metavar="WHEN", help="The busiest hour or day, or all of it: hour, day, all.")
    ] = "hour",
    load: Annotated[float, typer.Option(metavar="X", help="Assume X times as many jobs.")] = 1.0,
    speed: Annotated[float, typer.Option(metavar="X", help="Assume workers X times as fast.")] = 1.0,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N-M", help="Try these numbers instead of searching for the smallest."),
    ] = None,
    credit: Annotated[int, typer.Option(min=1, help="Concurrent jobs of one worker.")] = 1,
    since: Annotated[str | None, typer.Option(metavar="DAY", help="Use jobs from this day on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="Use jobs up to this day.")] = None,
    *,
    chosen: options.TablesRun,
    as_json: common.Json = False,
) -> None:
    """Find how many workers a service needs: replay its recorded jobs against 1, 2, 3 … workers.

    Examples: plan resize --p95 200ms; plan --p99 1s --window day; plan resize --load 2.
    """
    target, percentile = _target({"--p50": p50, "--p95": p95, "--p99": p99})
    common.check_choice(window, WINDOWS, "--window")
    numbers = _range(workers)
    first, last = options.parse_day(since, "--since"), options.parse_day(until, "--until")
    with chosen.tables("planning", options.need_jobs) as (spark, lake, bar):
        from polydomo.pipeline.plan import plan as work

        jobs, attempts = _recorded(spark, lake, first, last)
        found = work(
            spark,
            jobs,
            service,
            target,
            percentile,
            load,
            speed,
            numbers,
            window=window,  # type: ignore[arg-type] # checked above
            credit=credit,
            attempts=attempts,
            progress=bar.update,
        )
    if as_json:
        value = found.to_json()
        if service is not None:
            value = {"service": service, "workers": found.recommended.get(service)} | value
        common.print_json(value)
    elif service is None:
        common.show(needs_table(found))
    else:
        _print(found, service)


@takes_groups
def report(
    out: Annotated[
        Path, typer.Argument(metavar="FILE", help="The report, one self-contained HTML file.")
    ] = Path("report.html"),
    csv: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write a CSV file for each section into this folder."),
    ] = None,
    p95: Annotated[
        str | None,
        typer.Option(
            "--p95", metavar="TIME", help="Include a plan: 95 % of the jobs wait no longer than this."
        ),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    *,
    chosen: options.TablesRun,
    as_json: common.Json = False,
) -> None:
    """Write an HTML report with plots of services, workers, clients, outages and anomalies. --json: its figures."""
    first, last = options.parse_day(since, "--since"), options.parse_day(until, "--until")
    target = None if p95 is None else _target({"--p95": p95})[0]
    with chosen.tables("writing a report", options.need_jobs) as (spark, lake, bar):
        from polydomo.pipeline.plan import plan as planning
        from polydomo.pipeline.report import report as work
        from polydomo.spark import Tables

        planned = None
        if target is not None:
            jobs, lost = _recorded(spark, lake, first, last)
            planned = planning(spark, jobs, target=target, attempts=lost)
        made = work(
            Tables(spark, lake), out, begin=first, end=last, plan=planned, csv=csv, progress=bar.update
        )
    beside = "" if csv is None else f", and CSV files in {csv}"
    common.print_done(made, as_json, (str(out), "bold"), beside)


def needs_table(found: Plan) -> Any:
    """Return a table with one line per service."""
    columns: common.Columns = {
        "service": lambda need: Text(need.service, "bold"),
        ">jobs": lambda need: f"{need.jobs:,}",
        ">were seen": lambda need: "–" if need.seen is None else need.seen,
        ">workers needed": _number_needed,
        f">p{found.percentile * 100:g} wait": lambda need: common.optional_duration(need.wait),
        ">with one fewer": lambda need: common.optional_duration(need.fewer),
    }
    return common.listing(columns, found.needs, title=_title(found))


def _number_needed(need: Need) -> Text:
    short = need.workers is not None and need.seen is not None and need.workers > need.seen
    number = "–" if need.workers is None else str(need.workers)
    return Text(number, "bold yellow" if short else "bold green")


def _print(found: Plan, service: str) -> None:
    """Print all numbers of workers that were tried, and the result."""
    columns: common.Columns = {
        ">workers": lambda row: row.workers,
        ">busy": lambda row: f"{row.utilisation:.0%}",
        ">mean wait": lambda row: common.optional_duration(row.mean),
        ">p50": lambda row: common.optional_duration(row.p50),
        ">p95": lambda row: common.optional_duration(row.p95),
        ">p99": lambda row: common.optional_duration(row.p99),
        ">longest": lambda row: common.optional_duration(row.longest),
        "enough": lambda row: Text("✓", "bold green") if row.ok else Text("✗", "red"),
    }
    rows = [row for row in found.rows if row.window == found.window]
    common.show(common.listing(columns, rows, title=_title(found)))
    for need in found.needs:
        if need.workers is None:
            common.out.print(Text(f"{service}: none of these numbers is enough", "bold yellow"))
            continue
        word = "worker" if need.workers == 1 else "workers"
        line = Text.assemble(f"{service} needs ", (f"{need.workers} {word}", "bold green"))
        if need.seen is not None:
            line.append(f"; {need.seen} {'was' if need.seen == 1 else 'were'} seen", "dim")
        common.out.print(line)


def _title(found: Plan) -> str:
    where = {"all": "over all of it", "day": "in the busiest 24 hours", "hour": "in the busiest hour"}
    changed = [
        f"{what} × {value:g}" for what, value in (("load", found.load), ("speed", found.speed)) if value != 1
    ]
    title = f"p{found.percentile * 100:g} wait within {common.duration(found.target)}, {where[found.window]}"
    return ", ".join([title, *changed])


def _target(given: dict[str, str | None]) -> tuple[float, float]:
    options = [(flag, text) for flag, text in given.items() if text is not None]
    if len(options) > 1:
        raise typer.BadParameter(f"{' and '.join(flag for flag, _ in options)}: give one of them")
    flag, text = options[0] if options else ("--p95", "200ms")
    found = seconds(text, flag)
    if found is None:
        raise typer.BadParameter("a plan needs a finite time", param_hint=flag)
    return found, PERCENTILES[flag]


def _range(text: str | None) -> range | None:
    if text is None:
        return None
    low, _, high = text.partition("-")
    if not low.isdigit() or not (high or low).isdigit() or not 1 <= int(low) <= int(high or low):
        raise typer.BadParameter(f"{text!r}: write 1-10, or 4", param_hint="--workers")
    return range(int(low), int(high or low) + 1)


def _recorded(spark: Any, lake: Any, first: Any, last: Any) -> list[Any]:
    """Return the jobs and the lost attempts of these days."""
    from polydomo.pipeline.report_data import within_days

    return [within_days(lake.read(spark, name), first, last) for name in ("jobs", "attempts")]
