"""Durable, keyed and delayed jobs: nothing is accepted, answered or failed before it is on disk."""

from __future__ import annotations

import pytest

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.model import Job
from polydomo.core.policy import Policy
from polydomo.core.principals import ANONYMOUS
from polydomo.core.tracked_job import Options
from tests.support.core import Bench, FakeClient, QuietKeeper, check_empty
from tests.support.invariants import check


class FakeKeeper(QuietKeeper):
    """A disk whose commits happen when the test says so."""

    def __init__(self, bench: Bench) -> None:
        self.store_events = bench.broker.store_events
        self.added: list[Job] = []
        self.attempts: list[tuple[int, int]] = []
        self.ended: list[Job] = []
        self.asked: list[Job] = []

    def add(self, job: Job) -> None:
        self.added.append(job)

    def attempt(self, job: Job) -> None:
        self.attempts.append((job.id, job.attempt))

    def partial(self, job: Job, body: bytes) -> None:
        pass

    def finish(self, job: Job) -> None:
        self.ended.append(job)

    def look_up(self, job: Job) -> None:
        self.asked.append(job)

    def commit(self, failure: Failure | None = None) -> None:
        """All that was written so far is safe now, or cannot be."""
        while self.asked:
            self.store_events.looked_up(self.asked.pop(0), None, None)
        while self.added:
            self.store_events.stored(self.added.pop(0), failure)
        ended, self.ended = self.ended, []
        for job in ended:
            self.store_events.recorded(job, failure)


class Listener(FakeClient):
    """A client that is told of acceptance."""

    def accepted(self, job: Job) -> None:
        self.heard.append(("accepted", job.id, b""))


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.broker.services.policies[b"safe"] = Policy(durable=True)
    return bench


@pytest.fixture
def keeper(bench: Bench) -> FakeKeeper:
    keeper = FakeKeeper(bench)
    bench.broker.use_store(keeper)
    return keeper


def test_a_durable_job_is_accepted_and_dispatched_only_after_its_commit(
    bench: Bench, keeper: FakeKeeper
) -> None:
    worker = bench.worker(b"safe")
    client = Listener(bench.broker, b"c")
    client.ask(b"safe")
    assert client.heard == []
    assert worker.jobs == []
    keeper.commit()
    assert client.heard == [("accepted", 1, b"")]
    assert worker.jobs == [1]
    assert keeper.attempts == [(1, 1)]


def test_its_answer_goes_out_only_after_it_was_recorded(bench: Bench, keeper: FakeKeeper) -> None:
    worker = bench.worker(b"safe")
    client = bench.client()
    client.ask(b"safe")
    keeper.commit()
    worker.answer(b"42")
    assert client.finals() == []
    keeper.commit()
    assert client.finals() == [b"42"]
    worker.leave()
    check_empty(bench.broker)


def test_a_worker_need_not_wait_for_the_disk(bench: Bench, keeper: FakeKeeper) -> None:
    worker = bench.worker(b"safe")
    client = bench.client()
    client.ask(b"safe")
    client.ask(b"safe")
    keeper.commit()
    worker.answer()
    assert worker.jobs == [1, 2]


def test_what_cannot_be_stored_is_refused_with_the_reason(bench: Bench, keeper: FakeKeeper) -> None:
    client = bench.client()
    client.ask(b"safe")
    keeper.commit(Failure(reasons.STORE, "the disk is full"))
    assert client.reasons() == [reasons.STORE]
    check_empty(bench.broker)


def test_a_result_that_cannot_be_recorded_now_is_recorded_later(bench: Bench, keeper: FakeKeeper) -> None:
    worker = bench.worker(b"safe")
    client = bench.client()
    client.ask(b"safe")
    keeper.commit()
    worker.answer(b"42")
    keeper.commit(Failure(reasons.STORE, "the disk is full"))
    assert client.heard == []
    bench.at(2.0, worker)
    assert len(keeper.ended) == 1
    keeper.commit()
    assert client.finals() == [b"42"]


def test_a_durable_job_outlives_its_client(bench: Bench, keeper: FakeKeeper) -> None:
    client = bench.client()
    client.ask(b"safe")
    keeper.commit()
    bench.broker.client_gone(client.core)
    worker = bench.worker(b"safe")
    assert worker.jobs == [1]
    worker.answer(b"42")
    assert [job.result for job in keeper.ended] == [b"42"]
    keeper.commit()
    assert client.heard == []
    worker.leave()
    check_empty(bench.broker)


def test_a_durable_job_waits_for_a_worker_for_ever(bench: Bench, keeper: FakeKeeper) -> None:
    client = bench.client()
    client.ask(b"safe")
    keeper.commit()
    bench.at(10_000.0)
    worker = bench.worker(b"safe")
    assert worker.jobs == [1]


