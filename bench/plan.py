"""Check of the planner's predictions against real runs: `python bench/plan.py`.

For three workloads (steady, bursty, heavy-tailed) a trace is replayed twice against a real broker with workers that
sleep as long as each request says:

- recorded: with twice the number of workers, so that there is hardly any waiting;
- checked: with the planned number of workers, so that a queue builds up.

From the first run's ledger the planner (`polydomo.pipeline.plan`, on Spark) predicts the waits with the second run's
number of workers; the second run's ledger has the real ones. Nothing of the second run is used for the prediction.
The 95th percentile of the time from queued to dispatched, over all jobs, is compared.

On a busy machine jobs take longer in one run than in the other, which no planner can know. So a last column replays
the second run's own trace: the prediction for identical runs. It is not part of the check.

`--jobs`, `--seconds` and `--workers` shape a run; `--rounds` repeats all of it with other random numbers.

Exit codes: 0 all predictions within 25 %; 1 not; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from polydomo.pipeline import replay
from polydomo.sdk import Client, Worker

SERVICE = "nap"
GOAL = 0.25
LOAD = 0.8  # utilisation of the workers in the checked run
WORKLOADS = ("steady", "bursty", "heavy-tailed")
SHORTEST = 0.01  # seconds: large compared with the overhead of the broker and a timer


@dataclass(frozen=True)
class Ledger:
    """Times of a run from the ledger, in the order of arrival. Seconds."""

    path: str
    came: np.ndarray
    ran: np.ndarray
    waited: np.ndarray


@dataclass(frozen=True)
class Verdict:
    """One workload in one round. Waits are the 95th percentile, in seconds."""

    workload: str
    round: int
    jobs: int
    workers: int
    utilisation: float
    recorded: float  # in the first run, with twice the number of workers
    predicted: float
    measured: float
    own: float  # from the second run's own trace

    @property
    def error(self) -> float:
        """Return the error of the prediction, as a share of the measured value."""
        return self.predicted / self.measured - 1


def workload(name: str, jobs: int, seconds: float, workers: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the arrival and sleep times of `jobs` jobs in `seconds` seconds, at LOAD."""
    random = np.random.RandomState(seed)
    mean = LOAD * workers * seconds / jobs
    if name == "bursty":
        # Six bursts, each a twentieth of the time at three times the usual rate.
        gaps = random.exponential(1.0, jobs)
        came = np.cumsum(gaps)
        came *= 20 / came[-1]
        edges, speeds = [0.0], []
        for burst in range(6):
            start = (burst + 0.5) * 20 / 6
            edges += [start, start + 1.0]
            speeds += [1.0, 1 / 3]
        edges.append(20.0)
        speeds.append(1.0)
        clock = np.concatenate([[0.0], np.cumsum(np.diff(edges) * speeds)])
        came = np.interp(came, edges, clock)
    else:
        came = np.cumsum(random.exponential(1.0, jobs))
    came = came / came[-1] * seconds
    if name == "heavy-tailed":
        # One in thirty is Pareto from five times the usual on, capped so that no single job decides the run.
        naps = random.lognormal(0, 0.4, jobs)
        tail = random.random_sample(jobs) < 1 / 30
        naps[tail] = np.minimum(5 * random.random_sample(int(tail.sum())) ** (-1 / 1.6), 60)
    else:
        naps = random.lognormal(0, 0.5, jobs)
    naps = naps / naps.mean() * mean
    return came, np.maximum(naps, SHORTEST)


async def play(url: str, came: np.ndarray, naps: np.ndarray) -> None:
    """Submit every job at its time, regardless of earlier ones."""
    async with Client(url, window=len(came) + 1, timeout=None) as client:
        await client.call(SERVICE, 0.0)  # connect before the clock starts
        loop = asyncio.get_running_loop()
        start = loop.time() + 0.05
        under_way = []
        for at, nap in zip(came.tolist(), naps.tolist(), strict=True):
            wait = start + at - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            under_way.append(asyncio.ensure_future(client.call(SERVICE, nap)))
        await asyncio.gather(*under_way)


async def sleepers(url: str, number: int) -> None:
    """Run workers with one job at a time each. Print "ready" when all of them are registered."""

    async def nap(seconds: float) -> None:
        await asyncio.sleep(seconds)

    known: set[int] = set()

    def offering(index: int) -> None:
        known.add(index)
        if len(known) == number:
            print("ready", flush=True)

    workers = []
    for index in range(number):
        worker = Worker(url, grace=1.0)
        worker.add(SERVICE, nap)
        worker.on_offering = lambda _where, index=index: offering(index)  # type: ignore[misc]
        workers.append(worker)
    await asyncio.gather(*(worker.run() for worker in workers))


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Start a broker with a ledger and yield its address."""
    announced = folder / "broker.json"
    command = [sys.executable, "-m", "polydomo", "broker", "--zmq", "tcp://127.0.0.1:*"]
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--data", str(folder), "--ledger", "auto"], stdout=log, stderr=log
        )
    try:
        for _ in range(4000):
            if announced.exists() or process.poll() is not None:
                break
            time.sleep(0.01)
        if not announced.exists():
            raise RuntimeError(f"the broker did not start: {Path(log.name).read_text()}")
        yield str(json.loads(announced.read_text())["zmq"][0]).removeprefix("tcp://")
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def asleep(address: str, number: int) -> Iterator[None]:
    """Run workers in a separate process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--sleepers", str(number), f"dcp://{address}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the workers did not start")
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def run(folder: Path, came: np.ndarray, naps: np.ndarray, workers: int) -> Ledger:
    """Run a broker, workers and all jobs, and return the ledger's times."""
    with broker(folder) as address, asleep(address, workers):
        asyncio.run(play(f"dcp://{address}", came, naps))
    return read(folder / "ledger" / "jobs", len(came))


