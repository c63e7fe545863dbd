"""Tests of SQL as a service: one broker, foreign clients of every protocol; cancelled queries end in Spark."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from polydomo.errors import ConfigError
from polydomo.pipeline import serve, sql
from polydomo.pipeline.engine_pool import Engines
from polydomo.pipeline.engine_process import Server
from polydomo.pipeline.sql import Bounds
from polydomo.sdk import Worker
from tests.pipeline.test_sql import ENDLESS, Two
from tests.support.broker import BrokerProcess, wait_for
from tests.support.curl import need_curl
from tests.support.everyone import CLIENTS, Http
from tests.support.nfp import DELETE, RESPONSE, STREAM, NfpClient
from tests.support.peers import Manager, MdpClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SUM = b"SELECT service, sum(n) AS n FROM jobs GROUP BY service ORDER BY service"
ROWS = [["s0", 1683], ["s1", 1617], ["s2", 1650]]


class Engine:
    """An engine in a thread of this process, on the Spark session of all tests."""

    def __init__(self, spark: SparkSession, bounds: Bounds) -> None:
        self._ours, theirs = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, args=(sql.Engine(spark, Two(), bounds), theirs))
        self._thread.start()

    async def connected(self) -> Engine:
        self.reader, self.writer = await asyncio.open_connection(sock=self._ours)
        return self

    async def kill(self, patience: float = 0.0) -> None:
        self.writer.close()
        await asyncio.to_thread(self._thread.join)
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    @staticmethod
    def _serve(engine: sql.Engine, theirs: socket.socket) -> None:
        # A socket that is closed with unread data resets the connection, where a pipe would only end.
        with (
            theirs,
            contextlib.suppress(ConnectionError),
            theirs.makefile("rb") as source,
            theirs.makefile("wb") as sink,
        ):
            Server(engine, source, sink).serve()


class Serving:
    """The worker on a loop in its own thread, as `polydomo spark serve` runs it."""

    def __init__(self, url: str, spark: SparkSession, service: str, bounds: Bounds) -> None:
        self.loop = asyncio.new_event_loop()
        self.worker: Worker | None = None

        async def serve_() -> None:
            async with Engines(lambda nice: Engine(spark, bounds).connected(), bounds) as engines:
                self.worker = serve.make_worker(url, engines, service=service, bounds=bounds)
                await self.worker.run()

        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(serve_(),))
        self.thread.start()

    def stop(self) -> None:
        assert self.worker is not None
        self.loop.call_soon_threadsafe(self.worker.stop)
        self.thread.join(30)
        self.loop.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(nng=True, http=True, toml="[memodb]\nwait = 30") as broker:
        yield broker


@pytest.fixture(scope="module", autouse=True)
def serving(broker: BrokerProcess, spark: SparkSession) -> Iterator[None]:
    url = broker.endpoint.replace("tcp://", "mdp://")
    running = Serving(url, spark, "sql", Bounds(queries=2))
    quick = Serving(url, spark, "quick", Bounds(queries=1, seconds=0.5))
    manager = Manager(broker.endpoint)
    wait_for(lambda: manager.offered(b"sql") and manager.offered(b"quick"), 20)
    manager.close()
    yield
    running.stop()
    quick.stop()


@pytest.fixture(autouse=True)
def none_goes_on(spark: SparkSession) -> Iterator[None]:
    """Check that no query is left running, which would delay later tests."""
    yield
    spark.sparkContext.cancelAllJobs()


def active(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getActiveJobsIds())


@pytest.mark.parametrize("kind", list(CLIENTS))
def test_clients_of_every_protocol_get_the_rows(broker: BrokerProcess, kind: str) -> None:
    client = CLIENTS[kind](broker)
    assert json.loads(client.call("sql", SUM))["rows"] == ROWS
    client.close()


def test_a_majordomo_client_sees_progress_as_partials(broker: BrokerProcess) -> None:
    with MdpClient(broker.endpoint) as client:
        partials, final = client.call(b"sql", [SUM])
        assert json.loads(final[0])["rows"] == ROWS
        assert partials
        for frames in partials:
            assert json.loads(frames[0])["progress"].keys() >= {"stages", "tasks", "tasks_done", "seconds"}
        assert client.call(b"sql", [b'{"sql": "SELECT 1 AS x", "progress": false}']).partials == []


def test_a_majordomo_client_gets_arrow_in_pieces(broker: BrokerProcess) -> None:
    asked = {"sql": "SELECT id FROM range(100000)", "limit": 100_000, "format": "arrow", "stream": True}
    with MdpClient(broker.endpoint) as client:
        partials, final = client.call(b"sql", [json.dumps(asked).encode()])
    parts = [frames[0] for frames in partials if frames[0][:1] != b"{"]
    assert len(parts) > 2
    assert pa.ipc.open_stream(b"".join([*parts, *final])).read_all().num_rows == 100_000


def test_an_nfp_client_sees_progress_and_cancels(broker: BrokerProcess, spark: SparkSession) -> None:
    with NfpClient(broker.endpoint) as client:
        client.open(b'{"push": true}')
        uuid = client.post(b"sql", ENDLESS.encode())
        while True:
            reply = client.reply()
            assert (reply.command, reply.uuid) == (STREAM, uuid), reply
            if json.loads(reply.body[-1])["progress"]["tasks_running"]:
                break
        client.command(DELETE, b"sql", b"all", uuid, b"")
        ends = []
        while len(ends) < 2:  # the job's end, and the reply to DELETE
            reply = client.reply()
            ends += [reply.status] if reply.command == RESPONSE else []
        assert sorted(ends)[0] == b"200"
        assert sorted(ends)[1] >= b"400"
        wait_for(lambda: not active(spark), 15, "Spark goes on with a job that nobody wants")


def test_curl_sees_progress_and_cancels(broker: BrokerProcess, spark: SparkSession) -> None:
    need_curl()
    jobs = f"http://{broker.http}/v1/services/sql/jobs"
    command = ["curl", "-sN", jobs, "-H", "Accept: text/event-stream", "-d"]
    short = subprocess.run(
        [*command, SUM.decode()], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    assert "event: stream" in short
    assert '"progress"' in short
    assert '"rows":[["s0",1683]' in short.partition("event: result")[2]
    with subprocess.Popen([*command, ENDLESS], stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        job = ""
        for line in curl.stdout:
            if line.startswith("data: {") and "id" in (said := json.loads(line[6:])):
                job = said["id"]
            if '"tasks_running":' in line and '"tasks_running":0' not in line:
                break
        assert job
        assert active(spark) == 1
        web = Http(broker.http)
        assert web.ask("DELETE", f"/v1/jobs/{job}")[0] == 204
        wait_for(lambda: not active(spark), 15, "Spark goes on with a job that nobody wants")
        assert "event: failed" in curl.stdout.read()
        status, _, said = web.ask("GET", f"/v1/jobs/{job}/result")
        assert (status, json.loads(said)["reason"]) == (410, "cancelled")
        web.close()


def test_two_queries_at_once_and_the_slow_one_does_not_hold_the_other(
    broker: BrokerProcess, spark: SparkSession
) -> None:
    with NfpClient(broker.endpoint) as slow, MdpClient(broker.endpoint) as quick:
        uuid = slow.post(
            b"sql", ENDLESS.replace(", 4)", ", 1)").encode()
        )  # one task, which leaves a core free
        wait_for(lambda: active(spark), 20)
        assert json.loads(quick.call(b"sql", [b"SELECT 1 AS x"]).final[0])["rows"] == [[1]]
        slow.command(DELETE, b"sql", b"all", uuid, b"")
        wait_for(lambda: not active(spark), 15)


@pytest.mark.parametrize(
    ("service", "text", "kind", "said"),
    [
        ("sql", "DROP TABLE jobs", "NotAllowed", "DROP TABLE is not allowed"),
        ("sql", "SELECT * FROM text.`/etc/passwd`", "NotAllowed", "is not one of the tables"),
        ("sql", "SELECT nothing FROM jobs", "BadQuery", "nothing"),
        ("sql", "SELECT user", "NotAllowed", "CURRENT USER is not allowed"),
        ("quick", ENDLESS, "TooLong", "more than 0.5 s"),
    ],
)
def test_failures_are_clear_to_web_clients(
    broker: BrokerProcess, spark: SparkSession, service: str, text: str, kind: str, said: str
) -> None:
    web = Http(broker.http)
    path = f"/v1/services/{service}/jobs"
    status, _, body = web.ask("POST", path, text.encode(), Prefer="wait=20", Accept="application/json")
    problem: Any = json.loads(body)
    assert (status, problem["reason"]) == (502, "worker-error"), problem
    assert kind in str(problem)
    assert said in problem["detail"]
    assert "Traceback" not in str(problem)
    web.close()
    wait_for(lambda: not active(spark), 15)


def test_the_service_speaks_nfp_whatever_it_is_told() -> None:
    assert serve.nfp_url("mdp://127.0.0.1:5555") == "nfp://127.0.0.1:5555"
    assert serve.nfp_url("dcp+ipc:///run/x.sock") == "nfp+ipc:///run/x.sock"
    for wrong in ("memo://127.0.0.1:5555", "http://127.0.0.1", "nonsense"):
        with pytest.raises(ConfigError, match="NFP"):
            serve.nfp_url(wrong)