def test_unless_it_has_a_deadline(bench: Bench, keeper: FakeKeeper) -> None:
    client = bench.client()
    bench.broker.submit(client.core, b"safe", b"body", b"", Options(deadline=5))
    keeper.commit()
    bench.at(6.0)
    keeper.commit()
    assert client.reasons() == [reasons.DEADLINE]


def test_a_deadline_also_ends_a_running_attempt(bench: Bench, keeper: FakeKeeper) -> None:
    bench.broker.services.policies[b"once"] = Policy(durable=True, retries=0)
    worker = bench.worker(b"once")
    client = bench.client()
    bench.broker.submit(client.core, b"once", b"body", b"", Options(deadline=5))
    keeper.commit()
    bench.at(6.0, worker)
    keeper.commit()
    assert client.reasons() == [reasons.DEADLINE]


def test_a_lost_durable_job_goes_to_another_worker_and_then_to_the_dead(
    bench: Bench, keeper: FakeKeeper
) -> None:
    client = bench.client()
    client.ask(b"safe")
    keeper.commit()
    for attempt in (1, 2, 3):
        worker = bench.worker(b"safe")
        assert keeper.attempts[-1] == (1, attempt)
        worker.leave()
    assert client.heard == []
    keeper.commit()
    assert client.reasons() == [reasons.EXHAUSTED]
    check_empty(bench.broker)


def test_retries_pause_longer_each_time(bench: Bench, keeper: FakeKeeper) -> None:
    bench.broker.services.policies[b"slowly"] = Policy(durable=True, backoff=4.0, retries=2)
    client = bench.client()
    client.ask(b"slowly")
    keeper.commit()
    bench.worker(b"slowly").leave()
    patient = bench.worker(b"slowly")
    bench.at(2.9, patient)
    assert patient.jobs == []
    bench.at(3.1, patient)  # 4 s, of which the random half is cut to a quarter here
    assert patient.jobs == [1]
    patient.leave()
    patient = bench.worker(b"slowly")
    bench.at(8.9, patient)
    assert patient.jobs == []
    bench.at(9.3, patient)
    assert patient.jobs == [1]


def test_same_key_at_once_is_run_once_and_everybody_is_answered(bench: Bench, keeper: FakeKeeper) -> None:
    worker = bench.worker(b"safe")
    clients = [bench.client() for _ in range(10)]
    for client in clients:
        bench.broker.submit(client.core, b"safe", b"body", b"", Options(key=b"k"))
    keeper.commit()
    assert len(worker.jobs) == 1
    worker.answer(b"42")
    keeper.commit()
    assert [client.finals() for client in clients] == [[b"42"]] * 10
    worker.leave()
    check_empty(bench.broker)


def test_same_key_later_is_answered_from_the_store(bench: Bench, keeper: FakeKeeper) -> None:
    worker = bench.worker(b"safe")
    client = bench.client()
    job = bench.broker.submit(client.core, b"safe", b"body", b"", Options(key=b"k"))
    assert keeper.asked == [job]
    assert job is not None
    bench.broker.store_events.looked_up(job, b"41", None)
    assert client.finals() == [b"41"]
    assert worker.jobs == []
    worker.leave()
    check_empty(bench.broker)


def test_same_key_with_another_body_is_refused_while_the_first_is_under_way(
    bench: Bench, keeper: FakeKeeper
) -> None:
    worker, client, other = bench.worker(b"safe"), bench.client(), bench.client()
    client.ask(b"safe", b"one", options=Options(key=b"k"))
    other.ask(b"safe", b"two", options=Options(key=b"k"))
    assert other.reasons() == ["key-reused"]
    keeper.commit()
    assert worker.bodies == [b"one"]
    other.ask(b"safe", b"one", options=Options(key=b"k"))
    worker.answer(b"42")
    keeper.commit()
    assert client.finals() == other.finals() == [b"42"]
    assert bench.broker.accounting.totals.refused == 1
    check(bench.broker)


def test_an_id_that_was_refused_for_its_key_may_come_again(bench: Bench) -> None:
    worker, client = bench.worker(b"plain"), bench.client()
    client.ask(b"plain", b"one", options=Options(key=b"k"))
    client.ask(b"plain", b"two", options=Options(key=b"k", uid="u"))
    assert client.reasons() == ["key-reused"]
    client.ask(b"plain", b"two", options=Options(key=b"another", uid="u"))
    worker.answer(b"for one")
    worker.answer(b"for two")
    assert client.finals() == [b"for one", b"for two"]


def test_a_request_is_compared_with_what_was_asked_not_with_what_it_became(bench: Bench) -> None:
    worker, client, other = bench.worker(b"first"), bench.client(), bench.client()
    client.ask(b"first", b"asked", options=Options(key=b"k"))
    worker.forward(b"second", b"passed on")
    other.ask(b"first", b"passed on", options=Options(key=b"k"))
    assert other.reasons() == ["key-reused"]
    other.ask(b"first", b"asked", options=Options(key=b"k"))
    bench.worker(b"second").answer(b"42")
    assert other.finals() == [b"42"]


