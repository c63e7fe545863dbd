"""Our broker against a bare pyzmq loop, in one run: `python bench/run.py`. See bench/README.md.

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

from rich.console import Console

import report as reporting
import versus
from harness import (
    BenchError,
    Broker,
    Generator,
    Settings,
    find_generator,
    measure,
    raise_file_limit,
    yardstick,
)
from results import SHAPES, YARDSTICK, Sample, Shape, scale_shapes, summarise

PLOT_SUFFIXES = (".png", ".svg", ".pdf")
USUAL = Settings(rounds=3, seconds=3.0, warmup=0.5)
QUICK = Settings(rounds=1, seconds=1.0, warmup=0.3)


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Polydomo's broker against a bare pyzmq loop.")
    versus.add_load_options(parser, USUAL, "body size in bytes", each="shape")
    add = parser.add_argument
    add("--shapes", metavar="NAME,...", help="only these of: " + ", ".join(s.name for s in SHAPES))
    add("--scale", action="store_true", help="also: `many` with idle peers and idle services")
    add("--idle", type=int, default=1000, metavar="N", help="how many, for --scale (default 1000)")
    versus.add_candidate_options(parser)
    add("--broker-args", default="", metavar="TEXT", help="further arguments for our broker")
    add("--generator", choices=("auto", "c", "python"), default="auto", help="load generator")
    versus.add_output_options(parser)
    add("--plot", type=Path, metavar="FILE", help="PNG, SVG or PDF, by its suffix")
    options = parser.parse_args(argv)
    versus.check_candidates(parser, options)
    if options.plot and options.plot.suffix not in PLOT_SUFFIXES:
        parser.error(f"--plot needs a file that ends in one of {', '.join(PLOT_SUFFIXES)}")
    try:
        options.shapes = choose_shapes(options.shapes, options.scale, options.idle)
    except ValueError as error:
        parser.error(str(error))
    return options


def choose_shapes(names: str | None, scale: bool, idle: int) -> list[Shape]:
    known = {shape.name: shape for shape in SHAPES}
    wanted = names.split(",") if names else list(known)
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"unknown shape {unknown[0]!r}; expected one of {', '.join(known)}")
    if scale and "many" not in wanted:
        wanted.append("many")  # the base of the scale shapes
    return [known[name] for name in wanted] + (list(scale_shapes(idle)) if scale else [])


def run_rounds(
    brokers: list[Broker], shapes: list[Shape], generator: Generator, settings: Settings, progress: Console
) -> dict[tuple[str, str], list[Sample]]:
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for number in range(1, settings.rounds + 1):
        # The order alternates between rounds. Our brokers open the first round: if one of them cannot run, that
        # shows before time is spent on the others.
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
    settings = versus.choose_settings(options, USUAL, QUICK)
    # Progress goes to stderr: stdout has only the result.
    progress = Console(stderr=True)
    environment = reporting.environment()
    raise_file_limit()
    try:
        generator = find_generator(options.generator)
        ours = versus.choose_candidates(options, YARDSTICK, options.broker_args.split())
        brokers = [yardstick(), *ours]
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
