"""Cost of something that a broker may have: the same broker with and without it, in the same run.

The shape is `many` of bench/run.py: 8 clients with 128 requests in flight each, 16 workers, in memory. Every round
measures each build of the broker both ways; ratios are taken within a round. ledger.py and roles.py say what is
switched.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

import report as reporting
import versus
from harness import BenchError, Broker, Settings, find_generator, measure, raise_file_limit
from results import SHAPES, Sample, medians
from versus import Versus, Yardstick, versus_of

USUAL = Settings(rounds=7, seconds=4.0, warmup=1.0)
MANY = next(shape for shape in SHAPES if shape.name == "many")


@dataclass(frozen=True)
class Goal:
    """What must hold with the switch on: at least a share of the rate, or at most a multiple of the CPU time."""

    rps: float = 0.0
    cpu: float = 0.0

    def holds(self, ratio: Versus) -> bool:
        return ratio.rps >= self.rps and (not self.cpu or ratio.cpu <= self.cpu)

    def __str__(self) -> str:
        return f"≥ {self.rps:g}" if self.rps else f"CPU ≤ {self.cpu:g}"


@dataclass(frozen=True)
class Switch:
    """What is switched, and the goals by the broker's label; a broker with another label has none."""

    name: str
    off: tuple[str, ...]  # arguments of the broker
    on: tuple[str, ...]
    goals: Mapping[str, Goal]

    @property
    def table(self) -> Yardstick:
        columns = ("broker", self.name, "req/s", "p99 ms", "CPU µs/req", "RSS MiB", "spread")
        return Yardstick(
            "off",
            script="",
            text=f"the same broker without {self.name}",
            columns=(*columns, "req/s ×", "CPU ×", "goal"),
            width=118,
        )

    def arguments(self, way: str) -> tuple[str, ...]:
        return self.on if way == "on" else self.off


@dataclass(frozen=True)
class Row:
    """One build of the broker, one way: medians, and the ratio to the other way."""

    broker: str
    way: str
    rps: float
    p50_us: float
    p99_us: float
    cpu_us: float
    rss_mib: float
    spread: float
    generator_busy: float
    versus: Versus | None
    goal: Goal | None
    rounds: tuple[Sample, ...]

    @property
    def reached(self) -> bool:
        return self.versus is not None and self.goal is not None and self.goal.holds(self.versus)


Samples = Mapping[tuple[str, str], Sequence[Sample]]


def summarise(switch: Switch, labels: Sequence[str], samples: Samples) -> list[Row]:
    rows = []
    for label in labels:
        for way in ("off", "on"):
            own = samples[label, way]
            ratio = versus_of(own, samples[label, "off"]) if way == "on" else None
            goal = switch.goals.get(label) if way == "on" else None
            rows.append(Row(label, way, **medians(own), versus=ratio, goal=goal, rounds=tuple(own)))
    return rows


def run_rounds(switch: Switch, ours: Sequence[Broker], settings: Settings, progress: Console) -> Samples:
    generator = find_generator()
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for number in range(1, settings.rounds + 1):
        for broker in ours:
            for way in ("on", "off") if number % 2 else ("off", "on"):  # alternate the order
                what = f"round {number}/{settings.rounds}  {broker.label:<10} {switch.name} {way:<4}"
                tuned = Broker(broker.label, broker.command, switch.arguments(way))
                with progress.status(what):
                    sample = measure(tuned, MANY, generator, settings)
                samples[broker.label, way].append(sample)
                versus.print_sample(switch.table, what, sample, progress)
    return samples


def cells(row: Row) -> list[str]:
    many = len(row.rounds) > 1
    ratio = row.versus
    return [
        row.broker,
        row.way,
        f"{row.rps:,.0f}",
        f"{row.p99_us / 1000:,.1f}",
        f"{row.cpu_us:.1f}",
        f"{row.rss_mib:.0f}",
        f"{row.spread:.0%}" if many else "–",
        versus.ratio_text(ratio.rps, ratio.rps_low, ratio.rps_high, many) if ratio else "",
        f"{ratio.cpu:.2f}" if ratio else "",
        f"{row.goal} {'reached' if row.reached else 'NOT reached'}" if row.goal else "",
    ]


def main(switch: Switch, argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=f"Measure the cost of {switch.name} to Polydomo's broker.")
    versus.add_load_options(parser, USUAL, "body size in bytes")
    versus.add_candidate_options(parser, python=False)
    versus.add_output_options(parser, markdown=False)
    options = parser.parse_args(argv)
    versus.check_candidates(parser, options)
    settings = versus.choose_settings(options, USUAL)
    progress = Console(stderr=True)
    environment = reporting.environment()
    raise_file_limit()
    try:
        ours = versus.choose_candidates(options, "")
        samples = run_rounds(switch, ours, settings, progress)
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    rows = summarise(switch, [broker.label for broker in ours], samples)
    versus.show(switch.table, None, [cells(row) for row in rows], [])
    if options.json:
        results = [asdict(row) | {"reached": row.reached} for row in rows]
        how = asdict(settings) | {"switch": switch.name}
        versus.write_json(environment, how, ours, results, [], options.json)
    return 0
