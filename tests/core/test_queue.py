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
