"""Speed of the pipeline from segments to tables: `python bench/ingest.py --rows 1000000`. See bench/README.md.

On one ledger (`polydomo spark synth`), in one Spark, after a warm-up of both:

- copy: a bare Structured Streaming query that copies the segments of jobs to Parquet, as the reference;
- run: `polydomo spark run --once`: checks, deduplication, silver, all of gold;
- backfill: the same as one batch;
- refresh: gold after one per cent of new rows, against gold from all rows.

Exit codes: 0 all measured, 1 a goal was missed (with --check), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from polydomo.ledger import schema
from polydomo.pipeline.lake import Lake
from polydomo.pipeline.places import places_for
from polydomo.pipeline.refresh import refresh
from polydomo.pipeline.run import RunResult, backfill, objectives, run
from polydomo.pipeline.schemas import spark_schema
from polydomo.pipeline.session import session
from polydomo.pipeline.synth import START, synth
from polydomo.server.settings import BrokerSection, Settings, SparkSection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Goals: streaming ingestion to gold ≥ 0.1 × a bare copy; a refresh ≤ 0.1 × a rebuild.
LEAST_RATIO = 0.1
MOST_REFRESH = 0.1

WARM = 20_000


@dataclass
class Found:
    """Results: seconds, and seconds by stage."""

    rows: int
    segments: int
    copy: float
    run: float
    backfill: float
    refresh: float
    rebuild: float
    ratio: float
    stages: dict[str, float]
    backfill_stages: dict[str, float]


def main() -> int:
    options = _options()
    conf = [f"spark.driver.memory={options.memory}", *options.conf]
    spark = session(options.master, conf, app="polydomo-bench")
    try:
        with tempfile.TemporaryDirectory(prefix="polydomo-bench-", dir=options.folder) as folder:
            if not options.cold:
                measure(spark, Path(folder, "warm"), WARM, options.files, options.days)
            found = measure(spark, Path(folder, "real"), options.rows, options.files, options.days)
    finally:
        spark.stop()
    if options.json:
        print(json.dumps(asdict(found)))
    else:
        show(found)
    missed = found.ratio < LEAST_RATIO or found.refresh > MOST_REFRESH * found.rebuild
    return 1 if options.check and missed else 0


def measure(spark: SparkSession, folder: Path, rows: int, files: int, days: int) -> Found:
    """Run all measurements in their own folder."""
    settings = Settings(
        broker=BrokerSection(data=str(folder)), spark=SparkSection(files=files, ledger=str(folder / "ledger"))
    )
    made = synth(spark, folder / "ledger", rows, days=days)
    copied = _copy(spark, folder, files)
    with Lake(places_for(settings)) as lake:
        ran, result = _timed(lambda: run(spark, lake, settings, once=True))
        assert result.counts["jobs"].rows == rows
        filled, full = _timed(lambda: backfill(spark, lake, settings))
        _more(spark, folder, max(1, rows // 100))
        before = run_silver(spark, lake, settings)
        refreshed, _ = _timed(lambda: refresh(spark, lake, objectives(settings)))
        rebuilt, _ = _timed(lambda: refresh(spark, lake, objectives(settings), rebuild=True))
        assert before.counts["jobs"].rows == max(1, rows // 100)
    return Found(
        rows,
        made.segments,
        copied,
        ran,
        filled,
        refreshed,
        rebuilt,
        copied / ran,
        result.seconds,
        full.seconds,
    )


def _copy(spark: SparkSession, folder: Path, files: int) -> float:
    """Measure the minimum work of a stream on the segments."""
    rows = spark.readStream.schema(spark_schema(schema.JOBS)).option("maxFilesPerTrigger", files)
    began = time.monotonic()
    (
        rows.parquet(str(folder / "ledger" / "jobs"))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "copy-checkpoint"))
        .option("path", str(folder / "copy"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    return time.monotonic() - began


def _more(spark: SparkSession, folder: Path, rows: int) -> None:
    """Add one per cent of rows, a day later."""
    new = folder / "more"
    synth(spark, new, rows, seed=1, days=1, start=START + timedelta(days=29))
    for path in new.rglob("*.parquet"):
        path.rename(folder / "ledger" / path.parent.name / f"more-{path.name}")


def run_silver(spark: SparkSession, lake: Lake, settings: Settings) -> RunResult:
    """Run without gold, which is measured separately."""
    gold, lake.gold = lake.gold, ()
    try:
        return run(spark, lake, settings, once=True)
    finally:
        lake.gold = gold


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    result = work()
    return time.monotonic() - began, result


def show(found: Found) -> None:
    """Print the results as a table."""
    table = Table(box=SIMPLE_HEAD, title=f"{found.rows:,} jobs in {found.segments:,} segments")
    for head in ("what", "seconds", "rows/s", "against a bare copy"):
        table.add_column(head, justify="left" if head == "what" else "right")
    for name, seconds in (("bare copy", found.copy), ("run --once", found.run), ("backfill", found.backfill)):
        table.add_row(name, f"{seconds:.1f}", f"{found.rows / seconds:,.0f}", f"{found.copy / seconds:.2f} ×")
    console = Console()
    console.print(table)
    console.print(
        f"gold after 1 % new rows: {found.refresh:.1f} s; from all rows: {found.rebuild:.1f} s; "
        f"{found.refresh / found.rebuild:.2f} ×"
    )
    for name, stages in (("run", found.stages), ("backfill", found.backfill_stages)):
        console.print(f"{name}: " + ", ".join(f"{step} {seconds:.1f} s" for step, seconds in stages.items()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="jobs in the ledger (1,000,000)")
    parser.add_argument("--days", type=int, default=30, help="days covered by the ledger (30)")
    parser.add_argument("--files", type=int, default=200, help="segments per batch (200)")
    parser.add_argument("--master", default="local[*]", help="where Spark runs (local[*])")
    parser.add_argument("--memory", default="3g", help="memory of Spark's driver (3g)")
    parser.add_argument("--conf", action="append", default=[], help="Spark setting, KEY=VALUE")
    parser.add_argument("--folder", help="folder for the files, which are removed at the end")
    parser.add_argument("--cold", action="store_true", help="no warm-up")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
