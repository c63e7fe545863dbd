"""`polydomo spark run`, `backfill`, `compact` and `synth`: the tables, and the ledger they are made from."""

from __future__ import annotations

import dataclasses
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.call import seconds
from polydomo.cli.option_groups import takes_groups
from polydomo.cli.spark import options, session

if TYPE_CHECKING:
    from polydomo.pipeline.run import RunResult


@takes_groups
def run(
    once: Annotated[bool, typer.Option("--once", help="Process the segments that exist, then exit.")] = False,
    *,
    chosen: options.LedgerRun,
    as_json: common.Json = False,
) -> None:
    """Keep the tables (bronze, silver, gold) up to date with the ledger until SIGTERM or Ctrl-C.

    The command can be stopped at any time, also with kill -9, and started again: every row arrives once.
    """
    stop = threading.Event()
    title = "reading the ledger" if once else "following the ledger (Ctrl-C to stop)"
    with chosen.tables(title, options.need_ledger if once else None) as (spark, lake, bar):
        from polydomo.pipeline.run import run as work

        if not once:
            session.stop_on_signals(stop)
        result = work(spark, lake, chosen.settings, once=once, progress=bar.update, stop=stop)
    _print(result, lake.places.tables, as_json)


@takes_groups
def backfill(
    since: options.Since = None,
    until: options.Until = None,
    *,
    chosen: options.LedgerRun,
    as_json: common.Json = False,
) -> None:
    """Rebuild all tables from the ledger's segments."""
    first, last = options.parse_day(since, "--since"), options.parse_day(until, "--until")
    with chosen.tables("rebuilding the tables", options.need_ledger) as (spark, lake, bar):
        from polydomo.pipeline.run import backfill as work

        result = work(spark, lake, chosen.settings, since=first, until=last, progress=bar.update)
    _print(result, lake.places.tables, as_json)


@takes_groups
def compact(
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="How long old snapshots are kept for their readers.")
    ] = "24h",
    *,
    chosen: options.TablesRun,
    as_json: common.Json = False,
) -> None:
    """Merge small files into large ones, and remove files that no snapshot needs."""
    kept = timedelta(seconds=seconds(keep, "--keep") or 0)
    with chosen.tables("compacting") as (spark, lake, bar):
        from polydomo.pipeline.compact import compact as work

        result = work(spark, lake, chosen.settings, keep=kept, progress=bar.update)
    common.print_done(
        dataclasses.asdict(result),
        as_json,
        (f"{result.before} files became {result.after}", "bold"),
        f" ({result.rows:,} rows rewritten); {result.expired} snapshots and {result.removed} files removed, ",
        f"{common.size(result.freed)} freed",
        (f"  {common.duration(result.seconds['all'])}", "dim"),
    )


@takes_groups
def synth(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new or empty folder for the ledger.")
    ] = Path("ledger"),
    jobs: Annotated[str, typer.Option(metavar="N", help="Number of jobs.")] = "1_000_000",
    seed: Annotated[int, typer.Option(help="The same seed gives the same ledger.")] = 0,
    days: Annotated[int, typer.Option(min=1, help="Number of days.")] = 30,
    services: Annotated[int, typer.Option(min=1, help="Number of services.")] = 24,
    clients: Annotated[int, typer.Option(min=1, help="Number of clients.")] = 200,
    *,
    chosen: options.PlainRun,
    as_json: common.Json = False,
) -> None:
    """Generate a synthetic ledger with daily and weekly cycles, bursts, long tails and outages, for trials."""
    wanted = options.parse_number(jobs, "--jobs")
    watch = common.Stopwatch()
    with chosen.session("generating a ledger") as (spark, bar):
        from polydomo.pipeline.synth import synth as work

        made = work(spark, folder, wanted, seed, days, services, clients, progress=bar.count)
        took = watch.seconds
    common.print_done(
        made.to_json() | {"seconds": round(took, 3)},
        as_json,
        (f"{made.jobs:,}", "bold"),
        f" jobs, {made.attempts:,} lost attempts and {made.events:,} events in {made.segments} segments: ",
        (made.folder, "bold"),
        (f"  {common.duration(took)}", "dim"),
    )
    if not as_json:
        common.out.print(
            Text(f"  next: polydomo spark run --once --ledger {made.folder} --tables tables", "dim")
        )


def _print(result: RunResult, tables: str, as_json: bool) -> None:
    rejected = [{"segment": verdict.segment.path, "reason": verdict.reason} for verdict in result.rejected]
    value: dict[str, Any] = {"tables": tables} | vars(result)
    value |= {
        "counts": {name: vars(count) for name, count in result.counts.items()},
        "rejected": rejected,
        "seconds": {step: round(took, 3) for step, took in result.seconds.items()},
    }
    if not as_json:
        rows = [
            [f"ledger {name}", count.segments, f"{count.rows:,}", f"{count.added:,}", f"{count.duplicates:,}"]
            for name, count in result.counts.items()
        ]
        rows += [[f"gold {name}", "", "", f"{number:,}", ""] for name, number in sorted(result.gold.items())]
        if rows:
            common.show(common.table(["table", ">segments", ">rows", ">written", ">duplicates"], rows))
        else:
            common.out.print(Text("nothing new", "dim"))
        for one in rejected:
            common.print_error(f"rejected: {one['segment']}: {one['reason']}")
    took = common.duration(result.seconds.get("all", 0.0))
    common.print_done(value, as_json, session.shown_path(tables), (f"  {took}", "dim"))
