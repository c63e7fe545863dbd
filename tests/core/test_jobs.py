"""Jobs that their clients call by an id: one id, one job; and it can be asked for later."""

from __future__ import annotations

import pytest

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.model import Job
from polydomo.core.policy import Policy
from polydomo.core.principals import ANONYMOUS
from polydomo.core.result_history import JobResult, ResultHistory
from polydomo.core.tracked_job import Options, TrackedJob
from tests.core.listening import Asked, Keeping, Listener
from tests.support.core import Bench
from tests.support.invariants import check


@pytest.fixture
def bench() -> Bench:
    return Bench()


def recall(bench: Bench, uid: str) -> JobResult | None:
    found: list[JobResult | None] = []
    bench.broker.jobs.recall(bench.broker.principals.get(ANONYMOUS), uid, found.append)
    return found[0]


def test_a_living_job_is_found_by_its_id_and_an_ended_one_recalled(bench: Bench) -> None:
    worker = bench.worker(b"s", name=b"w")
    client = Listener(bench.broker, b"c")
    job = client.send(b"s", Options(uid="mine"))
    assert bench.broker.jobs.known.get("mine") is job
    assert recall(bench, "mine") is None
    worker.answer(b"done")
    assert bench.broker.jobs.known.get("mine") is None
    ended = recall(bench, "mine")
    assert ended is not None
    assert (ended.body, ended.failure, ended.worker, ended.gathered) == (b"done", None, b"w", False)
    assert recall(bench, "other") is None


def test_a_failure_is_recalled_too(bench: Bench) -> None:
    worker = bench.worker(b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(uid="mine"))
    worker.fail()
    ended = recall(bench, "mine")
    assert ended is not None
    assert ended.failure is not None
    assert (ended.failure.reason, ended.failure.body) == (reasons.WORKER_ERROR, b"plain")


def test_the_same_again_follows_the_first_and_both_are_answered(bench: Bench) -> None:
    worker = bench.worker(b"s")
    one, two = Listener(bench.broker, b"1"), Listener(bench.broker, b"2")
    one.send(b"s", Options(uid="u"))
    two.send(b"s", Options(uid="u"))
    check(bench.broker)
    bench.broker.event(worker.core, worker.holds[0], "progress", b"half")
    worker.answer(b"both")
    assert (one.finals(), two.finals()) == ([b"both"], [b"both"])
    assert two.kinds() == ["accepted", "assigned", "event", "final"]
    assert (bench.broker.accounting.totals.done, bench.broker.accounting.totals.repeated) == (1, 1)
    assert len(worker.jobs) == 1
    check(bench.broker)


def test_also_when_it_has_ended(bench: Bench) -> None:
    worker = bench.worker(b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(uid="u"))
    worker.answer(b"once")
    client.send(b"s", Options(uid="u"))
    assert client.finals() == [b"once", b"once"]
    assert len(worker.jobs) == 1
    check(bench.broker)


def test_something_else_under_the_same_id_is_refused(bench: Bench) -> None:
    worker = bench.worker(b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(uid="u"), b"this")
    client.send(b"s", Options(uid="u"), b"that")
    assert client.reasons() == [reasons.DUPLICATE]
    worker.answer(b"fine")
    client.send(b"t", Options(uid="u"), b"this")
    assert client.reasons() == [reasons.DUPLICATE] * 2
    assert client.finals() == [b"fine"]
    check(bench.broker)


def test_what_was_never_taken_may_come_again(bench: Bench) -> None:
    bench.broker.services.policies[b"s"] = Policy(durable=True)
    keeper = Keeping(bench)
    worker = bench.worker(b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(uid="u"))
    keeper.commit(Failure(reasons.STORE, "the disk is full"))
    assert client.reasons() == [reasons.STORE]
    client.send(b"s", Options(uid="u"))
    keeper.commit()
    worker.answer(b"now")
    keeper.commit()
    assert client.finals() == [b"now"]


def test_what_is_not_remembered_is_read_from_the_disk(bench: Bench) -> None:
    keeper = Keeping(bench)
    keeper.ends["old"] = JobResult("old", b"s", b"w", b"kept", None, False)
    ended = recall(bench, "old")
    assert ended is keeper.ends["old"]


