"""`polydomo spark run`, `backfill`, `compact` and `synth`: the tables, and the ledger they are made from."""

from __future__ import annotations

import dataclasses
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.call import seconds
from polydomo.cli.config import ConfigFile
from polydomo.cli.spark import options, session

if TYPE_CHECKING:
    from polydomo.pipeline.run import RunResult

Since = Annotated[str | None, typer.Option(metavar="DAY", help="From this day on, such as 2026-11-16.")]
Until = Annotated[str | None, typer.Option(metavar="DAY", help="Up to this day.")]


def run(
    once: Annotated[bool, typer.Option("--once", help="Process the segments that exist, then exit.")] = False,
    master: options.Master = None,
    data: options.Data = None,
    ledger: options.Ledger = None,
    tables: options.Tables = None,
    file: ConfigFile = None,
    sets: options.Sets = None,
    verbose: options.Verbose = False,
    as_json: common.Json = False,
) -> None:
    """Keep the tables (bronze, silver, gold) up to date with the ledger until SIGTERM or Ctrl-C.

    The command can be stopped at any time, also with kill -9, and started again: every row arrives once.
    """
    settings = options.gather(file, sets, master=master, data=data, ledger=ledger, tables=tables)
    found = options.places(settings)
    if once:
        options.need_ledger(found)
    from polydomo.pipeline.lake import Lake
    from polydomo.pipeline.run import run as work

    stop = threading.Event()
    title = "reading the ledger" if once else "following the ledger (Ctrl-C to stop)"
    with session.spark_session(settings, title, verbose=verbose) as (spark, bar), Lake(found) as lake:
        if not once:
            session.stop_on_signals(stop)
        result = work(spark, lake, settings, once=once, progress=bar.update, stop=stop)
    _print(result, found.tables, as_json)


def backfill(
    since: Since = None,
    until: Until = None,
    master: options.Master = None,
    data: options.Data = None,
    ledger: options.Ledger = None,
    tables: options.Tables = None,
    file: ConfigFile = None,
    sets: options.Sets = None,
    verbose: options.Verbose = False,
    as_json: common.Json = False,
) -> None:
    """Rebuild all tables from the ledger's segments."""
    first, last = options.parse_day(since, "--since"), options.parse_day(until, "--until")
    settings = options.gather(file, sets, master=master, data=data, ledger=ledger, tables=tables)
    found = options.places(settings)
    options.need_ledger(found)
    from polydomo.pipeline.lake import Lake
    from polydomo.pipeline.run import backfill as work

    with (
        session.spark_session(settings, "rebuilding the tables", verbose=verbose) as (spark, bar),
        Lake(found) as lake,
    ):
        result = work(spark, lake, settings, since=first, until=last, progress=bar.update)
    _print(result, found.tables, as_json)


def compact(
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="How long old snapshots are kept for their readers.")
    ] = "24h",
    master: options.Master = None,
    data: options.Data = None,
    tables: options.Tables = None,
    file: ConfigFile = None,
    sets: options.Sets = None,
    verbose: options.Verbose = False,
    as_json: common.Json = False,
) -> None:
    """Merge small files into large ones, and remove files that no snapshot needs."""
    settings = options.gather(file, sets, master=master, data=data, tables=tables)
    found = options.places(settings)
    kept = timedelta(seconds=seconds(keep, "--keep") or 0)
    from polydomo.pipeline.compact import compact as work
    from polydomo.pipeline.lake import Lake

    with session.spark_session(settings, "compacting", verbose=verbose) as (spark, bar), Lake(found) as lake:
        result = work(spark, lake, settings, keep=kept, progress=bar.update)
    if as_json:
        common.print_json(dataclasses.asdict(result))
        return
    common.out.print(
        Text.assemble(
            ("✓ ", "bold green"),
            (f"{result.before} files became {result.after}", "bold"),
            f" ({result.rows:,} rows rewritten); {result.expired} snapshots and {result.removed} files removed, ",
            f"{common.size(result.freed)} freed",
            (f"  {common.duration(result.seconds['all'])}", "dim"),
        ),
        soft_wrap=True,
    )


def synth(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new or empty folder for the ledger.")
    ] = Path("ledger"),
    jobs: Annotated[str, typer.Option(metavar="N", help="Number of jobs.")] = "1_000_000",
    seed: Annotated[int, typer.Option(help="The same seed gives the same ledger.")] = 0,
    days: Annotated[int, typer.Option(min=1, help="Number of days.")] = 30,
    services: Annotated[int, typer.Option(min=1, help="Number of services.")] = 24,
    clients: Annotated[int, typer.Option(min=1, help="Number of clients.")] = 200,
    master: options.Master = None,
    file: ConfigFile = None,
    sets: options.Sets = None,
    verbose: options.Verbose = False,
    as_json: common.Json = False,
) -> None:
    """Generate a synthetic ledger with daily and weekly cycles, bursts, long tails and outages, for trials."""
    wanted = options.parse_number(jobs, "--jobs")
    settings = options.gather(file, sets, master=master)
    options.need_spark()
    from polydomo.pipeline.synth import synth as work

    start = time.monotonic()
    with session.spark_session(settings, "generating a ledger", verbose=verbose) as (spark, bar):
        made = work(spark, folder, wanted, seed, days, services, clients, progress=bar.count)
        took = time.monotonic() - start
    if as_json:
        common.print_json(made.to_json() | {"seconds": round(took, 3)})
        return
    common.out.print(
        Text.assemble(
            ("✓ ", "bold green"),
            (f"{made.jobs:,}", "bold"),
            f" jobs, {made.attempts:,} lost attempts and {made.events:,} events in {made.segments} segments: ",
            (made.folder, "bold"),
            (f"  {common.duration(took)}", "dim"),
        ),
        soft_wrap=True,
    )
    common.out.print(Text(f"  next: polydomo spark run --once --ledger {made.folder} --tables tables", "dim"))


def _print(result: RunResult, tables: str, as_json: bool) -> None:
    rejected = [{"segment": verdict.segment.path, "reason": verdict.reason} for verdict in result.rejected]
    value: dict[str, Any] = {
        "tables": tables,
        "batches": result.batches,
        "segments": result.segments,
        "rows": result.rows,
        "added": result.added,
        "duplicates": result.duplicates,
        "counts": {name: vars(count) for name, count in result.counts.items()},
        "gold": result.gold,
        "rejected": rejected,
        "seconds": {step: round(took, 3) for step, took in result.seconds.items()},
    }
    if as_json:
        common.print_json(value)
        return
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
    took = result.seconds.get("all", 0.0)
    common.out.print(
        Text.assemble(
            ("✓ ", "bold green"), session.shown_path(tables), (f"  {common.duration(took)}", "dim")
        ),
        soft_wrap=True,
    )
