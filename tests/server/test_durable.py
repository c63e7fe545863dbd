"""Durable services over real sockets: what was stored is finished, whatever happens to the broker."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.support.broker import BrokerProcess, wait_for

TOML = """
[services.safe]
durable = true
[heartbeat]
interval = 0.5
"""


class Peers:
    """MDP/0.2 peers on pyzmq."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.sockets: list[zmq.Socket[bytes]] = []

    def socket(self, endpoint: str) -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.DEALER)
        socket.linger = 0
        self.sockets.append(socket)
        socket.connect(endpoint)
        return socket

    def worker(self, endpoint: str, service: bytes = b"safe") -> zmq.Socket[bytes]:
        socket = self.socket(endpoint)
        socket.send_multipart([b"MDPW02", b"\x01", service])
        return socket

    def close(self) -> None:
        for socket in self.sockets:
            socket.close()
        self.context.term()


@pytest.fixture
def peers() -> Iterator[Peers]:
    peers = Peers()
    yield peers
    peers.close()


def ask(client: zmq.Socket[bytes], task: str, **kwargs: object) -> object:
    """Return the answer to a task of the catalogue."""
    body = json.dumps({"task": task, "kwargs": kwargs}).encode()
    client.send_multipart([b"MDPC02", b"\x01", b"mmi.service.broker", body])
    assert client.poll(5000)
    return json.loads(client.recv_multipart()[3])


def submit(client: zmq.Socket[bytes], body: bytes, service: bytes = b"safe") -> None:
    client.send_multipart([b"MDPC02", b"\x01", service, body])


def work(worker: zmq.Socket[bytes], answers: dict[bytes, int], timeout: int = 50) -> bool:
    """Answer one request, counting how often each was seen."""
    if not worker.poll(timeout):
        return False
    frames = worker.recv_multipart()
    if frames[1] != b"\x02":
        return True
    answers[frames[4]] = answers.get(frames[4], 0) + 1
    worker.send_multipart([b"MDPW02", b"\x04", frames[2], b"", frames[4].upper()])
    return True


def stored(data: Path) -> dict[str, int]:
    """Jobs by state, read from the file itself."""
    database = sqlite3.connect(data / "jobs.db")
    try:
        return dict(database.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())
    finally:
        database.close()


def test_a_durable_job_is_answered_like_any_other(peers: Peers) -> None:
    with BrokerProcess(toml=TOML) as broker:
        client, worker = peers.socket(broker.endpoint), peers.worker(broker.endpoint)
        submit(client, b"hello")
        assert work(worker, {}, 5000)
        assert client.poll(5000)
        assert client.recv_multipart()[3] == b"HELLO"
        assert stored(broker.data) == {"done": 1}


def test_jobs_that_wait_survive_kill_9_of_the_broker(peers: Peers) -> None:
    with BrokerProcess(toml=TOML) as broker:
        client = peers.socket(broker.endpoint)
        for number in range(100):
            submit(client, b"%d" % number)
        wait_for(lambda: (broker.data / "jobs.db").exists() and stored(broker.data).get("waiting") == 100)
        broker.kill()
        broker.start_again()
        worker = peers.worker(broker.endpoint)
        seen: dict[bytes, int] = {}
        wait_for(lambda: work(worker, seen) and len(seen) == 100, 20)
        assert list(seen) == [b"%d" % number for number in range(100)]
        wait_for(lambda: stored(broker.data) == {"done": 100})


def test_a_graceful_stop_keeps_what_waits_and_what_runs(peers: Peers) -> None:
    toml = TOML.replace("durable = true", 'durable = true\ngrace = "0.5s"')
    with BrokerProcess("--drain", "0.1", toml=toml) as broker:
        client, worker = peers.socket(broker.endpoint), peers.worker(broker.endpoint)
        for number in range(3):
            submit(client, b"%d" % number)
        assert worker.poll(5000)  # and holds it
        assert broker.stop() == 0
        broker.start_again()
        worker = peers.worker(broker.endpoint)
        seen: dict[bytes, int] = {}
        wait_for(lambda: work(worker, seen) and len(seen) == 3, 20)
        wait_for(lambda: stored(broker.data) == {"done": 3})


def test_a_job_that_loses_all_its_workers_is_a_dead_letter_and_can_be_sent_again(peers: Peers) -> None:
    with BrokerProcess(toml=TOML.replace("durable = true", "durable = true\nretries = 0")) as broker:
        client, worker = peers.socket(broker.endpoint), peers.worker(broker.endpoint)
        submit(client, b"poison")
        assert worker.poll(5000)
        worker.close()
        asker = peers.socket(broker.endpoint)
        wait_for(lambda: ask(asker, "show_dead_letters")["jobs"])  # type: ignore[index,call-overload]
        (dead,) = ask(asker, "show_dead_letters")["jobs"]  # type: ignore[index,call-overload]
        assert dead["reason"] == "retries-exhausted"
        assert ask(asker, "resend_job", id=dead["id"]) == {"id": dead["id"], "sent": True}
        seen: dict[bytes, int] = {}
        worker = peers.worker(broker.endpoint)
        wait_for(lambda: work(worker, seen) and seen == {b"poison": 1})
        wait_for(lambda: ask(asker, "show_stored_job", id=dead["id"])["result"] == ["POISON"])  # type: ignore[index,call-overload]


def test_a_paused_service_keeps_its_jobs_until_it_is_resumed(peers: Peers) -> None:
    with BrokerProcess(toml=TOML) as broker:
        client, worker = peers.socket(broker.endpoint), peers.worker(broker.endpoint)
        asker = peers.socket(broker.endpoint)
        wait_for(lambda: ask(asker, "show_services"))
        assert ask(asker, "pause_service", name="safe") == {"name": "safe", "paused": True}
        submit(client, b"later")
        wait_for(lambda: stored(broker.data).get("waiting") == 1)
        assert not worker.poll(100)
        ask(asker, "resume_service", name="safe")
        assert work(worker, {}, 5000)
        assert client.poll(5000)


@pytest.mark.slow
def test_kill_9_at_random_moments_loses_no_stored_job_and_records_none_twice(peers: Peers) -> None:
    """Five rounds here; what was stored before a kill is done at the end, each job once in the books."""
    rounds, each = 5, 200
    dice = random.Random(7)
    answered: set[bytes] = set()
    toml = TOML.replace("durable = true", 'durable = true\ngrace = "0.5s"')
    with BrokerProcess(toml=toml) as broker:
        for number in range(rounds):
            client, worker = peers.socket(broker.endpoint), peers.worker(broker.endpoint)
            for job in range(each):
                submit(client, b"%d-%d" % (number, job))
            end = time.monotonic() + dice.uniform(0.0, 0.4)
            while time.monotonic() < end:
                work(worker, {}, 1)
                while client.poll(0):
                    answered.add(client.recv_multipart()[3].lower())
            broker.kill()
            client.close()
            worker.close()
            broker.start_again()
        before = sum(stored(broker.data).values())
        worker = peers.worker(broker.endpoint)
        wait_for(lambda: work(worker, {}) and set(stored(broker.data)) <= {"done"}, 60)
        assert stored(broker.data) == {"done": before}
        database = sqlite3.connect(broker.data / "jobs.db")
        bodies = [row[0] for row in database.execute("SELECT body FROM requests")]
        database.close()
        assert len(bodies) == len(set(bodies)) == before
        assert answered <= {bytes(body)[2:] for body in bodies}
