"""Spark sessions with the pipeline's settings: quick to start on a laptop, the same code on a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from polydomo.errors import ConfigError
from polydomo.pipeline import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP: Final = "polydomo"

# For every master. Timestamps are UTC in the ledger, in the tables and in results.
EVERYWHERE: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Otherwise each step of each expression makes three more calls to Java, to name its line in error messages.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A task keeps the sketches (5 kB each) of this many groups in memory before it sorts the rest. The default, 128, is
    # ten minutes of a dozen services.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "8192",
    # A refresh of all tables has more than two hundred pieces of generated code. With the default, 100, each would be
    # evicted before its next use and compiled again with every refresh.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # A snapshot's files are known by name: a Spark job to list them takes longer than the work.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "5000",
    # A snapshot makes a batch visible, not this marker file.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.ui.enabled": "false",
    # Report the progress as it is now, not as of the last event.
    "spark.ui.liveUpdate.period": "0",
    "spark.log.level": "ERROR",
}

# The settings that reading and writing files depends on.
_FOR_FILES: Final = (
    "spark.sql.session.timeZone",
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.sources.parallelPartitionDiscovery.threshold",
)

# For masters on this machine.
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}

# For local masters: driver and executors in one process.
ALONE: Final[Mapping[str, str]] = {
    # Throughput matters here, pauses of a few milliseconds do not. MetaspaceSize: room for Spark's many classes from
    # the start, which avoids a collection at each growth.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:MetaspaceSize=256m",
    # With as many partitions as cores there is little to adapt, and planning each stage again is a good part of a small
    # refresh.
    "spark.sql.adaptive.enabled": "false",
}

# For remote executors: their Python must use the same time zone.
CLUSTER: Final[Mapping[str, str]] = {
    "spark.executorEnv.TZ": "UTC",
    "spark.ui.showConsoleProgress": "false",
}

# Seconds for Java to exit by itself.
PATIENCE: Final = 15.0


def session(
    master: str = "local[*]",
    conf: Iterable[str] | Mapping[str, str] = (),
    *,
    app: str = APP,
    stderr: IO[Any] | None = None,
) -> SparkSession:
    """Return the session of this process, created if necessary. `conf` overrides all other settings. `stderr`: the
    standard error of Java and the Python workers, if not ours."""
    spark = active()
    if spark is not None:
        return spark
    java.use(java.find())
    # `collect()` returns times in the process's time zone, whatever the session's is.
    os.environ["TZ"] = "UTC"
    time.tzset()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed", hint="pip install 'polydomo[spark]'") from error
    builder = SparkSession.builder.appName(app).master(master)
    settings = settings_for(master, conf)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        _launch(master, settings, stderr)
        return builder.getOrCreate()
    except Exception as error:
        if "GATEWAY" in str(error):
            raise ConfigError("Java does not start", hint="run 'polydomo spark doctor'") from error
        raise


def prepare(spark: SparkSession) -> None:
    """Apply the settings that our reads and writes require, also to a session created elsewhere."""
    for key, value in {
        **{key: EVERYWHERE[key] for key in _FOR_FILES},
        # A task writes the files of several days at once instead of sorting its rows by day.
        "spark.sql.maxConcurrentOutputFileWriters": "64",
        "spark.sql.parquet.fieldId.write.enabled": "true",
    }.items():
        spark.conf.set(key, value)


@contextmanager
def entered(spark: SparkSession) -> Iterator[None]:
    """Make this the thread's active session, which some calls use whatever session they are made on, and restore it."""
    jvm: Any = spark._jvm
    former = jvm.SparkSession.getActiveSession()
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if former.isDefined():
            jvm.SparkSession.setActiveSession(former.get())
        else:
            jvm.SparkSession.clearActiveSession()


def end(spark: SparkSession) -> None:
    """End Spark and its Java, even after an interrupted call. Java exits when its input is closed and runs its shutdown
    hooks."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:  # started elsewhere
        spark.stop()
        return
    context: Any = spark.sparkContext
    context._accumulatorServer.handle_error = lambda *_: None  # it would report the closed connection
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    context._accumulatorServer.shutdown()
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    made: Any = type(spark)
    made._instantiatedSession = None
    gateway.shutdown()


def _launch(master: str, settings: Mapping[str, str], stderr: IO[Any] | None) -> None:
    """Start the Java that the builder will use."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if stderr is None or SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.master", master)
    for key, value in settings.items():
        conf.set(key, value)
    SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"stderr": stderr}))  # type: ignore[no-untyped-call]


def settings_for(master: str, conf: Iterable[str] | Mapping[str, str] = ()) -> dict[str, str]:
    """Return Spark's settings for this master, overridden by the user's."""
    found = dict(EVERYWHERE)
    if not master.startswith("local"):
        found |= CLUSTER
        # The master is on this machine, so its workers are: loopback addresses are enough.
        if urlsplit(master.split(",")[0]).hostname in ("127.0.0.1", "localhost", "::1"):
            found |= LOCAL
    else:
        found |= {**LOCAL, **ALONE}
        found["spark.sql.shuffle.partitions"] = str(max(2, min(cores(master), 8)))
        found["spark.default.parallelism"] = found["spark.sql.shuffle.partitions"]
    return found | (dict(conf) if isinstance(conf, Mapping) else _pairs(conf))


def cores(master: str) -> int:
    """Return the number of cores of a local master."""
    number = re.fullmatch(r"local\[(\d+|\*)(?:,\d+)?\]", master)
    if number is None:
        return 1
    return len(os.sched_getaffinity(0)) if number.group(1) == "*" else int(number.group(1))


def active() -> SparkSession | None:
    """Return the existing session, if any."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{text!r} in spark.conf is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found
