"""Cost of WMP against MDP, through the same broker in the same run: `python bench/wmp.py`. See bench/README.md.

The clients are always MDP's, eight with 128 jobs in flight each; the workers reply at once. Ways of a job:

- mdp: the broker dispatches it to an MDP worker, which has one job at a time. Two messages;
- wmp-1: the broker wakes a WMP worker, which fetches the job. Five messages;
- wmp-8: the same with workers that take eight jobs at once, as WMP allows; then several messages share a system call;
- device-1, device-8: the same with a `polydomo device` between. Ten messages;
- join: the workers are MDP's, at a second broker that is joined to the first.

Each with 10, 100 and 1,000 workers. CPU is that of all processes involved, except the load generator.

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

import report as reporting
import versus
from harness import (
    BenchError,
    Broker,
    Generator,
    Running,
    Settings,
    find_generator,
    load_command,
    raise_file_limit,
    run_generator,
    running,
)
from results import Shape, divide

USUAL = Settings(rounds=3, seconds=3.0, warmup=1.0)
WAYS = ("mdp", "wmp-1", "wmp-8", "device-1", "device-8", "join")
GOALS = {"wmp": 0.5, "device": 0.3}
COLUMNS = (
    "broker",
    "workers",
    "way",
    "jobs/s",
    "p50 ms",
    "CPU µs/job",
    "of these elsewhere",
    "jobs/s ×",
    "CPU ×",
    "goal",
)


@dataclass(frozen=True)
class Way:
    """One measurement. `cpu_us`: CPU time of all processes, `away_us`: of those other than the first broker."""

    rps: float
    p50_us: float
    cpu_us: float
    away_us: float


@dataclass(frozen=True)
class Row:
    """The medians of all rounds, and their ratios to MDP's of the same round."""

    broker: str
    workers: int
    way: str
    rps: float
    p50_us: float
    cpu_us: float
    away_us: float
    rps_ratio: float
    rps_low: float
    rps_high: float
    cpu_ratio: float


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure WMP, devices and joins against MDP.")
    versus.add_load_options(parser, USUAL, "bytes in a job and in its reply", each="way")
    parser.add_argument(
        "--workers", default="10,100,1000", metavar="N,...", help="numbers of workers (default 10,100,1000)"
    )
    parser.add_argument("--ways", default=",".join(WAYS), metavar="NAME,...", help=f"of: {', '.join(WAYS)}")
    versus.add_candidate_options(parser)
    versus.add_output_options(parser)
    options = parser.parse_args(argv)
    versus.check_candidates(parser, options)
    options.ways = list(dict.fromkeys(["mdp", *options.ways.split(",")]))
    if not set(options.ways) <= set(WAYS):
        parser.error(f"unknown way; expected one of {', '.join(WAYS)}")
    try:
        options.workers = [int(number) for number in options.workers.split(",")]
    except ValueError:
        parser.error(f"--workers {options.workers}: expected numbers")
    return options


def kind_of(way: str) -> str:
    """Return the kind of way, without the number of jobs per worker."""
    return way.partition("-")[0]


@contextlib.contextmanager
def server(broker: Broker, way: str) -> Iterator[tuple[Running, Running | None]]:
    """Start the first broker and what else is on the way; the workers connect to the last one."""
    with running(broker) as first:
        python = broker.command[0]
        above = first.endpoint.replace("tcp://", "wmp://")
        further = {
            "device": (python, "-m", "polydomo", "device", above, "--zmq"),
            "join": (python, "-m", "polydomo", "broker", "--join", above, "--zmq"),
        }
        kind = kind_of(way)
        if kind not in further:
            yield first, None
            return
        with running(Broker(f"{broker.label} {way}", further[kind])) as second:
            yield first, second