def read(place: Path, jobs: int) -> Ledger:
    """Read the segments of a run. The first job only opened the connection."""
    columns = ["submitted", "queued", "ran_us", "waited_us", "service", "outcome"]
    table = pq.read_table(place, columns=columns).to_pandas()
    table = table[table["service"] == SERVICE].sort_values("submitted", kind="stable").iloc[1:]
    if len(table) != jobs or set(table["outcome"]) != {"done"}:
        raise RuntimeError(f"{len(table)} jobs of {jobs} are in the ledger: {set(table['outcome'])}")
    came = table["queued"].astype("int64").to_numpy() / 1e6
    return Ledger(
        str(place), came - came[0], table["ran_us"].to_numpy() / 1e6, table["waited_us"].to_numpy() / 1e6
    )


def predict(spark: Any, recorded: Ledger, workers: int) -> tuple[float, float]:
    """Return the planner's prediction from the recorded run's segments: the wait, and the utilisation."""
    from polydomo.ledger.schema import JOBS
    from polydomo.pipeline.plan import plan
    from polydomo.pipeline.schemas import spark_schema

    jobs = spark.read.schema(spark_schema(JOBS)).parquet(recorded.path)
    found = plan(spark, jobs, service=SERVICE, workers=range(workers, workers + 1), window="all")
    row = next(row for row in found.rows if row.window == "all")
    return row.p95, row.utilisation


def judge(spark: Any, name: str, number: int, options: argparse.Namespace) -> Verdict:
    """Record, predict and check one workload."""
    came, naps = workload(name, options.jobs, options.seconds, options.workers, options.seed + number)
    with tempfile.TemporaryDirectory(prefix="polydomo-plan-") as folder:
        recorded = run(Path(folder, "recorded"), came, naps, 2 * options.workers)
        predicted, utilisation = predict(spark, recorded, options.workers)
        checked = run(Path(folder, "checked"), came, naps, options.workers)
    return Verdict(
        name,
        number,
        len(came),
        options.workers,
        utilisation,
        float(np.quantile(recorded.waited, 0.95)),
        predicted,
        float(np.quantile(checked.waited, 0.95)),
        p95_by_replay(checked, options.workers),
    )


def p95_by_replay(run: Ledger, workers: int) -> float:
    """Return the p95 of a run's waits, by replaying its own arrivals and run times."""
    made = replay.trace(run.came, run.ran)
    return float(np.quantile(replay.waits(made.arrivals, made.seconds, workers), 0.95))


def show(verdicts: list[Verdict]) -> Table:
    table = Table(title="p95 of waits, milliseconds", title_justify="left")
    for heading in (
        "workload",
        "jobs",
        "workers",
        "busy",
        "recorded (2×)",
        "predicted",
        "measured",
        "error",
        "own trace",
    ):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for v in verdicts:
        waits = [f"{1000 * wait:,.1f}" for wait in (v.recorded, v.predicted, v.measured)]
        colour = "green" if abs(v.error) <= GOAL else "red"
        table.add_row(
            v.workload,
            f"{v.jobs:,}",
            str(v.workers),
            f"{v.utilisation:.0%}",
            *waits,
            f"[{colour}]{v.error:+.1%}[/]",
            f"{1000 * v.own:,.1f}",
        )
    return table


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Check the planner's predictions against real runs.")
    add = parser.add_argument
    add("--jobs", type=int, default=5000, help="jobs per trace (default 5,000)")
    add("--seconds", type=float, default=80.0, help="approximate length of a run (default 80)")
    add("--workers", type=int, default=24, help="workers in the checked run (default 24)")
    add("--rounds", type=int, default=1)
    add("--seed", type=int, default=1)
    add("--only", choices=WORKLOADS, action="append", help="only this workload; may be repeated")
    add("--master", default="local[1]", help="Spark master (default local[1])")
    add("--json", type=Path, metavar="FILE")
    add("--sleepers", type=int, help=argparse.SUPPRESS)
    add("url", nargs="?", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main() -> int:
    options = parse_options()
    if options.sleepers:
        asyncio.run(sleepers(options.url, options.sleepers))
        return 0
    from polydomo.pipeline.session import session

    console = Console(width=max(100, Console().width))
    spark = session(options.master, app="polydomo-bench-plan")
    verdicts = []
    try:
        for number in range(options.rounds):
            for name in options.only or WORKLOADS:
                verdicts.append(judge(spark, name, number, options))
                v = verdicts[-1]
                console.print(f"{name}: predicted {v.predicted:.3f} s, measured {v.measured:.3f} s")
    finally:
        spark.stop()
    console.print(show(verdicts))
    if options.json:
        rows = [asdict(v) | {"error": v.error} for v in verdicts]
        options.json.write_text(json.dumps({"goal": GOAL, "verdicts": rows}, indent=2) + "\n")
    return 0 if all(abs(v.error) <= GOAL for v in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
