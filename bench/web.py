"""Submit-and-wait over HTTP against a bare FastAPI echo, in the same run: `python bench/web.py`. See bench/README.md.

64 keep-alive connections, one request in flight on each. Ours goes through the broker: HTTP in, a job in memory, one of
16 MDP workers (in a separate process), and its reply as the HTTP response. The echo is one FastAPI handler on uvicorn
with the same settings. The result is the share of its rate that remains.

Exit codes: 0 all measured, 1 a server died or the load stalled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

import harness
import report as reporting
import versus
from harness import HERE, BenchError, Broker, Settings, raise_file_limit
from results import Sample, doubts, medians
from versus import Yardstick, versus_of

ECHO = "fastapi"
GOAL = 0.4
PATH = "/v1/services/echo/jobs"
IN_MEMORY = "?durable=false"
YARDSTICK = Yardstick(
    ECHO,
    script="webecho.py",
    text="the bare echo",
    columns=(
        "server",
        "req/s",
        "p50 ms",
        "p99 ms",
        "CPU µs/req",
        "RSS MiB",
        "spread",
        "req/s ×",
        "CPU ×",
        "goal",
    ),
    width=112,
    names=1,
)
GENERATOR_IS_LIMIT = "the generator used {busy} of a core; req/s may be its limit"
USUAL = Settings(rounds=5, seconds=3.0, warmup=1.0)


@dataclass(frozen=True)
class Row:
    """One server: medians, and ratios to the echo."""

    server: str
    rps: float
    p50_us: float
    p99_us: float
    cpu_us: float
    rss_mib: float
    spread: float
    generator_busy: float
    ratio: float | None  # its rate divided by the echo's of the same round: the median
    ratio_low: float | None
    ratio_high: float | None
    cpu_ratio: float | None
    rounds: tuple[Sample, ...]

    @property
    def reached(self) -> bool:
        return self.ratio is not None and self.ratio >= GOAL


Samples = Mapping[str, Sequence[Sample]]


def summarise(labels: Sequence[str], samples: Samples) -> list[Row]:
    return [_row(label, samples) for label in labels]


def _row(label: str, samples: Samples) -> Row:
    own = samples[label]
    ratio = None if label == ECHO else versus_of(own, samples[ECHO])
    return Row(
        server=label,
        **medians(own),
        ratio=ratio and ratio.rps,
        ratio_low=ratio and ratio.rps_low,
        ratio_high=ratio and ratio.rps_high,
        cpu_ratio=ratio and ratio.cpu,
        rounds=tuple(own),
    )


def notes(rows: Sequence[Row]) -> list[str]:
    """Return caveats about the numbers."""
    return [note for row in rows for note in doubts(row.server, row.generator_busy, 0, GENERATOR_IS_LIMIT)]


# -- options


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Polydomo's REST API against a bare FastAPI echo.")
    versus.add_load_options(parser, USUAL, "body size in bytes", one="server")
    add = parser.add_argument
    add("--connections", type=int, default=64, help="keep-alive connections (default 64)")
    add("--workers", type=int, default=16, help="MDP workers (default 16)")
    versus.add_candidate_options(parser, python=False)
    versus.add_output_options(parser, markdown=False)
    options = parser.parse_args(argv)
    versus.check_candidates(parser, options)
    options.settings = versus.choose_settings(options, USUAL)
    return options


# -- measuring


def measure(server: Broker, options: argparse.Namespace) -> Sample:
    """Measure one server: a fresh process, a warm-up, then the measured window."""
    settings: Settings = options.settings
    place = f"127.0.0.1:{harness.free_port()}"
    extra = () if server.label == ECHO else ("--http", place, "--data", "data")
    with (
        harness.running(Broker(server.label, server.command, extra)) as process,
        contextlib.ExitStack() as stack,
    ):
        if server.label == ECHO:
            place = process.endpoint.removeprefix("tcp://")
        else:
            harness.await_port(process, int(place.rpartition(":")[2]))
            stack.enter_context(workers(process.endpoint, options.workers))
        marks: dict[str, float] = {}
        rss: list[int] = []

        def on_mark(mark: str) -> None:
            marks[mark] = process.cpu_seconds()
            if mark == "measured":
                rss.append(process.rss_bytes())

        flags = {
            "--connections": options.connections,
            "--size": settings.size,
            "--seconds": settings.seconds,
            "--warmup": settings.warmup,
            "--path": PATH if server.label == ECHO else PATH + IN_MEMORY,
        }
        words = [str(word) for pair in flags.items() for word in pair]
        try:
            load = harness.run_generator([*SCRIPT, "load", place, *words], settings, on_mark)
        except BenchError as error:
            process.check("under load")
            raise BenchError(f"{server.label}: {error}") from None
        process.check("under load")
    said = "\n".join(load["said"])
    if load["stalled"] or not load["n"]:
        raise BenchError(
            f"{server.label}: stalled, {load['done']} of {load['sent']} requests answered\n{said}"
        )
    if load["wrong"]:
        raise BenchError(f"{server.label}: {load['wrong']} replies differ from what was sent\n{said}")
    return Sample(
        rps=load["rps"],
        p50_us=load["p50_us"],
        p99_us=load["p99_us"],
        cpu_us=(marks["measured"] - marks["measuring"]) * 1e6 / load["n"],
        rss_mib=rss[0] / 2**20,
        generator_busy=load["gen_cpu_us"] * load["rps"] / 1e6,
    )


SCRIPT = (sys.executable, str(HERE / "webload.py"))


@contextlib.contextmanager
def workers(endpoint: str, count: int) -> Iterator[None]:
    """Run workers of the broker until the end of the block."""
    command = [*SCRIPT, "work", endpoint, "--workers", str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as popen:
        try:
            assert popen.stdout is not None
            if popen.stdout.readline().strip() != b"ready":
                raise BenchError("the workers did not start")
            yield
        finally:
            popen.kill()


def run_rounds(ours: Sequence[Broker], options: argparse.Namespace, progress: Console) -> Samples:
    samples: dict[str, list[Sample]] = defaultdict(list)
    rounds = options.settings.rounds
    for number in range(1, rounds + 1):
        order = [YARDSTICK.broker, *ours]
        for server in order[::-1] if number % 2 else order:  # alternate the order
            what = f"round {number}/{rounds}  {server.label:<10}"
            with progress.status(what):
                sample = measure(server, options)
            samples[server.label].append(sample)
            versus.print_sample(YARDSTICK, what, sample, progress)
    return samples


# -- output


def cells(row: Row) -> list[str]:
    many = len(row.rounds) > 1
    ratio = ""
    if row.ratio is not None:
        ratio = versus.ratio_text(row.ratio, row.ratio_low, row.ratio_high, many)
    return [
        row.server,
        f"{row.rps:,.0f}",
        f"{row.p50_us / 1000:,.1f}",
        f"{row.p99_us / 1000:,.1f}",
        f"{row.cpu_us:.1f}",
        f"{row.rss_mib:.0f}",
        f"{row.spread:.0%}" if many else "–",
        ratio,
        "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}",
        "" if row.ratio is None else f"≥ {GOAL:g} {'reached' if row.reached else 'NOT reached'}",
    ]


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    progress = Console(stderr=True)
    environment = reporting.environment()
    raise_file_limit()
    try:
        ours = versus.choose_candidates(options, ECHO, what="servers")
        samples = run_rounds(ours, options, progress)
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    rows = summarise([ECHO, *(broker.label for broker in ours)], samples)
    found = notes(rows)
    versus.show(YARDSTICK, None, [cells(row) for row in rows], found)
    if options.json:
        how = {
            **asdict(options.settings),
            "connections": options.connections,
            "workers": options.workers,
            "goal": GOAL,
        }
        results = [asdict(row) | {"reached": row.reached} for row in rows]
        versus.write_json(environment, how, ours, results, found, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
