"""A Spark session as the pipeline needs it: quick to start on a laptop, the same code on a cluster."""

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

# For every master. Timestamps are UTC in the ledger, in the tables and in what comes out of them.
EVERYWHERE: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Else each step of each expression asks Java three times more, to name its line in an error message.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # So many groups' sketches (5 kB each) has a task in memory before it sorts what is left. The default, 128, is ten
    # minutes of a dozen services.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "8192",
    # A refresh of all tables has more than two hundred pieces of generated code. The default, 100, would forget each of
    # them before it is needed again, and compile it anew with every refresh.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # A snapshot's files are known by name: to look for them in a job of its own takes longer than the work.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "5000",
    # Committed by rename on a file system that has one; the tables' snapshots make a batch visible, not this.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.ui.enabled": "false",
    # How far Spark is, is told as it is now, not as it was when something else happened last.
    "spark.ui.liveUpdate.period": "0",
    "spark.log.level": "ERROR",
}

# Of these, what our reads and writes of files need.
_FOR_FILES: Final = (
    "spark.sql.session.timeZone",
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.sources.parallelPartitionDiscovery.threshold",
)

# With everything on this machine.
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}

# With all of it in one process.
ALONE: Final[Mapping[str, str]] = {
    # Nobody minds a pause of a few milliseconds here; what counts is how much gets done.
    # Room for Spark's many classes from the start: else the heap is searched each time that it is made larger.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:MetaspaceSize=256m",
    # With as many partitions as there are cores there is little to adapt, and planning each stage again is a good part
    # of a small refresh.
    "spark.sql.adaptive.enabled": "false",
}

# With executors elsewhere: their Python must be in the same time zone as ours.
CLUSTER: Final[Mapping[str, str]] = {
    "spark.executorEnv.TZ": "UTC",
    "spark.ui.showConsoleProgress": "false",
}

# Seconds that Java gets to end by itself.
PATIENCE: Final = 15.0


def session(
    master: str = "local[*]",
    conf: Iterable[str] | Mapping[str, str] = (),
    *,
    app: str = APP,
    stderr: IO[Any] | None = None,
) -> SparkSession:
    """The session of this process: made if there is none. `conf` wins over all that is set here. `stderr`: where Java
    and the Python workers say what they have to say, if not where we do."""
    spark = active()
    if spark is not None:
        return spark
    java.use(java.find())
    # Times come out of `collect()` in the process's own time zone, whatever the session's is.
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
            raise ConfigError("Java does not start", hint="'polydomo spark doctor' says more") from error
        raise


def prepare(spark: SparkSession) -> None:
    """What our reads and writes need of a session, whoever made it."""
    for key, value in {
        **{key: EVERYWHERE[key] for key in _FOR_FILES},
        # A task writes the files of several days at once, instead of sorting its rows by day.
        "spark.sql.maxConcurrentOutputFileWriters": "64",
        "spark.sql.parquet.fieldId.write.enabled": "true",
    }.items():
        spark.conf.set(key, value)


@contextmanager
def entered(spark: SparkSession) -> Iterator[None]:
    """Makes it the thread's session: some calls go by that, whosever method they are. After it the former one is."""
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
    """Spark and its Java, also if a call to it was interrupted. Java ends when its input does; what it must do then, it
    does by itself, as when the machine is shut down."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:  # somebody else's
        spark.stop()
        return
    context: Any = spark.sparkContext
    context._accumulatorServer.handle_error = lambda *_: None  # it would complain that Java hangs up
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
    """The Java that the builder will find."""
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
    """Spark's settings for this master, with what the user set on top."""
    found = dict(EVERYWHERE)
    if not master.startswith("local"):
        found |= CLUSTER
        # A master of this machine: so are its workers, and no other address of ours need be right.
        if urlsplit(master.split(",")[0]).hostname in ("127.0.0.1", "localhost", "::1"):
            found |= LOCAL
    else:
        found |= {**LOCAL, **ALONE}
        found["spark.sql.shuffle.partitions"] = str(max(2, min(cores(master), 8)))
        found["spark.default.parallelism"] = found["spark.sql.shuffle.partitions"]
    return found | (dict(conf) if isinstance(conf, Mapping) else _pairs(conf))


def cores(master: str) -> int:
    """Of a local master."""
    number = re.fullmatch(r"local\[(\d+|\*)(?:,\d+)?\]", master)
    if number is None:
        return 1
    return len(os.sched_getaffinity(0)) if number.group(1) == "*" else int(number.group(1))


def active() -> SparkSession | None:
    """The session that there is already."""
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
