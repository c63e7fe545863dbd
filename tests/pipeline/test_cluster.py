"""Tests on a standalone cluster of a master and two workers from the same install: the same commands and results."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from polydomo.pipeline import java
from tests.support.broker import BrokerProcess, wait_for
from tests.support.ledger import START, job, write_segment
from tests.support.peers import echo

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
CONF = (
    f"spark.conf=spark.driver.extraJavaOptions={QUICK}",
    f"spark.conf=spark.executor.extraJavaOptions={QUICK}",
    "spark.conf=spark.executor.memory=512m",
    "spark.conf=spark.driver.memory=1g",
    "spark.conf=spark.sql.shuffle.partitions=2",
)
JOBS = 400

# One driver for both: a session takes longer to start than both take to run.
CALL_AND_PLAN = """
import sys
import polydomo.spark
from polydomo.cli.main import app

master, url, data, *conf = sys.argv[1:]
spark = polydomo.spark.session(master, conf)
rows = spark.range(0, 200, 1, 4).selectExpr("CAST(id AS string) AS body")
answered = polydomo.spark.call(rows, "echo", "body", url=url, decode="text", run="cluster")
same = answered.where("outcome = 'done' AND result = body").count()
hosts = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver is one of them
print("call", same, hosts, flush=True)
app(["spark", "plan", "echo", "--p95", "200ms", "--data", data, "--json"], standalone_mode=False)
"""


class Cluster:
    """Three Java processes, which end with the block."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self.folder = folder
        self.port, self.web = _free_port(), _free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self.home = Path(pyspark.__file__).parent
        self.environment = os.environ | {
            "JAVA_HOME": java.home_for(java.find()),
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_LOG_DIR": str(folder),
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        place = ("--host", "127.0.0.1", "--webui-port")
        self._start("master.Master", *place, str(self.web), "--port", str(self.port))
        wait_for(lambda: self._workers() is not None, 60, "no master")
        for number in range(2):
            work = str(self.folder / f"worker{number}")
            self._start("worker.Worker", *place, "0", "-c", "1", "-m", "600M", "-d", work, self.master)
        wait_for(lambda: self._workers() == 2, 60, "no workers")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}{len(self.processes)}.log").open("wb") as log:
            command = [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=self.environment))

    def _workers(self) -> int | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:
            return None


@pytest.fixture
def cluster(tmp_path: Path, no_java: None) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        yield cluster


def test_run_plan_and_call_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    rows = [job(submitted=START + timedelta(milliseconds=50 * number)) for number in range(JOBS)]
    write_segment(data / "ledger", "jobs", rows[: JOBS // 2])
    write_segment(data / "ledger", "jobs", rows[JOBS // 2 :])
    sets = [word for pair in CONF for word in ("--set", pair)]
    made = json.loads(
        _run("spark", "run", "--once", "--master", cluster.master, "--data", str(data), "--json", *sets)
    )
    assert (made["segments"], made["added"], made["rejected"]) == (2, JOBS, [])
    assert made["gold"]["service_minute"] == 1
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess())
        worker = stack.enter_context(echo(broker.endpoint, b"echo"))
        url = broker.endpoint.replace("tcp://", "nfp://")
        script = tmp_path / "call_and_plan.py"
        script.write_text(CALL_AND_PLAN)
        conf = [pair.removeprefix("spark.conf=") for pair in CONF]
        first, _, rest = _python(str(script), cluster.master, url, str(data), *conf).partition("\n")
    assert first == "call 200 2"
    assert worker.done == 200
    planned = json.loads(rest)
    assert planned["service"] == "echo"
    assert planned["workers"] >= 1


def _run(*words: str) -> str:
    return _python("-m", "polydomo", *words)


def _python(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
