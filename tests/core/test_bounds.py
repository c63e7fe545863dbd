"""core: what may pile up, and what happens when it would (DESIGN §Guarantees: bounded)."""

from __future__ import annotations

from polydomo.core.model import JOB_COST
from polydomo.core.policy import BrokerLimits
from tests.support.core import Bench, check_empty


def test_a_full_queue_refuses_and_says_so() -> None:
    bench = Bench(queue=3)
    client, other = bench.client(), bench.client()
    for _ in range(3):
        assert client.ask(b"a") is not None
    assert other.ask(b"a") is None
    assert other.reasons() == ["queue-full"]
    assert other.ask(b"b") is not None  # only that service is full
    assert bench.broker.accounting.totals.refused == 1
    assert other.core.jobs == 1
    worker = bench.worker(b"a")
    assert len(worker.jobs) == 1
    assert other.ask(b"a") is not None


def test_a_queue_of_none_still_serves_who_finds_a_worker_idle() -> None:
    bench = Bench(queue=0)
    worker, client = bench.worker(b"a"), bench.client()
    assert client.ask(b"a") is not None
    assert client.ask(b"a") is None
    assert client.reasons() == ["queue-full"]
    worker.answer()
    assert client.ask(b"a") is not None


def test_the_broker_as_a_whole_holds_so_many_bytes() -> None:
    bench = Bench(bounds=BrokerLimits(memory=1000))
    client, other = bench.client(), bench.client()
    worker = bench.worker(b"a")
    assert client.ask(b"a", bytes(600)) is not None
    assert client.ask(b"a", bytes(600)) is not None
    assert other.ask(b"a", b"") is None
    assert other.reasons() == ["broker-full"]
    worker.answer()
    assert other.ask(b"a", b"") is not None


def test_what_a_dialect_keeps_for_the_answer_counts_too() -> None:
    """DCP's metadata may be as long as a body."""
    bench = Bench(bounds=BrokerLimits(memory=1000, client_bytes=500))
    worker, client, other = bench.worker(b"a"), bench.client(), bench.client()
    assert client.ask(b"a", b"", bytes(1200)) is not None
    assert client.flow == ["hold"]
    assert other.ask(b"a", b"", b"") is None
    worker.forward(b"b", bytes(100))
    assert bench.broker.accounting.memory - JOB_COST == client.core.size == 1300
    bench.worker(b"b").answer()
    assert bench.broker.accounting.memory == client.core.size == 0
    assert client.flow == ["hold", "release"]


def test_a_client_with_too_many_unanswered_jobs_is_held_until_half_are_answered() -> None:
    bench = Bench(bounds=BrokerLimits(client_jobs=10))
    worker, client, other = bench.worker(b"a"), bench.client(), bench.client()
    for _ in range(10):
        client.ask(b"a")
    assert client.flow == []
    client.ask(b"a")  # on its way before it could be held: taken all the same
    assert client.flow == ["hold"]
    assert client.core.held
    for _ in range(5):
        worker.answer()
    assert client.flow == ["hold"]
    worker.answer()
    assert client.flow == ["hold", "release"]
    assert other.flow == []


def test_a_client_with_too_many_unanswered_bytes_is_held_too() -> None:
    bench = Bench(bounds=BrokerLimits(client_bytes=1000))
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a", bytes(900))
    client.ask(b"a", bytes(300))
    assert client.flow == ["hold"]
    worker.answer()
    assert client.flow == ["hold", "release"]


def test_jobs_that_end_badly_release_as_well() -> None:
    bench = Bench(wait=10, bounds=BrokerLimits(client_jobs=2))
    client = bench.client()
    for _ in range(3):
        client.ask(b"a")
    assert client.flow == ["hold"]
    bench.at(10.0)
    assert client.flow == ["hold", "release"]
    check_empty(bench.broker)


def test_a_bound_of_one_byte_does_not_hold_for_ever() -> None:
    bench = Bench(bounds=BrokerLimits(client_bytes=1, client_jobs=0))
    worker, client = bench.worker(b"a"), bench.client()
    for _ in range(3):
        client.ask(b"a", bytes(100))
    while worker.holds:
        worker.answer()
    assert not client.core.held
    assert client.flow[-1] == "release"


def test_so_many_service_names_are_known_at_once() -> None:
    bench = Bench(bounds=BrokerLimits(services=3))
    client = bench.client()
    for number in range(3):
        assert client.ask(b"made-up-%d" % number) is not None
    assert client.ask(b"one-more") is None
    assert client.reasons() == ["too-many-services"]
    assert client.ask(b"made-up-1") is not None
    assert not bench.worker().register(b"yet-another")
    assert bench.worker().register(b"made-up-2")
    assert len(bench.broker.services) == 3


def test_service_names_have_1_to_255_bytes() -> None:
    bench = Bench()
    client = bench.client()
    for name in (b"", b"x" * 256):
        assert client.ask(name) is None
        assert not bench.worker().register(name)
    assert client.reasons() == ["bad-service"] * 2
    assert client.ask(b"x" * 255) is not None
    assert bench.worker().register(b"\0\xff any character")


def test_refusals_leave_no_trace_but_a_count() -> None:
    bench = Bench(queue=0, bounds=BrokerLimits(services=0))
    client = bench.client()
    for number in range(2000):
        client.ask(b"x%d" % number)
    assert bench.broker.accounting.totals.refused == 2000
    assert len(client.reasons()) == 2000
    assert len(bench.ledger.finished_ids) == 2000
    check_empty(bench.broker)
    assert len(bench.broker.timers) == 0


def test_a_held_client_is_released_when_its_bound_is_raised() -> None:
    bench = Bench(bounds=BrokerLimits(client_jobs=2))
    client = bench.client()
    for _ in range(3):
        client.ask(b"a")
    bench.broker.control.configure(BrokerLimits(client_jobs=5), bench.broker.services.default_policy, {})
    assert client.flow == ["hold"]
    bench.broker.control.configure(BrokerLimits(client_jobs=6), bench.broker.services.default_policy, {})
    assert client.flow == ["hold", "release"]


def test_the_names_of_refused_jobs_are_not_kept_whole() -> None:
    """A thousand refused jobs are remembered; a thousand names of 64 MiB must not be."""
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    for name in (bytes(100_000), b"mmi." + bytes(100_000)):
        client.ask(name)
        client.ask(b"a")
        worker.forward(name)
    assert client.reasons() == ["bad-service"] * 4
    for job in bench.broker.accounting.recent:
        assert len(job.service.name) + len(job.requested_service) < 1000
