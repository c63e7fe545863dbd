"""core: clients are held back while durable jobs come faster than they can be written."""

from __future__ import annotations

import pytest

from polydomo.core.failure import Failure
from polydomo.core.model import Job
from polydomo.core.policy import BrokerLimits
from polydomo.core.tracked_job import Options
from tests.support import invariants
from tests.support.core import Bench, FakeClient, QuietKeeper

DURABLE = Options(durable=True)


class SlowDisk(QuietKeeper):
    """Writes when it is told to, and is behind while more than two jobs wait."""

    def __init__(self, bench: Bench) -> None:
        self.store_events = bench.broker.store_events
        bench.broker.use_store(self)
        self.waiting: list[Job] = []

    def behind(self) -> bool:
        return len(self.waiting) > 2

    def add(self, job: Job) -> None:
        self.waiting.append(job)

    def write(self, failure: Failure | None = None) -> None:
        self.store_events.stored(self.waiting.pop(0), failure)

    def attempt(self, job: Job) -> None:
        pass

    def partial(self, job: Job, body: bytes) -> None:
        pass

    def finish(self, job: Job) -> None:
        self.store_events.recorded(job, None)

    def look_up(self, job: Job) -> None:
        self.store_events.looked_up(job, None, None)


@pytest.fixture
def bench() -> Bench:
    return Bench(bounds=BrokerLimits(client_jobs=4))


@pytest.fixture
def disk(bench: Bench) -> SlowDisk:
    return SlowDisk(bench)


def ask(client: FakeClient, count: int) -> None:
    for _ in range(count):
        client.ask(b"a", options=DURABLE)


def test_a_client_whose_job_makes_the_disk_late_waits_and_others_do_not(bench: Bench, disk: SlowDisk) -> None:
    quick, patient, other = bench.client(), bench.client(), bench.client()
    ask(quick, 2)
    assert quick.flow == []
    ask(patient, 1)
    assert (quick.flow, patient.flow) == ([], ["hold"])
    other.ask(b"a")  # not durable: the disk is not its matter
    assert other.flow == []
    disk.write()
    disk.write()
    assert bench.broker.accounting.unstall(10) is False
    assert patient.flow == ["hold", "release"]
    invariants.check(bench.broker)


def test_they_go_on_one_after_the_other_in_the_order_they_came(bench: Bench, disk: SlowDisk) -> None:
    ask(bench.client(), 2)
    waiting = [bench.client() for _ in range(3)]
    for client in waiting:
        ask(client, 1)
    assert bench.broker.accounting.unstall(2) is True
    assert [client.flow[-1] for client in waiting] == ["release", "release", "hold"]
    assert bench.broker.accounting.unstall(2) is False
    assert waiting[2].flow == ["hold", "release"]


def test_a_client_that_is_held_for_its_own_jobs_stays_held(bench: Bench, disk: SlowDisk) -> None:
    client = bench.client()
    ask(client, 5)
    assert client.core.held
    assert client.core.stalled
    bench.broker.accounting.unstall(1)
    assert "release" not in client.flow
    for _ in range(5):
        disk.write()
    worker = bench.worker(b"a")
    for _ in range(3):
        worker.answer()
    assert client.flow[-1] == "release"
    invariants.check(bench.broker)


def test_a_stalled_client_is_not_released_for_its_answers(bench: Bench, disk: SlowDisk) -> None:
    client, worker = bench.client(), bench.worker(b"a")
    ask(client, 5)
    while disk.waiting:
        disk.write()
    for _ in range(5):
        worker.answer()
    assert not client.core.held
    assert "release" not in client.flow
    bench.broker.accounting.unstall(1)
    assert client.flow[-1] == "release"


def test_one_that_is_gone_is_forgotten(bench: Bench, disk: SlowDisk) -> None:
    client = bench.client()
    ask(client, 3)
    bench.broker.client_gone(client.core)
    assert bench.broker.accounting.unstall(10) is False
    assert "release" not in client.flow


def test_what_the_store_cannot_take_is_refused(bench: Bench, disk: SlowDisk) -> None:
    client = bench.client()
    ask(client, 1)
    disk.write(Failure("store", "too much is waiting"))
    broker = bench.broker
    assert client.reasons() == ["store"]
    assert (
        broker.accounting.submitted,
        broker.accounting.accepted,
        broker.accounting.totals.refused,
        broker.accounting.totals.failed,
    ) == (1, 0, 1, 0)
    invariants.check(broker)
