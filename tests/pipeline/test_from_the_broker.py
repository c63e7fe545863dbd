"""Test from a real broker's traffic to silver and gold: every durable job exactly once, with processes killed."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from polydomo.pipeline.lake import Lake
from polydomo.pipeline.places import places_for
from polydomo.pipeline.run import run as take_all
from polydomo.server.settings import Settings
from tests.pipeline.conftest import QUICK
from tests.support.broker import BrokerProcess
from tests.support.peers import MdpClient
from tests.support.survivors import Client, Sockets, Worker, run, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOML = f"""
[heartbeat]
interval = 0.5
[limits]
client_jobs = 100000
[ledger]
roll = "1s"
[services.safe]
durable = true
grace = 2
retries = 20
[spark]
master = "local[2]"
interval = "500ms"
files = 12
conf = {json.dumps(list(QUICK))}
"""

Totals = Counter[tuple[str, str, str]]


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


class Tables:
    """`polydomo spark run` as a process, which is killed with all its children."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.log = Path(broker.folder.name, "tables.log")
        self.config = Path(broker.folder.name, "polydomo.toml")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "polydomo", "spark", "run", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--data", str(self.broker.data)], stdout=log, stderr=log, start_new_session=True
            )

    def snapshots(self) -> int:
        """Return the number of snapshots of all tables."""
        return len(list((self.broker.data / "tables").glob("*/*/metadata/snap-*.avro")))

    def kill(self) -> None:
        if self.process is not None:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class Crowd:
    """Clients of three protocols, and workers of one, that keep running while the broker is killed."""

    def __init__(self, sockets: Sockets, broker: BrokerProcess) -> None:
        self.broker = broker
        self.workers = [Worker(sockets, broker.endpoint, b"w%d" % n, remembers=n % 2 == 0) for n in range(4)]
        self.nfp = Client(sockets, broker.endpoint, b"nfp-client", 40)
        self.mdp = MdpClient(broker.endpoint, identity=b"mdp-client")
        self.asked = 0

    def go_on(self, seconds: float) -> None:
        for _ in range(3):
            self.asked += 1
            self.mdp.request(b"safe", b'{"mdp": %d}' % self.asked)
            self._ask_over_http()
        run(self.workers, [self.nfp], seconds)
        while self.mdp.socket.poll(0):
            self.mdp.socket.recv_multipart()

    def _ask_over_http(self) -> None:
        url = f"http://{self.broker.http}/v1/services/safe/jobs"
        request = urllib.request.Request(url, json.dumps({"http": self.asked}).encode(), method="POST")
        request.add_header("content-type", "application/json")
        try:
            urllib.request.urlopen(request, timeout=2).close()
        except (OSError, urllib.error.HTTPError):
            pass  # the broker is being killed: accepted jobs are in the store, others do not matter here

    def finish(self) -> None:
        assert until(self.workers, [self.nfp], lambda: not self.nfp.under_way, 60)
        assert until(self.workers, [], lambda: not self.open(), 60)
        self.mdp.close()

    def open(self) -> int:
        with closing(sqlite3.connect(self.broker.data / "jobs.db")) as database:
            found: int = database.execute("SELECT count(*) FROM jobs WHERE finished IS NULL").fetchone()[0]
            return found


def in_store(broker: BrokerProcess) -> Totals:
    with closing(sqlite3.connect(broker.data / "jobs.db")) as database:
        found = database.execute(
            "SELECT client, service, state FROM jobs WHERE finished IS NOT NULL"
        ).fetchall()
    return Counter((_shown(client), service.decode(), state) for client, service, state in found)


def _shown(client: bytes) -> str:
    from polydomo.ledger.job_batch import text

    return text(client)


def in_silver(jobs: DataFrame) -> Totals:
    rows = jobs.where("durable").groupBy("client", "service", "outcome").count().collect()
    return Counter({(row["client"], row["service"], row["outcome"]): row["count"] for row in rows})


def in_gold(client_day: DataFrame) -> Totals:
    ends = ("done", "failed", "cancelled", "dead")
    rows = client_day.where("durable").groupBy("client", "service").sum(*ends).collect()
    found = {(row["client"], row["service"], end): row[f"sum({end})"] for row in rows for end in ends}
    return Counter({key: number for key, number in found.items() if number})


@pytest.mark.spark
@pytest.mark.slow
def test_every_durable_job_is_in_silver_and_gold_once_whoever_is_killed(
    spark: SparkSession, sockets: Sockets, request: pytest.FixtureRequest
) -> None:
    rounds = max(1, request.config.getoption("--survival-rounds") // 5)
    dice = random.Random(5)
    with BrokerProcess("--ledger", "auto", toml=TOML, http=True) as broker:
        crowd = Crowd(sockets, broker)
        tables = Tables(broker)
        try:
            for _ in range(rounds):
                tables.start()
                before = tables.snapshots()
                for _ in range(400):  # until it is running, however slow the machine
                    crowd.go_on(0.2)
                    if tables.snapshots() > before + 2:
                        break
                else:
                    raise AssertionError(tables.log.read_text()[-3000:])
                broker.kill()
                broker.start_again()
                crowd.go_on(dice.uniform(0.1, 1.0))
                tables.kill()
        finally:
            tables.kill()
        crowd.finish()
        assert broker.stop() == 0
        settings = Settings()
        settings.broker.data = str(broker.data)
        lake = Lake(places_for(settings))
        result = take_all(spark, lake, settings, once=True)
        assert result.rejected == []
        stored = in_store(broker)
        assert {client for client, _, _ in stored} >= {"nfp-client", "mdp-client"}
        assert stored.total() > 100
        jobs = lake.read(spark, "jobs")
        assert in_silver(jobs) == stored
        assert in_gold(lake.read(spark, "client_day")) == stored
        assert jobs.count() == jobs.select("job_id", "finished").distinct().count()
        assert {
            row["dialect_in"].split("/")[0] for row in jobs.select("dialect_in").distinct().collect()
        } >= {
            "nfp",
            "mdp",
            "http",
        }
