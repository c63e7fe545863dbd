"""Cost of the ledger: the same broker with and without it, in the same run: `python bench/ledger.py`.

The shape is `many` of bench/run.py: 8 clients with 128 requests in flight each, 16 workers, in memory. Every round
measures each build of the broker both ways; ratios are taken within a round. See bench/README.md.

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

import report as reporting
import versus
from harness import BenchError, Broker, Settings, find_generator, measure, raise_file_limit
from results import SHAPES, Sample, medians
from versus import Yardstick, versus_of

# Minimum share of the rate that must remain.
GOALS = {"plain": 0.75, "compiled": 0.85}
USUAL = Settings(rounds=7, seconds=4.0, warmup=1.0)
MANY = next(shape for shape in SHAPES if shape.name == "many")
TEXTS = Yardstick(
    "off",
    script="",
    text="the same broker without a ledger",
    columns=(
        "broker",
        "ledger",
        "req/s",
        "p99 ms",
        "CPU µs/req",
        "RSS MiB",
        "spread",
        "req/s ×",
        "CPU ×",
        "goal",
    ),
    width=118,
)


@dataclass(frozen=True)
class Row:
    """One build of the broker with or without a ledger: medians, and the ratio to the other way."""

    broker: str
    ledger: str
    rps: float
    p50_us: float
    p99_us: float
    cpu_us: float
    rss_mib: float
    spread: float
    generator_busy: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    cpu_ratio: float | None
    goal: float | None
    rounds: tuple[Sample, ...]

    @property
    def reached(self) -> bool:
        return self.ratio is not None and self.goal is not None and self.ratio >= self.goal


Samples = Mapping[tuple[str, str], Sequence[Sample]]


def summarise(labels: Sequence[str], samples: Samples) -> list[Row]:
    rows = []
    for label in labels:
        for way in ("off", "on"):
            own = samples[label, way]
            ratio = versus_of(own, samples[label, "off"]) if way == "on" else None
            rows.append(
                Row(
                    broker=label,
                    ledger=way,
                    **medians(own),
                    ratio=ratio and ratio.rps,
                    ratio_low=ratio and ratio.rps_low,
                    ratio_high=ratio and ratio.rps_high,
                    cpu_ratio=ratio and ratio.cpu,
                    goal=GOALS.get(label) if way == "on" else None,
                    rounds=tuple(own),
                )
            )
    return rows


def run_rounds(ours: Sequence[Broker], settings: Settings, progress: Console) -> Samples:
    generator = find_generator()
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for number in range(1, settings.rounds + 1):
        for broker in ours:
            ways = {"off": ("--data", "data"), "on": ("--data", "data", "--ledger", "auto")}
            for way in ("on", "off") if number % 2 else ("off", "on"):  # alternate the order
                what = f"round {number}/{settings.rounds}  {broker.label:<10} ledger {way:<4}"
                with progress.status(what):
                    sample = measure(
                        Broker(broker.label, broker.command, ways[way]), MANY, generator, settings
                    )
                samples[broker.label, way].append(sample)
                versus.print_sample(TEXTS, what, sample, progress)
    return samples


def cells(row: Row) -> list[str]:
    many = len(row.rounds) > 1
    ratio = goal = ""
    if row.ratio is not None:
        ratio = versus.ratio_text(row.ratio, row.ratio_low, row.ratio_high, many)
    if row.goal is not None:
        goal = f"≥ {row.goal:g} {'reached' if row.reached else 'NOT reached'}"
    return [
        row.broker,
        row.ledger,
        f"{row.rps:,.0f}",
        f"{row.p99_us / 1000:,.1f}",
        f"{row.cpu_us:.1f}",
        f"{row.rss_mib:.0f}",
        f"{row.spread:.0%}" if many else "–",
        ratio,
        "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}",
        goal,
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure the cost of the ledger to Polydomo's broker.")
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
        samples = run_rounds(ours, settings, progress)
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    rows = summarise([broker.label for broker in ours], samples)
    versus.show(TEXTS, None, [cells(row) for row in rows], [])
    if options.json:
        results = [asdict(row) | {"reached": row.reached} for row in rows]
        versus.write_json(environment, asdict(settings), ours, results, [], options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