def measure(broker: Broker, way: str, workers: int, generator: Generator, settings: Settings) -> Way:
    shape = Shape(way, clients=8, workers=workers, window=128)
    with server(broker, way) as (first, second):
        marks: dict[str, tuple[float, float]] = {}

        def on_mark(mark: str) -> None:
            marks[mark] = (first.cpu_seconds(), 0.0 if second is None else second.cpu_seconds())

        command = load_command(generator, first.endpoint, shape, settings)
        wmp = kind_of(way) in GOALS
        command += ["-d", "wmp", "-z", way.partition("-")[2]] if wmp else ["-d", "mdp02"]
        command += ["-w", second.endpoint] if second is not None else []
        where = f"{broker.label}, {way}, {workers} workers"
        try:
            load = run_generator(command, settings, on_mark)
        except BenchError as error:
            for process in (first, second):
                if process is not None:
                    process.check(where)
            raise BenchError(f"{where}: {error}") from None
    if load["stalled"] or load["wrong"] or not load["n"]:
        raise BenchError(
            f"{where}: {load['done']} of {load['sent']} jobs were answered, {load['wrong']} of them wrongly"
        )
    here, away = (after - before for before, after in zip(marks["measuring"], marks["measured"], strict=True))
    return Way(load["rps"], load["p50_us"], (here + away) * 1e6 / load["n"], away * 1e6 / load["n"])


def run_rounds(
    ours: list[Broker],
    options: argparse.Namespace,
    generator: Generator,
    settings: Settings,
    console: Console,
) -> list[Row]:
    found: dict[tuple[str, int, str], list[Way]] = defaultdict(list)
    for number in range(1, settings.rounds + 1):
        for workers in options.workers:
            for broker in ours:
                for way in options.ways if number % 2 else options.ways[::-1]:
                    what = (
                        f"round {number}/{settings.rounds}  {workers:>5} workers  {broker.label:<8}  {way:<8}"
                    )
                    with console.status(what):
                        one = measure(broker, way, workers, generator, settings)
                    found[broker.label, workers, way].append(one)
                    console.print(
                        f"{what} {one.rps:>9,.0f} jobs/s  {one.cpu_us:>6.1f} µs CPU/job", highlight=False
                    )
    return [
        summarise(
            broker.label, workers, way, found[broker.label, workers, way], found[broker.label, workers, "mdp"]
        )
        for workers in options.workers
        for broker in ours
        for way in options.ways
    ]


def summarise(broker: str, workers: int, way: str, own: list[Way], mdp: list[Way]) -> Row:
    rates = [divide(one.rps, other.rps) for one, other in zip(own, mdp, strict=True)]
    costs = [divide(one.cpu_us, other.cpu_us) for one, other in zip(own, mdp, strict=True)]
    middle = statistics.median
    return Row(
        broker,
        workers,
        way,
        middle(one.rps for one in own),
        middle(one.p50_us for one in own),
        middle(one.cpu_us for one in own),
        middle(one.away_us for one in own),
        middle(rates),
        min(rates),
        max(rates),
        middle(costs),
    )


def cells(row: Row, many: bool) -> list[str]:
    own = row.way == "mdp"
    return [
        row.broker,
        f"{row.workers:,}",
        row.way,
        f"{row.rps:,.0f}",
        f"{row.p50_us / 1000:,.1f}",
        f"{row.cpu_us:.1f}",
        f"{row.away_us:.1f}" if row.away_us else "",
        "" if own else versus.ratio_text(row.rps_ratio, row.rps_low, row.rps_high, many),
        "" if own else f"{row.cpu_ratio:.2f}",
        f"≥ {GOALS[kind_of(row.way)]:g}" if kind_of(row.way) in GOALS else "",
    ]


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    settings = versus.choose_settings(options, USUAL)
    console = Console(stderr=True)
    environment = reporting.environment()
    raise_file_limit()
    try:
        generator = find_generator("c")
        ours = versus.choose_candidates(options, "")
        rows = run_rounds(ours, options, generator, settings, console)
    except BenchError as error:
        console.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    table = [cells(row, settings.rounds > 1) for row in rows]
    title = reporting.heading(environment, settings, "8 clients × 128 jobs in flight")
    screen = Console()
    screen.width = max(screen.width, 120)
    screen.print(title, highlight=False)
    reporting.print_table(screen, "Ratios (×): divided by MDP's of the same round", COLUMNS, table, 3)
    if options.json:
        reporting.dump_json(
            {
                "environment": environment,
                "settings": asdict(settings),
                "results": [asdict(row) for row in rows],
            },
            options.json,
        )
    if options.markdown:
        lines = [title, "", *reporting.markdown_table(COLUMNS, table)]
        Path(options.markdown).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
