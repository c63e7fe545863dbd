"""Synthetic ledgers for benchmarks, demonstrations and tests.

    synth(spark, "ledger", jobs=10_000_000, seed=7)

writes all three tables as a broker would: segments that each cover a span of time and appear whole. The contents are
realistic without modelling a particular broker: days and weeks, bursts, long tails, queues that follow the load,
outages with retries and dead letters, five protocols, cached results, a few clients with most of the requests. The same
arguments give the same rows and files, on any number of cores.

synth_world.py decides what happens, synth_rows.py computes the rows; here they are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from pyspark.sql import functions as F

from polydomo.errors import ConfigError
from polydomo.ledger import schema
from polydomo.pipeline import files, synth_rows
from polydomo.pipeline.schemas import spark_schema
from polydomo.pipeline.synth_world import LOST, RUN_DAYS, START, WRONG, World, imagine, run_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Table, number of rows written, total number.
Progress = Callable[[str, int, int], None]

ROWS: Final = 250_000  # per segment: the maximum of a broker
BATCH: Final = 1_250_000  # jobs written by one Spark command; progress is reported after each

# Spark compiles a chain of expressions to one method, and Java does not compile methods as long as ours: several times
# slower than without.
_SETTING: Final = "spark.sql.codegen.wholeStage"
_PART: Final = re.compile(r"part-(\d+)-.*\.parquet")


@dataclass(frozen=True)
class Synthetic:
    """Description of a written ledger."""

    folder: str
    seed: int
    jobs: int
    attempts: int
    events: int
    segments: int
    begin: datetime
    end: datetime
    services: tuple[str, ...]
    clients: int
    outages: tuple[tuple[str, datetime, datetime, str], ...]  # service, from, until, what is wrong

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain JSON values."""
        return {
            "folder": self.folder,
            "seed": self.seed,
            "jobs": self.jobs,
            "attempts": self.attempts,
            "events": self.events,
            "segments": self.segments,
            "begin": self.begin.isoformat(),
            "end": self.end.isoformat(),
            "services": list(self.services),
            "clients": self.clients,
            "outages": [
                {"service": service, "begin": begin.isoformat(), "end": end.isoformat(), "wrong": wrong}
                for service, begin, end, wrong in self.outages
            ],
        }


