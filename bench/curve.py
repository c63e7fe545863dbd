"""Our broker with CURVE against a bare pyzmq loop with CURVE, with the same peers in the same run: `python
bench/curve.py`. See bench/README.md.

The shapes are those of bench/run.py, the peers are libzmq's (curveload.c). The loop is yardstick.py on a ROUTER whose
libzmq encrypts in a thread of its own and accepts every key. Ours accepts the peers' key as well
(`security.auto_accept`), and has roles on: all principals may call and serve.

Exit codes: 0 all measured, 1 a broker died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import zmq
from rich.console import Console

import curveload
import report as reporting
import versus
from harness import BenchError, Broker, Generator, Settings, measure, raise_file_limit
from results import SHAPES, Sample, Shape
from versus import Row, Samples, Yardstick, summarise

LOOP = "pyzmq loop"
YARDSTICK = Yardstick(
    LOOP,
    script="yardstick.py",
    text="the pyzmq loop",
    columns=(
        "scenario",
        "broker",
        "req/s",
        "p50 ms",
        "p99 ms",
        "CPU µs/req",
        "peers' CPU",
        "RSS MiB",
        "spread",
        "req/s ×",
        "CPU ×",
        "goal",
    ),
    width=128,
)
PEERS_ARE_LIMIT = "the peers used {busy} of a core; req/s may be their limit (CPU per request holds)"
USUAL = Settings(rounds=5, seconds=3.0, warmup=1.0)
GOAL = 1.0
CONFIG = """\
[security]
curve = "on"
keys = "{keys}"
auto_accept = true

[principals]
"*" = ["client", "worker"]
"""


@dataclass(frozen=True)
class Scenario:
    """A load for all brokers, and the goal as a multiple of the loop's rate."""

    shape: Shape
    goal: float = GOAL

    @property
    def name(self) -> str:
        return self.shape.name


SCENARIOS = [Scenario(shape) for shape in SHAPES]


@dataclass(frozen=True)
class ServerKey:
    """A key pair for all brokers of a run, in the forms that they take."""

    public: str
    file: Path  # the loop's
    config: Path  # ours

    @classmethod
    def create(cls, folder: Path) -> ServerKey:
        """Make a key pair in this folder, which other users cannot read."""
        public, secret = (key.decode() for key in zmq.curve_keypair())
        keys = folder / "keys"
        keys.mkdir(mode=0o700)
        file = keys / "broker.key"
        file.touch(mode=0o600)
        file.write_text(f'curve\n    public-key = "{public}"\n    secret-key = "{secret}"\n')
        config = folder / "curve.toml"
        config.write_text(CONFIG.format(keys=keys))
        return cls(public, file, config)

    def given_to(self, broker: Broker) -> Broker:
        """Return the broker with this key."""
        extra = (str(self.file),) if broker.label == LOOP else ("--config", str(self.config))
        return Broker(broker.label, broker.command, extra, broker.info)


# -- options


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Polydomo's broker with CURVE against a pyzmq loop.")
    versus.add_load_options(parser, USUAL, "body size in bytes", each="scenario")
    names = ", ".join(scenario.name for scenario in SCENARIOS)
    parser.add_argument("--scenarios", metavar="NAME,...", help=f"only these of: {names}")
    versus.add_candidate_options(parser)
    versus.add_output_options(parser)
    options = parser.parse_args(argv)
    versus.check_candidates(parser, options)
    options.scenarios = versus.choose_scenarios(parser, options.scenarios, SCENARIOS)
    return options


# -- measuring


def run_rounds(
    key: ServerKey,
    ours: Sequence[Broker],
    todo: Sequence[Scenario],
    generator: Generator,
    settings: Settings,
    progress: Console,
) -> Samples:
    def take(broker: Broker, scenario: Scenario) -> Sample:
        return measure(key.given_to(broker), scenario.shape, generator, settings)

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
        f"{row.p99_us / 1000:,.1f}",
        f"{row.cpu_us:.1f}",
        f"{row.generator_busy:.0%}",
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
    try:
        ours = versus.choose_candidates(options, LOOP)
        with tempfile.TemporaryDirectory() as folder:
            key = ServerKey.create(Path(folder))
            generator = curveload.find_generator(key.public)
            samples = run_rounds(key, ours, options.scenarios, generator, settings, progress)
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    rows = summarise(options.scenarios, [LOOP, *(broker.label for broker in ours)], samples)
    found, table = versus.notes(rows, PEERS_ARE_LIMIT), [cells(row) for row in rows]
    title = reporting.heading(environment, settings, f"{settings.size}-byte bodies, CURVE")
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
