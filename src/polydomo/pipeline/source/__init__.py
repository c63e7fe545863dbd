"""A data source for Spark: a live broker's durable jobs, results, events and dead letters, and a sink for jobs.

    register(spark)
    spark.read.format("polydomo").option("url", "mdp://127.0.0.1:5555").option("table", "dead").load()

All queries use the broker's catalogue (`mmi.service.broker`), at the address of its clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Disabled by default; without it Spark refuses a source that filters.
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the format with this session. May be repeated, also for several sessions."""
    from polydomo.pipeline import session
    from polydomo.pipeline.source.datasource import PolydomoSource

    spark.conf.set(_PUSHDOWN, "true")
    with session.entered(spark):  # Spark checks the name in the thread's session, which may already have it
        spark.dataSource.register(PolydomoSource)
