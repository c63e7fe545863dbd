"""Cost of `service_minute` and accuracy of its percentiles: `python bench/aggregate.py`.

Spark generates rows of silver's `jobs`: services of very different size, evenly arriving jobs over a day (`--days`),
waits and run times with heavy tails. They are written once. Then, in one session and in alternation:

- *bare*: read them, count and sum, mean and maximum of three times and two sizes by service and minute, write these;
- *same*: read them, compute the table's counts and sums by service and minute in plain Spark, write the result: the
  table without its sketches and percentiles, and without spreading waits over the minutes they cover;
- *percentiles*: bare, and Spark's own `percentile_approx` of the three times: answers the same questions, but cannot be
  merged to hours and days;
- *sketches*: read them, build three sketches by service and minute with Spark, write only these;
- *unasked*: the table without its percentiles, which stay in its sketches until they are needed;
- *service_minute*: the table with all of its columns, including sketches and percentiles, from the files, as in a
  backfill.

Afterwards every p50, p90, p95 and p99 of every service and minute, and of the hours and the day merged from the
minutes' sketches, is compared with the rows themselves: the rank error must be at most 1 %.

Times are wall-clock times; the CPU time of Spark's process and its Python workers is reported as well, because it
depends less on other load.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.table import Table

from polydomo.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MEASURES = ("wait_s", "run_s", "total_s", "bytes_in", "bytes_out")
TIMES = ("wait", "run", "total")
FILE_ROWS = 500_000


OURS = "service_minute"


@dataclass
class Took:
    """Wall-clock time, and CPU time of Spark's process and its children."""

    wall_s: float
    cpu_s: float


@dataclass
class Speed:
    """Results. `rounds`: each measurement once, in order. `ratios`: our rate divided by each other one's, the median of
    the rounds' ratios. `cpu_ratios`: the same by CPU time."""

    rows: int
    groups: int
    rounds: list[dict[str, Took]]
    rows_per_second: float
    ratios: dict[str, float]
    cpu_ratios: dict[str, float]


@dataclass
class Accuracy:
    """The worst rank error over all services and times, by unit of time and percentile, as a share."""

    rows: int
    worst: dict[str, dict[str, float]]


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure service_minute against a bare aggregate.")
    add = parser.add_argument
    add("--rows", type=lambda text: int(text.replace("_", "")), default=10_000_000)
    add("--days", type=float, default=1.0, help="time covered by the rows (default 1)")
    add("--services", type=int, default=20)
    add("--seed", type=int, default=1)
    add("--rounds", type=int, default=3, help="measured rounds, after one for warm-up (default 3)")
    add("--no-accuracy", action="store_true", help="measure only the speed")
    add("--master", default="local[*]")
    add("--memory", default="4g", help="memory of the driver (default 4g)")
    add("--folder", help="folder for the rows (default: the system's temporary folder)")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


