"""Higher priorities first; and nobody waits for ever behind them."""

from __future__ import annotations

import pytest

from polydomo.core.policy import Policy
from polydomo.core.targets import NAMES, Target
from polydomo.core.tracked_job import Options
from tests.core.listening import Listener
from tests.support.core import Bench, FakeWorker
from tests.support.invariants import check


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.broker.services.policies[b"s"] = Policy(ageing=10.0)
    return bench


def drain(worker: FakeWorker) -> list[bytes]:
    while worker.holds:
        worker.answer()
    return worker.bodies


def busy(bench: Bench) -> FakeWorker:
    worker = bench.worker(b"s", name=b"w")
    bench.client().ask(b"s", b"first")
    return worker


def test_higher_ones_come_first(bench: Bench) -> None:
    worker = busy(bench)
    client = Listener(bench.broker, b"c")
    for priority in (0, -1, 5, 0, 9, 5):
        client.send(b"s", Options(priority=priority), b"p%d" % priority)
    client.ask(b"s", b"plain")
    check(bench.broker)
    assert drain(worker) == [b"first", b"p9", b"p5", b"p5", b"p0", b"p0", b"plain", b"p-1"]
    check(bench.broker)
    assert bench.broker.services[b"s"].queue.bands == {}


def test_a_job_that_has_waited_counts_more(bench: Bench) -> None:
    worker = busy(bench)
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(priority=0), b"old")
    bench.at(25.0, worker)
    client.send(b"s", Options(priority=2), b"two")
    client.send(b"s", Options(priority=3), b"three")
    assert drain(worker) == [b"first", b"three", b"old", b"two"]


def test_clients_of_one_priority_take_turns(bench: Bench) -> None:
    worker = busy(bench)
    one, two = Listener(bench.broker, b"1"), Listener(bench.broker, b"2")
    for number in range(3):
        one.send(b"s", Options(priority=4), b"a%d" % number)
    two.send(b"s", Options(priority=4), b"b0")
    assert drain(worker) == [b"first", b"a0", b"b0", b"a1", b"a2"]


def test_also_among_jobs_for_one_worker(bench: Bench) -> None:
    worker = busy(bench)
    client = Listener(bench.broker, b"c")
    for priority in (0, 7, 3):
        target = Target(NAMES, [b"w"], single=True)
        client.send(b"s", Options(priority=priority, target=target), b"p%d" % priority)
    check(bench.broker)
    assert drain(worker) == [b"first", b"p7", b"p3", b"p0"]
    check(bench.broker)


def test_they_expire_and_go_with_their_client_like_others(bench: Bench) -> None:
    busy(bench)
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(priority=3, wait=1.0))
    client.send(b"s", Options(priority=4))
    job = client.send(b"s", Options(priority=5))
    bench.jump(1.5)
    check(bench.broker)
    assert client.reasons() == ["expired"]
    assert job is not None
    assert bench.broker.cancel(job)
    check(bench.broker)
    bench.broker.client_gone(client.core)
    check(bench.broker)
    assert bench.broker.services[b"s"].queue.waiting == 0


def test_a_lost_one_is_first_in_its_priority(bench: Bench) -> None:
    worker = bench.worker(b"s", name=b"w")
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(priority=3), b"lost")
    client.send(b"s", Options(priority=3), b"next")
    client.send(b"s", Options(priority=4), b"higher")
    worker.leave()
    check(bench.broker)
    assert drain(bench.worker(b"s")) == [b"higher", b"lost", b"next"]


# Shares of principals


def test_principals_take_turns_however_many_clients_they_have(bench: Bench) -> None:
    worker = busy(bench)
    for number in range(5):
        bench.client(principal="crowd").ask(b"s", b"crowd-%d" % number)
    one, two = bench.client(principal="pair"), bench.client(principal="pair")
    for client, body in ((one, b"one-0"), (one, b"one-1"), (two, b"two-0")):
        client.ask(b"s", body)
    bench.client(principal="single").ask(b"s", b"single")
    check(bench.broker)
    assert drain(worker) == [
        *(b"first", b"crowd-0", b"one-0", b"single"),
        *(b"crowd-1", b"two-0"),
        *(b"crowd-2", b"one-1"),
        *(b"crowd-3", b"crowd-4"),
    ]
    check(bench.broker)


def test_one_connection_gets_half_of_the_work_beside_a_thousand(bench: Bench) -> None:
    worker = busy(bench)
    for _ in range(1000):
        noisy = bench.client(principal="noisy")
        for _ in range(3):
            noisy.ask(b"s", b"noise")
    quiet = bench.client(principal="quiet")
    for _ in range(10):
        quiet.ask(b"s", b"quiet")
    for _ in range(21):
        worker.answer()
    assert worker.bodies.count(b"quiet") == 10
    check(bench.broker)


def test_a_lost_job_is_next_and_its_principals_share_with_it(bench: Bench) -> None:
    worker = bench.worker(b"s", name=b"w")
    one, two, three = (bench.client(principal=name) for name in ("one", "two", "three"))
    one.ask(b"s", b"lost")
    two.ask(b"s", b"two")
    three.ask(b"s", b"three")
    one.ask(b"s", b"later")
    worker.leave()
    check(bench.broker)
    assert drain(bench.worker(b"s")) == [b"lost", b"two", b"three", b"later"]


def test_shares_end_with_their_last_job_however_it_leaves(bench: Bench) -> None:
    busy(bench)
    clients = [bench.client(principal=name) for name in ("one", "two", "three", "four")]
    for client in clients:
        client.ask(b"s", b"body", options=Options(wait=1.0) if client is clients[2] else None)
    queue = bench.broker.services[b"s"].queue
    bench.broker.client_gone(clients[0].core)
    check(bench.broker)
    bench.jump(1.5)
    check(bench.broker)
    (job,) = clients[3].core.queues[queue].jobs
    assert bench.broker.cancel(job)
    check(bench.broker)
    assert [job.client for job in queue.jobs()] == [clients[1].core]
    assert (queue.principal, dict(queue.others)) == (clients[1].core.principal, {})


def test_another_broker_fetches_of_each_principal_in_turn(bench: Bench) -> None:
    """Only jobs of our own clients; those of brokers keep their places."""
    busy(bench)
    relay, own, other = (bench.client(principal=name) for name in ("relay", "own", "other"))
    relay.core.relay = True
    for client, body in ((relay, b"theirs"), (own, b"own-0"), (own, b"own-1"), (other, b"other")):
        client.ask(b"s", body)
    queue = bench.broker.services[b"s"].queue
    bodies = []
    for _ in range(4):
        job = queue.next_of_ours(0.0)
        bodies.append(None if job is None else job.body)
    assert bodies == [b"own-0", b"other", b"own-1", None]
    assert [job.body for job in queue.jobs()] == [b"theirs"]
