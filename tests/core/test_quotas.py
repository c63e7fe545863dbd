"""core: what one principal may take, and that it takes nothing from the others (DESIGN §Security)."""

from __future__ import annotations

import pytest

from polydomo.core.accounting import Accounting
from polydomo.core.model import JOB_COST
from polydomo.core.policy import BrokerLimits, Policy
from polydomo.core.principals import Authority, Quota
from polydomo.core.quotas import PAUSE
from polydomo.core.tracked_job import Options
from tests.core.features.test_durability import FakeKeeper
from tests.support.core import Bench, FakeWorker, check_empty, internal
from tests.support.invariants import check


class Rations(Authority):
    """Allows everything, as often as a principal's quota says."""

    def __init__(self, **quotas: Quota) -> None:
        self.quotas = quotas

    def allows(self, principal: str, verb: str, service: bytes, name: bytes) -> bool:
        return True

    def quota(self, principal: str) -> Quota | None:
        return self.quotas.get(principal)


def bench_with(bounds: BrokerLimits | None = None, queue: int = 100_000, **quotas: Quota) -> Bench:
    bench = Bench(bounds=bounds, queue=queue)
    bench.broker.principals.use(Rations(**quotas))
    return bench


def answer_all(worker: FakeWorker) -> int:
    count = 0
    while worker.holds:
        worker.answer()
        count += 1
    return count


# Unanswered jobs


def test_a_client_is_held_before_its_principals_quota_is_reached() -> None:
    bench = bench_with(small=Quota(jobs=8))
    worker, client = bench.worker(b"a"), bench.client(principal="small")
    for _ in range(6):
        client.ask(b"a")
    assert client.flow == []
    client.ask(b"a")
    assert client.flow == ["hold"]
    check(bench.broker)
    for _ in range(2):
        worker.answer()
    assert client.flow == ["hold"]
    worker.answer()
    assert client.flow == ["hold", "release"]
    assert client.reasons() == []
    check(bench.broker)


def test_jobs_beyond_the_quota_are_refused_whichever_connection_they_come_by() -> None:
    bench = bench_with(small=Quota(jobs=8))
    crowd = [bench.client(principal="small") for _ in range(20)]
    for client in crowd:
        client.ask(b"a")
    check(bench.broker)
    assert bench.broker.accounting.active == 8
    assert sum(len(client.reasons()) for client in crowd) == 12
    assert crowd[-1].reasons() == ["quota"]
    assert bench.broker.principals.get("small").refused == 12
    assert all(client.core.held for client in crowd[6:])  # also those that were refused


def test_one_principals_quota_is_nobody_elses() -> None:
    bench = bench_with(small=Quota(jobs=2))
    full, other, free = (bench.client(principal=name) for name in ("small", "other", "small"))
    for client in (full, full, full, other, free):
        client.ask(b"a")
    assert full.reasons() == free.reasons() == ["quota"]
    assert (other.reasons(), other.flow) == ([], [])


def test_held_clients_go_on_in_the_order_in_which_they_were_held() -> None:
    bench = bench_with(small=Quota(jobs=4))
    worker = bench.worker(b"a")
    crowd = [bench.client(principal="small") for _ in range(8)]
    for client in crowd:
        client.ask(b"a")
    assert [client.core.held for client in crowd] == [False] * 3 + [True] * 5
    worker.answer()
    worker.answer()
    check(bench.broker)
    assert [client.core.held for client in crowd] == [False] * 4 + [True] * 4
    # Those that went on have nothing to send. Their room is left to the others.
    bench.at(PAUSE)
    assert [client.core.held for client in crowd] == [False] * 5 + [True] * 3
    bench.at(4 * PAUSE)
    check(bench.broker)
    assert not any(client.core.held for client in crowd)
    assert not bench.broker.quotas.held


def test_a_held_client_that_leaves_takes_nobodys_turn() -> None:
    bench = bench_with(small=Quota(jobs=1))
    worker = bench.worker(b"a")
    crowd = [bench.client(principal="small") for _ in range(3)]
    for client in crowd:
        client.ask(b"a")
    bench.broker.client_gone(crowd[1].core)
    check(bench.broker)
    worker.answer()
    bench.at(2 * PAUSE)
    assert crowd[2].flow == ["hold", "release"]
    for client in crowd:
        if not client.core.gone:
            bench.broker.client_gone(client.core)
    worker.leave()
    check_empty(bench.broker)
    assert not bench.broker.quotas.held


