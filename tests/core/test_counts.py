"""core: every job is counted once, as what it became, and counts outlive their services."""

from __future__ import annotations

from polydomo.core.counts import Counts, PastCounts
from polydomo.core.policy import BrokerLimits
from polydomo.core.states import STATES
from polydomo.core.targets import NAMES, Target
from polydomo.core.tracked_job import Options
from tests.support import invariants
from tests.support.core import Bench, internal


def test_a_waiting_job_fails_when_the_broker_stops_and_a_later_one_is_refused() -> None:
    bench = Bench()
    client = bench.client()
    waiting = client.ask(b"a")
    bench.broker.close()
    assert client.ask(b"a") is None
    assert client.reasons() == ["draining", "draining"]
    assert waiting is not None
    assert STATES[waiting.state] == "failed"
    broker = bench.broker
    assert (
        broker.accounting.submitted,
        broker.accounting.accepted,
        broker.accounting.totals.failed,
        broker.accounting.totals.refused,
    ) == (2, 1, 1, 1)
    invariants.check(broker)


def test_what_is_refused_is_counted_whatever_the_reason() -> None:
    bench = Bench(queue=1, bounds=BrokerLimits(services=2, memory=100_000))
    client = bench.client()
    client.ask(b"a")
    client.ask(b"b")
    client.ask(b"a")  # queue-full
    client.ask(b"c")  # too-many-services
    client.ask(b"x" * 300)  # bad-service
    client.ask(b"a", options=Options(target=Target(NAMES, [])))  # queue-full again
    client.ask(b"b", options=Options(target=Target(NAMES, [], True)))  # the same
    bench.broker.accounting.memory_limit = 0
    client.ask(b"b")  # broker-full
    bench.broker.control.drain()
    client.ask(b"b")  # draining
    broker = bench.broker
    assert len(client.reasons()) == broker.accounting.totals.refused == 7
    assert (
        broker.accounting.submitted,
        broker.accounting.accepted,
        broker.accounting.active,
        broker.accounting.totals.failed,
    ) == (9, 2, 2, 0)
    assert broker.services.past.others.refused == 2  # of services that are not known
    invariants.check(broker)


def test_a_job_that_is_addressed_to_nobody_is_refused() -> None:
    bench = Bench()
    bench.worker(b"a")
    client = bench.client()
    client.ask(b"a", options=Options(target=Target(NAMES, [])))
    assert client.reasons() == ["bad-target"]
    assert (
        bench.broker.accounting.totals.refused,
        bench.broker.accounting.totals.failed,
        bench.broker.accounting.accepted,
    ) == (1, 0, 0)
    invariants.check(bench.broker)


def test_one_that_shares_anothers_key_repeats_it() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    for _ in range(3):
        client.ask(b"a", options=Options(key=b"k"))
    worker.answer()
    broker = bench.broker
    assert (broker.accounting.accepted, broker.accounting.totals.done, broker.accounting.totals.repeated) == (
        3,
        1,
        2,
    )
    assert broker.services[b"a"].counts.repeated == 2
    invariants.check(broker)


def test_a_job_that_is_passed_on_fails_if_it_finds_no_room() -> None:
    """It had been accepted: it is not refused by the second service."""
    bench = Bench(queue=1)
    first, client = bench.worker(b"a"), bench.client()
    client.ask(b"b")
    client.ask(b"a")
    first.forward(b"b")
    assert client.reasons() == ["queue-full"]
    assert (
        bench.broker.accounting.totals.failed,
        bench.broker.accounting.totals.refused,
        bench.broker.accounting.totals.forwarded,
    ) == (1, 0, 1)
    invariants.check(bench.broker)


def test_a_job_passed_on_to_the_broker_itself_stays_a_job() -> None:
    bench = Bench()
    first, client, own = bench.worker(b"a"), bench.client(), internal(bench.broker)
    assert own.register(b"mmi.x")
    client.ask(b"a")
    first.forward(b"mmi.x")
    invariants.check(bench.broker)
    own.answer()
    assert client.finals() == [b"answer"]
    assert (bench.broker.accounting.totals.done, bench.broker.accounting.questions) == (1, 0)
    invariants.check(bench.broker)


def test_cancelled_jobs_are_no_failures() -> None:
    bench = Bench()
    client = bench.client()
    job = client.ask(b"a", options=Options(uid="one"))
    assert job is not None
    bench.broker.cancel(job)
    assert (
        bench.broker.accounting.totals.cancelled,
        bench.broker.accounting.totals.failed,
        STATES[job.state],
    ) == (1, 0, "cancelled")
    invariants.check(bench.broker)


def test_made_up_names_share_one_account() -> None:
    bench = Bench(wait=10)
    client = bench.client()
    for number in range(100):
        client.ask(b"made-up-%d" % number)
    bench.at(10.0)
    assert not bench.broker.services.past.named
    assert bench.broker.services.past.others.failed == bench.broker.accounting.totals.failed == 100
    invariants.check(bench.broker)


def test_the_service_that_left_first_loses_its_name_first() -> None:
    past = PastCounts(room=2)
    for name in (b"a", b"b", b"c"):
        counts = Counts()
        counts.done = 1
        past.put(name, counts)
    assert list(past.named) == [b"b", b"c"]
    assert past.others.done == 1
    assert past.take(b"b").done == 1
    assert past.take(b"a").done == 0
