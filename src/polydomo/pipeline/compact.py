"""Tidying up: few large files instead of many small ones, no more history than readers need, nothing left behind.

A stream adds a file per batch and day. `compact` puts the small ones of each day together, sorted by time, in one
snapshot that adds no row and removes none. Whoever reads an older snapshot still finds its files: they are removed only
when the snapshot is, and when they are older than `keep`.
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
    """`before` and `after`: files of all tables."""

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
    """All tables. Snapshots and files that are older than `keep` and not part of a table any more are removed."""
    with holding(lake.places, "compact"):
        prepare(spark)
        told = progress or (lambda share, text: None)
        result = CompactResult()
        began = time.monotonic()
        # Nobody may depend on files that are about to go.
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
