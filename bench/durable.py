"""Cost of durable jobs, and savings of group commit: `python bench/durable.py`. See bench/README.md.

One client keeps 1,000 requests in flight for 16 workers that reply at once, through our broker in three configurations:

- memory: the service is not durable;
- durable: every job is in SQLite, synchronised, before it is dispatched, and every result before it is sent;
- alone: the same without group commit (`store.batch = 1`).

Then it fills a broker with jobs that have no worker, kills it and measures the recovery (`--jobs`).

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import zmq
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import harness
import report as reporting
from harness import BenchError, Broker, Generator, Running, Settings
from results import Shape, divide
from versus import choose_settings

FORMAT_VERSION = 1
TABLE_WIDTH = 112
USUAL = Settings(rounds=5, seconds=3.0, warmup=2.0)
QUICK = Settings(rounds=1, seconds=2.0, warmup=2.0)
SERVICE = "echo"  # the generators' service
DURABLE = ("--set", f"services.{SERVICE}.durable=true")
# Service without workers, for the recovery: its jobs stay queued.
PARKED = "parked"
PATIENCE = 30_000  # milliseconds for a reply of the catalogue


@dataclass(frozen=True)
class Way:
    """A configuration of the broker."""

    name: str
    text: str
    flags: tuple[str, ...]


WAYS = (
    Way("memory", "in memory", ("--set", f"services.{SERVICE}.durable=false")),
    Way("durable", "on disk, commits shared", DURABLE),
    Way("alone", "on disk, a commit each", (*DURABLE, "--set", "store.batch=1")),
)


@dataclass(frozen=True)
class Goal:
    """A goal: the rate of `way` must be at least `least` times that of `other`."""

    way: str
    other: str
    least: float


GOALS = (Goal("durable", "alone", 5.0), Goal("durable", "memory", 0.15))


@dataclass(frozen=True)
class Sample:
    """One configuration in one round."""

    rps: float
    p50_ms: float
    p99_ms: float
    cpu_us: float  # the broker's CPU time per request
    commits_per_second: float
    commits_per_job: float


@dataclass(frozen=True)
class Ratio:
    """The median of the rounds' ratios, with the lowest and the highest."""

    way: str
    other: str
    least: float
    median: float
    lowest: float
    highest: float

    @property
    def reached(self) -> bool:
        return self.median >= self.least


