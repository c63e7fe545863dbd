"""Our broker beside norfab's own, with the same peers in the same run: `python bench/nfp.py`. See bench/README.md.

Both get NFP jobs in norfab's form from one client that keeps 1,000 under way, for any of two workers that answer with
200 at once; a job is done when its 200 is there. norfab's broker keeps nothing. Ours does it three times over:

- memory: its service is not durable either;
- idle: the same beside 500 more workers that are registered and have nothing to do;
- durable: as it comes, every job and result in SQLite, on disk before its 202 and its 200.

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import report as reporting
from harness import (
    HERE,
    BenchError,
    Broker,
    Generator,
    Settings,
    candidate,
    find_generator,
    measure,
    raise_file_limit,
)
from results import GENERATOR_LIMIT, Sample, Shape, divide, ratio_of

NORFAB = "norfab"
FORMAT_VERSION = 1
COLUMNS = (
    "scenario",
    "broker",
    "req/s",
    "p50 ms",
    "CPU µs/req",
    "RSS MiB",
    "spread",
    "req/s ×",
    "CPU ×",
    "goal",
)
TABLE_WIDTH = 116
IN_MEMORY = "[services.echo]\ndurable = false\n"
AS_IT_COMES = ""


@dataclass(frozen=True)
class Scenario:
    """A load for both brokers, how ours is configured for it, and how much faster than norfab's it shall be."""

    name: str
    shape: Shape
    toml: str
    goal: float


def scenarios(idle: int, window: int) -> list[Scenario]:
    base = {"clients": 1, "workers": 2, "window": window}
    return [
        Scenario("memory", Shape("memory", **base), IN_MEMORY, 3),
        Scenario("idle", Shape("idle", **base, idle_workers=idle, idle_share_service=True), IN_MEMORY, 10),
        Scenario("durable", Shape("durable", **base), AS_IT_COMES, 1),
    ]


@dataclass(frozen=True)
class Versus:
    """Divided by norfab's broker in the same round: the median of the rounds, the lowest and the highest."""

    rps: float
    rps_low: float
    rps_high: float
    cpu: float


@dataclass(frozen=True)
class Row:
    """One broker in one scenario: medians, and what they are worth."""

    scenario: str
    broker: str
    goal: float
    rps: float
    p50_us: float
    p99_us: float
    cpu_us: float
    rss_mib: float
    spread: float
    generator_busy: float
    versus: Versus | None
    rounds: tuple[Sample, ...]


Samples = Mapping[tuple[str, str], Sequence[Sample]]  # (scenario, broker) → one sample per round


def summarise(todo: Sequence[Scenario], labels: Sequence[str], samples: Samples) -> list[Row]:
    return [_row(scenario, label, samples) for scenario in todo for label in labels]


def _row(scenario: Scenario, label: str, samples: Samples) -> Row:
    own, theirs = samples[scenario.name, label], samples[scenario.name, NORFAB]
    rates = [sample.rps for sample in own]
    versus = None
    if label != NORFAB:
        ratio = ratio_of(own, theirs)
        rounds = [divide(mine.rps, other.rps) for mine, other in zip(own, theirs, strict=True)]
        versus = Versus(ratio.rps, min(rounds), max(rounds), ratio.cpu)
    return Row(
        scenario=scenario.name,
        broker=label,
        goal=scenario.goal,
        rps=median(rates),
        p50_us=median(sample.p50_us for sample in own),
        p99_us=median(sample.p99_us for sample in own),
        cpu_us=median(sample.cpu_us for sample in own),
        rss_mib=median(sample.rss_mib for sample in own),
        spread=divide(max(rates) - min(rates), median(rates)),
        generator_busy=median(sample.generator_busy for sample in own),
        versus=versus,
        rounds=tuple(own),
    )


