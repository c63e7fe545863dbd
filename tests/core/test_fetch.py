"""Workers that are given nothing unasked: they are told that there is something, and fetch it."""

from __future__ import annotations

import pytest

from polydomo.core.broker import ANSWERED, STRAY
from polydomo.core.model import Job, Service, WakeupPort
from polydomo.core.tracked_job import Options
from tests.support.core import Bench, FakeWorker


class Bell(WakeupPort):
    """Counts who is wanted."""

    def __init__(self) -> None:
        self.rung: list[int] = []

    def wanted(self, service: Service, job: Job) -> None:
        self.rung.append(job.id)

    def ready(self) -> int:
        return 0


@pytest.fixture
def bench() -> Bench:
    return Bench()


def fetcher(bench: Bench, *services: bytes, relay: bool = False) -> FakeWorker:
    worker = bench.worker()
    worker.core.base_credit = worker.core.credit = 0
    worker.core.relay = relay
    for service in services:
        worker.register(service)
    return worker


def bell(bench: Bench, service: bytes) -> Bell:
    found = bench.broker.services[service].wakeup = Bell()
    return found


def test_it_is_told_and_gets_nothing_before_it_asks(bench: Bench):
    worker = fetcher(bench, b"a")
    told = bell(bench, b"a")
    client = bench.client()
    client.ask(b"a")
    assert (told.rung, worker.jobs) == ([1], [])
    assert bench.broker.fetch(worker.core, worker.core.services)
    assert worker.jobs == [1]
    assert not bench.broker.fetch(worker.core, worker.core.services)
    worker.answer(b"x")
    assert client.finals() == [b"x"]
    client.ask(b"a")
    assert worker.jobs == [1]  # nor after an answer


def test_who_is_idle_gets_it_and_nobody_is_told(bench: Bench):
    fetcher(bench, b"a")
    told = bell(bench, b"a")
    other = bench.worker(b"a")
    bench.client().ask(b"a")
    assert (told.rung, other.jobs) == ([], [1])


def test_a_job_that_came_back_is_told_again(bench: Bench):
    worker = fetcher(bench, b"a")
    told = bell(bench, b"a")
    bench.client().ask(b"a")
    bench.broker.fetch(worker.core, worker.core.services)
    worker.leave()
    assert told.rung == [1, 1]


def test_several_services_take_turns(bench: Bench):
    worker = fetcher(bench, b"a", b"b")
    client = bench.client()
    for service in (b"a", b"a", b"b", b"b"):
        client.ask(service)
    while bench.broker.fetch(worker.core, worker.core.services):
        pass
    assert worker.jobs == [1, 3, 2, 4]


def test_a_paused_service_gives_nothing_and_tells_when_it_goes_on(bench: Bench):
    worker = fetcher(bench, b"a")
    told = bell(bench, b"a")
    service = bench.broker.services[b"a"]
    bench.broker.control.pause(service)
    bench.client().ask(b"a")
    assert not bench.broker.fetch(worker.core, worker.core.services)
    bench.broker.control.resume(service)
    assert told.rung == [1, 1]
    assert bench.broker.fetch(worker.core, worker.core.services)


def test_a_job_that_is_declined_was_no_attempt(bench: Bench):
    worker = fetcher(bench, b"a")
    client = bench.client()
    client.ask(b"a")
    for _ in range(10):
        assert bench.broker.fetch(worker.core, worker.core.services)
        assert bench.broker.decline(worker.core, worker.holds.pop()) == ANSWERED
    assert client.heard == []
    assert bench.broker.fetch(worker.core, worker.core.services)
    worker.answer(b"x")
    assert client.finals() == [b"x"]
    assert bench.broker.decline(worker.core, b"nothing") == STRAY


def test_another_broker_gets_our_own_clients_jobs_and_no_other_broker_s(bench: Bench):
    relay = fetcher(bench, b"a", relay=True)
    guest, own = bench.client(), bench.client()
    guest.core.relay = True
    guest.ask(b"a")
    assert not bench.broker.fetch(relay.core, relay.core.services)
    guest.ask(b"a")
    own.ask(b"a")
    assert bench.broker.fetch(relay.core, relay.core.services)
    assert relay.jobs == [3]
    assert not bench.broker.fetch(relay.core, relay.core.services)
    worker = bench.worker(b"a")
    assert worker.jobs == [1]
    relay.answer()
    assert own.finals() == [b"answer"]


def test_another_broker_gets_the_jobs_in_turn_and_the_urgent_ones_first(bench: Bench):
    relay = fetcher(bench, b"a", relay=True)
    guest, anna, bert = bench.client(), bench.client(), bench.client()
    guest.core.relay = True
    guest.ask(b"a", body=b"guest's")
    for number in range(3):
        anna.ask(b"a", body=b"anna's %d" % number)
    for number in range(3):
        bert.ask(b"a", body=b"bert's %d" % number)
    guest.ask(b"a", body=b"guest's, urgent", options=Options(priority=2))
    anna.ask(b"a", body=b"urgent", options=Options(priority=1))
    while bench.broker.fetch(relay.core, relay.core.services):
        pass
    assert relay.bodies == [
        b"urgent",
        b"anna's 0",
        b"bert's 0",
        b"anna's 1",
        b"bert's 1",
        b"anna's 2",
        b"bert's 2",
    ]
    worker = bench.worker(b"a")
    assert worker.bodies == [b"guest's, urgent"]
    worker.answer()
    assert worker.bodies == [b"guest's, urgent", b"guest's"]


def test_another_broker_cannot_be_addressed(bench: Bench):
    relay = fetcher(bench, b"a", relay=True)
    assert bench.broker.services[b"a"].names == {}
    relay.leave()


def test_a_service_can_be_given_up_alone(bench: Bench):
    worker = fetcher(bench, b"a", b"b")
    client = bench.client()
    client.ask(b"a")
    bench.broker.fetch(worker.core, worker.core.services)
    bench.broker.withdraw(worker.core, bench.broker.services[b"a"])
    assert [service.name for service in worker.core.services] == [b"b"]
    worker.answer(b"x")  # what it had it may finish
    assert client.finals() == [b"x"]
    assert b"a" not in bench.broker.services