def synth(
    spark: SparkSession,
    folder: str | Path,
    jobs: int = 10_000_000,
    seed: int = 0,
    days: int = 30,
    services: int = 24,
    clients: int = 200,
    *,
    start: date = START,
    rows: int = ROWS,
    progress: Progress | None = None,
) -> Synthetic:
    """Write a ledger to `folder`, a path or a URL that Spark can write to. `rows`: per segment, approximately."""
    numbers = {"jobs": jobs, "days": days, "services": services, "clients": clients, "rows": rows}
    for name, value in numbers.items():
        if value < 1:
            raise ConfigError(f"{name} is {value}", hint="must be 1 or more")
    tell = progress or (lambda _what, _done, _of: None)
    tell("jobs", 0, jobs)
    world = imagine(jobs, seed, days, services, clients, start)
    cells = _cells(world, rows)
    place = files.url(str(folder))
    segments = lost = 0
    last = int(cells["file"].max()) + 1
    each = max(1, BATCH // rows)
    with _in_pieces(spark):
        for low in range(0, last, each):
            high = min(low + each, last)
            some = cells[(cells["file"] >= low) & (cells["file"] < high)]
            frame = _frame(spark, some, world, low, high)
            names = [
                f"{world.at(int(slot)):%Y%m%dT%H%M%SZ}-{world.run(int(slot))}-{low + index + 1:06d}"
                for index, slot in enumerate(some.groupby("file")["slot"].min())
            ]
            segments += _write(spark, synth_rows.jobs(frame, world), place, "jobs", names)
            segments += _write(spark, synth_rows.attempts(frame, world), place, "attempts", names)
            tell("jobs", int(some["count"].sum() + some["first"].min()), jobs)
        events = _events(world)
        table = spark.createDataFrame(events, spark_schema(schema.EVENTS)).coalesce(1)
        name = f"{world.start:%Y%m%dT%H%M%SZ}-{run_name(seed, 0)}-{last + 1:06d}"
        segments += _write(spark, table, place, "events", [name])
        lost = spark.read.schema(spark_schema(schema.ATTEMPTS)).parquet(f"{place}/attempts").count()
    outages = [
        (world.services[o.service].name, world.at(o.begin), world.at(o.end), WRONG[o.wrong])
        for o in world.outages
    ]
    return Synthetic(
        folder=str(folder),
        seed=seed,
        jobs=jobs,
        attempts=lost,
        events=len(events),
        segments=segments,
        begin=world.start,
        end=world.start + timedelta(days=days),
        services=tuple(service.name for service in world.services),
        clients=clients,
        outages=tuple(outages),
    )


def _cells(world: World, rows: int) -> pd.DataFrame:
    """Return the cells with the number of the file that each belongs to."""
    cells = world.cells
    found = pd.DataFrame({name: getattr(cells, name) for name in cells.__dataclass_fields__})
    found.insert(0, "file", pd.factorize(cells.first // rows)[0])
    return found.astype({"file": "int32", "service": "int32", "wrong": "int32"})


def _frame(spark: SparkSession, cells: pd.DataFrame, world: World, low: int, high: int) -> DataFrame:
    """Return the cells joined with their services' parameters; one partition per file."""
    numbers = spark.range(low, high, 1, high - low).select(F.col("id").cast("int").alias("file"))
    return (
        numbers.join(F.broadcast(spark.createDataFrame(cells)), "file")
        .join(F.broadcast(spark.createDataFrame(synth_rows.nature(world))), "service")
        .drop("file")
    )


def _write(spark: SparkSession, rows: DataFrame, place: str, table: str, names: list[str]) -> int:
    """Write one segment per partition: to a hidden folder first, then renamed."""
    aside = f"{place}/.synth-{table}"
    rows.write.mode("overwrite").option("compression", "zstd").parquet(aside)
    number = 0
    for found in files.listing(spark, aside):
        part = _PART.fullmatch(found.path.rpartition("/")[2])
        if part:
            _rename(spark, found.path, f"{place}/{table}", f"{table}-{names[int(part[1])]}.parquet")
            number += 1
    files.remove(spark, aside)
    return number


def _rename(spark: SparkSession, path: str, folder: str, name: str) -> None:
    if files.is_local(path):
        files.local(folder).mkdir(parents=True, exist_ok=True)
        files.local(path).replace(files.local(f"{folder}/{name}"))
        return
    jvm: Any = spark._jvm
    jsc: Any = spark.sparkContext._jsc
    there = jvm.org.apache.hadoop.fs.Path(f"{folder}/{name}")
    system = there.getFileSystem(jsc.hadoopConfiguration())
    system.mkdirs(there.getParent())
    system.delete(there, False)
    system.rename(jvm.org.apache.hadoop.fs.Path(path), there)


@contextmanager
def _in_pieces(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_SETTING, "true")
    spark.conf.set(_SETTING, "false")
    try:
        yield
    finally:
        spark.conf.set(_SETTING, before or "true")


def _events(world: World) -> list[tuple[Any, ...]]:
    """Return the events: the broker starts and stops, workers and clients join and leave."""
    found: list[tuple[datetime, str, str, str | None, str | None, str | None, str | None]] = []
    moment = timedelta(seconds=2)
    begin = world.start
    end = world.start + timedelta(days=world.days)
    while begin < end:
        stop = min(begin + timedelta(days=RUN_DAYS), end)
        found.append((begin, "started", "broker", None, None, None, None))
        found.append((stop - moment, "stopped", "broker", None, None, None, None))
        for service in world.services:
            for number in range(service.workers):
                who = ("worker", f"{service.name}-{number}", service.name, service.dialect)
                found.append((begin + moment, "joined", *who, None))
                found.append((stop - 2 * moment, "left", *who, "the broker stops"))
        begin = stop
    for outage in world.outages:
        service = world.services[outage.service]
        if outage.wrong == LOST:
            for number in range(service.workers - max(1, service.workers // 2)):
                who = ("worker", f"{service.name}-{number}", service.name, service.dialect)
                found.append((world.at(outage.begin), "expired", *who, "no sign of life"))
                found.append((world.at(outage.end), "joined", *who, None))
    for day in range(world.days):
        for client in range(0, world.clients, 3):
            # A time of day that depends on the client and varies by day.
            come = world.start + timedelta(days=day, seconds=21_600 + (client * 7919 + day * 613) % 14_400)
            visitor = ("client", f"client-{client + 1000}", None, None)
            kind = "denied" if (client + day) % 97 == 0 else "joined"
            found.append((come, kind, *visitor, "not on the list" if kind == "denied" else None))
            if kind == "joined":
                found.append((come + timedelta(hours=8), "left", *visitor, None))
    found.sort(key=lambda event: event[0])
    rows = []
    for number, (at, *rest) in enumerate(found):
        run = run_name(world.seed, (at - world.start).days // RUN_DAYS)
        rows.append((f"{run}-e{number}", at, *rest, synth_rows.BROKER, run))
    return rows
