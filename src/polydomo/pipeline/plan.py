"""Capacity planning: how many workers a service needs, by replaying its recorded jobs.

    found = plan(spark, lake.read(spark, "jobs"), target=0.2, percentile=0.95)
    found.recommended  # {"resize": 6, …}

The jobs that workers ran are replayed: when each could be dispatched, and how long it ran. The queue is first in, first
out, as the broker's is for jobs of one priority. Cached results are not work; lost attempts are, if their table is
given.

Capacity is usually sized for the peak. So a plan examines three windows of the same replay: all of it, the busiest 24
hours and the busiest hour; `window` says which one must meet the target. A trace shorter than a window is that window.

Each service is one Spark task, which brackets the smallest sufficient number: waits only become shorter with more
workers. With `workers` every number in that range is tried, each service × number in its own task.

Limits of a replay: clients that wait for a reply before the next request would send more if they were served sooner;
refused and abandoned jobs are missing; and a worker that runs several jobs at once is assumed to run each at the same
speed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
from pyspark.sql import functions as F

from polydomo.errors import ConfigError
from polydomo.pipeline import replay

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Completed share, from 0 to 1, and a description.
Progress = Callable[[float, str], None]

Window = Literal["all", "day", "hour"]
WINDOWS: Final[dict[str, float]] = {"all": np.inf, "day": 86_400.0, "hour": 3_600.0}

# Upper limit of the search.
MOST: Final = 100_000

_SCHEMA: Final = (
    "service string, workers int, window string, jobs bigint, load double, utilisation double, mean double, "
    "p50 double, p95 double, p99 double, asked double, longest double"
)


@dataclass(frozen=True)
class PlanRow:
    """Result for one service, number of workers and window. Times in seconds."""

    service: str
    workers: int
    window: str
    jobs: int
    load: float  # average number of busy workers
    utilisation: float  # load divided by the number of workers; from 1 on the queue only grows
    mean: float  # of waits, like the following
    p50: float
    p95: float
    p99: float
    asked: float  # the requested percentile
    longest: float
    ok: bool  # `asked` meets the target


@dataclass(frozen=True)
class Need:
    """Required workers of a service. `workers` is None if no number in the range was enough."""

    service: str
    workers: int | None
    seen: int | None  # workers that ran these jobs
    jobs: int
    wait: float | None  # the requested percentile with this number
    fewer: float | None  # the same with one worker less; None if not tried


@dataclass(frozen=True)
class Plan:
    """A capacity plan: its parameters, everything that was tried, and the required workers."""

    target: float
    percentile: float
    window: str
    load: float
    speed: float
    credit: int
    rows: tuple[PlanRow, ...]
    needs: tuple[Need, ...] = field(default=())

    @property
    def recommended(self) -> dict[str, int | None]:
        """Return the smallest number of workers that meets the target, by service."""
        return {need.service: need.workers for need in self.needs}

    def frame(self) -> pd.DataFrame:
        """Return all results, a row per service, number of workers and window."""
        return pd.DataFrame([asdict(row) for row in self.rows], columns=list(PlanRow.__dataclass_fields__))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found


def plan(
    spark: SparkSession,
    jobs: DataFrame,
    service: str | None = None,
    target: float = 0.2,
    percentile: float = 0.95,
    load: float = 1.0,
    speed: float = 1.0,
    workers: range | None = None,
    *,
    window: Window = "hour",
    credit: int = 1,
    attempts: DataFrame | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Find the number of workers that keeps the percentile of waits within `target` seconds.

    - `jobs`: silver's `jobs`, the ledger's, or any frame with `service`, `queued` or `submitted`, and `run_s`.
    - `service`: only this one.
    - `load`: what if there were this many times the jobs (see replay.loaded). `speed`: what if workers were this many
      times as fast.
    - `workers`: try all these numbers instead of searching for the smallest sufficient one.
    - `window`: the part of the time that must meet the target: `all`, the busiest `day`, or the busiest `hour`.
    - `credit`: jobs that a worker runs at once.
    - `attempts`: silver's `attempts` or the ledger's: lost attempts also kept a worker busy.
    """
    _check(target, percentile, load, speed, workers, window, credit)
    tell = progress or (lambda _share, _text: None)
    tell(0.0, "reading jobs")
    traces = _traces(jobs, service, attempts)
    seen = _seen(jobs, service)
    job = _Task(target, percentile, load, speed, window, credit)
    if workers is None:
        found = traces.groupBy("service").applyInPandas(lambda rows: job.search(rows), _SCHEMA)
    else:
        numbers = F.explode(F.array(*(F.lit(number) for number in workers))).alias("workers")
        found = (
            traces.select("*", numbers)
            .groupBy("service", "workers")
            .applyInPandas(lambda rows: job.one(rows), _SCHEMA)
        )
    rows = sorted(
        (PlanRow(**row.asDict(), ok=row["asked"] <= target) for row in found.collect()),
        key=lambda row: (row.service, row.workers, list(WINDOWS).index(row.window)),
    )
    tell(1.0, f"{len({row.service for row in rows})} services planned")
    if service is not None and not rows:
        raise ConfigError(
            f"no worker has run a job of the service {service!r} yet",
            hint="list the services with 'polydomo spark sql'",
        )
    return Plan(
        target, percentile, window, load, speed, credit, tuple(rows), tuple(_needs(rows, window, seen))
    )