def test_the_same_key_of_two_principals_is_two_jobs(bench: Bench) -> None:
    worker = bench.worker(b"plain")
    one, two = bench.client(principal="one"), bench.client(principal="two")
    one.ask(b"plain", b"of one", options=Options(key=b"order-4711"))
    two.ask(b"plain", b"of two", options=Options(key=b"order-4711"))
    worker.answer(b"for one")
    worker.answer(b"for two")
    assert (one.finals(), two.finals()) == ([b"for one"], [b"for two"])


def test_keys_of_different_services_have_nothing_to_do_with_each_other(
    bench: Bench, keeper: FakeKeeper
) -> None:
    bench.broker.services.policies[b"other"] = Policy(durable=True)
    one, other = bench.worker(b"safe"), bench.worker(b"other")
    client = bench.client()
    for name in (b"safe", b"other"):
        bench.broker.submit(client.core, name, b"body", b"", Options(key=b"k"))
    keeper.commit()
    assert (len(one.jobs), len(other.jobs)) == (1, 1)


def test_a_delayed_job_is_not_dispatched_before_its_time(bench: Bench) -> None:
    worker = bench.worker(b"echo")
    client = bench.client()
    bench.broker.submit(client.core, b"echo", b"body", b"", Options(delay=5))
    bench.at(4.9, worker)
    assert worker.jobs == []
    bench.at(5.1, worker)
    assert worker.jobs == [1]


def test_cancelling_a_waiting_a_delayed_and_a_running_job(bench: Bench, keeper: FakeKeeper) -> None:
    client = bench.client()
    waiting = client.ask(b"safe")
    delayed = bench.broker.submit(client.core, b"safe", b"body", b"", Options(delay=50))
    keeper.commit()
    assert waiting is not None
    assert delayed is not None
    assert bench.broker.cancel(waiting)
    assert bench.broker.cancel(delayed)
    worker = bench.worker(b"safe")
    running = client.ask(b"safe")
    assert running is not None
    keeper.commit()
    assert bench.broker.cancel(running)
    keeper.commit()
    assert client.reasons() == [reasons.CANCELLED] * 3
    token = worker.holds[0]
    worker.answer(b"too late", token)  # and it may work again
    client.ask(b"safe")
    keeper.commit()
    assert len(worker.jobs) == 2
    assert not bench.broker.cancel(running)


def test_one_that_is_cancelled_on_its_way_to_the_disk_never_runs(bench: Bench, keeper: FakeKeeper) -> None:
    worker = bench.worker(b"safe")
    client = bench.client()
    job = client.ask(b"safe")
    assert job is not None
    assert bench.broker.cancel(job)
    assert client.reasons() == []
    keeper.commit()
    keeper.commit()
    assert client.reasons() == [reasons.CANCELLED]
    assert worker.jobs == []


def test_a_paused_service_dispatches_nothing_until_it_is_resumed(bench: Bench) -> None:
    worker = bench.worker(b"echo")
    client = bench.client()
    service = bench.broker.services[b"echo"]
    bench.broker.control.pause(service)
    client.ask(b"echo")
    late = bench.worker(b"echo")
    assert worker.jobs == late.jobs == []
    bench.broker.control.resume(service)
    assert worker.jobs + late.jobs == [1]


def test_an_unfinished_job_is_queued_again_after_a_restart(bench: Bench, keeper: FakeKeeper) -> None:
    restored = [_restored(bench, f"u{number}") for number in range(3)]
    worker = bench.worker(b"safe")
    for _ in restored:
        worker.answer()
    assert worker.jobs == [job.id for job in restored]
    keeper.commit()
    assert not bench.broker.jobs.known
    worker.leave()
    check_empty(bench.broker)


def test_a_running_job_waits_for_its_worker_to_come_back_after_a_restart(
    bench: Bench, keeper: FakeKeeper
) -> None:
    job = _restored(bench, "u", token=b"feedbeef")
    worker = bench.worker(b"safe", name=b"before")
    assert worker.jobs == []
    worker.answer(b"42", b"feedbeef")
    assert keeper.ended == [job]
    keeper.commit()
    worker.leave()
    check_empty(bench.broker)


def test_and_goes_to_another_when_its_grace_time_is_over(bench: Bench, keeper: FakeKeeper) -> None:
    job = _restored(bench, "u", token=b"feedbeef")
    worker = bench.worker(b"safe")
    bench.at(11.0, worker)
    assert worker.jobs == [job.id]
    worker.answer(b"late", b"feedbeef")
    assert keeper.ended == []


def _restored(bench: Bench, uid: str, token: bytes = b"") -> Job:
    """As the server does it for every unfinished record."""
    broker = bench.broker
    client = broker.store_events.absent_client(b"gone", "fake", ANONYMOUS)
    job = broker.store_events.revive(client, b"safe", b"body", b"", Options(), uid, 0)
    job.number = 1 if token else 0
    broker.store_events.restore(job, token, b"before", ANONYMOUS)
    return job
