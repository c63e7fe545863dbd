"""core/features: keys, delays, deadlines and pauses when things go wrong around them."""

from __future__ import annotations

import pytest

from polydomo.core.broker import LATE
from polydomo.core.failure import Failure
from polydomo.core.model import Job
from polydomo.core.policy import Policy
from polydomo.core.tracked_job import Options
from tests.support import invariants
from tests.support.core import Bench, FakeClient, QuietKeeper, check_empty, internal


class SlowDisk(QuietKeeper):
    """Answers nothing by itself."""

    def __init__(self, bench: Bench) -> None:
        self.store_events = bench.broker.store_events
        bench.broker.use_store(self)
        self.to_add: list[Job] = []

    def add(self, job: Job) -> None:
        self.to_add.append(job)

    def attempt(self, job: Job) -> None:
        pass

    def partial(self, job: Job, body: bytes) -> None:
        pass

    def finish(self, job: Job) -> None:
        self.store_events.recorded(job, None)

    def look_up(self, job: Job) -> None:
        self.store_events.looked_up(job, None, None)


def ask(client: FakeClient, service: bytes, **options: object) -> Job:
    made = Options(**options)  # type: ignore[arg-type]
    job = client.broker.submit(client.core, service, b"body", b"", made)
    assert job is not None
    return job


def check_forgotten(bench: Bench) -> None:
    """Nothing of any longer life is left."""
    broker = bench.broker
    assert not broker.jobs.known
    assert not broker._dedup.keys
    assert not broker.orphans()
    assert broker._tracking.writing == 0


@pytest.mark.parametrize("when", ["waiting", "running", "delayed"])
def test_a_key_is_free_again_when_its_client_has_gone(when: str) -> None:
    """Who asks with the same key later must not wait for a job that has ended."""
    bench = Bench()
    first, second = bench.client(), bench.client()
    worker = bench.worker(b"a") if when == "running" else None
    ask(first, b"a", key=b"k", delay=5.0 if when == "delayed" else 0.0)
    bench.broker.client_gone(first.core)
    if worker is not None:
        worker.leave()
    bench.at(6.0)
    check_forgotten(bench)
    ask(second, b"a", key=b"k")
    bench.worker(b"a").answer()
    assert second.finals() == [b"answer"]
    check_forgotten(bench)


def test_a_key_is_free_again_when_a_job_that_was_passed_on_has_ended() -> None:
    bench = Bench()
    client = bench.client()
    first, second = bench.worker(b"a"), bench.worker(b"b")
    ask(client, b"a", key=b"k")
    first.forward(b"b")
    second.answer(b"one")
    check_forgotten(bench)
    ask(client, b"a", key=b"k")
    first.forward(b"b")
    second.answer(b"two")
    assert client.finals() == [b"one", b"two"]


def test_who_asks_the_same_while_a_job_is_passed_on_shares_its_answer() -> None:
    bench = Bench()
    clients = [bench.client(), bench.client()]
    first, second = bench.worker(b"a"), bench.worker(b"b")
    ask(clients[0], b"a", key=b"k")
    first.forward(b"b")
    ask(clients[1], b"a", key=b"k")
    second.answer(b"both")
    assert [client.finals() for client in clients] == [[b"both"], [b"both"]]
    assert len(first.jobs) == len(second.jobs) == 1


def test_a_passed_on_job_of_a_gone_client_frees_its_key() -> None:
    bench = Bench()
    client, worker = bench.client(), bench.worker(b"a")
    ask(client, b"a", key=b"k")
    bench.broker.client_gone(client.core)
    worker.forward(b"b")
    check_forgotten(bench)
    worker.leave()
    check_empty(bench.broker)


def test_followers_keep_the_job_of_a_gone_client_alive() -> None:
    bench = Bench()
    first, second = bench.client(), bench.client()
    ask(first, b"a", key=b"k")
    ask(second, b"a", key=b"k")
    bench.broker.client_gone(first.core)
    invariants.check(bench.broker)
    bench.worker(b"a").answer()
    assert second.finals() == [b"answer"]
    check_forgotten(bench)


def test_ten_thousand_jobs_with_a_far_deadline_leave_no_alarms() -> None:
    bench = Bench()
    client, worker = bench.client(), bench.worker(b"a")
    for _ in range(10_000):
        ask(client, b"a", deadline=86_400.0)
        worker.answer()
    assert len(bench.broker.timers) < 200
    check_forgotten(bench)


def test_ten_thousand_jobs_delayed_for_a_day_and_cancelled_leave_no_alarms() -> None:
    bench = Bench()
    client = bench.client()
    for _ in range(10_000):
        assert bench.broker.cancel(ask(client, b"a", delay=86_400.0))
    assert len(bench.broker.timers) < 200
    assert client.reasons() == ["cancelled"] * 10_000
    check_forgotten(bench)
    check_empty(bench.broker)


def test_closing_tells_those_whose_job_is_delayed_or_pauses_before_a_retry() -> None:
    bench = Bench()
    bench.broker.services.policies[b"slow"] = Policy(backoff=10.0)
    client, worker = bench.client(), bench.worker(b"slow")
    ask(client, b"a", delay=100.0)
    client.ask(b"slow")
    worker.leave()
    assert bench.broker.close() == 2
    assert client.reasons() == ["draining"] * 2
    check_forgotten(bench)
    check_empty(bench.broker)