class _Task:
    """The replay of one service, run in a Spark task."""

    def __init__(
        self, target: float, percentile: float, load: float, speed: float, window: str, credit: int
    ) -> None:
        self.target = target
        self.percentile = percentile
        self.load = load
        self.speed = speed
        self.window = window
        self.credit = credit

    def search(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """Double the number until it is sufficient, then bisect. The last two tried are neighbours, so that one worker
        fewer is always among the rows."""
        trace = self._trace(jobs)
        stretches = _stretches(trace)
        low = max(1, int(replay.load_within(trace, *stretches[self.window]) / self.credit))
        tried: dict[int, list[tuple[Any, ...]]] = {}

        def enough(workers: int) -> bool:
            if workers not in tried:
                tried[workers] = self._measure(trace, stretches, workers)
            return any(row[1] == self.window and row[-2] <= self.target for row in tried[workers])

        # The load is only a starting point: a lenient target needs fewer workers.
        while low > 1 and enough(low):
            low //= 2
        high = low
        while not enough(high) and high < MOST:
            low, high = high, min(high * 2, MOST)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        for neighbour in (high - 1, high + 1):
            if neighbour >= 1:
                enough(neighbour)
        name = str(jobs["service"].iloc[0])
        return _frame(name, tried)

    def one(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """Replay with the number of workers given in the rows."""
        trace = self._trace(jobs)
        workers = int(jobs["workers"].iloc[0])
        tried = {workers: self._measure(trace, _stretches(trace), workers)}
        return _frame(str(jobs["service"].iloc[0]), tried)

    def _trace(self, jobs: pd.DataFrame) -> replay.Trace:
        arrivals = (jobs["came_us"].to_numpy() - jobs["came_us"].min()) / 1e6
        made = replay.trace(arrivals, jobs["run_s"].to_numpy() / self.speed, jobs["counted"].to_numpy())
        return replay.loaded(made, self.load)

    def _measure(
        self, trace: replay.Trace, stretches: dict[str, tuple[float, float]], workers: int
    ) -> list[tuple[Any, ...]]:
        """Return a row per window, without the service's name."""
        waits = replay.waits(trace.arrivals, trace.seconds, workers * self.credit)
        found: list[tuple[Any, ...]] = []
        for window, (begin, end) in stretches.items():
            inside = (trace.arrivals >= begin) & (trace.arrivals < end) & trace.counted
            some = waits[inside]
            if not len(some):
                continue
            load = replay.load_within(trace, begin, end)
            p50, p95, p99, asked = np.quantile(some, [0.5, 0.95, 0.99, self.percentile])
            figures = (load, load / (workers * self.credit), some.mean(), p50, p95, p99, asked, some.max())
            found.append((workers, window, len(some), *map(float, figures)))
        return found


def _stretches(trace: replay.Trace) -> dict[str, tuple[float, float]]:
    return {name: replay.busiest(trace, length) for name, length in WINDOWS.items()}


def _frame(service: str, tried: dict[int, list[tuple[Any, ...]]]) -> pd.DataFrame:
    columns = [part.split()[0] for part in _SCHEMA.split(", ")]
    rows = [(service, *row) for _, some in sorted(tried.items()) for row in some]
    return pd.DataFrame(rows, columns=columns)


def _traces(jobs: DataFrame, service: str | None, attempts: DataFrame | None) -> DataFrame:
    """Return service, came_us, run_s, counted for all the work of the workers."""
    came = F.coalesce(*(F.col(name) for name in ("queued", "submitted") if name in jobs.columns))
    if service is not None:
        jobs = jobs.where(F.col("service") == service)
    if "memo_hit" in jobs.columns:
        jobs = jobs.where(~F.col("memo_hit"))
    if "worker" in jobs.columns:
        jobs = jobs.where(F.col("worker").isNotNull())
    found = jobs.select(
        "service",
        F.unix_micros(came).alias("came_us"),
        _run(jobs).alias("run_s"),
        F.lit(True).alias("counted"),
    )
    if attempts is not None:
        if service is not None:
            attempts = attempts.where(F.col("service") == service)
        if "lost" in attempts.columns:
            attempts = attempts.where(F.col("lost"))
        found = found.unionByName(
            attempts.select(
                "service",
                F.unix_micros("dispatched").alias("came_us"),
                _run(attempts).alias("run_s"),
                F.lit(False).alias("counted"),
            )
        )
    return found.where(F.col("came_us").isNotNull() & F.col("run_s").isNotNull())


def _run(rows: DataFrame) -> Column:
    """Return the run time in seconds, from whichever of the two columns exists."""
    if "run_s" in rows.columns:
        return F.col("run_s").cast("double")
    if "ran_us" in rows.columns:
        return F.col("ran_us") / 1e6
    raise ConfigError(
        f"these rows have no run times: {', '.join(rows.columns)}", hint="a column run_s (seconds) is needed"
    )


def _seen(jobs: DataFrame, service: str | None) -> dict[str, int]:
    """Return the number of workers by service; empty if the rows do not have it."""
    if "worker" not in jobs.columns:
        return {}
    some = jobs if service is None else jobs.where(F.col("service") == service)
    counted = some.groupBy("service").agg(F.approx_count_distinct("worker", 0.01).alias("workers"))
    return {row["service"]: int(row["workers"]) for row in counted.collect()}


def _needs(rows: Iterable[PlanRow], window: str, seen: dict[str, int]) -> Iterator[Need]:
    by_service: dict[str, dict[int, PlanRow]] = {}
    for row in rows:
        if row.window == window:
            by_service.setdefault(row.service, {})[row.workers] = row
    for service, tried in sorted(by_service.items()):
        best = min((number for number, row in tried.items() if row.ok), default=None)
        less = tried.get(best - 1) if best is not None else None
        yield Need(
            service=service,
            workers=best,
            seen=seen.get(service),
            jobs=next(iter(tried.values())).jobs,
            wait=tried[best].asked if best is not None else None,
            fewer=less.asked if less is not None else None,
        )


def _check(
    target: float,
    percentile: float,
    load: float,
    speed: float,
    workers: range | None,
    window: str,
    credit: int,
) -> None:
    """Raise ConfigError for invalid parameters."""
    if target < 0:
        raise ConfigError(f"target is {target}", hint="give 0 or more seconds")
    if not 0 < percentile < 1:
        raise ConfigError(f"percentile is {percentile}", hint="give a share between 0 and 1: 0.95 for p95")
    for name, value in (("load", load), ("speed", speed)):
        if not 0 < value < np.inf:
            raise ConfigError(f"{name} is {value}", hint="2 is twice as much, 0.5 is half")
    if window not in WINDOWS:
        raise ConfigError(f"there is no window {window!r}", hint=f"one of {', '.join(WINDOWS)}")
    if credit < 1:
        raise ConfigError(f"credit is {credit}", hint="give 1 or more jobs per worker")
    if workers is not None and (not len(workers) or min(workers) < 1):
        raise ConfigError(f"{workers} has no valid number of workers", hint="for example range(1, 11)")
