"""core: a worker passes its job on to another service (DCP §Requests & Replies)."""

from __future__ import annotations

from polydomo.core.broker import ANSWERED
from polydomo.core.model import JOB_COST
from polydomo.core.policy import BrokerLimits
from tests.support.core import Bench, check_empty


def test_the_answer_of_the_second_service_reaches_the_first_client() -> None:
    bench = Bench()
    first, second, client = bench.worker(b"resize"), bench.worker(b"store"), bench.client()
    job = client.ask(b"resize", b"picture", b"envelope")
    assert job is not None
    assert first.forward(b"store", b"small picture") == ANSWERED
    assert second.bodies == [b"small picture"]
    assert second.given[0][1] == job.id
    second.answer(b"stored")
    assert client.heard == [("final", job.id, b"stored")]
    assert client.envelopes == [b"envelope"]
    resize, store = bench.broker.services[b"resize"].counts, bench.broker.services[b"store"].counts
    assert (resize.done, resize.forwarded, store.done, store.forwarded) == (0, 1, 1, 0)
    assert (bench.broker.accounting.totals.done, bench.broker.accounting.totals.forwarded) == (1, 1)
    assert bench.broker.accounting.memory == client.core.size == 0


def test_who_passed_it_on_is_free_again() -> None:
    bench = Bench()
    first, client = bench.worker(b"a"), bench.client()
    bench.worker(b"b")
    client.ask(b"a")
    client.ask(b"a")
    first.forward(b"b")
    assert len(first.jobs) == 2


def test_a_forwarded_job_waits_for_a_service_nobody_offers_yet_and_expires_there() -> None:
    bench = Bench(wait=10)
    first, client = bench.worker(b"a"), bench.client()
    job = client.ask(b"a")
    assert job is not None
    bench.at(5.0, first)
    first.forward(b"b")
    assert bench.broker.services[b"b"].queue.waiting == 1
    bench.at(14.9, first)
    assert client.heard == []
    bench.at(15.0, first)
    assert client.heard == [("failed", job.id, "expired")]
    assert b"b" not in bench.broker.services


def test_a_job_is_charged_for_what_it_is_now() -> None:
    bench = Bench()
    first, client = bench.worker(b"a"), bench.client()
    client.ask(b"a", bytes(100))
    first.forward(b"b", bytes(7))
    assert bench.broker.accounting.memory - JOB_COST == client.core.size == 7
    first.leave()
    bench.worker(b"b").answer()
    assert bench.broker.accounting.memory == client.core.size == 0


def test_a_forwarded_job_has_all_its_attempts_again() -> None:
    bench = Bench(retries=1)
    client = bench.client()
    first = bench.worker(b"a")
    job = client.ask(b"a")
    assert job is not None
    first.leave()
    second = bench.worker(b"a")
    second.forward(b"b")
    for _ in range(2):
        assert client.heard == []
        bench.worker(b"b").leave()
    assert client.reasons() == ["retries-exhausted"]


def test_a_job_cannot_be_passed_round_for_ever() -> None:
    bench = Bench(bounds=BrokerLimits(hops=5))
    a, b, client = bench.worker(b"a"), bench.worker(b"b"), bench.client()
    client.ask(b"a")
    for _ in range(5):
        (a if a.holds else b).forward(b"b" if a.holds else b"a")
    assert client.heard == []
    (a if a.holds else b).forward(b"b" if a.holds else b"a")
    assert client.reasons() == ["too-many-hops"]
    assert bench.broker.accounting.active == bench.broker.accounting.memory == 0
    client.ask(b"a")
    client.ask(b"b")
    assert a.holds
    assert b.holds


def test_a_job_passed_on_to_its_own_service_goes_to_the_end_of_its_queue() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    first, second = client.ask(b"a"), client.ask(b"a")
    assert first is not None
    assert second is not None
    worker.forward(b"a")
    assert worker.jobs == [first.id, second.id]
    worker.answer()
    assert worker.jobs == [first.id, second.id, first.id]


def test_a_worker_of_both_services_may_pass_a_job_to_itself() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a", b"b"), bench.client()
    job = client.ask(b"a")
    assert job is not None
    worker.forward(b"b", b"part two")
    assert worker.jobs == [job.id, job.id]
    worker.answer()
    assert client.finals() == [b"answer"]


def test_passing_on_to_an_impossible_name_fails_the_job() -> None:
    for name in (b"", b"x" * 256):
        bench = Bench()
        worker, client = bench.worker(b"a"), bench.client()
        client.ask(b"a")
        assert worker.forward(name) == ANSWERED
        assert client.reasons() == ["bad-service"]
        assert name not in bench.broker.services
        client.ask(b"a")
        assert len(worker.jobs) == 2


def test_passing_on_to_one_name_too_many_fails_the_job() -> None:
    bench = Bench(bounds=BrokerLimits(services=2))
    worker, client = bench.worker(b"a"), bench.client()
    bench.worker(b"b")
    client.ask(b"a")
    worker.forward(b"c")
    assert client.reasons() == ["too-many-services"]
    assert bench.broker.accounting.active == 0


def test_passing_on_to_a_full_queue_fails_the_job() -> None:
    bench = Bench(queue=2)
    worker, client = bench.worker(b"a"), bench.client()
    for _ in range(2):
        client.ask(b"b")
    client.ask(b"a")
    worker.forward(b"b")
    assert client.reasons() == ["queue-full"]
    assert bench.broker.services[b"b"].queue.waiting == 2
    client.ask(b"a")
    assert len(worker.jobs) == 2


def test_the_job_of_a_client_that_is_gone_goes_no_further() -> None:
    bench = Bench()
    first, second, client = bench.worker(b"a"), bench.worker(b"b"), bench.client()
    client.ask(b"a")
    client.ask(b"a")
    first.ask_for_more()
    bench.broker.client_gone(client.core)
    first.forward(b"b")
    first.forward(b"nowhere")
    assert second.jobs == []
    assert b"nowhere" not in bench.broker.services
    assert not client.core.queues
    assert bench.broker.accounting.active == bench.broker.accounting.memory == 0


def test_forwarding_while_draining_still_finishes_the_job() -> None:
    bench = Bench()
    first, second, client = bench.worker(b"a"), bench.worker(b"b"), bench.client()
    client.ask(b"a")
    bench.broker.control.drain()
    first.forward(b"b")
    second.answer(b"done")
    assert client.finals() == [b"done"]


def test_the_service_left_behind_disappears_with_its_worker() -> None:
    bench = Bench()
    first, second, client = bench.worker(b"a"), bench.worker(b"b"), bench.client()
    client.ask(b"a")
    first.forward(b"b")
    first.leave()
    assert list(bench.broker.services) == [b"b"]
    second.answer()
    second.leave()
    check_empty(bench.broker)
