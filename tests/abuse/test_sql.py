"""The SQL service against queries that mean harm: after each of them an honest one is answered soon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.cli.support import CLEAN
from tests.pipeline.conftest import QUICK
from tests.support import hostile_sql
from tests.support.broker import BrokerProcess, wait_for
from tests.support.everyone import Http
from tests.support.peers import Manager

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Seconds for an honest query after a hostile one: as promised, and in the suite, beside other tests. There the engine's
# time limit may end the honest query as well; it is asked again, as a user would.
SOON, SOME_TIME = 2.0, 60.0

# Seconds for a query that must wait for an engine to be replaced.
PATIENCE = 300.0

# Of the whole list: the query that kills an engine comes last, so that no test waits for a new one.
FEW = [
    "SELECT user",
    "SELECT * FROM (WITH secret AS (SELECT 1) SELECT * FROM secret), secret",
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT java_method('java.lang.System', 'getProperty', 'user.name')",
    "SELECT input_file_name() FROM jobs",
    "SET -v",
    "INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT * FROM jobs",
    hostile_sql.BOMBS[1],
    hostile_sql.ENDLESS[1],
    hostile_sql.MEMORY[0],
]


class Service:
    """`polydomo spark serve` and a broker, with its temporary files in a folder of their own."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.broker = broker
        words = ["--data", str(folder / "data"), "--url", self.broker.endpoint.replace("tcp://", "mdp://")]
        words += ["--master", "local[2]", "--time", "2s"]
        words += [word for pair in QUICK for word in ("--set", f"spark.conf={pair}")]
        words += ["--set", "spark.conf=spark.driver.memory=512m"]
        java = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "polydomo", "spark", "serve", *words],
            stderr=self.log,
            env={**CLEAN, **java, "TMPDIR": str(self.temporary)},
        )
        with Manager(self.broker.endpoint) as manager:
            wait_for(lambda: manager.offered(b"sql") or self.process.poll() is not None, 300)
        assert self.process.poll() is None, self.said()

    def ask(self, sql: str) -> tuple[str, str]:
        """The kind of failure, or nothing and the rows."""
        web = Http(self.broker.http)
        web.connection.timeout = 60
        more = {"Prefer": "wait=20", "Accept": "application/json"}
        status, headers, body = web.ask("POST", "/v1/services/sql/jobs", sql.encode(), **more)
        job = headers["Location"]
        until = time.monotonic() + PATIENCE
        while status == 202 and time.monotonic() < until:
            status, _, body = web.ask("GET", f"{job}/result", **more)
        web.close()
        found = json.loads(body)
        if status == 200:
            return "", str(found["rows"])
        assert (status, found["reason"]) == (502, "worker-error"), (sql[:200], found, self.said())
        return found["account"]["kind"], found["detail"]

    def ask_honestly(self, soon: float) -> tuple[tuple[str, str], float]:
        """The answer to a query that means no harm, and the seconds that it took."""
        return self.ask_again("SELECT 1", soon)

    def ask_again(self, sql: str, patience: float) -> tuple[tuple[str, str], float]:
        """The answer to a query that a busy machine may not get to within its time limit, and the seconds it took."""
        begin = time.monotonic()
        answer = self.ask(sql)
        while answer[0] == "TooLong" and time.monotonic() < begin + patience:
            answer = self.ask(sql)
        return answer, time.monotonic() - begin

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def stop(self, number: signal.Signals) -> None:
        """End the process with its children; none of them is left."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(number)
        code = self.process.wait(60)
        _, alive = psutil.wait_procs(children, timeout=30)
        said = self.said()
        self.log.close()
        assert code == (-number if number == signal.SIGKILL else 0), said
        assert not alive
        assert list(self.temporary.iterdir()) == []


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, no_java: None, full: bool) -> Iterator[Service]:
    with BrokerProcess(http=True) as broker:
        made = Service(tmp_path_factory.mktemp("sql"), broker)
        yield made
        made.stop(signal.SIGKILL if full else signal.SIGINT)


def test_after_every_hostile_query_an_honest_one_is_answered(service: Service, full: bool) -> None:
    texts = [*hostile_sql.REFUSED, *hostile_sql.SURVIVED] if full else FEW
    assert len(texts) >= (200 if full else 10)
    soon = SOON if full else SOME_TIME
    slowest, kinds, wrong = 0.0, Counter[str](), []
    for text in texts:
        # A refusal comes before the query runs, so one that ran out of time was not looked at yet.
        (kind, said), _ = service.ask_again(text, soon if text in hostile_sql.REFUSED else 0)
        honest, took = service.ask_honestly(soon)
        if full:
            print(f"{took:.2f} s after {kind or 'rows':12} {text[:80]}", flush=True)
        if honest != ("", "[[1]]") or took > soon:
            wrong.append((text[:200], f"an honest query took {took:.2f} s", honest))
        if text in hostile_sql.REFUSED and kind not in ("NotAllowed", "BadQuery"):
            wrong.append((text[:200], kind, (kind, said)))
        slowest = max(slowest, took)
        kinds[kind or "rows"] += 1
    print(
        f"{len(texts)} hostile queries: {dict(kinds)}; the slowest honest one after them took {slowest:.2f} s"
    )
    assert wrong == []
    assert service.process.poll() is None


def test_queries_that_cannot_be_interrupted_do_not_keep_their_places(service: Service, full: bool) -> None:
    """As many as there are places, at once: at the end of their time the places are free again, for any query."""
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(service.ask, hostile_sql.REGEX[0]) for _ in range(4)]
        kinds = {one.result()[0] for one in asked}
    assert kinds == {"TooLong"}
    soon = SOON if full else SOME_TIME
    honest, took = service.ask_honestly(soon)
    assert honest == ("", "[[1]]")
    assert took < soon
    if full:
        assert service.ask("SELECT 'abc' RLIKE 'b'") == ("", "[[True]]")
