"""The ledger of a real broker: what its peers did is there, and nothing durable is missing, whatever happens to it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from polydomo.server.ledger_service import job_row
from polydomo.store.records import DONE, JobRecord
from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import MdpClient, MdpWorker
from tests.support.survivors import Client, Sockets, Worker, run, until

TOML = """
[heartbeat]
interval = 0.5
[limits]
client_jobs = 100000
[ledger]
roll = "200ms"
[services.safe]
grace = 2
retries = 20
"""


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


def rows(broker: BrokerProcess, table: str = "jobs") -> list[dict[str, Any]]:
    folder = broker.data / "ledger" / table
    return [
        row for path in sorted(folder.glob("[!.]*.parquet")) for row in parquet.read_table(path).to_pylist()
    ]


Total = Counter[tuple[str, str, str]]


def in_store(broker: BrokerProcess) -> Total:
    """Ended jobs by client, service and state."""
    with closing(sqlite3.connect(broker.data / "jobs.db")) as database:
        found = database.execute("SELECT client, service, state FROM jobs WHERE finished IS NOT NULL")
        return Counter((client.decode(), service.decode(), state) for client, service, state in found)


def in_ledger(broker: BrokerProcess) -> Total:
    """The same of distinct rows."""
    found = {(row["job_id"], row["finished"]): row for row in rows(broker) if row["durable"]}
    return Counter((row["client"], row["service"], row["outcome"]) for row in found.values())


def test_every_durable_job_is_there_after_kill_9_under_load(sockets: Sockets) -> None:
    with BrokerProcess("--ledger", "auto", toml=TOML) as broker:
        workers = [Worker(sockets, broker.endpoint, b"w%d" % n, remembers=n % 2 == 0) for n in range(4)]
        client = Client(sockets, broker.endpoint, b"client", 300)
        for moment in (0.9, 0.35, 0.6):
            run(workers, [client], moment)
            broker.kill()
            broker.start_again()
        assert until(workers, [client], lambda: not client.under_way, 60)
        wait_for(lambda: in_ledger(broker) == in_store(broker), 10)
        assert sum(in_store(broker).values()) > 300
        assert any(row["rebuilt"] for row in rows(broker)), "no kill came between a commit and its segment"
        assert broker.stop() == 0
        assert in_ledger(broker) == in_store(broker)
        runs = [row for row in rows(broker, "events") if row["role"] == "broker"]
        assert Counter(row["kind"] for row in runs) == Counter(started=4, stopped=1)


def test_a_stopped_broker_has_written_everything_and_rebuilds_nothing(sockets: Sockets) -> None:
    with BrokerProcess("--ledger", "auto", toml=TOML.replace("200ms", "1h"), http=True) as broker:
        workers = [Worker(sockets, broker.endpoint, b"w", remembers=True)]
        client = Client(sockets, broker.endpoint, b"client", 20)
        assert until(workers, [client], lambda: len(client.results) > 50, 20, more=True)
        assert until(workers, [client], lambda: not client.under_way, 20)
        assert rows(broker) == []
        with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=10) as answer:
            assert b"polydomo_ledger_lost_total 0.0" in answer.read()
        assert broker.stop() == 0
        assert in_ledger(broker) == in_store(broker)
        broker.start_again()
        assert broker.stop() == 0
        assert not any(row["rebuilt"] for row in rows(broker))


def test_a_ledger_that_is_turned_on_later_has_what_the_store_still_knows(sockets: Sockets) -> None:
    with BrokerProcess(toml=TOML) as broker:
        workers = [Worker(sockets, broker.endpoint, b"w", remembers=True)]
        client = Client(sockets, broker.endpoint, b"client", 20)
        assert until(workers, [client], lambda: len(client.results) > 50, 20, more=True)
        assert until(workers, [client], lambda: not client.under_way, 20)
        assert broker.stop() == 0
        assert not (broker.data / "ledger").exists()
        broker.command += ["--ledger", "auto"]
        broker.start_again()
        wait_for(lambda: in_ledger(broker) == in_store(broker), 10)
        assert all(row["rebuilt"] for row in rows(broker))


def test_lost_attempts_and_peers_have_rows_of_their_own() -> None:
    with BrokerProcess("--ledger", "auto", toml=TOML) as broker:
        lost = MdpWorker(broker.endpoint, b"echo", identity=b"lost")
        with MdpClient(broker.endpoint, identity=b"me") as client:
            client.request(b"echo", b"x")
            lost.take()
            lost.close()
            with MdpWorker(broker.endpoint, b"echo", identity=b"second") as worker:
                worker.reply(worker.take(), [b"y"])
                assert client.answer(b"echo").final == [b"y"]
        assert broker.stop() == 0
        (job,) = rows(broker)
        (attempt,) = rows(broker, "attempts")
        assert (job["attempts"], job["worker"], job["client"], job["outcome"]) == (2, "second", "me", "done")
        assert (attempt["job_id"], attempt["number"], attempt["worker"]) == (job["job_id"], 1, "lost")
        assert attempt["outcome"] == "worker-lost"
        assert (
            job["submitted"]
            <= attempt["dispatched"]
            <= attempt["ended"]
            <= job["dispatched"]
            <= job["finished"]
        )
        seen = [(row["role"], row["kind"], row["peer"]) for row in rows(broker, "events")]
        for happening in (
            ("worker", "joined", "lost"),
            ("worker", "left", "lost"),
            ("client", "joined", "me"),
            ("broker", "stopped", "polydomo"),
        ):
            assert happening in seen


def test_questions_to_the_broker_itself_are_no_jobs_of_the_ledger() -> None:
    with BrokerProcess("--ledger", "auto", toml=TOML) as broker, MdpClient(broker.endpoint) as client:
        assert client.call(b"mmi.service", [b"nobody"]).final == [b"404"]
        assert broker.stop() == 0
        assert rows(broker) == []


def test_a_dead_letter_that_is_sent_again_has_a_row_for_each_end() -> None:
    toml = TOML + "[services.frail]\ndurable = true\nretries = 0\n"
    with BrokerProcess("--ledger", "auto", toml=toml.replace("200ms", "1h")) as broker:
        url = "mdp://" + broker.endpoint.split("://")[1]
        with MdpClient(broker.endpoint, identity=b"me") as client:
            client.request(b"frail", b"x")
            with MdpWorker(broker.endpoint, b"frail") as lost:
                lost.take()
            dead: list[dict[str, Any]] = []
            wait_for(lambda: dead.extend(ask(url, "jobs", "dead")["jobs"]) or dead)
            ask(url, "jobs", "resend", dead[0]["id"])
            with MdpWorker(broker.endpoint, b"frail") as worker:
                worker.reply(worker.take(), [b"y"])
                wait_for(lambda: [state for _, _, state in in_store(broker)] == ["done"])
        broker.kill()  # the first end is only in the ledger by now: the store forgot it when the job was sent again
        broker.start_again()
        assert broker.stop() == 0
        assert [row["outcome"] for row in sorted(rows(broker), key=lambda row: row["finished"])] == [
            "dead",
            "done",
        ]
        assert in_store(broker).total() == 1


def ask(url: str, *words: str) -> Any:
    """The command's answer."""
    command = [sys.executable, "-m", "polydomo", *words, "--url", url, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


def test_no_place_for_it_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RuntimeError, match=r"(?s)cannot write the ledger.*ledger\.folder"):
        BrokerProcess("--ledger", str(blocked / "below"))


@pytest.mark.parametrize(("owner", "told"), [("ann", "ann"), ("anonymous", None)])
def test_a_rebuilt_row_has_the_principal_of_its_job(owner: str, told: str | None) -> None:
    record = JobRecord("id", b"safe", state=DONE, code="", client=b"c", principal=owner)
    assert job_row(record)["principal"] == told