def test_a_deadline_that_passes_while_the_disk_is_slow_is_kept() -> None:
    bench = Bench()
    disk = SlowDisk(bench)
    client, worker = bench.client(), bench.worker(b"a", beat=bench.beat)
    ask(client, b"a", durable=True, deadline=2.0)
    bench.at(3.0, worker)
    disk.store_events.stored(disk.to_add.pop(), None)
    assert worker.jobs == []
    assert client.reasons() == ["deadline"]
    check_forgotten(bench)


def test_a_retry_after_a_pause_is_dropped_if_its_client_has_gone() -> None:
    bench = Bench()
    bench.broker.services.policies[b"slow"] = Policy(backoff=2.0)
    client, worker = bench.client(), bench.worker(b"slow")
    client.ask(b"slow")
    worker.leave()
    bench.broker.client_gone(client.core)
    bench.at(10.0)
    check_forgotten(bench)
    check_empty(bench.broker)


def test_a_paused_service_with_a_worker_of_several_services() -> None:
    bench = Bench()
    client, worker = bench.client(), bench.worker(b"a", b"b")
    service = bench.broker.services[b"a"]
    bench.broker.control.pause(service)
    client.ask(b"a")
    invariants.check(bench.broker)
    assert worker.jobs == []
    client.ask(b"b")
    assert len(worker.jobs) == 1
    worker.answer()
    assert len(worker.jobs) == 1
    invariants.check(bench.broker)
    bench.broker.control.resume(service)
    assert len(worker.jobs) == 2
    invariants.check(bench.broker)


def test_one_failure_that_all_followers_share_is_told_whole_to_each() -> None:
    bench = Bench()
    bodies: list[object] = []

    class Careful(FakeClient):
        def failed(self, job: Job, failure: Failure) -> None:
            bodies.append((failure.body, failure.detail))

    clients = [Careful(bench.broker, b"c%d" % number) for number in range(3)]
    for client in clients:
        ask(client, b"a", key=b"k")
    bench.worker(b"a").fail()
    assert bodies == [(b"plain", b"{}")] * 3
    check_forgotten(bench)


def test_a_durable_job_stays_when_its_client_goes_with_others_that_do_not() -> None:
    """The service must not be forgotten between the dropping of one and the keeping of the other."""
    bench = Bench()
    disk = SlowDisk(bench)
    client = bench.client()
    client.ask(b"a")
    durable = ask(client, b"a", durable=True)
    disk.store_events.stored(disk.to_add.pop(), None)
    client.ask(b"a")
    bench.broker.client_gone(client.core)
    invariants.check(bench.broker)
    assert bench.worker(b"a").jobs == [durable.id]


def test_cancelling_the_job_of_a_worker_that_is_silent_while_busy_does_not_expire_it() -> None:
    bench = Bench()
    client, worker = bench.client(), bench.worker(b"a")
    job = ask(client, b"a", deadline=1000.0)
    bench.at(30.0)
    assert bench.broker.cancel(job)
    bench.at(32.9)
    assert worker.core in bench.broker.workers
    assert worker.answer() == LATE
    client.ask(b"a")
    assert len(worker.jobs) == 2


@pytest.mark.parametrize("options", [{"durable": True}, {"key": b"k"}, {"delay": 5.0}, {"deadline": 5.0}])
def test_options_mean_nothing_to_the_brokers_own_services(options: dict[str, object]) -> None:
    bench = Bench()
    SlowDisk(bench)
    own, client = internal(bench.broker), bench.client()
    own.register(b"mmi.service")
    bench.broker.services.fallback = own.core
    known = list(bench.broker.services)
    for name in (b"mmi.service", b"mmi.unknown", b"mmi.unknown"):
        ask(client, name, **options)
        own.answer(b"501")
    assert len(client.finals()) == 3
    assert list(bench.broker.services) == known
    check_forgotten(bench)


def test_a_durable_job_passed_on_to_the_broker_itself_is_answered_and_leaves_no_service_behind() -> None:
    bench = Bench()
    disk = SlowDisk(bench)
    own, client, worker = internal(bench.broker), bench.client(), bench.worker(b"a")
    bench.broker.services.fallback = own.core
    for _ in range(2):
        ask(client, b"a", durable=True)
        disk.store_events.stored(disk.to_add.pop(), None)
        worker.forward(b"mmi.unknown")
        own.answer(b"501")
    assert client.finals() == [b"501"] * 2
    assert list(bench.broker.services) == [b"a"]


def test_closing_tells_followers_of_a_job_that_is_safe() -> None:
    """They are not on disk themselves; who asks again after the restart is answered by the key."""
    bench = Bench()
    disk = SlowDisk(bench)
    clients = [bench.client(), bench.client()]
    ask(clients[0], b"a", key=b"k", durable=True)
    disk.store_events.stored(disk.to_add.pop(), None)
    ask(clients[1], b"a", key=b"k", durable=True)
    bench.broker.close()
    assert clients[0].heard == []
    assert clients[1].reasons() == ["draining"]
