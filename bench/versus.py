"""Shared parts of the scripts that measure ours against a reference: options, rounds, rows, notes, output.

Ratios are taken within a round; the lowest and the highest are shown next to their median.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console

import report as reporting
from harness import HERE, BenchError, Broker, Settings, candidate
from results import GENERATOR_IS_LIMIT, Sample, Shape, divide, doubts, medians, ratio_of

FORMAT_VERSION = 1
QUICK = Settings(rounds=1, seconds=1.0, warmup=0.5)


@dataclass(frozen=True)
class Yardstick:
    """A reference to measure ours against, and the words for its table."""

    label: str
    script: str  # in this folder
    text: str  # what ratios are divided by
    columns: tuple[str, ...]
    width: int  # of the table
    names: int = 2  # columns that are not numbers
    rate: str = "req/s"
    each: str = "req"

    @property
    def broker(self) -> Broker:
        return Broker(self.label, (sys.executable, str(HERE / self.script)))


class Scenario(Protocol):
    """A load for all brokers, and the goal as a multiple of the yardstick's rate."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def goal(self) -> float: ...


AnyScenario = TypeVar("AnyScenario", bound=Scenario)


@dataclass(frozen=True)
class Versus:
    """Ratios to the yardstick of the same round: the median of the rounds, the lowest and the highest."""

    rps: float
    rps_low: float
    rps_high: float
    cpu: float


@dataclass(frozen=True)
class Row:
    """One broker in one scenario: medians, and ratios to the yardstick."""

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


def versus_of(own: Sequence[Sample], theirs: Sequence[Sample]) -> Versus:
    ratio = ratio_of(own, theirs)
    each = [divide(mine.rps, other.rps) for mine, other in zip(own, theirs, strict=True)]
    return Versus(ratio.rps, min(each), max(each), ratio.cpu)


def summarise(todo: Sequence[Scenario], labels: Sequence[str], samples: Samples) -> list[Row]:
    """Return one row per scenario and broker; the first label is the yardstick's."""
    rows = []
    for scenario in todo:
        theirs = samples[scenario.name, labels[0]]
        for label in labels:
            own = samples[scenario.name, label]
            versus = None if label == labels[0] else versus_of(own, theirs)
            rows.append(
                Row(scenario.name, label, scenario.goal, **medians(own), versus=versus, rounds=tuple(own))
            )
    return rows


def notes(rows: Sequence[Row], limit: str = GENERATOR_IS_LIMIT) -> list[str]:
    """Return caveats about the numbers."""
    found = []
    for row in rows:
        where = f"{row.broker}, {row.scenario}"
        found += doubts(where, row.generator_busy, sum(sample.disconnects for sample in row.rounds), limit)
        if unannounced := sum(sample.unannounced for sample in row.rounds):
            found.append(f"{where}: {unannounced} jobs had a 200 without a 202 before it")
    return found


# -- options


def add_load_options(
    parser: argparse.ArgumentParser, usual: Settings, size: str, one: str = "broker", each: str | None = None
) -> None:
    """Add options for how long and how often every `one` is measured, under every `each` if given."""
    turn = f"meets every {each}" if each else "is measured"
    per = f"{one}, {each}" if each else one
    add = parser.add_argument
    add("--rounds", type=int, help=f"rounds; every {one} {turn} once in each (default {usual.rounds})")
    add("--seconds", type=float, help=f"measured time per {per} and round (default {usual.seconds:g})")
    add("--warmup", type=float, help=f"load before the measured time, in seconds (default {usual.warmup:g})")
    add("--quick", action="store_true", help="one round of 1 s")
    add("--size", type=int, default=usual.size, help=f"{size} (default {usual.size})")


def add_candidate_options(parser: argparse.ArgumentParser, python: bool = True) -> None:
    if python:
        words = "interpreter with our broker (default: this one)"
        parser.add_argument("--python", metavar="PATH", help=words)
    else:
        parser.set_defaults(python=None)
    parser.add_argument(
        "--candidate", action="append", default=[], metavar="NAME=PYTHON", help="several of our brokers"
    )


def add_output_options(parser: argparse.ArgumentParser, markdown: bool = True) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE")
    if markdown:
        parser.add_argument("--markdown", type=Path, metavar="FILE")