def make_jobs(
    spark: SparkSession, rows: int, days: float = 1.0, services: int = 20, seed: int = 1
) -> DataFrame:
    """Return silver's `jobs`, with all its columns, in the order of their ends."""
    from pyspark.sql import functions as F

    from polydomo.pipeline.tables.silver import JOBS

    start_us, span_us = 1_767_225_600_000_000, days * 86400e6
    dice = spark.range(0, rows, 1, max(2, rows // FILE_ROWS)).select(
        "id", *[F.rand(seed * 100 + n).alias(f"u{n}") for n in range(6)]
    )
    # Service 0 has a third of the jobs, the others decreasing shares. Tails like 1 / x^1.5.
    timed = dice.select(
        "*",
        F.least(F.floor(F.pow("u0", 3.0) * services), F.lit(services - 1)).alias("number"),
        (F.lit(start_us) + F.col("id") * F.lit(span_us / rows)).cast("bigint").alias("finished_us"),
        (F.lit(2_000) / F.pow(1 - F.col("u1"), 0.66)).cast("bigint").alias("wait_us"),
        (F.lit(10_000) / F.pow(1 - F.col("u2"), 0.66)).cast("bigint").alias("run_us"),
    )
    begun = F.col("finished_us") - F.col("wait_us") - F.col("run_us")
    given: dict[str, Column] = {
        "job_id": F.concat(F.lit("run-1-"), F.col("id")),
        "root": F.concat(F.lit("run-1-"), F.col("id")),
        "service": F.concat(F.lit("service-"), F.col("number")),
        "asked": F.concat(F.lit("service-"), F.col("number")),
        "dialect_in": F.lit("mdp"),
        "dialect_out": F.lit("mdp"),
        "client": F.concat(F.lit("client-"), F.floor(F.col("u3") * 200)),
        "worker": F.concat(F.lit("worker-"), F.floor(F.col("u4") * 100)),
        "broker": F.lit("bench"),
        "run": F.lit("run-1"),
        "target": F.lit("any"),
        "submitted": F.timestamp_micros(begun),
        "queued": F.timestamp_micros(begun),
        "dispatched": F.timestamp_micros(begun + F.col("wait_us")),
        "finished": F.timestamp_micros("finished_us"),
        "day": F.to_date(F.timestamp_micros("finished_us")),
        "outcome": F.when(F.col("u5") < 0.97, "done")
        .when(F.col("u5") < 0.99, "failed")
        .otherwise("cancelled"),
        "attempts": F.when(F.col("u4") < 0.02, 2).otherwise(1),
        "partials": F.lit(0),
        "bytes_in": F.floor(F.col("u3") * 10_000),
        "bytes_out": F.floor(F.col("u4") * 100_000),
        "durable": F.col("u3") < 0.3,
        "memo_hit": F.lit(False),
        "repeat": F.lit(False),
        "priority": F.lit(0),
        "wait_s": F.col("wait_us") / 1e6,
        "run_s": F.col("run_us") / 1e6,
        "total_s": (F.col("wait_us") + F.col("run_us")) / 1e6,
        "retries": F.when(F.col("u4") < 0.02, 1).otherwise(0),
    }
    return timed.select(
        *[given.get(column.name, F.lit(None)).cast(column.kind).alias(column.name) for column in JOBS.columns]
    )


def bare(jobs: DataFrame) -> DataFrame:
    """Aggregate in the simplest way."""
    from pyspark.sql import functions as F

    return jobs.groupBy("service", F.date_trunc("minute", "finished").alias("minute")).agg(*sums())


def same_columns(jobs: DataFrame) -> DataFrame:
    """Compute the table's counts and sums in plain Spark."""
    from pyspark.sql import functions as F

    from polydomo.ledger.schema import OUTCOMES

    return jobs.groupBy("service", F.date_trunc("minute", "finished").alias("minute")).agg(
        F.count("*").alias("jobs"),
        *[F.count_if(F.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES],
        F.sum(F.greatest(F.col("attempts") - 1, F.lit(0))).alias("retries"),
        F.count_if("memo_hit").alias("memo_hits"),
        *[F.sum(name).alias(name) for name in MEASURES],
        F.max("wait_s").alias("wait_max"),
    )


def with_percentiles(jobs: DataFrame) -> DataFrame:
    """Aggregate with Spark's percentiles, with the accuracy of ours (1 in 250 is 0.4 % in Spark's terms)."""
    from pyspark.sql import functions as F

    ranks = F.array(*[F.lit(rank) for rank in (0.5, 0.9, 0.95, 0.99)])
    return jobs.groupBy("service", F.date_trunc("minute", "finished").alias("minute")).agg(
        *sums(), *[F.percentile_approx(f"{name}_s", ranks, 250).alias(f"{name}_p") for name in TIMES]
    )


def only_sketches(jobs: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    from polydomo.pipeline.tables.sketches import K

    return jobs.groupBy("service", F.date_trunc("minute", "finished").alias("minute")).agg(
        *[
            F.kll_sketch_agg_float(F.col(f"{name}_s").cast("float"), F.lit(K)).alias(f"{name}_sketch")
            for name in TIMES
        ]
    )


def sums() -> list[Column]:
    from pyspark.sql import functions as F

    made = [
        make(name).alias(f"{name}_{make.__name__}") for name in MEASURES for make in (F.sum, F.avg, F.max)
    ]
    return [F.count("*").alias("jobs"), *made]


def measure(spark: SparkSession, folder: Path, options: argparse.Namespace) -> Speed:
    """Measure all of them in alternation. Each reads the same files and writes its own."""
    from polydomo.pipeline.edit import TableFile
    from polydomo.pipeline.scan import FileStore, scan
    from polydomo.pipeline.tables.service_minutes import COLUMNAR, merge
    from polydomo.pipeline.tables.silver import JOBS
    from polydomo.pipeline.tables.sketches import RANKS

    files = sorted((folder / "jobs").glob("*.parquet"))
    pieces = [TableFile(f"file://{path}", 0, path.stat().st_size, None, None) for path in files]

    def ours(_: DataFrame) -> DataFrame:
        return merge(scan(spark, FileStore({}), JOBS, pieces, COLUMNAR))

    percentiles = [f"{time}_{label}" for time in TIMES for label in RANKS]
    ways: dict[str, Callable[[DataFrame], DataFrame]] = {
        "bare": bare,
        "same": same_columns,
        "percentiles": with_percentiles,
        "sketches": only_sketches,
        "unasked": lambda jobs: ours(jobs).drop(*percentiles),
        OURS: ours,
    }

    def timed(what: str) -> Took:
        shutil.rmtree(folder / what, ignore_errors=True)
        began, used = time.perf_counter(), cpu_seconds(spark)
        ways[what](spark.read.parquet(str(folder / "jobs"))).write.parquet(str(folder / what))
        return Took(time.perf_counter() - began, cpu_seconds(spark) - used)

    rounds = [{what: timed(what) for what in ways} for _ in range(options.rounds + 1)][1:]
    others = [what for what in ways if what != OURS]
    return Speed(
        options.rows,
        spark.read.parquet(str(folder / OURS)).count(),
        rounds,
        options.rows / statistics.median(one[OURS].wall_s for one in rounds),
        {what: statistics.median(one[what].wall_s / one[OURS].wall_s for one in rounds) for what in others},
        {what: statistics.median(one[what].cpu_s / one[OURS].cpu_s for one in rounds) for what in others},
    )


def rank_errors(
    jobs: DataFrame, service_minute: DataFrame, units: tuple[str, ...] = ("minute", "hour", "day")
) -> Accuracy:
    """Return how far each percentile's rank is from the requested one. Among equal values any rank is right."""
    from pyspark.sql import functions as F

    from polydomo.pipeline.tables import rollup
    from polydomo.pipeline.tables.sketches import RANKS

    worst: dict[str, dict[str, float]] = {}
    tables = {
        "minute": service_minute,
        "hour": rollup.hours(service_minute),
        "day": rollup.days(service_minute),
    }
    for unit in units:
        table = tables[unit]
        names = [f"{time}_{label}" for time in TIMES for label in RANKS]
        wanted = table.select("service", F.col(unit).cast("timestamp").alias("at"), *names)
        exact = jobs.select(
            "service", F.date_trunc(unit, "finished").alias("at"), *[f"{time}_s" for time in TIMES]
        )
        pairs = [(time, label) for time in TIMES for label in RANKS]
        counts = [
            F.sum(F.when(made, 1).otherwise(0)).alias(f"{kind}_{time}_{label}")
            for time, label in pairs
            for kind, made in (
                ("below", F.col(f"{time}_s") < F.col(f"{time}_{label}")),
                ("upto", F.col(f"{time}_s") <= F.col(f"{time}_{label}")),
            )
        ]
        ranks = (
            exact.join(F.broadcast(wanted), ["service", "at"])
            .groupBy("service", "at")
            .agg(F.count("*").alias("n"), *counts)
        )
        errors = [
            F.max(
                F.greatest(
                    F.col(f"below_{time}_{label}") / F.col("n") - RANKS[label],
                    RANKS[label] - F.col(f"upto_{time}_{label}") / F.col("n"),
                    F.lit(0.0),
                )
            ).alias(f"{time}_{label}")
            for time, label in pairs
        ]
        row = ranks.agg(*errors).collect()[0]
        worst[unit] = {label: max(row[f"{time}_{label}"] for time in TIMES) for label in RANKS}
    return Accuracy(jobs.count(), worst)


def cpu_seconds(spark: SparkSession) -> float:
    """Return the CPU time of Spark's process and its Python workers so far, including all threads."""
    java: Any = spark._jvm
    process = psutil.Process(java.java.lang.ProcessHandle.current().pid())
    return sum(sum(one.cpu_times()[:2]) for one in [process, *process.children(recursive=True)])


def show(speed: Speed, accuracy: Accuracy | None) -> None:
    console = Console(width=120)
    table = Table(title=f"{speed.rows:,} rows to {speed.groups:,} services' minutes")
    table.add_column("round", justify="right")
    for what in speed.rounds[0]:
        table.add_column(what, justify="right")
    for number, one in enumerate(speed.rounds, 1):
        cells = [f"{took.wall_s:.2f} s ({took.cpu_s:.1f} s CPU)" for took in one.values()]
        table.add_row(str(number), *cells)
    ratios = [f"{speed.ratios[what]:.2f}x ({speed.cpu_ratios[what]:.2f}x)" for what in speed.ratios]
    table.add_section()
    table.add_row("ours", *ratios, "1")
    console.print(table)
    console.print(f"service_minute: {speed.rows_per_second:,.0f} rows/s", highlight=False)
    if accuracy is None:
        return
    labels = list(next(iter(accuracy.worst.values())))
    table = Table(title="worst rank error of any service and time")
    table.add_column("of each")
    for label in labels:
        table.add_column(label, justify="right")
    for unit, found in accuracy.worst.items():
        table.add_row(unit, *[f"{found[label]:.3%}" for label in labels])
    console.print(table)


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    with tempfile.TemporaryDirectory(prefix="polydomo-bench-", dir=options.folder) as name:
        folder = Path(name)
        spark = session(options.master, [f"spark.driver.memory={options.memory}"], app="polydomo-bench")
        try:
            jobs = make_jobs(spark, options.rows, options.days, options.services, options.seed)
            jobs.write.parquet(str(folder / "jobs"))
            speed = measure(spark, folder, options)
            accuracy = None
            if not options.no_accuracy:
                read = spark.read.parquet
                accuracy = rank_errors(read(str(folder / "jobs")), read(str(folder / OURS)))
        finally:
            spark.stop()
    show(speed, accuracy)
    if options.json:
        options.json.write_text(
            json.dumps({"speed": asdict(speed), "accuracy": accuracy and asdict(accuracy)}, indent=2)
        )
    worst = (
        max((error for found in accuracy.worst.values() for error in found.values()), default=0.0)
        if accuracy
        else 0.0
    )
    return 1 if worst > 0.01 else 0


if __name__ == "__main__":
    sys.exit(main())