def test_a_client_with_too_much_of_its_own_stays_held_when_its_principal_has_room_again() -> None:
    bench = bench_with(BrokerLimits(client_jobs=2), small=Quota(jobs=8))
    worker = bench.worker(b"a")
    client, other = bench.client(principal="small"), bench.client(principal="small")
    for _ in range(4):
        client.ask(b"a")
    for _ in range(3):
        other.ask(b"a")
    assert other.core.throttled
    for _ in range(2):
        worker.answer()  # one of each
    worker.answer()
    bench.at(PAUSE)
    check(bench.broker)
    assert not bench.broker.quotas.held
    assert client.core.jobs == 2
    assert client.flow[-1] == "hold"
    worker.answer()
    worker.answer()
    assert client.flow[-1] == "release"


def test_a_larger_quota_counts_at_once() -> None:
    bench = bench_with(small=Quota(jobs=1))
    client = bench.client(principal="small")
    client.ask(b"a")
    assert client.ask(b"a") is None
    bench.broker.principals.use(Rations(small=Quota(jobs=3)))
    assert client.ask(b"a") is not None
    bench.broker.principals.use(None)
    bench.at(PAUSE)
    assert not client.core.held
    check(bench.broker)


# Bytes


def test_bytes_in_memory_are_limited_like_jobs() -> None:
    bench = bench_with(small=Quota(memory=4 * (100 + JOB_COST)))
    worker = bench.worker(b"a")
    clients = [bench.client(principal="small") for _ in range(5)]
    for client in clients:
        client.ask(b"a", bytes(100))
    assert [client.reasons() for client in clients] == [[]] * 4 + [["quota"]]
    assert [client.core.held for client in clients] == [False] * 3 + [True] * 2
    check(bench.broker)
    assert answer_all(worker) == 4
    assert not any(client.core.held for client in clients)
    assert bench.broker.principals.get("small").memory == 0
    client = clients[0]
    assert client.ask(b"a", bytes(4 * (100 + JOB_COST))) is None  # larger than all that it may have
    assert client.reasons() == ["quota"]


# Rate


def test_a_rate_allows_one_seconds_worth_at_once_and_then_as_much_per_second() -> None:
    bench = bench_with(small=Quota(rate=10.0))
    worker, client = bench.worker(b"a"), bench.client(principal="small")
    accepted = 0
    for tick in range(1001):
        bench.at(tick / 100, worker)
        accepted += client.ask(b"a") is not None
        answer_all(worker)
    assert 110 - 1 <= accepted <= 110  # 10 at once, and 10 in each of 10 seconds
    check(bench.broker)


def test_a_client_that_waits_while_it_is_held_is_never_refused_for_its_rate() -> None:
    bench = bench_with(small=Quota(rate=10.0))
    worker, client = bench.worker(b"a"), bench.client(principal="small")
    accepted = 0
    for tick in range(1001):
        bench.at(tick / 100, worker)
        while not client.core.held:
            assert client.ask(b"a") is not None
            accepted += 1
            worker.answer()
    assert client.reasons() == []
    assert 100 <= accepted <= 110


def test_a_rate_below_one_per_second_allows_single_jobs() -> None:
    bench = bench_with(small=Quota(rate=0.5))
    worker, client = bench.worker(b"a"), bench.client(principal="small")
    accepted = []
    for tick in range(61):
        bench.at(tick / 10, worker)
        if client.ask(b"a") is not None:
            accepted.append(tick / 10)
            worker.answer()
    assert accepted == [0.0, 2.0, 4.0, 6.0]


# Disk


def test_durable_jobs_beyond_the_quota_on_disk_are_refused_and_others_are_not() -> None:
    bench = bench_with(small=Quota(stored=1000))
    bench.broker.services.policies[b"safe"] = Policy(durable=True)
    keeper = FakeKeeper(bench)
    bench.broker.use_store(keeper)
    client, other = bench.client(principal="small"), bench.client(principal="other")
    bench.broker.principals.get("small").stored = 990
    assert client.ask(b"safe", bytes(11)) is None
    assert client.reasons() == ["quota"]
    assert client.ask(b"safe", bytes(10)) is not None
    assert client.ask(b"a", bytes(500)) is not None
    assert other.ask(b"safe", bytes(500)) is not None
    keeper.commit()
    check(bench.broker)


