"""core: clients that go away, for good or for a while (DECISIONS §Who gets a second try)."""

from __future__ import annotations

from polydomo.core.broker import ANSWERED
from polydomo.core.policy import BrokerLimits
from tests.support.core import Bench, check_empty


def test_a_gone_clients_waiting_jobs_are_dropped() -> None:
    bench = Bench()
    client, other = bench.client(), bench.client()
    for service in (b"a", b"b", b"a"):
        client.ask(service)
    kept = other.ask(b"a")
    assert kept is not None
    bench.broker.client_gone(client.core)
    assert client.heard == []
    assert bench.broker.accounting.active == 1
    assert list(bench.broker.services) == [b"a"]
    worker = bench.worker(b"a", b"b")
    assert worker.jobs == [kept.id]
    assert list(bench.broker.clients) == [other.core]


def test_a_gone_clients_running_job_ends_without_an_answer() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    bench.broker.client_gone(client.core)
    assert worker.partial() == ANSWERED
    assert worker.answer() == ANSWERED
    assert client.heard == []
    worker.leave()
    check_empty(bench.broker)


def test_a_gone_clients_job_is_not_tried_again() -> None:
    bench = Bench()
    worker, other, client = bench.worker(b"a"), bench.worker(b"a"), bench.client()
    job = client.ask(b"a")
    assert job is not None
    bench.broker.client_gone(client.core)
    worker.leave()
    assert other.jobs == []
    assert job.failure is not None
    assert job.failure.reason == "client-gone"
    assert bench.broker.accounting.active == 0


def test_a_gone_clients_failure_is_told_to_nobody() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    bench.broker.client_gone(client.core)
    assert worker.fail() == ANSWERED
    assert client.heard == []


def test_ten_thousand_clients_that_come_ask_and_go_leave_nothing() -> None:
    bench = Bench(wait=3600)
    for number in range(10_000):
        client = bench.client()
        client.ask(b"made-up-%d" % number)
        bench.broker.client_gone(client.core)
    check_empty(bench.broker)
    assert not bench.broker.clients
    assert len(bench.broker.timers) < 200
    assert len(bench.broker.accounting.recent) == 1000


def test_a_client_that_is_back_within_its_grace_time_is_answered() -> None:
    bench = Bench(bounds=BrokerLimits(client_grace=10), timeout=100)
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    client.ask(b"a")
    bench.broker.client_disconnected(client.core)
    bench.at(9.9, worker)
    bench.broker.client_reconnected(client.core)
    bench.at(50.0, worker)
    assert client.flow == []
    worker.answer(b"1")
    worker.answer(b"2")
    assert client.finals() == [b"1", b"2"]


def test_answers_meanwhile_go_to_its_port() -> None:
    """Its dialect keeps them for it."""
    bench = Bench(bounds=BrokerLimits(client_grace=10))
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    bench.broker.client_disconnected(client.core)
    worker.answer()
    assert client.finals() == [b"answer"]


def test_a_client_that_stays_away_is_forgotten() -> None:
    bench = Bench(bounds=BrokerLimits(client_grace=10))
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    client.ask(b"a")
    bench.broker.client_disconnected(client.core)
    bench.at(10.0, worker)
    assert client.core.gone
    assert client.flow == ["forget"]
    worker.answer()
    assert client.heard == []
    assert len(worker.jobs) == 1
    worker.leave()
    check_empty(bench.broker)


def test_away_and_back_again_and_again_starts_the_grace_time_anew() -> None:
    bench = Bench(bounds=BrokerLimits(client_grace=10))
    client = bench.client()
    client.ask(b"a")
    for now in range(0, 50, 9):
        bench.at(float(now))
        bench.broker.client_disconnected(client.core)
        bench.at(now + 8.9)
        assert not client.core.gone
        bench.broker.client_reconnected(client.core)
    bench.broker.client_disconnected(client.core)
    bench.at(70.0)
    assert client.core.gone


def test_going_away_for_good_twice_is_going_once() -> None:
    bench = Bench()
    client = bench.client()
    client.ask(b"a")
    bench.broker.client_disconnected(client.core)
    bench.broker.client_gone(client.core)
    bench.broker.client_gone(client.core)
    bench.at(100.0)
    assert client.flow == []
    check_empty(bench.broker)


def test_one_clients_departure_keeps_the_others_turns() -> None:
    bench = Bench()
    clients = [bench.client() for _ in range(4)]
    ids = [[client.ask(b"a").id for _ in range(2)] for client in clients]  # type: ignore[union-attr]
    bench.broker.client_gone(clients[1].core)
    worker = bench.worker(b"a")
    while worker.holds:
        worker.answer()
    assert worker.jobs == [ids[0][0], ids[2][0], ids[3][0], ids[0][1], ids[2][1], ids[3][1]]
