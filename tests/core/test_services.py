"""core: services come and go, the broker drains and closes, settings change at run time."""

from __future__ import annotations

import pytest

from polydomo.core.policy import BrokerLimits, Heartbeat, Policy
from polydomo.core.services import RESERVED
from tests.support.core import Bench, FakeClient, FakeWorker, check_empty, internal, make_broker


def test_a_service_exists_while_something_uses_it() -> None:
    bench = Bench()
    client = bench.client()
    client.ask(b"a")
    assert b"a" in bench.broker.services
    worker = bench.worker(b"a")
    worker.answer()
    assert b"a" in bench.broker.services
    worker.leave()
    check_empty(bench.broker)


def test_a_service_stays_while_a_job_runs_for_it_elsewhere() -> None:
    bench = Bench(timeout=10, retries=0)
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    bench.at(1.0)
    assert bench.broker.services[b"a"].running == 1
    worker.leave()
    check_empty(bench.broker)


def test_a_service_that_comes_back_goes_on_with_its_counts() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    worker.answer()
    worker.leave()
    assert bench.broker.services.past.named[b"a"].done == 1
    again = bench.worker(b"a")
    client.ask(b"a")
    again.answer()
    assert bench.broker.services[b"a"].counts.done == bench.broker.accounting.totals.done == 2
    assert not bench.broker.services.past.named


def test_a_made_up_service_is_forgotten_with_its_last_job() -> None:
    bench = Bench(wait=10)
    client = bench.client()
    for number in range(100):
        client.ask(b"made-up-%d" % number)
    assert len(bench.broker.services) == 100
    bench.at(10.0)
    check_empty(bench.broker)


@pytest.mark.parametrize("prefix", RESERVED)
def test_reserved_names_are_not_for_workers(prefix: bytes) -> None:
    bench = Bench()
    assert not bench.worker().register(prefix)
    assert not bench.worker().register(prefix + b"service")
    assert bench.worker().register(b"x" + prefix)
    assert len(bench.broker.workers) == 1


def test_a_refused_registration_makes_no_worker() -> None:
    bench = Bench()
    worker = bench.worker()
    assert not worker.register(b"mmi.x")
    assert worker.core not in bench.broker.workers
    assert bench.ledger.events == []
    bench.at(100.0)
    assert worker.dismissals == []


def test_a_worker_may_register_the_same_service_twice() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    worker.register(b"a")
    client.ask(b"a")
    client.ask(b"a")
    assert len(worker.holds) == 1
    worker.leave()
    assert not bench.broker.workers
    assert [kind for kind, _, _ in bench.ledger.events] == ["joined", "left"]


def test_the_brokers_own_workers_have_no_liveness_and_any_credit() -> None:
    bench = Bench()
    worker, client = internal(bench.broker), bench.client()
    assert worker.register(b"mmi.service")
    for _ in range(100):
        client.ask(b"mmi.service")
    assert len(worker.holds) == 100
    bench.at(1e6)
    assert worker.core in bench.broker.workers
    assert worker.beats == []
    assert bench.ledger.events == []


def test_reserved_names_without_a_service_go_to_the_fallback_and_are_not_kept() -> None:
    bench = Bench()
    worker, client = internal(bench.broker), bench.client()
    bench.broker.services.fallback = worker.core
    for number in range(3):
        client.ask(b"mmi.unknown%d" % number)
    assert len(worker.holds) == 3
    while worker.holds:
        worker.answer(b"501")
    assert client.finals() == [b"501"] * 3
    assert client.ask(b"mmi." + b"x" * 1000) is None
    assert client.reasons() == ["bad-service"]
    check_empty(bench.broker)


def test_a_job_may_be_passed_on_to_the_broker_itself() -> None:
    bench = Bench()
    worker, own, client = bench.worker(b"a"), internal(bench.broker), bench.client()
    own.register(b"mmi.service")
    bench.broker.services.fallback = own.core
    client.ask(b"a")
    worker.forward(b"mmi.service")
    client.ask(b"a")
    worker.forward(b"mmi.unknown")
    assert len(own.holds) == 2
    own.answer(b"200")
    own.answer(b"501")
    assert client.finals() == [b"200", b"501"]


def test_draining_refuses_new_jobs_and_finishes_old_ones() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    client.ask(b"a")
    bench.broker.control.drain()
    assert client.ask(b"a") is None
    assert client.reasons() == ["draining"]
    assert bench.broker.busy()
    worker.answer()
    worker.answer()
    assert len(client.finals()) == 2
    assert not bench.broker.busy()


def test_the_brokers_own_services_answer_while_it_drains_and_when_it_is_full() -> None:
    """People want to see why it is full."""
    bench = Bench(bounds=BrokerLimits(memory=10))
    own, client = internal(bench.broker), bench.client()
    own.register(b"mmi.service")
    bench.broker.services.fallback = own.core
    client.ask(b"a", bytes(100))
    bench.broker.control.drain()
    assert client.ask(b"a") is None
    assert client.ask(b"mmi.service") is not None
    assert client.ask(b"mmi.unknown") is not None
    own.answer(b"200")
    own.answer(b"501")
    assert client.finals() == [b"200", b"501"]


