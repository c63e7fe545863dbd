"""Growth of the pipeline's time with the data, and cost of a refresh: `python bench/growth.py`. See bench/README.md.

For each size a synthetic ledger is made (`polydomo spark synth`), all but its last 3 % become tables (`backfill`), then
the rest is added, 1 % at a time (`run --once`), and gold is rebuilt from all of silver. Reported are the rate of the
backfill, the time of gold's refresh after 1 % new data, and that of the rebuild. The last of the three refreshes is
compared, as in a stream; the first one of the process is shown as well.

The refreshed tables must equal the rebuilt ones, row for row: counts exactly, sums of seconds to the microsecond,
percentiles within the rank error of their sketches.

Exit codes: 0 all measured, 1 the tables differ, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from polydomo.pipeline.lake import Lake
from polydomo.pipeline.places import places_for
from polydomo.pipeline.refresh import refresh
from polydomo.pipeline.run import backfill, objectives, run
from polydomo.pipeline.session import session
from polydomo.pipeline.synth import synth
from polydomo.pipeline.tables.sketches import RANKS
from polydomo.server.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

GOAL = 0.10  # of the time of a rebuild
BOUND = 0.007  # rank error of a sketch
CLOSE = 2e-6  # absolute in seconds, and relative; percentiles are rounded to microseconds
SHARE = 200  # a segment has one 200th of the jobs
NEW = 2  # segments added at once: 1 %
TIMES = 3


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how the pipeline's time grows with the data.")
    parser.add_argument("--jobs", default="1e6,10e6,50e6", help="sizes (default 1e6,10e6,50e6)")
    parser.add_argument("--days", type=int, default=30, help="days covered by each ledger (default 30)")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--memory", default="6g", help="memory of Spark's driver (default 6g)")
    parser.add_argument("--folder", type=Path, help="folder for the data (default: a temporary one)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    try:
        options.sizes = [int(float(text)) for text in options.jobs.split(",")]
    except ValueError:
        parser.error(f"--jobs {options.jobs}: expected numbers separated by commas")
    return options


def measure(spark: SparkSession, folder: Path, jobs: int, days: int, progress: Console) -> dict[str, Any]:
    settings = Settings()
    settings.broker.data = str(folder)
    ledger = folder / "ledger"
    found: dict[str, Any] = {"jobs": jobs}

    def timed(name: str, began: float) -> None:
        found[name] = time.monotonic() - began
        progress.print(f"{jobs:>12,}  {name:<14} {found[name]:8.1f} s", highlight=False)

    began = time.monotonic()
    synth(spark, ledger, jobs, seed=1, days=days, rows=max(1000, jobs // SHARE))
    timed("synth", began)
    held = hold_back(ledger, folder / "held")
    lake = Lake(places_for(settings))
    began = time.monotonic()
    first = backfill(spark, lake, settings)
    timed("backfill", began)
    found["backfill_gold"] = first.seconds["gold"]
    refreshes = []
    for number in range(TIMES):
        for path in held[number * NEW : (number + 1) * NEW]:
            path.rename(ledger / path.parent.name / path.name)
        began = time.monotonic()
        latest = run(spark, lake, settings, once=True)
        timed(f"run {number + 1}", began)
        refreshes.append(latest.seconds["gold"])
        found["new"] = latest.counts["jobs"].added
    found["first"], found["refresh"] = refreshes[0], refreshes[-1]
    kept = {
        gold.spec.name: keep(lake.read(spark, gold.spec.name), folder / "kept" / gold.spec.name)
        for gold in lake.gold
    }
    began = time.monotonic()
    refresh(spark, lake, objectives(settings), rebuild=True)
    timed("rebuild", began)
    found["share"] = found["refresh"] / found["rebuild"]
    found["rate"] = (jobs - TIMES * found["new"]) / found["backfill"]
    found["different"] = {}
    for gold in lake.gold:
        name = gold.spec.name
        began = time.monotonic()
        wrong = differences(spark.read.parquet(str(kept[name])), lake.read(spark, name), gold.spec.key)
        if wrong:
            found["different"][name] = wrong
            progress.print(f"{name} differs: {wrong[:5]}", style="red", markup=False)
    return found


def hold_back(ledger: Path, aside: Path) -> list[Path]:
    """Move the last segments of jobs out of the ledger and return them."""
    (aside / "jobs").mkdir(parents=True)
    last = sorted((ledger / "jobs").glob("*.parquet"))[-NEW * TIMES :]
    return [path.rename(aside / "jobs" / path.name) for path in last]


def keep(rows: DataFrame, place: Path) -> Path:
    rows.write.parquet(str(place))
    return place


def differences(one: DataFrame, other: DataFrame, key: tuple[str, ...]) -> list[str]:
    """Return descriptions of the first few differing rows."""
    from pyspark.sql import functions as F

    kinds = {name: kind for name, kind in one.dtypes if name not in key}
    left = one.select(F.struct(*key).alias("key"), F.struct(*kinds).alias("left"))
    right = other.select(F.struct(*key).alias("other"), F.struct(*kinds).alias("right"))
    pairs = left.join(right, F.col("key").eqNullSafe(F.col("other")), "full_outer")
    wrong = {name: ~alike(name, kind, kinds) for name, kind in kinds.items() if kind != "binary"}
    missing = F.col("left").isNull() | F.col("right").isNull()
    which = F.filter(
        F.array(*[F.when(so, F.lit(name)) for name, so in wrong.items()]), lambda name: name.isNotNull()
    )
    found = pairs.select(
        F.coalesce("key", "other").cast("string").alias("row"),
        F.when(missing, F.array(F.lit("only in one of them"))).otherwise(which).alias("wrong"),
    )
    rows = found.where(F.size("wrong") > 0).limit(5).collect()
    return [f"{row['row']}: {', '.join(row['wrong'])}" for row in rows]


def alike(name: str, kind: str, kinds: dict[str, str]) -> Column:
    """Return whether a column is the same in both. Sums of fractions may differ in the last digits; a percentile must
    lie between those of the other's sketch whose ranks differ by twice the sketches' bound, since both may be off."""
    from pyspark.sql import functions as F

    one, other = F.col(f"left.{name}"), F.col(f"right.{name}")
    of, _, label = name.rpartition("_")
    if label in RANKS and f"{of}_sketch" in kinds:
        sketch = F.col(f"right.{of}_sketch")
        ranks = [max(0.0, RANKS[label] - 2 * BOUND), min(1.0, RANKS[label] + 2 * BOUND)]
        ends = F.kll_sketch_get_quantile_float(sketch, F.array(*[F.lit(rank) for rank in ranks]))
        close = (one >= ends[0] - CLOSE) & (one <= ends[1] + CLOSE)
        return F.when(one.isNull() | other.isNull(), one.eqNullSafe(other)).otherwise(close)
    if kind == "double":
        close = F.abs(one - other) <= CLOSE + CLOSE * F.abs(one)
        return F.when(one.isNull() | other.isNull(), one.eqNullSafe(other)).otherwise(close)
    return one.eqNullSafe(other)


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    progress = Console(stderr=True)
    spark = session(options.master, {"spark.driver.memory": options.memory}, app="polydomo-bench")
    results = []
    for jobs in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="polydomo-growth-") as folder:
            results.append(measure(spark, Path(folder), jobs, options.days, progress))
    spark.stop()
    table = Table(
        "jobs",
        "synth",
        "backfill",
        "jobs/s",
        "new jobs",
        "first refresh",
        "refresh",
        "rebuild",
        "share",
        "goal",
    )
    for row in results:
        table.add_row(
            f"{row['jobs']:,}",
            f"{row['synth']:.1f} s",
            f"{row['backfill']:.1f} s",
            f"{row['rate']:,.0f}",
            f"{row['new']:,}",
            f"{row['first']:.1f} s",
            f"{row['refresh']:.1f} s",
            f"{row['rebuild']:.1f} s",
            f"{row['share']:.1%}",
            f"≤ {GOAL:.0%} {'reached' if row['share'] <= GOAL else 'NOT reached'}",
        )
    Console(width=120).print(table)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2, default=str) + "\n")
    return 1 if any(row["different"] for row in results) else 0


if __name__ == "__main__":
    sys.exit(main())
