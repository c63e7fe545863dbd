"""A simulated broker's world: its services, their load over time, their outages. Plain numpy, deterministic per seed.

Time is cut into slots of some minutes. Each slot and service has a cell: how many jobs arrive, how long they wait, what
is wrong. The load follows the hour (offices by day, batches by night, machines always), the weekday, noise, and bursts.
Waits follow from the load by two approximations: work beyond the capacity is a backlog that is worked off later (a
fluid queue), and below that jobs wait as in a queue with that many servers (Sakasegawa's approximation of M/G/c). A
queue is bounded: jobs that do not fit are refused.

Spark computes the rows from the cells (synth_rows.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# A Monday, so that weeks are whole.
START: Final = date(2026, 1, 5)
DAY: Final = 86_400
RUN_DAYS: Final = 7  # days between restarts of the broker
QUEUE_SECONDS: Final = 300.0  # maximum work in a queue

# Kinds of outages.
FAILING: Final = 1  # its code raises
LOST: Final = 2  # its workers disconnect, and half of them stay away
SLOW: Final = 3  # everything takes longer
WRONG: Final = {FAILING: "failing", LOST: "lost", SLOW: "slow"}
SLOWER: Final = 6.0

_WORDS: Final = [
    "resize",
    "geocode",
    "render",
    "translate",
    "score",
    "thumbnail",
    "invoice",
    "search",
    "embed",
    "convert",
    "route",
    "price",
    "ocr",
    "validate",
    "notify",
    "forecast",
    "transcode",
    "match",
    "index",
    "quote",
    "archive",
    "crawl",
    "parse",
    "enrich",
]
_DIALECTS_OUT: Final = ("mdp", "mdp", "mdp", "dcp", "nfp", "nfp", "memo")


class SyntheticService(NamedTuple):
    """A service and its parameters. Times are seconds."""

    name: str
    share: float  # of all jobs
    median: float  # of its run times, most of which are lognormal
    sigma: float
    tail: float  # this share of them is Pareto instead, from five medians on
    alpha: float
    workers: int
    dialect: str  # of its workers
    durable: bool  # for all clients
    memo: float  # share of cached results
    errors: float  # share of failures in normal operation
    bytes_in: float
    bytes_out: float

    @property
    def mean(self) -> float:
        """Return the mean run time."""
        usual = self.median * float(np.exp(self.sigma**2 / 2))
        return (1 - self.tail) * usual + self.tail * 5 * self.median * self.alpha / (self.alpha - 1)


class Outage(NamedTuple):
    """An outage from slot `begin` to `end`, exclusive."""

    service: int
    begin: int
    end: int
    wrong: int


@dataclass(frozen=True)
class Cells:
    """Columns of the same length, ordered by slot, then by service. Only cells with jobs are here."""

    first: Ints  # the number of its first job
    count: Ints
    slot: Ints
    service: Ints
    backlog: Floats  # seconds that every job waits
    chance: Floats  # probability of a wait beyond that
    wait: Floats  # how long then, on average
    refused: Floats  # share
    wrong: Ints


@dataclass(frozen=True)
class World:
    """Everything that is simulated: services, outages and cells."""

    seed: int
    start: datetime
    days: int
    slot_seconds: int
    services: tuple[SyntheticService, ...]
    clients: int
    outages: tuple[Outage, ...]
    cells: Cells

    def at(self, slot: int) -> datetime:
        """Return the start of a slot."""
        return self.start + timedelta(seconds=slot * self.slot_seconds)

    def run(self, slot: int) -> str:
        """Return the name of the broker's run at that slot."""
        return run_name(self.seed, slot * self.slot_seconds // (RUN_DAYS * DAY))


def run_name(seed: int, number: int) -> str:
    """Return the name of the broker's run with this number."""
    return f"synth{seed % 2**32:x}r{number:03d}"


def imagine(jobs: int, seed: int, days: int, services: int, clients: int, start: date = START) -> World:
    """Create a world with exactly this number of jobs."""
    # The legacy generator, because numpy guarantees its sequence across releases.
    random = np.random.RandomState(seed % 2**32)
    slot_seconds = _slot_seconds(days, services)
    slots = days * DAY // slot_seconds
    shapes = _load(random, slots, slot_seconds, services, start)
    counts = _exactly(jobs, shapes)
    natures = _services(random, services, counts, slot_seconds)
    outages = _outages(random, slots, slot_seconds, services)
    cells = _cells(counts, natures, outages, slot_seconds)
    begin = datetime(start.year, start.month, start.day, tzinfo=UTC)
    return World(seed, begin, days, slot_seconds, natures, clients, outages, cells)


def _slot_seconds(days: int, services: int) -> int:
    """Return the finest slot length with at most half a million cells."""
    return next(
        (size for size in (60, 120, 300, 600, 1200) if days * DAY // size * services <= 500_000), 3600
    )


def _load(random: np.random.RandomState, slots: int, slot_seconds: int, services: int, start: date) -> Floats:
    """Return the relative load of each service in each slot (rows: slots)."""
    seconds = np.arange(slots) * slot_seconds
    hour = seconds[:, None] % DAY / 3600
    weekend = ((seconds // DAY + start.weekday()) % 7 >= 5)[:, None]
    share = 1 / np.arange(1, services + 1) ** 0.9
    kind = random.choice(3, services, p=(0.6, 0.2, 0.2))  # offices, batches by night, machines
    kind[0] = 0
    peak = np.where(kind == 1, random.uniform(0, 4, services), random.uniform(10, 15, services))
    width = np.where(kind == 1, 1.5, random.uniform(3, 4.5, services))
    floor = np.where(kind == 2, 1.0, random.uniform(0.05, 0.2, services))
    away = (hour - peak + 12) % 24 - 12
    daily = floor + (kind != 2) * np.exp(-((away / width) ** 2) / 2)
    weekly = np.where(weekend, np.where(kind == 0, random.uniform(0.1, 0.5, services), 1.0), 1.0)
    noise = np.exp(0.15 * random.standard_normal((slots, services)))
    found = share * (daily / daily.mean(axis=0)) * weekly * noise
    for _ in range(max(3, round(slots * slot_seconds / DAY * services / 8))):
        service, begin = random.randint(services), random.randint(slots)
        length = max(1, round(random.uniform(60, 1200) / slot_seconds))
        found[begin : begin + length, service] *= random.uniform(2, 6)
    return np.asarray(found, dtype=np.float64)


def _exactly(jobs: int, shapes: Floats) -> Ints:
    """Return integers in these proportions with the sum `jobs`: each rounding error is carried to the next cell."""
    running = np.cumsum(shapes.ravel())
    edges = np.floor(running / running[-1] * jobs + 0.5).astype(np.int64)
    counts: Ints = np.diff(edges, prepend=np.int64(0)).reshape(shapes.shape)
    return counts


def _services(
    random: np.random.RandomState, number: int, counts: Ints, slot_seconds: int
) -> tuple[SyntheticService, ...]:
    total = max(int(counts.sum()), 1)
    # Enough workers for nearly every slot, smoothed over a quarter of an hour so that bursts do not count.
    width = max(1, 900 // slot_seconds)
    cut = counts[: len(counts) // width * width].reshape(-1, width, number).sum(axis=1)
    busy = np.percentile(cut, 99, axis=0) / (width * slot_seconds)
    found = []
    for index in range(number):
        word = _WORDS[index % len(_WORDS)]
        made = SyntheticService(
            name=word if index < len(_WORDS) else f"{word}-{index // len(_WORDS) + 1}",
            share=float(counts[:, index].sum()) / total,
            median=1.0,
            sigma=float(random.uniform(0.25, 1.0)),
            tail=float(random.choice([0.0, 0.01, 0.03])),
            alpha=float(random.uniform(1.6, 2.6)),
            workers=0,
            dialect=_DIALECTS_OUT[random.randint(len(_DIALECTS_OUT))],
            durable=bool(random.random_sample() < 0.25),
            memo=float(random.choice([0.0, 0.0, 0.0, 0.15, 0.4])),
            errors=float(np.exp(random.uniform(np.log(0.0005), np.log(0.01)))),
            bytes_in=float(np.exp(random.uniform(np.log(60), np.log(20_000)))),
            bytes_out=float(np.exp(random.uniform(np.log(60), np.log(100_000)))),
        )
        # Run times that keep some workers busy, up to a limit per service; then the number of workers that requires.
        rate = max(float(busy[index]) * (1 - made.memo), 1e-9)
        median = random.randint(1, 12) * 0.8 / rate / made.mean
        made = made._replace(
            median=float(np.clip(median, 0.004, np.exp(random.uniform(np.log(0.02), np.log(2.0)))))
        )
        found.append(made._replace(workers=max(1, int(np.ceil(rate * made.mean / 0.8 - 0.001)))))
    return tuple(found)


def _outages(
    random: np.random.RandomState, slots: int, slot_seconds: int, services: int
) -> tuple[Outage, ...]:
    """Create outages, at least one of each kind, mostly of busy services; outages of one service do not overlap."""
    days = slots * slot_seconds / DAY
    number = max(3, round(days * services * 0.02))
    found: list[Outage] = []
    for index in range(number):
        service = min(int(services ** random.random_sample()) - 1 + index % min(3, services), services - 1)
        # In working hours.
        day = random.randint(max(1, int(days)))
        begin = int((day * DAY + random.uniform(9, 17) * 3600) // slot_seconds) % slots
        length = max(1, round(random.uniform(1200, 5400) / slot_seconds))
        end = min(begin + length, slots)
        if all(o.service != service or end <= o.begin or o.end <= begin for o in found):
            found.append(Outage(service, begin, end, index % len(WRONG) + 1))
    return tuple(sorted(found, key=lambda outage: outage.begin))


def _cells(
    counts: Ints, natures: tuple[SyntheticService, ...], outages: tuple[Outage, ...], slot_seconds: int
) -> Cells:
    wrong = np.zeros(counts.shape, dtype=np.int64)
    for outage in outages:
        wrong[outage.begin : outage.end, outage.service] = outage.wrong
    mean = np.array([nature.mean for nature in natures])
    asked = np.array([1 - nature.memo for nature in natures])
    variation = np.array([np.exp(nature.sigma**2) - 1 + 4 * nature.tail for nature in natures])
    workers = np.array([nature.workers for nature in natures], dtype=np.float64)
    servers = np.where(wrong == LOST, np.maximum(1, np.floor(workers / 2)), workers)
    each = np.where(wrong == SLOW, mean * SLOWER, mean)
    work = counts * asked * each  # seconds of work that arrive in a slot
    load = work / (servers * slot_seconds)

    backlog = np.zeros(counts.shape)
    refused = np.zeros(counts.shape)
    left = np.zeros(len(natures))
    for slot in range(len(counts)):
        room = servers[slot] * QUEUE_SECONDS
        left = np.maximum(0.0, left + work[slot] - servers[slot] * slot_seconds)
        over = np.maximum(0.0, left - room)
        left -= over
        backlog[slot] = left / servers[slot]
        refused[slot] = over / np.maximum(work[slot], 1e-9)

    calm = np.minimum(load, 0.97)
    chance = calm ** (np.sqrt(2 * (servers + 1)) - 1)
    wait = each * (1 + variation) / 2 / (servers * (1 - calm))
    flat: dict[str, Any] = {
        "first": np.cumsum(counts.ravel()) - counts.ravel(),
        "count": counts.ravel(),
        "slot": np.repeat(np.arange(counts.shape[0], dtype=np.int64), counts.shape[1]),
        "service": np.tile(np.arange(counts.shape[1], dtype=np.int64), counts.shape[0]),
        "backlog": backlog.ravel(),
        "chance": chance.ravel(),
        "wait": wait.ravel(),
        "refused": np.minimum(refused, 1.0).ravel(),
        "wrong": wrong.ravel(),
    }
    some = flat["count"] > 0
    return Cells(**{name: column[some] for name, column in flat.items()})
