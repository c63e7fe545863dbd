"""Jobs for whoever has a resource now."""

from __future__ import annotations

import pytest

from polydomo.core import failure as reasons
from polydomo.core.targets import RESOURCES, Target
from polydomo.core.tracked_job import Options
from tests.core.listening import Asked, Listener
from tests.support.core import Bench, check_empty
from tests.support.invariants import check


@pytest.fixture
def bench() -> Bench:
    return Bench()


def about(*names: bytes, uid: str = "u", single: bool = True, wait: float = -1.0) -> Options:
    return Options(uid=uid, wait=wait, target=Target(RESOURCES, list(names), single=single))


def test_it_reaches_the_worker_that_declared_it(bench: Bench) -> None:
    first, second = Asked(bench, b"w1", b"s"), Asked(bench, b"w2", b"s")
    bench.broker.set_resources(first.core, [b"a", b"b"])
    bench.broker.set_resources(second.core, [b"b", b"c"])
    client = Listener(bench.broker, b"c")
    client.send(b"s", about(b"c"))
    assert (first.jobs, len(second.jobs)) == ([], 1)
    client.send(b"s", about(b"b", uid="v"))
    assert len(first.jobs) == 1
    assert bench.broker._resources.holders(b"s", b"b") == [first.core, second.core]
    check(bench.broker)


def test_it_waits_for_someone_who_has_it(bench: Bench) -> None:
    worker = Asked(bench, b"w1", b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", about(b"a"))
    assert worker.jobs == []
    check(bench.broker)
    bench.broker.set_resources(worker.core, [b"a"])
    assert len(worker.jobs) == 1
    worker.answer(b"of a")
    assert client.finals() == [b"of a"]
    assert bench.broker._resources._wanted == {}
    check(bench.broker)


def test_or_expires(bench: Bench) -> None:
    worker = Asked(bench, b"w1", b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", about(b"a", wait=2.0))
    bench.at(2.5, worker)
    assert client.reasons() == [reasons.EXPIRED]
    assert bench.broker._resources._wanted == {}


def test_when_the_resource_moves_so_does_the_job(bench: Bench) -> None:
    first, second = Asked(bench, b"w1", b"s"), Asked(bench, b"w2", b"s")
    bench.broker.set_resources(first.core, [b"a"])
    client = Listener(bench.broker, b"c")
    client.send(b"s", about(b"a", uid="one"))
    client.send(b"s", about(b"a", uid="two"))
    bench.broker.set_resources(second.core, [b"a"])
    bench.broker.set_resources(first.core, [])
    assert (len(first.jobs), len(second.jobs)) == (1, 1)
    check(bench.broker)


def test_several_resources_reach_each_holder_once(bench: Bench) -> None:
    first, second = Asked(bench, b"w1", b"s"), Asked(bench, b"w2", b"s")
    bench.broker.set_resources(first.core, [b"a", b"b"])
    bench.broker.set_resources(second.core, [b"c"])
    client = Listener(bench.broker, b"c")
    client.send(b"s", about(b"a", b"b", b"c", single=False))
    first.answer(b"1")
    second.answer(b"2")
    assert client.whole() == {b"w1": b"1", b"w2": b"2"}


def test_the_broker_shares_out_and_tells_each_worker(bench: Bench) -> None:
    names = [b"r%d" % number for number in range(100)]
    bench.broker.control.share_out(b"s", names)
    workers = {name: Asked(bench, name, b"s") for name in (b"w1", b"w2", b"w3")}
    bench.at(0.1, *workers.values())
    shares = {name: worker.shares[-1] for name, worker in workers.items()}
    assert sorted(name for share in shares.values() for name in share) == sorted(names)
    assert all(len(share) > 10 for share in shares.values())
    workers[b"w1"].leave()
    bench.at(0.2, workers[b"w2"], workers[b"w3"])
    for name in (b"w2", b"w3"):
        assert set(shares[name]) < set(workers[name].shares[-1])
        assert bench.broker.control.resources_of(workers[name].core) == workers[name].shares[-1]
    client = Listener(bench.broker, b"c")
    mine = workers[b"w3"].shares[-1][0]
    client.send(b"s", about(mine))
    assert len(workers[b"w3"].jobs) == 1


def test_jobs_for_a_shared_resource_move_with_it(bench: Bench) -> None:
    bench.broker.control.share_out(b"s", [b"r"])
    first = Asked(bench, b"w1", b"s")
    bench.at(0.1, first)
    client = Listener(bench.broker, b"c")
    client.send(b"s", about(b"r", uid="held"))
    client.send(b"s", about(b"r", uid="waits"))
    first.leave()
    bench.at(0.2)
    second = Asked(bench, b"w2", b"s", slots=2)
    bench.at(0.3, second)
    assert len(second.jobs) == 2
    second.answer()
    second.answer()
    second.leave()
    check_empty(bench.broker)


def test_a_thousand_workers_and_twenty_thousand_resources(bench: Bench) -> None:
    names = [b"resource-%d" % number for number in range(20_000)]
    bench.broker.control.share_out(b"s", names)
    workers = [Asked(bench, b"worker-%d" % number, b"s") for number in range(1_000)]
    while bench.broker.tick() < bench.broker.now + 0.01:
        bench.broker.advance(bench.broker.now + 0.001)
    shares = bench.broker._resources.shares[b"s"]
    before = {worker.core.name: set(bench.broker.control.resources_of(worker.core)) for worker in workers}
    assert sum(len(share) for share in before.values()) == 20_000
    leaver = workers.pop(500)
    leaver.leave()
    while bench.broker.tick() < bench.broker.now + 0.01:
        bench.broker.advance(bench.broker.now + 0.001)
    after = {worker.core.name: set(bench.broker.control.resources_of(worker.core)) for worker in workers}
    moved = set().union(*(after[name] - before[name] for name in after))
    assert moved == before[leaver.core.name]
    assert all(before[name] <= after[name] for name in after)
    compared = shares.compared
    client = Listener(bench.broker, b"c")
    for number in range(0, 20_000, 100):
        name = names[number]
        (holder,) = bench.broker._resources.holders(b"s", name)
        assert name in after[holder.name]
    client.send(b"s", about(names[7]))
    (asked,) = [worker for worker in workers if worker.jobs]
    assert names[7] in after[asked.core.name]
    assert shares.compared == compared, "asking who has a resource costs no comparison"