# What is left to the others


@pytest.mark.parametrize("crowd", [1, 40])
def test_no_principal_can_fill_a_queue_for_the_others(crowd: int) -> None:
    bench = bench_with(queue=100)
    flood = [bench.client(principal="noisy") for _ in range(crowd)]
    for number in range(200):
        flood[number % crowd].ask(b"a")
    waiting = bench.broker.services[b"a"].queue.waiting
    assert waiting == 75
    assert {reason for client in flood for reason in client.reasons()} == {"queue-full"}
    modest = bench.client(principal="modest")
    for _ in range(10):
        assert modest.ask(b"a") is not None
    check(bench.broker)


def test_without_others_a_queue_is_one_principals() -> None:
    bench = Bench(queue=100)
    client = bench.client()
    for _ in range(101):
        client.ask(b"a")
    assert bench.broker.services[b"a"].queue.waiting == 100


def test_no_principal_can_fill_the_memory_for_the_others() -> None:
    bench = bench_with(BrokerLimits(memory=100_000, client_bytes=1 << 30))
    bench.worker(b"a")
    flood, modest = bench.client(principal="noisy"), bench.client(principal="modest")
    for _ in range(200):
        flood.ask(b"a", bytes(1000 - JOB_COST))
    assert bench.broker.accounting.memory <= 76_000
    assert flood.reasons()[-1] == "broker-full"
    assert modest.ask(b"a", bytes(10_000)) is not None
    assert not _is_full(bench.broker.accounting)


def test_jobs_that_nobody_works_on_leave_memory_to_the_others_even_without_principals() -> None:
    bench = Bench(bounds=BrokerLimits(memory=100_000, client_bytes=1 << 30))
    client = bench.client()
    for _ in range(200):
        client.ask(b"nobody", bytes(1000 - JOB_COST))
    assert bench.broker.accounting.memory <= 76_000
    assert client.reasons()[-1] == "broker-full"
    assert not _is_full(bench.broker.accounting)
    bench.worker(b"a")
    assert bench.client().ask(b"a", bytes(1000)) is not None


def test_jobs_from_before_a_restart_count_for_their_principal() -> None:
    bench = bench_with(small=Quota(jobs=3))
    keeper = FakeKeeper(bench)
    bench.broker.use_store(keeper)
    events = bench.broker.store_events
    absent = events.absent_client(b"c", "fake", "small")
    for number in range(5):
        job = events.revive(absent, b"a", b"body", b"", Options(), f"old-{number}", 0)
        events.restore(job, b"", b"", "")
    check(bench.broker)
    client, other = bench.client(principal="small"), bench.client(principal="other")
    assert client.ask(b"a") is None
    assert client.reasons() == ["quota"]
    assert other.ask(b"a") is not None
    worker = bench.worker(b"a")
    answer_all(worker)
    keeper.commit()
    assert client.ask(b"a") is not None
    check(bench.broker)


def test_a_principal_with_records_is_remembered() -> None:
    bench = Bench()
    principals = bench.broker.principals
    principals.get("keeper").stored = 5
    for number in range(3000):
        principals.get(f"passer-by-{number}")
    assert principals.get("keeper").stored == 5
    assert len(principals.known) <= 1001


def _is_full(accounting: Accounting) -> bool:
    """What `/readyz` reports."""
    return accounting.memory > accounting.memory_limit


def test_a_client_of_the_broker_itself_is_answered_although_the_quota_is_reached() -> None:
    bench = bench_with(small=Quota(jobs=1))
    client = bench.client(principal="small")
    client.ask(b"a")
    assert client.ask(b"a") is None
    assert client.ask(b"mmi.service") is not None


def test_questions_to_the_broker_leave_no_debt() -> None:
    bench = bench_with(small=Quota(rate=10.0))
    client = bench.client(principal="small")
    own = internal(bench.broker)
    own.register(b"mmi.service")
    for _ in range(5):
        client.ask(b"mmi.service")
    assert client.flow == []
    for _ in range(1000):
        assert client.ask(b"mmi.service") is not None
    while own.holds:
        own.answer()
    bench.at(1.0)
    assert client.ask(b"a") is not None
    check(bench.broker)
