"""`polydomo spark plan` and `report`: what the tables say about tomorrow, and about the last weeks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.call import seconds
from polydomo.cli.config import ConfigFile
from polydomo.cli.spark import options, session

if TYPE_CHECKING:
    from polydomo.pipeline.plan import Plan

WINDOWS = ("all", "day", "hour")
PERCENTILES = {"--p50": 0.5, "--p95": 0.95, "--p99": 0.99}


def plan(
    service: Annotated[
        str | None,
        typer.Argument(
            metavar="SERVICE",
            help="Which one; none: all of them.",
            autocompletion=broker_client.complete_service,
        ),
    ] = None,
    p50: Annotated[
        str | None, typer.Option("--p50", metavar="TIME", help="Half of the jobs wait no longer.")
    ] = None,
    p95: Annotated[
        str | None,
        typer.Option("--p95", metavar="TIME", help="95 % of the jobs wait no longer; the usual: 200ms."),
    ] = None,
    p99: Annotated[
        str | None, typer.Option("--p99", metavar="TIME", help="99 % of the jobs wait no longer.")
    ] = None,
    window: Annotated[
        str, typer.Option(metavar="WHEN", help="In the busiest hour or day, or over all of it.")
    ] = "hour",
    load: Annotated[float, typer.Option(metavar="X", help="What if there were X times as many jobs?")] = 1.0,
    speed: Annotated[float, typer.Option(metavar="X", help="What if workers were X times as fast?")] = 1.0,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N-M", help="Try these numbers, instead of looking for the smallest."),
    ] = None,
    credit: Annotated[int, typer.Option(min=1, help="Jobs that a worker does at once.")] = 1,
    since: Annotated[str | None, typer.Option(metavar="DAY", help="From jobs of this day on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="From jobs up to this day.")] = None,
    master: options.Master = None,
    data: options.Data = None,
    tables: options.Tables = None,
    file: ConfigFile = None,
    sets: options.Sets = None,
    verbose: options.Verbose = False,
    as_json: common.Json = False,
) -> None:
    """How many workers does a service need? Its recorded jobs are replayed against 1, 2, 3 … of them.

    Examples: plan resize --p95 200ms; plan --p99 1s --window day; plan resize --load 2.
    """
    target, percentile = _target({"--p50": p50, "--p95": p95, "--p99": p99})
    if window not in WINDOWS:
        raise typer.BadParameter(f"{window!r} is none of {', '.join(WINDOWS)}", param_hint="--window")
    numbers = _range(workers)
    first, last = session.day(since, "--since"), session.day(until, "--until")
    settings = options.gather(file, sets, master=master, data=data, tables=tables)
    with options.open_lake(settings) as lake:
        options.need_rows(lake, "jobs")
        from polydomo.pipeline.plan import plan as work

        with session.spark_session(settings, "planning", verbose=verbose) as (spark, bar):
            jobs, attempts = (_within(lake.read(spark, name), first, last) for name in ("jobs", "attempts"))
            found = work(
                spark,
                jobs,
                service,
                target,
                percentile,
                load,
                speed,
                numbers,
                window=window,  # type: ignore[arg-type] # looked at above
                credit=credit,
                attempts=attempts,
                progress=bar.tell,
            )
    if as_json:
        told = found.to_json()
        if service is not None:
            told = {"service": service, "workers": found.recommended.get(service)} | told
        common.print_json(told)
    elif service is None:
        common.show(needs_table(found))
    else:
        _tell(found, service)


def report(
    out: Annotated[
        Path, typer.Argument(metavar="FILE", help="The page: one file, with everything in it.")
    ] = Path("report.html"),
    csv: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A CSV file for each section, too, in this folder.")
    ] = None,
    p95: Annotated[
        str | None,
        typer.Option("--p95", metavar="TIME", help="With a plan: 95 % of the jobs wait no longer."),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="DAY", help="From this day on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="Up to this day.")] = None,
    master: options.Master = None,
    data: options.Data = None,
    tables: options.Tables = None,
    file: ConfigFile = None,
    sets: options.Sets = None,
    verbose: options.Verbose = False,
    as_json: common.Json = False,
) -> None:
    """Write a page with plots about services, workers, clients, outages and odd days. --json: its figures."""
    first, last = session.day(since, "--since"), session.day(until, "--until")
    target = None if p95 is None else _target({"--p95": p95})[0]
    settings = options.gather(file, sets, master=master, data=data, tables=tables)
    with options.open_lake(settings) as lake:
        options.need_rows(lake, "jobs")
        from polydomo.pipeline.plan import plan as planning
        from polydomo.pipeline.report import report as work
        from polydomo.spark import Tables

        with session.spark_session(settings, "writing a report", verbose=verbose) as (spark, bar):
            planned = None
            if target is not None:
                jobs, lost = (_within(lake.read(spark, name), first, last) for name in ("jobs", "attempts"))
                planned = planning(spark, jobs, target=target, attempts=lost)
            made = work(
                Tables(spark, lake), out, begin=first, end=last, plan=planned, csv=csv, progress=bar.tell
            )
    if as_json:
        common.print_json(made)
        return
    beside = "" if csv is None else f", and CSV files in {csv}"
    common.out.print(Text.assemble(("✓ ", "bold green"), (str(out), "bold"), beside), soft_wrap=True)


def needs_table(found: Plan) -> Any:
    """One line per service."""
    asked = f"p{found.percentile * 100:g}"
    rows = []
    for need in found.needs:
        short = need.workers is not None and need.seen is not None and need.workers > need.seen
        number = "–" if need.workers is None else str(need.workers)
        rows.append(
            [
                Text(need.service, "bold"),
                f"{need.jobs:,}",
                "–" if need.seen is None else need.seen,
                Text(number, "bold yellow" if short else "bold green"),
                _time(need.wait),
                _time(need.fewer),
            ]
        )
    columns = ["service", ">jobs", ">were seen", ">workers needed", f">{asked} wait", ">with one fewer"]
    return common.table(columns, rows, title=_title(found))


def _tell(found: Plan, service: str) -> None:
    """Every number that was tried, and the answer."""
    rows = [
        [
            row.workers,
            f"{row.utilisation:.0%}",
            _time(row.mean),
            _time(row.p50),
            _time(row.p95),
            _time(row.p99),
            _time(row.longest),
            Text("✓", "bold green") if row.ok else Text("✗", "red"),
        ]
        for row in found.rows
        if row.window == found.window
    ]
    columns = [">workers", ">busy", ">mean wait", ">p50", ">p95", ">p99", ">longest", "enough"]
    common.show(common.table(columns, rows, title=_title(found)))
    for need in found.needs:
        if need.workers is None:
            common.out.print(Text(f"{service}: none of these is enough", "bold yellow"))
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
    told = f"p{found.percentile * 100:g} wait within {common.duration(found.target)}, {where[found.window]}"
    return ", ".join([told, *changed])


def _time(value: float | None) -> str:
    return "–" if value is None else "0" if value < 1e-6 else common.duration(value)


def _target(given: dict[str, str | None]) -> tuple[float, float]:
    said = [(flag, text) for flag, text in given.items() if text is not None]
    if len(said) > 1:
        raise typer.BadParameter(f"{' and '.join(flag for flag, _ in said)}: give one of them")
    flag, text = said[0] if said else ("--p95", "200ms")
    found = seconds(text, flag)
    if found is None:
        raise typer.BadParameter("every number of workers keeps waits below forever", param_hint=flag)
    return found, PERCENTILES[flag]


def _range(text: str | None) -> range | None:
    if text is None:
        return None
    low, _, high = text.partition("-")
    if not low.isdigit() or not (high or low).isdigit() or not 1 <= int(low) <= int(high or low):
        raise typer.BadParameter(f"{text!r}: write 1-10, or 4", param_hint="--workers")
    return range(int(low), int(high or low) + 1)


def _within(rows: Any, first: Any, last: Any) -> Any:
    from pyspark.sql import functions as fn

    if first is not None:
        rows = rows.where(fn.col("day") >= fn.lit(first))
    return rows if last is None else rows.where(fn.col("day") <= fn.lit(last))
