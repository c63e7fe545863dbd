"""A live broker as Spark's data source: its durable jobs, their results, events and dead letters; and a sink for jobs.

    register(spark)
    spark.read.format("polydomo").option("url", "mdp://127.0.0.1:5555").option("table", "dead").load()

Everything goes through the broker's catalogue (`mmi.service.broker`), at the address that its clients use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Off unless it is asked for; without it Spark refuses a source that can filter by itself.
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the format known to this session. Can be done again, and to several sessions."""
    from polydomo.pipeline import session
    from polydomo.pipeline.source.datasource import PolydomoSource

    spark.conf.set(_PUSHDOWN, "true")
    with session.entered(spark):  # or Spark refuses the name if the thread's session is another that has it
        spark.dataSource.register(PolydomoSource)
