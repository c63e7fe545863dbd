"""Durable jobs whose worker or client is killed or frozen, and many submissions of one and the same job."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.server.test_survival import ends_in_file
from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import DcpPeer, Manager
from tests.support.survivors import POST, SERVICE, Client, Sockets, Worker, alone, until

TOML = """
[heartbeat]
interval = 0.5
[limits]
client_jobs = 100000
[services.safe]
durable = true
timeout = 1
"""
MANY = 1000


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml=TOML) as process:
        yield process


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


def attempts(broker: BrokerProcess) -> int:
    """Of the one job there is."""
    with Manager(broker.endpoint) as manager:
        (shown,) = manager.show("show_stored_jobs")["jobs"]
    found: int = shown["attempts"]
    return found


def test_kill_9_of_a_worker_mid_job(broker: BrokerProcess, sockets: Sockets) -> None:
    """Another worker runs it."""
    client = Client(sockets, broker.endpoint, b"client", 1)
    with alone("worker", broker.endpoint, "first") as first:
        client.post(b"job")
        assert first.heard() == "job"
        first.kill()
    with alone("worker", broker.endpoint, "other") as other:
        assert other.heard() == "job"
        other.go_on()
        assert until([], [client], lambda: b"job" in client.results, 10)
    assert attempts(broker) == 2
    assert ends_in_file(broker)[b"job"] == ("done", client.results[b"job"])


def test_a_frozen_worker_s_late_answer_is_refused(broker: BrokerProcess, sockets: Sockets) -> None:
    """A frozen worker's job times out and another one answers; the late answer is dropped and the worker stays."""
    client = Client(sockets, broker.endpoint, b"client", 1)
    with alone("worker", broker.endpoint, "frozen") as frozen:
        client.post(b"job")
        assert frozen.heard() == "job"
        frozen.freeze()
        frozen.go_on()  # it will answer at once when it can
        with alone("worker", broker.endpoint, "other") as other:
            assert other.heard() == "job"
            other.go_on()
            assert until([], [client], lambda: b"job" in client.results, 10)
            assert client.results[b"job"] == b"job by other"
        frozen.thaw()
        assert frozen.heard() == "answered"
        client.post(b"next")  # it gets this behind its late answer
        assert frozen.heard() == "next"
        frozen.go_on()
        assert until([], [client], lambda: b"next" in client.results, 10)
        client.ask(b"job")
        assert until([], [client], lambda: not client.accepted, 10)
        assert client.changed == []
    assert ends_in_file(broker)[b"job"] == ("done", b"job by other")


def test_kill_9_of_a_client_its_result_waits_for_it(broker: BrokerProcess, sockets: Sockets) -> None:
    """For itself, back under its name, and for any other that knows the job's name."""
    with alone("client", broker.endpoint, "lost") as lost:
        assert lost.heard() == "acknowledged"
        lost.kill()
    job = b"job-of-lost"
    with alone("worker", broker.endpoint, "worker") as worker:
        assert worker.heard() == job.decode()
        worker.go_on()
        wait_for(lambda: ends_in_file(broker)[job][0] == "done")
    for name in (b"lost", b"another"):
        client = Client(sockets, broker.endpoint, name, 1)
        client.ask(job)
        assert until([], [client], lambda client=client: job in client.results, 10)
        assert client.results[job] == job + b" by worker"


def test_a_thousand_nfp_submissions_with_one_key_are_one_execution(
    broker: BrokerProcess, sockets: Sockets
) -> None:
    clients = [Client(sockets, broker.endpoint, b"client-%d" % number, 0) for number in range(10)]
    names = [(client, b"%b-%d" % (client.name, number)) for number in range(MANY // 10) for client in clients]
    body = json.dumps({"options": {"key": "the one"}, "what": "pay"}).encode()
    for client, uuid in names:
        client.posted[uuid] = float("inf")
        client.send(POST, b"any", uuid, body)
    worker = Worker(sockets, broker.endpoint, b"worker")
    assert until([worker], clients, lambda: not any(client.under_way for client in clients), 30)
    assert sum(worker.ran.values()) == 1
    results = [client.results[uuid] for client, uuid in names]
    assert len(results) == MANY
    assert len(set(results)) == 1
    assert not any(client.refused for client in clients)
    # And the same key later, also after a restart, is the same job still.
    broker.kill()
    broker.start_again()
    late = Client(sockets, broker.endpoint, b"late", 0)
    late.posted[b"late"] = float("inf")
    late.send(POST, b"any", b"late", body)
    assert until([worker], [late], lambda: b"late" in late.results, 10)
    assert late.results[b"late"] == results[0]
    assert sum(worker.ran.values()) == 1


def test_a_thousand_dcp_submissions_with_one_key_are_one_execution(broker: BrokerProcess) -> None:
    """DCP: a metadata part `polydomo:{…}` (DECISIONS)."""
    with DcpPeer(broker.endpoint, SERVICE) as worker, DcpPeer(broker.endpoint) as client:
        for number in range(MANY):
            client.request(SERVICE, b"pay", metadata=[b'polydomo:{"key": "the one"}', b"%d" % number])
        task = worker.take()
        worker.reply(task, [b"paid"])
        answers = [client.answer() for _ in range(MANY)]
        assert [answer.body for answer in answers] == [[b"paid"]] * MANY
        assert sorted(int(answer.metadata[1]) for answer in answers) == list(range(MANY))
        with Manager(broker.endpoint) as manager:
            assert len(manager.show("show_stored_jobs")["jobs"]) == 1


def test_every_acknowledged_submission_with_one_key_is_known_after_a_restart(
    broker: BrokerProcess, sockets: Sockets
) -> None:
    """Each was acknowledged under a UUID of its own, so each can be asked for."""
    client = Client(sockets, broker.endpoint, b"client", 0)
    body = json.dumps({"options": {"key": "the one"}}).encode()
    for uuid in (b"first", b"second"):
        client.posted[uuid] = float("inf")
        client.send(POST, b"any", uuid, body)
    assert until([], [client], lambda: len(client.acknowledged) == 2, 10)
    broker.kill()
    broker.start_again()
    worker = Worker(sockets, broker.endpoint, b"worker")
    assert until([worker], [client], lambda: len(client.results) == 2, 5), client.refused
    assert sum(worker.ran.values()) == 1
