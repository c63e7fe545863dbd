"""Our broker against a loop on pynng's asyncio contexts, with the same NNG peers in the same run: `python
bench/memo.py`. See bench/README.md.

Clients keep JOBs of memo01 in flight, workers echo each at once. The peers are NNG's own REQ sockets: in all scenarios
but one those of nngload.c, which drives the NNG library without Python, because pynng's would mostly measure
themselves; in `pynng` they are pynng's, in separate processes. The other broker (pynng_broker.py) has a task for each
of 2,048 REP contexts.

- lockstep: one JOB after the other, one worker;
- one: 64 in flight on one connection, 16 workers on another;
- many: four connections of clients with 64 each, four with 16 workers;
- parked: the same with 1,000 parked workers on one connection;
- pynng: two processes of clients with 16 each, one of 16 workers.

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

import nngload
import report as reporting
import versus
from harness import HERE, BenchError, Broker, Generator, Settings, measure, raise_file_limit
from results import Sample, Shape
from versus import Row, Samples, Yardstick, summarise

LOOP = "pynng loop"
YARDSTICK = Yardstick(
    LOOP,
    script="pynng_broker.py",
    text="the pynng loop",
    columns=(
        "scenario",
        "broker",
        "jobs/s",
        "p50 ms",
        "CPU µs/job",
        "peers' CPU",
        "RSS MiB",
        "spread",
        "jobs/s ×",
        "CPU ×",
        "goal",
    ),
    width=124,
    rate="jobs/s",
    each="job",
)
PEERS_ARE_LIMIT = "the peers used {busy} of a core; jobs/s may be their limit (CPU per job holds)"
USUAL = Settings(rounds=5, seconds=2.0, warmup=0.5)
GOAL = 3.0
PYTHON_PEERS = Generator("pynngload", (sys.executable, str(HERE / "pynngload.py")))


@dataclass(frozen=True)
class Scenario:
    """A load for all brokers, its peers, and the goal as a multiple of the loop's jobs/s; 0: no goal."""

    name: str
    shape: Shape
    goal: float = GOAL
    python_peers: bool = False


def scenarios(parked: int) -> list[Scenario]:
    many = {"clients": 4, "workers": 64, "window": 64}
    return [
        Scenario("lockstep", Shape("lockstep", clients=1, workers=1, window=1), 0),
        Scenario("one", Shape("one", clients=1, workers=16, window=64)),
        Scenario("many", Shape("many", **many)),
        Scenario("parked", Shape("parked", **many, idle_workers=parked, idle_share_service=True)),
        Scenario("pynng", Shape("pynng", clients=2, workers=16, window=16), 0, python_peers=True),
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    return versus.notes(rows, PEERS_ARE_LIMIT)


# -- options


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure Polydomo's broker against a loop on pynng's contexts."
    )
    versus.add_load_options(parser, USUAL, "bytes of payload in a job and in its result", each="scenario")
    add = parser.add_argument
    add("--parked", type=int, default=1000, metavar="N", help="parked workers in `parked` (default 1000)")
    add("--scenarios", metavar="NAME,...", help="only these of: lockstep, one, many, parked, pynng")
    versus.add_candidate_options(parser)
    add(
        "--generator",
        choices=("c", "python"),
        default="c",
        help="load generator of all scenarios (default c)",
    )
    versus.add_output_options(parser)
    options = parser.parse_args(argv)
    versus.check_candidates(parser, options)
    options.scenarios = versus.choose_scenarios(parser, options.scenarios, scenarios(options.parked))
    return options


def on_nng(broker: Broker) -> Broker:
    """Return the broker with the harness's endpoint for NNG and its data in the process's folder."""
    command = (*broker.command[:-1], "--nng")
    return Broker(broker.label, command, ("--zmq", "tcp://127.0.0.1:*", "--data", "data"), broker.info)


# -- measuring


def run_rounds(
    ours: Sequence[Broker],
    todo: Sequence[Scenario],
    generator: Generator,
    settings: Settings,
    progress: Console,
) -> Samples:
    def take(broker: Broker, scenario: Scenario) -> Sample:
        peers = PYTHON_PEERS if scenario.python_peers else generator
        return measure(broker, scenario.shape, peers, settings)

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
        f"{row.generator_busy:.0%}",
        f"{row.rss_mib:.0f}",
        f"{row.spread:.0%}" if many else "–",
        versus.ratio_text(ratio.rps, ratio.rps_low, ratio.rps_high, many) if ratio else "",
        f"{ratio.cpu:.3f}" if ratio else "",
        f"≥ {row.goal:g}" if ratio and row.goal else "",
    ]


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    settings = versus.choose_settings(options, USUAL)
    progress = Console(stderr=True)
    environment = reporting.environment()
    raise_file_limit()
    try:
        generator = nngload.find_generator() if options.generator == "c" else PYTHON_PEERS
        ours = [on_nng(broker) for broker in versus.choose_candidates(options, LOOP)]
        samples = run_rounds(ours, options.scenarios, generator, settings, progress)
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    rows = summarise(options.scenarios, [LOOP, *(broker.label for broker in ours)], samples)
    found, table = notes(rows), [cells(row) for row in rows]
    title = reporting.heading(environment, settings, f"{settings.size} bytes of payload each way")
    versus.show(YARDSTICK, title, table, found)
    if options.json:
        how = {**asdict(settings), "generator": generator.name}
        results = [asdict(row) for row in rows]
        versus.write_json(environment, how, ours, results, found, options.json, options.scenarios)
    if options.markdown:
        versus.write_markdown(YARDSTICK, title, table, found, options.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