def test_draining_does_not_wait_for_jobs_that_nobody_can_take() -> None:
    bench = Bench()
    client = bench.client()
    client.ask(b"a")
    bench.broker.control.drain()
    assert bench.broker.accounting.active == 1
    assert not bench.broker.busy()


def test_a_job_lost_while_draining_still_goes_to_another_worker() -> None:
    bench = Bench()
    worker, other, client = bench.worker(b"a"), bench.worker(b"a"), bench.client()
    client.ask(b"a")
    bench.broker.control.drain()
    worker.leave()
    other.answer()
    assert client.finals() == [b"answer"]


def test_closing_tells_every_worker_and_every_client() -> None:
    bench = Bench()
    workers, client = [bench.worker(b"a") for _ in range(3)], bench.client()
    for _ in range(5):
        client.ask(b"a")
    client.ask(b"nobody")
    assert bench.broker.close() == 6
    assert [worker.dismissals for worker in workers] == [["the broker stops"]] * 3
    assert len(client.reasons()) == 6
    check_empty(bench.broker)


def test_closing_gives_nobody_a_job_any_more() -> None:
    """What a dismissed worker held must not be given to the next one to be dismissed."""
    bench = Bench(retries=10)
    workers, client = [bench.worker(b"a") for _ in range(3)], bench.client()
    client.ask(b"a")
    bench.broker.close()
    assert sum(len(worker.jobs) for worker in workers) == 1
    assert client.reasons() == ["draining"]


def test_closing_twice_is_closing_once() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    assert bench.broker.close() == 1
    assert bench.broker.close() == 0
    assert len(worker.dismissals) == len(client.reasons()) == 1


def test_the_longest_prefix_decides_and_the_name_itself_above_all() -> None:
    bench = Bench()
    exact, long, short, any_ = (Policy(wait=float(number)) for number in range(1, 5))
    bench.broker.services.policies = {b"a.b.c": exact, b"a.b.*": long, b"a.*": short, b"*": any_}
    assert bench.broker.services.policy_of(b"a.b.c") is exact
    assert bench.broker.services.policy_of(b"a.b.cd") is long
    assert bench.broker.services.policy_of(b"a.b.") is long
    assert bench.broker.services.policy_of(b"a.b") is short
    assert bench.broker.services.policy_of(b"b") is any_
    bench.broker.services.policies = {b"a.*": short, b"x": exact}
    assert bench.broker.services.policy_of(b"a") is bench.broker.services.default_policy
    assert bench.broker.services.policy_of(b"xy") is bench.broker.services.default_policy


def test_a_service_follows_its_policy() -> None:
    bench = Bench(wait=100)
    bench.broker.services.policies = {b"hasty.*": Policy(wait=1)}
    client = bench.client()
    client.ask(b"hasty.a")
    client.ask(b"patient")
    bench.at(1.0)
    assert len(client.reasons()) == 1
    assert list(bench.broker.services) == [b"patient"]


def test_new_settings_hold_from_now_on() -> None:
    bench = Bench(queue=1, timeout=100)
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    client.ask(b"a")
    assert client.ask(b"a") is None
    bench.broker.control.configure(
        BrokerLimits(client_jobs=3), Policy(timeout=5), {b"a": Policy(queue=2, timeout=5)}
    )
    assert client.ask(b"a") is not None
    assert client.ask(b"a") is None
    worker.answer()
    assert client.ask(b"a") is not None
    assert client.ask(b"a") is None
    bench.at(5.0, worker)
    assert (
        bench.broker.accounting.totals.retried == 1
    )  # the job dispatched under the new settings ran for more than 5 s


def test_a_broker_without_a_journal_works_the_same() -> None:
    broker = make_broker()
    worker, client = FakeWorker(broker, b"w", Heartbeat()), FakeClient(broker, b"c")
    worker.register(b"a")
    client.ask(b"a")
    worker.answer()
    client.ask(b"a")
    worker.leave()
    broker.client_gone(client.core)
    check_empty(broker)


def test_a_worker_without_heartbeats_or_goodbyes_needs_neither() -> None:
    """The defaults of the ports: a dialect that has no word for it says nothing."""
    from polydomo.core.model import WorkerPort

    class Mute(WorkerPort):
        def dispatch(self, job) -> None:  # type: ignore[no-untyped-def]
            pass

    broker = make_broker()
    worker = broker.make_worker(b"mute", "fake", Mute(), Heartbeat(1.0, 3))
    broker.register(worker, b"a")
    for now in range(5):
        broker.advance(float(now))
        broker.tick()
    check_empty(broker)