def test_results_are_remembered_within_bounds() -> None:
    results = ResultHistory(count=3, size=4000)
    for number in range(5):
        results.keep(JobResult(f"{number}", b"s", b"", b"x", None, False, until=10.0))
    assert [results.get(f"{number}", 0.0) is not None for number in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    results.keep(JobResult("big", b"s", b"", b"x" * 1000, None, False, until=10.0))
    assert results.get("big", 0.0) is None
    assert results.get("4", 10.0) is None
    assert len(results) == 2
    results.keep(JobResult("3", b"s", b"", b"y" * 100, None, False, until=20.0))
    assert len(results) == 2
    assert results.held == 257 + 356


def test_its_own_timeout_counts(bench: Bench) -> None:
    worker = bench.worker(b"s")
    client = Listener(bench.broker, b"c")
    client.send(b"s", Options(uid="u", timeout=2.0))
    bench.at(2.5, worker)
    assert worker.core.revoked
    assert bench.broker.accounting.totals.retried == 1


def test_after_a_restart_its_worker_is_asked_for_what_it_had(bench: Bench) -> None:
    keeper = Keeping(bench)
    restored(bench, b"feedbeef", b"w1")
    other = Asked(bench, b"w2", b"s")
    assert other.reclaimed == other.jobs == []
    worker = Asked(bench, b"w1", b"s")
    assert worker.reclaimed == [b"feedbeef"]
    assert worker.jobs == []
    check(bench.broker)
    worker.answer(b"here it is")
    keeper.commit()
    assert recall(bench, "u") is not None
    check(bench.broker)


def test_if_it_does_not_know_it_another_gets_it(bench: Bench) -> None:
    Keeping(bench)
    job = restored(bench, b"feedbeef", b"w1")
    worker = Asked(bench, b"w1", b"s")
    bench.broker.report_unknown(worker.core, b"feedbeef")
    check(bench.broker)
    assert worker.jobs == [job.id]


def test_a_job_that_its_worker_does_not_come_back_for_goes_to_another(bench: Bench) -> None:
    Keeping(bench)
    job = restored(bench, b"feedbeef", b"w1")
    other = Asked(bench, b"w2", b"s")
    bench.at(9.0, other)
    assert other.jobs == []
    bench.at(10.5, other)
    assert other.jobs == [job.id]


def restored(bench: Bench, token: bytes, holder: bytes) -> TrackedJob:
    broker = bench.broker
    gone = broker.store_events.absent_client(b"c", "fake", ANONYMOUS)
    job = broker.store_events.revive(gone, b"s", b"body", b"", Options(uid="u"), "u", 0)
    job.number = 1
    broker.store_events.restore(job, token, holder, ANONYMOUS)
    return job


def test_a_durable_job_whose_client_has_heard_enough_does_not_count_as_its_own(bench: Bench) -> None:
    bench.broker.services.policies[b"s"] = Policy(durable=True)
    keeper = Keeping(bench)
    client = Detaching(bench.broker, b"c")
    for number in range(3):
        client.send(b"s", Options(uid=f"u{number}"))
    assert client.core.jobs == 3
    keeper.commit()
    assert (client.core.jobs, client.core.size) == (0, 0)
    check(bench.broker)
    worker = bench.worker(b"s")
    for _ in range(3):
        worker.answer(b"kept")
    keeper.commit()
    assert client.finals() == []
    ended = recall(bench, "u2")
    assert ended is not None
    assert ended.body == b"kept"
    check(bench.broker)


def test_a_job_may_be_detached_while_it_waits_and_cancelled_afterwards(bench: Bench) -> None:
    bench.broker.services.policies[b"s"] = Policy(durable=True)
    keeper = Keeping(bench)
    client = Listener(bench.broker, b"c")
    for number in range(3):
        client.send(b"s", Options(uid=f"u{number}", priority=number % 2))
    keeper.commit()
    for number in range(3):
        job = bench.broker.jobs.known.get(f"u{number}")
        assert job is not None
        bench.broker.jobs.detach(job)
        check(bench.broker)
    assert client.core.jobs == 0
    assert bench.broker.services[b"s"].queue.waiting == 3
    for number in range(3):
        job = bench.broker.jobs.known.get(f"u{number}")
        assert job is not None
        assert bench.broker.cancel(job)
    keeper.commit()
    check(bench.broker)


class Detaching(Listener):
    """Asks for results, and is not told of them."""

    def accepted(self, job: Job) -> None:
        super().accepted(job)
        self.broker.jobs.detach(job)
