"""Our broker against norfab's, with the same peers in the same run: `python bench/nfp.py`. See bench/README.md.

Both get NFP jobs in norfab's form from one client that keeps 1,000 in flight, for any of two workers that reply with
200 at once; a job is done when its 200 has arrived. norfab's broker stores nothing. Ours runs in three configurations:

- memory: its service is not durable either;
- idle: the same with 500 more workers that are registered and idle;
- durable: the default, every job and result in SQLite, on disk before its 202 and its 200.

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

import report as reporting
import versus
from harness import BenchError, Broker, Generator, Settings, find_generator, measure, raise_file_limit
from results import Sample, Shape
from versus import Row, Samples, Yardstick, notes, summarise

NORFAB = "norfab"
YARDSTICK = Yardstick(
    NORFAB,
    script="norfab_broker.py",
    text="norfab's broker",
    columns=(
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
    ),
    width=116,
)
USUAL = Settings(rounds=5, seconds=3.0, warmup=1.0)
IN_MEMORY = "[services.echo]\ndurable = false\n"
AS_IT_COMES = ""


@dataclass(frozen=True)
class Scenario:
    """A load for both brokers, the configuration of ours, and the goal as a multiple of norfab's rate."""

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


# -- options


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Polydomo's broker against norfab's.")
    versus.add_load_options(parser, USUAL, "bytes of text in a job and in its result", each="scenario")
    add = parser.add_argument
    add("--window", type=int, default=1000, help="jobs in flight (default 1000)")
    add("--idle", type=int, default=500, metavar="N", help="idle workers in `idle` (default 500)")
    add("--scenarios", metavar="NAME,...", help="only these of: memory, idle, durable")
    versus.add_candidate_options(parser)
    add(
        "--folder",
        type=Path,
        metavar="DIR",
        help="folder for the brokers' files (default: the temporary folder)",
    )
    versus.add_output_options(parser)
    options = parser.parse_args(argv)
    versus.check_candidates(parser, options)
    known = scenarios(options.idle, options.window)
    options.scenarios = versus.choose_scenarios(parser, options.scenarios, known)
    return options


# -- measuring


def configured(broker: Broker, scenario: Scenario, folder: Path) -> Broker:
    """Return our broker configured for this scenario, with its data in the folder of its process."""
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
    def take(broker: Broker, scenario: Scenario) -> Sample:
        tuned = broker if broker.label == NORFAB else configured(broker, scenario, folder)
        return measure(tuned, scenario.shape, generator, settings)

    return versus.run_rounds(YARDSTICK, ours, todo, take, settings.rounds, progress)


# -- output


def cells(row: Row) -> list[str]:
    ratio = row.versus
    many = len(row.rounds) > 1
    return [
        row.scenario,
        row.broker,
        f"{row.rps:,.0f}",
        f"{row.p50_us / 1000:,.1f}",
        f"{row.cpu_us:.1f}",
        f"{row.rss_mib:.0f}",
        f"{row.spread:.0%}" if many else "–",
        versus.ratio_text(ratio.rps, ratio.rps_low, ratio.rps_high, many) if ratio else "",
        f"{ratio.cpu:.2f}" if ratio else "",
        f"≥ {row.goal:g}" if ratio else "",
    ]


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    settings = versus.choose_settings(options, USUAL)
    progress = Console(stderr=True)
    environment = reporting.environment()
    raise_file_limit()
    if options.folder:
        tempfile.tempdir = str(options.folder)  # the harness creates its folders there
    try:
        # Python peers cost more than a broker: only mdpraw can generate this load.
        raw = find_generator("c")
        generator = Generator(raw.name, (*raw.command, "-d", "nfp"))
        ours = versus.choose_candidates(options, NORFAB)
        with tempfile.TemporaryDirectory() as folder:
            samples = run_rounds(ours, options.scenarios, generator, settings, progress, Path(folder))
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    rows = summarise(options.scenarios, [NORFAB, *(broker.label for broker in ours)], samples)
    found, table = notes(rows), [cells(row) for row in rows]
    load = f"{options.window:,} jobs in flight, {settings.size} bytes of text each way"
    title = reporting.heading(environment, settings, load)
    versus.show(YARDSTICK, title, table, found)
    if options.json:
        how = {**asdict(settings), "generator": generator.name, "window": options.window}
        results = [asdict(row) for row in rows]
        versus.write_json(environment, how, ours, results, found, options.json, options.scenarios)
    if options.markdown:
        versus.write_markdown(YARDSTICK, title, table, found, options.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