def check_candidates(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.python and options.candidate:
        parser.error("--python names one broker, --candidate several: give only one of them")
    for text in options.candidate:
        if not all(text.partition("=")):
            parser.error(f"--candidate {text}: expected NAME=PYTHON")


def choose_scenarios(
    parser: argparse.ArgumentParser, names: str | None, all_of_them: Sequence[AnyScenario]
) -> list[AnyScenario]:
    known = {scenario.name: scenario for scenario in all_of_them}
    wanted = names.split(",") if names else list(known)
    for name in wanted:
        if name not in known:
            parser.error(f"unknown scenario {name!r}; expected one of {', '.join(known)}")
    return [known[name] for name in wanted]


def choose_settings(options: argparse.Namespace, usual: Settings, quick: Settings = QUICK) -> Settings:
    base = quick if options.quick else usual
    return Settings(
        rounds=max(1, base.rounds if options.rounds is None else options.rounds),
        seconds=max(0.05, base.seconds if options.seconds is None else options.seconds),
        warmup=max(0.0, base.warmup if options.warmup is None else options.warmup),
        size=options.size,
    )


def choose_candidates(
    options: argparse.Namespace, yardstick: str, extra: Sequence[str] = (), what: str = "brokers"
) -> list[Broker]:
    named = [text.partition("=") for text in options.candidate]
    if named:
        found = [candidate(python, label, extra) for label, _, python in named]
    else:
        found = [candidate(options.python or sys.executable, None, extra)]
    labels = [yardstick, *(broker.label for broker in found)]
    if len(set(labels)) < len(labels):
        raise BenchError(f"two {what} have the same name: {', '.join(labels)}")
    return found


# -- measuring


def run_rounds(
    yardstick: Yardstick,
    ours: Sequence[Broker],
    todo: Sequence[AnyScenario],
    take: Callable[[Broker, AnyScenario], Sample],
    rounds: int,
    progress: Console,
) -> Samples:
    order = [yardstick.broker, *ours]
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for number in range(1, rounds + 1):
        for scenario in todo:
            # The order alternates between rounds.
            for broker in order[::-1] if number % 2 else order:
                what = f"round {number}/{rounds}  {scenario.name:<8}  {broker.label:<10}"
                with progress.status(what):
                    sample = take(broker, scenario)
                samples[scenario.name, broker.label].append(sample)
                print_sample(yardstick, what, sample, progress)
    return samples


def print_sample(yardstick: Yardstick, what: str, sample: Sample, progress: Console) -> None:
    progress.print(
        f"{what} {sample.rps:>9,.0f} {yardstick.rate}  {sample.cpu_us:>6.1f} µs CPU/{yardstick.each}",
        highlight=False,
    )


# -- output


def ratio_text(middle: float, low: float, high: float, many: bool) -> str:
    return f"{middle:.2f}" + f" ({low:.2f}–{high:.2f})" * many


def show(
    yardstick: Yardstick, heading: str | None, cells: Sequence[Sequence[str]], found: Sequence[str]
) -> None:
    console = Console()
    console.width = max(console.width, yardstick.width)
    if heading:
        console.print(heading, highlight=False)
    title = f"Ratios (×): divided by {yardstick.text} of the same round (lowest–highest)"
    reporting.print_table(console, title, yardstick.columns, cells, yardstick.names)
    reporting.print_notes(console, found)


def write_markdown(
    yardstick: Yardstick,
    heading: str,
    cells: Sequence[Sequence[str]],
    found: Sequence[str],
    path: Path,
) -> None:
    lines = [heading, "", *reporting.markdown_table(yardstick.columns, cells)]
    lines += ["", *(f"- Note: {note}" for note in found)]
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def write_json(
    environment: Mapping[str, Any],
    settings: Mapping[str, Any],
    ours: Sequence[Broker],
    results: Sequence[Mapping[str, Any]],
    found: Sequence[str],
    path: Path,
    todo: Sequence[Scenario] | None = None,
) -> None:
    shapes = {} if todo is None else {"scenarios": {scenario.name: scenario.shape.text for scenario in todo}}
    result = {
        "format": FORMAT_VERSION,
        "environment": environment,
        "settings": settings,
        "brokers": {broker.label: dict(broker.info) for broker in ours},
        **shapes,
        "results": results,
        "notes": found,
    }
    reporting.dump_json(result, path)
