"""Benefit of group commit, and recovery time of a full store: `python bench/store.py`.

Three measurements, one after the other on the same machine in the same run:
- jobs that are only accepted (one write each): group commit against a transaction per job;
- jobs with a whole life cycle (accepted, dispatched, finished): the same;
- a store with 100,000 unfinished jobs: how long until it is open and every job is recovered.

The default store is an SQLite file in a temporary folder (`--folder` to choose the disk); `--url` selects another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import uvloop
from rich.console import Console
from rich.table import Table

from polydomo.store import Store, open_store
from polydomo.store.records import DONE, JobRecord
from polydomo.store.store import BATCH


@dataclass
class Rate:
    """Throughput of a store."""

    what: str
    grouped: bool
    jobs: int
    seconds: float
    jobs_per_second: float
    commits_per_second: float
    writes_per_commit: float
    median_ms: float  # from `add` to its acknowledgement
    worst_percent_ms: float  # the 99th percentile of the same


@dataclass
class Recovery:
    """Recovery time of a store."""

    jobs: int
    open_seconds: float
    first_seconds: float  # until the first jobs are recovered
    all_seconds: float


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Polydomo's store.")
    add = parser.add_argument
    add("--url", help="a store to use instead of a new SQLite file; jobs are added to it")
    add("--folder", help="folder for the SQLite file (default: the system's temporary folder)")
    add("--seconds", type=float, default=3.0, help="measured time per line (default 3)")
    add("--outstanding", type=int, default=1000, help="jobs in flight (default 1000)")
    add("--size", type=int, default=64, help="body size in bytes (default 64)")
    add("--jobs", type=int, default=100_000, help="unfinished jobs to recover (default 100,000)")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


class Load:
    """A fixed number of jobs in flight for some seconds."""

    def __init__(self, store: Store, options: argparse.Namespace, whole_life: bool) -> None:
        self.store = store
        self.options = options
        self.whole_life = whole_life
        self.body = bytes(options.size)
        self.finished = 0
        self.under_way = 0
        self.waits: list[float] = []
        self.over = asyncio.get_running_loop().create_future()

    async def run(self, what: str, grouped: bool) -> Rate:
        started = time.perf_counter()
        self.end = started + self.options.seconds
        commits, writes = self.store.commits, self.store.writes
        for _ in range(self.options.outstanding):
            self.submit()
        await self.over
        seconds = time.perf_counter() - started
        commits, writes = self.store.commits - commits, self.store.writes - writes
        waits = sorted(self.waits)
        return Rate(
            what,
            grouped,
            self.finished,
            seconds,
            self.finished / seconds,
            commits / seconds,
            writes / commits,
            waits[len(waits) // 2] * 1000,
            waits[len(waits) * 99 // 100] * 1000,
        )

    def submit(self) -> None:
        self.under_way += 1
        record, started = new_job(self.body), time.perf_counter()

        def accepted(error: object) -> None:
            assert error is None, error
            self.waits.append(time.perf_counter() - started)
            if self.whole_life:
                self.store.attempt(record.id, 1, b"worker", record.submitted)
                self.store.finish(record.id, 1, DONE, self.body, record.submitted, self.ended)
            else:
                self.ended(None)

        self.store.add(record, accepted)

    def ended(self, error: object) -> None:
        assert error is None, error
        self.finished += 1
        self.under_way -= 1
        if time.perf_counter() < self.end:
            self.submit()
        elif not self.under_way:
            self.over.set_result(None)


def new_job(body: bytes) -> JobRecord:
    now = time.time_ns() // 1000
    return JobRecord(
        str(uuid4()), b"bench", queued=now, client=b"client", dialect="bench", submitted=now, body=body
    )


async def opened(url: str, batch: int = BATCH) -> Store:
    call = asyncio.get_running_loop().call_soon_threadsafe
    return await asyncio.to_thread(open_store, url, call, batch=batch)


async def measure_rates(urls: Callable[[], str], options: argparse.Namespace) -> list[Rate]:
    rates = []
    for what, whole_life in (("accept", False), ("whole life", True)):
        for grouped in (False, True):
            store = await opened(urls(), BATCH if grouped else 1)
            rates.append(await Load(store, options, whole_life).run(what, grouped))
            await asyncio.to_thread(store.close)
    return rates


async def measure_recovery(url: str, options: argparse.Namespace) -> Recovery:
    store = await opened(url)
    body = bytes(options.size)
    for start in range(0, options.jobs, 10_000):
        count = min(10_000, options.jobs - start)
        written: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        for index in range(count):
            store.add(new_job(body), written.set_result if index == count - 1 else None)
        await written
    await asyncio.to_thread(store.close)
    started = time.perf_counter()
    store = await opened(url)
    open_seconds = time.perf_counter() - started
    first_seconds, found = 0.0, 0
    async for jobs in store.recover():
        found += len(jobs)
        first_seconds = first_seconds or time.perf_counter() - started
    all_seconds = time.perf_counter() - started
    await asyncio.to_thread(store.close)
    return Recovery(found, open_seconds, first_seconds, all_seconds)


def show(rates: list[Rate], recovery: Recovery) -> None:
    console = Console(width=100)
    table = Table(title="jobs through the store")
    table.add_column("jobs, transactions")
    for heading in ("jobs/s", "commits/s", "writes/commit", "ack p50", "ack p99", "gain"):
        table.add_column(heading, justify="right")
    single = {rate.what: rate for rate in rates if not rate.grouped}
    for rate in rates:
        table.add_row(
            f"{rate.what}, {'group commit' if rate.grouped else 'one per write'}",
            f"{rate.jobs_per_second:,.0f}",
            f"{rate.commits_per_second:,.0f}",
            f"{rate.writes_per_commit:,.1f}",
            f"{rate.median_ms:,.1f} ms",
            f"{rate.worst_percent_ms:,.1f} ms",
            f"×{rate.jobs_per_second / single[rate.what].jobs_per_second:,.1f}",
        )
    console.print(table)
    console.print(
        f"{recovery.jobs:,} unfinished jobs: open after {recovery.open_seconds:.2f} s, first jobs after "
        f"{recovery.first_seconds:.2f} s, all after {recovery.all_seconds:.2f} s",
        highlight=False,
    )


async def measure(options: argparse.Namespace) -> tuple[list[Rate], Recovery]:
    with tempfile.TemporaryDirectory(prefix="polydomo-bench-", dir=options.folder) as folder:
        made = 0

        def url() -> str:
            nonlocal made
            made += 1
            return options.url or f"sqlite:///{folder}/store{made}.db"

        return await measure_rates(url, options), await measure_recovery(url(), options)


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    rates, recovery = uvloop.run(measure(options))
    show(rates, recovery)
    if options.json:
        result = {"rates": [asdict(rate) for rate in rates], "recovery": asdict(recovery)}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
