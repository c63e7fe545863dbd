"""Shapes, samples and their summaries. Pure: no process, no clock.

A run consists of rounds; in each round every broker meets every shape once, so that all of them see the same
load on the machine. Ratios are therefore taken within a round, and the median of the rounds' ratios is
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, TypedDict

YARDSTICK = "yardstick"
GENERATOR_LIMIT = 0.9  # above this share of one core the generator may have been the limit
GENERATOR_IS_LIMIT = "the generator used {busy} of a core; req/s may be its limit (CPU per request holds)"


@dataclass(frozen=True)
class Shape:
    """A load: how many peers of which kind, and how many requests each client keeps in flight."""

    name: str
    clients: int
    workers: int
    window: int
    idle_workers: int = 0
    idle_clients: int = 0
    idle_share_service: bool = False  # all idle workers on one service instead of one each
    base: str | None = None  # the shape this one is compared with

    @property
    def text(self) -> str:
        parts = [
            f"{self.clients} client{'s' * (self.clients > 1)} with {self.window:,} in flight",
            f"{self.workers} worker{'s' * (self.workers > 1)}",
        ]
        if self.idle_workers:
            where = "on one other service" if self.idle_share_service else "on a service each"
            parts.append(f"{self.idle_workers:,} idle workers {where}")
        if self.idle_clients:
            parts.append(f"{self.idle_clients:,} idle clients")
        return ", ".join(parts)


SHAPES = (
    Shape("lockstep", clients=1, workers=1, window=1),
    Shape("pipelined", clients=1, workers=16, window=1000),
    Shape("many", clients=8, workers=16, window=128),
)


def scale_shapes(idle: int) -> tuple[Shape, ...]:
    """Return `many` with idle peers and services, which should cost next to nothing."""
    many = replace(SHAPES[-1], base=SHAPES[-1].name)
    return (
        replace(many, name="idle-peers", idle_workers=idle, idle_clients=idle, idle_share_service=True),
        replace(many, name="idle-services", idle_workers=idle),
    )


@dataclass(frozen=True)
class Sample:
    """One broker under one shape in one round."""

    rps: float
    p50_us: float
    p99_us: float
    cpu_us: float  # the broker's CPU time per request
    rss_mib: float
    generator_busy: float  # the load generator's share of one core
    disconnects: int = 0  # workers that the broker disconnected
    unannounced: int = 0  # NFP: jobs whose 200 arrived without their 202


@dataclass(frozen=True)
class Ratio:
    """Requests/s and CPU per request, each divided by those of a reference in the same round."""

    rps: float
    cpu: float


@dataclass(frozen=True)
class Summary:
    """The medians of one broker under one shape."""

    broker: str
    shape: str
    rps: float
    p50_us: float
    p99_us: float
    cpu_us: float
    rss_mib: float
    generator_busy: float
    disconnects: int
    spread: float  # (fastest - slowest round) / median, of requests/s
    versus_yardstick: Ratio | None
    versus_base: Ratio | None
    rounds: tuple[Sample, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


Samples = Mapping[tuple[str, str], Sequence[Sample]]  # (broker, shape) → one sample per round


def divide(a: float, b: float) -> float:
    return a / b if b else 0.0


def ratio_of(samples: Sequence[Sample], others: Sequence[Sample]) -> Ratio:
    """Return the median of the rounds' ratios: load on the machine affects both sides of each."""
    pairs = list(zip(samples, others, strict=True))
    return Ratio(
        rps=median(divide(mine.rps, other.rps) for mine, other in pairs),
        cpu=median(divide(mine.cpu_us, other.cpu_us) for mine, other in pairs),
    )


class Medians(TypedDict):
    rps: float
    p50_us: float
    p99_us: float
    cpu_us: float
    rss_mib: float
    spread: float  # (fastest - slowest round) / median, of requests/s
    generator_busy: float


def medians(samples: Sequence[Sample]) -> Medians:
    rates = [sample.rps for sample in samples]
    return Medians(
        rps=median(rates),
        p50_us=median(sample.p50_us for sample in samples),
        p99_us=median(sample.p99_us for sample in samples),
        cpu_us=median(sample.cpu_us for sample in samples),
        rss_mib=median(sample.rss_mib for sample in samples),
        spread=divide(max(rates) - min(rates), median(rates)),
        generator_busy=median(sample.generator_busy for sample in samples),
    )


def summarise_one(broker: str, shape: Shape, samples: Samples) -> Summary:
    own = samples[broker, shape.name]
    yardstick = samples.get((YARDSTICK, shape.name)) if broker != YARDSTICK else None
    base = samples.get((broker, shape.base)) if shape.base else None
    return Summary(
        broker=broker,
        shape=shape.name,
        **medians(own),
        disconnects=sum(sample.disconnects for sample in own),
        versus_yardstick=ratio_of(own, yardstick) if yardstick else None,
        versus_base=ratio_of(own, base) if base else None,
        rounds=tuple(own),
    )


def summarise(brokers: Iterable[str], shapes: Iterable[Shape], samples: Samples) -> list[Summary]:
    """Return one summary per shape and broker, grouped by shape."""
    labels = list(brokers)
    return [summarise_one(broker, shape, samples) for shape in shapes for broker in labels]


def notes(summaries: Iterable[Summary]) -> list[str]:
    """Return caveats about the numbers."""
    found = []
    for summary in summaries:
        found += doubts(f"{summary.broker}, {summary.shape}", summary.generator_busy, summary.disconnects)
    return found


def doubts(where: str, generator_busy: float, disconnects: int, limit: str = GENERATOR_IS_LIMIT) -> list[str]:
    """Return caveats. `limit`: text for a busy load generator; {busy} is its share of a core."""
    found = []
    if generator_busy > GENERATOR_LIMIT:
        found.append(f"{where}: {limit.format(busy=f'{generator_busy:.0%}')}")
    if disconnects:
        found.append(f"{where}: the broker disconnected workers {disconnects} times")
    return found