@dataclass(frozen=True)
class Return:
    """Recovery time of a broker with a full store."""

    jobs: int
    listening_seconds: float  # from starting the process until it accepts connections
    answered_seconds: float  # until the first stored job was dispatched
    again_seconds: float  # the same a second time, with the file cached in memory
    cpu_seconds: float  # of the broker, from its start until then


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Polydomo's durable jobs.")
    add = parser.add_argument
    add("--rounds", type=int, help="rounds; every way is measured once in each (default 5)")
    add("--seconds", type=float, help="measured time per way and round (default 3)")
    add("--warmup", type=float, help="load before the measured time, in seconds (default 2)")
    add("--quick", action="store_true", help="one round of 2 s, 10,000 stored jobs")
    add("--outstanding", type=int, default=1000, help="requests in flight (default 1000)")
    add("--workers", type=int, default=16, help="workers (default 16)")
    add("--size", type=int, default=64, help="body size in bytes (default 64)")
    add("--jobs", type=int, help="stored jobs to recover; 0: skip the recovery (default 100,000)")
    add("--folder", help="folder for the store's files (default: the system's temporary folder)")
    add(
        "--python", default=sys.executable, metavar="PATH", help="interpreter with our broker (default: this)"
    )
    add("--generator", choices=("auto", "c", "python"), default="auto", help="load generator")
    add("--json", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    options.settings = choose_settings(options, USUAL, QUICK)
    if options.jobs is None:
        options.jobs = 10_000 if options.quick else 100_000
    return options


# -- requests and replies


def measure(way: Way, shape: Shape, generator: Generator, options: argparse.Namespace) -> Sample:
    """Measure one configuration with a fresh broker on an empty store, after a warm-up."""
    settings: Settings = options.settings
    broker = harness.candidate(options.python, way.name, ("--data", "data", *way.flags))
    with harness.running(broker) as process, Catalogue(process) as catalogue:
        marks: dict[str, tuple[float, float, int]] = {}

        def on_mark(mark: str) -> None:
            marks[mark] = (time.perf_counter(), process.cpu_seconds(), catalogue.commits())

        command = harness.load_command(generator, process.endpoint, shape, settings)
        try:
            load = harness.run_generator(command, settings, on_mark)
        except BenchError as error:
            process.check(f"under load, {way.text}")
            raise BenchError(f"{way.text}: {error}") from None
        process.check(f"under load, {way.text}")
    if load["stalled"] or not load["n"]:
        raise BenchError(f"{way.text}: stalled, {load['done']} of {load['sent']} requests answered")
    if load["wrong"]:
        raise BenchError(f"{way.text}: {load['wrong']} replies differ from what the worker sent")
    (start, cpu, commits), (end, cpu_end, commits_end) = marks["measuring"], marks["measured"]
    rate = (commits_end - commits) / (end - start)
    return Sample(
        rps=load["rps"],
        p50_ms=load["p50_us"] / 1000,
        p99_ms=load["p99_us"] / 1000,
        cpu_us=(cpu_end - cpu) * 1e6 / load["n"],
        commits_per_second=rate,
        commits_per_job=divide(rate, load["rps"]),
    )


class Catalogue:
    """Connection to the broker under load that queries its commits."""

    def __init__(self, process: Running) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(process.endpoint)

    def ask(self, task: str, **kwargs: Any) -> Any:
        body = json.dumps({"task": task, "kwargs": kwargs}).encode()
        self.socket.send_multipart([b"MDPC02", b"\x01", b"mmi.service.broker", body])
        if not self.socket.poll(PATIENCE):
            raise BenchError("the broker's catalogue does not answer")
        return json.loads(self.socket.recv_multipart()[3])

    def commits(self) -> int:
        return int(self.ask("show_broker")["store"]["commits"])

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()
        self.context.term()


def run_rounds(
    shape: Shape, generator: Generator, options: argparse.Namespace, progress: Console
) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = defaultdict(list)
    rounds = options.settings.rounds
    for number in range(1, rounds + 1):
        for way in WAYS if number % 2 else WAYS[::-1]:  # alternate the order
            what = f"round {number}/{rounds}  {way.text:<24}"
            with progress.status(what):
                sample = measure(way, shape, generator, options)
            samples[way.name].append(sample)
            progress.print(
                f"{what} {sample.rps:>9,.0f} req/s  {sample.commits_per_second:>7,.0f} commits/s",
                highlight=False,
            )
    return samples


def ratios(samples: Mapping[str, Sequence[Sample]], goals: Sequence[Goal] = GOALS) -> list[Ratio]:
    """Compute ratios within each round, so that load on the machine affects both sides."""
    found = []
    for goal in goals:
        pairs = zip(samples[goal.way], samples[goal.other], strict=True)
        each = [divide(mine.rps, other.rps) for mine, other in pairs]
        found.append(Ratio(goal.way, goal.other, goal.least, median(each), min(each), max(each)))
    return found


# -- recovery


def measure_return(options: argparse.Namespace, progress: Console) -> Return:
    """Store jobs for a service without workers, kill -9, start again; twice."""
    with tempfile.TemporaryDirectory(prefix="polydomo-bench-") as folder:
        flags = ("--data", f"{folder}/data", "--set", f"services.{PARKED}.durable=true")
        more = ("--set", f"services.{PARKED}.queue={options.jobs}", "--set", "limits.client_jobs=1000000")
        broker = harness.candidate(options.python, "durable", (*flags, *more))
        with progress.status(f"storing {options.jobs:,} jobs"):
            _store_jobs(broker, options)
        first = _measure_recovery(broker)
        second = _measure_recovery(broker)
        return Return(options.jobs, first[0], first[1], second[1], second[2])


def _store_jobs(broker: Broker, options: argparse.Namespace) -> None:
    with harness.running(broker) as process, Catalogue(process) as catalogue:
        body = bytes(options.size)
        sender = catalogue.context.socket(zmq.DEALER)
        sender.sndhwm = 0
        sender.connect(process.endpoint)
        for _ in range(options.jobs):
            sender.send_multipart([b"MDPC02", b"\x01", PARKED.encode(), body])
        deadline = time.monotonic() + 300
        while catalogue.ask("show_broker")["store"]["writes"] < options.jobs:
            if time.monotonic() > deadline:
                raise BenchError("the jobs were not stored within 5 minutes")
            time.sleep(0.1)
        sender.close(linger=0)
        os.kill(process.popen.pid, signal.SIGKILL)
        process.popen.wait()


def _measure_recovery(broker: Broker) -> tuple[float, float, float]:
    """Return the seconds until the broker accepts connections and until it dispatches a job, and its CPU time."""
    started = time.perf_counter()
    with harness.running(broker) as process:
        listening = time.perf_counter() - started
        context = zmq.Context()
        worker = context.socket(zmq.DEALER)
        worker.connect(process.endpoint)
        worker.send_multipart([b"MDPW02", b"\x01", PARKED.encode()])
        try:
            while worker.poll(PATIENCE):
                if worker.recv_multipart()[1] == b"\x02":
                    return listening, time.perf_counter() - started, process.cpu_seconds()
            raise BenchError("the broker recovered without its jobs")
        finally:
            os.kill(process.popen.pid, signal.SIGKILL)
            worker.close(linger=0)
            context.term()


# -- output


def show(samples: Mapping[str, Sequence[Sample]], found: Sequence[Ratio], back: Return | None) -> None:
    console = Console(width=TABLE_WIDTH)
    table = Table(box=SIMPLE_HEAD)
    table.add_column("jobs")
    for heading in ("req/s", "p50 ms", "p99 ms", "CPU µs/req", "commits/s", "commits/job", "spread"):
        table.add_column(heading, justify="right")
    for way in WAYS:
        own = samples[way.name]
        rates = [sample.rps for sample in own]
        table.add_row(
            way.text,
            f"{median(rates):,.0f}",
            f"{median(sample.p50_ms for sample in own):,.1f}",
            f"{median(sample.p99_ms for sample in own):,.1f}",
            f"{median(sample.cpu_us for sample in own):,.1f}",
            f"{median(sample.commits_per_second for sample in own):,.0f}",
            f"{median(sample.commits_per_job for sample in own):,.3f}",
            f"{divide(max(rates) - min(rates), median(rates)):.0%}",
        )
    console.print(table)
    names = {way.name: way.text for way in WAYS}
    for ratio in found:
        verdict = "reached" if ratio.reached else "NOT reached"
        console.print(
            f"{names[ratio.way]} ÷ {names[ratio.other]}: × {ratio.median:.2f} "
            f"({ratio.lowest:.2f} to {ratio.highest:.2f}), goal × {ratio.least:g} {verdict}",
            highlight=False,
        )
    if back is not None:
        console.print(
            f"{back.jobs:,} stored jobs: listening {back.listening_seconds:.2f} s after the start, first job "
            f"dispatched after {back.answered_seconds:.2f} s ({back.again_seconds:.2f} s the next time, "
            f"{back.cpu_seconds:.2f} s of CPU time)",
            highlight=False,
        )


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    progress = Console(stderr=True)
    environment = reporting.environment()
    harness.raise_file_limit()
    if options.folder:
        tempfile.tempdir = options.folder
    shape = Shape("pipelined", clients=1, workers=options.workers, window=options.outstanding)
    try:
        generator = harness.find_generator(options.generator)
        samples = run_rounds(shape, generator, options, progress)
        back = measure_return(options, progress) if options.jobs else None
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    found = ratios(samples)
    show(samples, found, back)
    if options.json:
        result = {
            "format": FORMAT_VERSION,
            "environment": environment,
            "settings": {**asdict(options.settings), "generator": generator.name, "load": shape.text},
            "samples": {name: [asdict(sample) for sample in own] for name, own in samples.items()},
            "ratios": [asdict(ratio) | {"reached": ratio.reached} for ratio in found],
            "return": None if back is None else asdict(back),
        }
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
