"""Table maintenance: merge small files, expire snapshots, remove unreferenced files.

A stream adds a file per batch and day. `compact` merges the small ones of each day, sorted by time, in one snapshot
that neither adds nor removes a row. Readers of an older snapshot still find its files: they are removed only after the
snapshot, and only when older than `keep`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from polydomo.pipeline.ingest import Ingest
from polydomo.pipeline.lake import Lake
from polydomo.pipeline.lock import holding
from polydomo.pipeline.refresh import refresh
from polydomo.pipeline.rewrite import TARGET, orphans, rewrite
from polydomo.pipeline.run import Progress, objectives
from polydomo.pipeline.session import prepare
from polydomo.server.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEEP: Final = timedelta(days=1)


@dataclass
class CompactResult:
    """Totals over all tables. `before` and `after`: numbers of files."""

    before: int = 0
    after: int = 0
    rows: int = 0
    expired: int = 0
    removed: int = 0
    freed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def compact(
    spark: SparkSession,
    lake: Lake,
    settings: Settings,
    *,
    keep: timedelta = KEEP,
    target: int = TARGET,
    progress: Progress | None = None,
) -> CompactResult:
    """Compact all tables. Snapshots and unreferenced files older than `keep` are removed."""
    with holding(lake.places, "compact"):
        prepare(spark)
        told = progress or (lambda share, text: None)
        result = CompactResult()
        began = time.monotonic()
        # No table may depend on files that are about to be removed.
        Ingest(spark, lake).follow()
        refresh(spark, lake, objectives(settings))
        before = datetime.now(UTC) - keep
        for number, name in enumerate(lake.specs):
            told(number / len(lake.specs), name)
            started = time.monotonic()
            if lake.snapshot(name) is not None:
                result.before += len(lake.pieces(name))
                result.rows += rewrite(spark, lake, name, target)
                result.after += len(lake.pieces(name))
                result.expired += lake.expire(name, older_than=before)
                removed = orphans(spark, lake, name, before)
                result.removed += len(removed)
                result.freed += sum(found.size for found in removed)
            result.seconds[name] = time.monotonic() - started
        result.seconds["all"] = time.monotonic() - began
        told(1.0, "done")
        return result