def notes(rows: Sequence[Row]) -> list[str]:
    """What a reader must know before believing a number."""
    found = []
    for row in rows:
        where = f"{row.broker}, {row.scenario}"
        if row.generator_busy > GENERATOR_LIMIT:
            busy = f"{row.generator_busy:.0%} of a core"
            found.append(
                f"{where}: the generator used {busy}; req/s may be its limit (CPU per request holds)"
            )
        if disconnects := sum(sample.disconnects for sample in row.rounds):
            found.append(f"{where}: the broker disconnected workers {disconnects} times")
        if unannounced := sum(sample.unannounced for sample in row.rounds):
            found.append(f"{where}: {unannounced} jobs had their 200 without a 202 before it")
    return found


# -- options


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures Polydomo's broker beside norfab's own.")
    add = parser.add_argument
    add("--rounds", type=int, help="rounds; every broker meets every scenario once in each (default 5)")
    add("--seconds", type=float, help="measured time per broker, scenario and round (default 3)")
    add("--warmup", type=float, help="load before the measured time, in seconds (default 1)")
    add("--quick", action="store_true", help="one round of 1 s: a first look")
    add("--size", type=int, default=64, help="bytes of text in a job and in its result (default 64)")
    add("--window", type=int, default=1000, help="jobs under way (default 1000)")
    add("--idle", type=int, default=500, metavar="N", help="idle workers in `idle` (default 500)")
    add("--scenarios", metavar="NAME,...", help="only these of: memory, idle, durable")
    add("--python", metavar="PATH", help="interpreter that our broker is installed for (default: this one)")
    add("--candidate", action="append", default=[], metavar="NAME=PYTHON", help="several of our brokers")
    add(
        "--folder",
        type=Path,
        metavar="DIR",
        help="where the brokers' files go (default: for temporary files)",
    )
    add("--json", type=Path, metavar="FILE")
    add("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    if options.python and options.candidate:
        parser.error("--python names one broker, --candidate several: give only one of them")
    for text in options.candidate:
        if not all(text.partition("=")):
            parser.error(f"--candidate {text}: expected NAME=PYTHON")
    known = {scenario.name: scenario for scenario in scenarios(options.idle, options.window)}
    wanted = options.scenarios.split(",") if options.scenarios else list(known)
    for name in wanted:
        if name not in known:
            parser.error(f"unknown scenario {name!r}; there are {', '.join(known)}")
    options.scenarios = [known[name] for name in wanted]
    return options


def choose_settings(options: argparse.Namespace) -> Settings:
    rounds, seconds, warmup = (1, 1.0, 0.5) if options.quick else (5, 3.0, 1.0)
    return Settings(
        rounds=max(1, rounds if options.rounds is None else options.rounds),
        seconds=max(0.05, seconds if options.seconds is None else options.seconds),
        warmup=max(0.0, warmup if options.warmup is None else options.warmup),
        size=options.size,
    )


def choose_candidates(options: argparse.Namespace) -> list[Broker]:
    named = [text.partition("=") for text in options.candidate]
    if named:
        found = [candidate(python, label) for label, _, python in named]
    else:
        found = [candidate(options.python or sys.executable)]
    labels = [NORFAB, *(broker.label for broker in found)]
    if len(set(labels)) < len(labels):
        raise BenchError(f"two brokers have the same name: {', '.join(labels)}")
    return found


# -- measuring


def configured(broker: Broker, scenario: Scenario, folder: Path) -> Broker:
    """Ours, as this scenario wants it. Its data lies in the folder that the harness gives each process."""
    config = folder / f"{scenario.name}.toml"
    config.write_text(scenario.toml)
    return Broker(broker.label, broker.command, ("--config", str(config), "--data", "data"), broker.info)


def run_rounds(
    ours: Sequence[Broker],
    todo: Sequence[Scenario],
    generator: Generator,
    settings: Settings,
    progress: Console,
    folder: Path,
) -> Samples:
    theirs = Broker(NORFAB, (sys.executable, str(HERE / "norfab_broker.py")))
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for number in range(1, settings.rounds + 1):
        for scenario in todo:
            # Every other round backwards, so that nobody always goes first.
            order = [theirs, *(configured(broker, scenario, folder) for broker in ours)]
            for broker in order[::-1] if number % 2 else order:
                what = f"round {number}/{settings.rounds}  {scenario.name:<8}  {broker.label:<10}"
                with progress.status(what):
                    sample = measure(broker, scenario.shape, generator, settings)
                samples[scenario.name, broker.label].append(sample)
                progress.print(
                    f"{what} {sample.rps:>9,.0f} req/s  {sample.cpu_us:>6.1f} µs CPU/req", highlight=False
                )
    return samples


# -- telling


def cells(row: Row) -> list[str]:
    versus = row.versus
    many = len(row.rounds) > 1
    return [
        row.scenario,
        row.broker,
        f"{row.rps:,.0f}",
        f"{row.p50_us / 1000:,.1f}",
        f"{row.cpu_us:.1f}",
        f"{row.rss_mib:.0f}",
        f"{row.spread:.0%}" if many else "–",
        (f"{versus.rps:.2f}" + f" ({versus.rps_low:.2f}–{versus.rps_high:.2f})" * many) if versus else "",
        f"{versus.cpu:.2f}" if versus else "",
        f"≥ {row.goal:g}" if versus else "",
    ]


def heading(environment: Mapping[str, Any], settings: Settings, window: int) -> str:
    load = ", ".join(f"{value:.2f}" for value in environment["load_average"])
    return (
        f"{environment['date']}, Python {environment['python']}, {environment['cpu']}, {environment['cores']} "
        f"core(s), load average {load}. Medians of {settings.rounds} round(s) × {settings.seconds:g} s, "
        f"{window:,} jobs under way, {settings.size} bytes of text each way."
    )


def show(title: str, rows: Sequence[Row]) -> None:
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(title, highlight=False)
    table = Table(
        title="Ratios (×): divided by norfab's broker of the same round (lowest–highest)",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 2 else "right", no_wrap=True)
    for number, row in enumerate(rows):
        last = number + 1 == len(rows) or rows[number + 1].scenario != row.scenario
        table.add_row(*cells(row), end_section=last)
    console.print(table)
    for note in notes(rows):
        console.print(f"[yellow]note:[/] {note}", highlight=False)


def write_markdown(title: str, rows: Sequence[Row], path: Path) -> None:
    lines = [title, "", f"| {' | '.join(COLUMNS)} |"]
    lines.append(f"| {' | '.join(['---', '---', *['---:'] * (len(COLUMNS) - 2)])} |")
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    lines += ["", *(f"- Note: {note}" for note in notes(rows))]
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    settings = choose_settings(options)
    progress = Console(stderr=True)
    environment = reporting.environment()
    raise_file_limit()
    if options.folder:
        tempfile.tempdir = str(options.folder)  # the harness makes its folders there
    try:
        # Python peers cost more than a broker does: the load is mdpraw's, or none.
        raw = find_generator("c")
        generator = Generator(raw.name, (*raw.command, "-d", "nfp"))
        ours = choose_candidates(options)
        with tempfile.TemporaryDirectory() as folder:
            samples = run_rounds(ours, options.scenarios, generator, settings, progress, Path(folder))
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    rows = summarise(options.scenarios, [NORFAB, *(broker.label for broker in ours)], samples)
    title = heading(environment, settings, options.window)
    show(title, rows)
    if options.json:
        result = {
            "format": FORMAT_VERSION,
            "environment": environment,
            "settings": {**asdict(settings), "generator": generator.name, "window": options.window},
            "brokers": {broker.label: dict(broker.info) for broker in ours},
            "scenarios": {scenario.name: scenario.shape.text for scenario in options.scenarios},
            "results": [asdict(row) for row in rows],
            "notes": notes(rows),
        }
        options.json.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.markdown:
        write_markdown(title, rows, options.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
