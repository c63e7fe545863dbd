"""Our broker beside a bare pyzmq loop, in one run: `python bench/run.py`. See bench/README.md.

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

from rich.console import Console

import report as reporting
from harness import (
    BenchError,
    Broker,
    Generator,
    Settings,
    candidate,
    find_generator,
    measure,
    raise_file_limit,
    yardstick,
)
from results import SHAPES, YARDSTICK, Sample, Shape, scale_shapes, summarise

PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures Polydomo's broker beside a bare pyzmq loop.")
    add = parser.add_argument
    add("--rounds", type=int, help="rounds; every broker meets every shape once in each (default 3)")
    add("--seconds", type=float, help="measured time per broker, shape and round (default 3)")
    add("--warmup", type=float, help="load before the measured time, in seconds (default 0.5)")
    add("--quick", action="store_true", help="one round of 1 s: a first look")
    add("--size", type=int, default=64, help="body size in bytes (default 64)")
    add("--shapes", metavar="NAME,...", help="only these of: " + ", ".join(s.name for s in SHAPES))
    add("--scale", action="store_true", help="also: `many` beside idle peers and idle services")
    add("--idle", type=int, default=1000, metavar="N", help="how many, for --scale (default 1000)")
    add("--python", metavar="PATH", help="interpreter that our broker is installed for (default: this one)")
    add("--candidate", action="append", default=[], metavar="NAME=PYTHON", help="several of our brokers")
    add("--broker-args", default="", metavar="TEXT", help="further arguments for our broker")
    add("--generator", choices=("auto", "c", "python"), default="auto", help="who makes the load")
    add("--json", type=Path, metavar="FILE")
    add("--markdown", type=Path, metavar="FILE")
    add("--plot", type=Path, metavar="FILE", help="PNG, SVG or PDF, by its suffix")
    options = parser.parse_args(argv)
    if options.python and options.candidate:
        parser.error("--python names one broker, --candidate several: give only one of them")
    if options.plot and options.plot.suffix not in PLOT_SUFFIXES:
        parser.error(f"--plot needs a file that ends in one of {', '.join(PLOT_SUFFIXES)}")
    for text in options.candidate:
        if not all(text.partition("=")):
            parser.error(f"--candidate {text}: expected NAME=PYTHON")
    try:
        options.shapes = choose_shapes(options.shapes, options.scale, options.idle)
    except ValueError as error:
        parser.error(str(error))
    return options


def choose_shapes(names: str | None, scale: bool, idle: int) -> list[Shape]:
    known = {shape.name: shape for shape in SHAPES}
    wanted = names.split(",") if names else list(known)
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"unknown shape {unknown[0]!r}; there are {', '.join(known)}")
    if scale and "many" not in wanted:
        wanted.append("many")  # what the scale shapes are compared with
    return [known[name] for name in wanted] + (list(scale_shapes(idle)) if scale else [])


def choose_settings(options: argparse.Namespace) -> Settings:
    rounds, seconds, warmup = (1, 1.0, 0.3) if options.quick else (3, 3.0, 0.5)
    return Settings(
        rounds=max(1, rounds if options.rounds is None else options.rounds),
        seconds=max(0.05, seconds if options.seconds is None else options.seconds),
        warmup=max(0.0, warmup if options.warmup is None else options.warmup),
        size=options.size,
    )


def choose_brokers(options: argparse.Namespace) -> list[Broker]:
    extra = options.broker_args.split()
    named = [text.partition("=") for text in options.candidate]
    if named:
        ours = [candidate(python, label, extra) for label, _, python in named]
    else:
        ours = [candidate(options.python or sys.executable, None, extra)]
    labels = [YARDSTICK, *(broker.label for broker in ours)]
    if len(set(labels)) < len(labels):
        raise BenchError(f"two brokers have the same name: {', '.join(labels)}")
    return [yardstick(), *ours]


def run_rounds(
    brokers: list[Broker], shapes: list[Shape], generator: Generator, settings: Settings, progress: Console
) -> dict[tuple[str, str], list[Sample]]:
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for number in range(1, settings.rounds + 1):
        # Every other round backwards, so that nobody always goes first. Ours open the first round: if one of
        # them cannot run, that shows before time is spent on the others.
        order = brokers[::-1] if number % 2 else brokers
        for shape in shapes:
            for broker in order:
                what = f"round {number}/{settings.rounds}  {shape.name:<13}  {broker.label:<12}"
                with progress.status(what):
                    sample = measure(broker, shape, generator, settings)
                samples[broker.label, shape.name].append(sample)
                progress.print(
                    f"{what} {sample.rps:>9,.0f} req/s  {sample.cpu_us:>6.1f} µs CPU/req", highlight=False
                )
    return samples


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    settings = choose_settings(options)
    # Progress goes to stderr: stdout holds the result and nothing else.
    progress = Console(stderr=True)
    environment = reporting.environment()
    raise_file_limit()
    try:
        generator = find_generator(options.generator)
        brokers = choose_brokers(options)
        samples = run_rounds(brokers, options.shapes, generator, settings, progress)
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    summaries = summarise([broker.label for broker in brokers], options.shapes, samples)
    result = reporting.Report(environment, settings, generator, brokers, options.shapes, summaries)
    reporting.print_tables(result)
    if options.json:
        reporting.write_json(result, options.json)
    if options.markdown:
        reporting.write_markdown(result, options.markdown)
    if options.plot:
        reporting.write_plot(result, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
