"""core: attempts, fencing and retries (MDP §Reliability; DECISIONS §Attempts and fencing)."""

from __future__ import annotations

import pytest

from polydomo.core.broker import ANSWERED, LATE, STRAY
from polydomo.core.states import RUNNING, WAITING
from tests.support.core import Bench, check_empty


def test_a_worker_that_leaves_loses_its_job_to_another() -> None:
    bench = Bench()
    first, second, client = bench.worker(b"echo"), bench.worker(b"echo"), bench.client()
    job = client.ask(b"echo")
    assert job is not None
    first.leave()
    assert second.jobs == [job.id]
    assert job.attempt == 2
    second.answer()
    assert client.finals() == [b"answer"]
    assert bench.broker.accounting.totals.retried == bench.broker.services[b"echo"].counts.retried == 1


def test_each_attempt_has_a_token_of_its_own() -> None:
    bench = Bench()
    workers, client = [bench.worker(b"echo") for _ in range(3)], bench.client()
    client.ask(b"echo")
    workers[0].leave()
    workers[1].leave()
    tokens = [worker.given[0][0] for worker in workers]
    assert len(set(tokens)) == 3
    assert {len(token) for token in tokens} == {8}


def test_tokens_keep_their_length_after_four_billion_jobs() -> None:
    """Dialects have its length in prepared heads; at 100,000 jobs a second this is reached in half a day."""
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    bench.broker._scheduler._token = 0xFFFF_FFFE
    for _ in range(4):
        client.ask(b"echo")
        worker.answer()
    tokens = [token for token, _ in worker.given]
    assert {len(token) for token in tokens} == {8}
    assert len(set(tokens)) == 4
    assert len(client.finals()) == 4


def test_no_worker_is_lost_for_good_after_too_many_attempts() -> None:
    bench = Bench(retries=2)
    client = bench.client()
    job = client.ask(b"echo")
    assert job is not None
    for attempt in (1, 2, 3):
        worker = bench.worker(b"echo")
        assert worker.jobs == [job.id]
        assert job.attempt == attempt
        worker.leave()
    assert client.heard == [("failed", job.id, "retries-exhausted")]
    assert bench.worker(b"echo").jobs == []


def test_no_retries_means_one_attempt() -> None:
    bench = Bench(retries=0)
    worker, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo")
    worker.leave()
    assert client.reasons() == ["retries-exhausted"]
    check_empty(bench.broker)


def test_a_job_that_runs_too_long_goes_to_another_worker() -> None:
    bench = Bench(timeout=10)
    slow, client = bench.worker(b"echo"), bench.client()
    job = client.ask(b"echo")
    assert job is not None
    other = bench.worker(b"echo")
    bench.at(9.9, slow, other)
    assert other.jobs == []
    bench.at(10.0, slow, other)
    assert other.jobs == [job.id]
    assert slow.core in bench.broker.workers
    other.answer(b"from the other")
    assert client.finals() == [b"from the other"]


def test_a_late_answer_is_dropped_and_only_then_the_worker_gets_a_new_job() -> None:
    bench = Bench(timeout=10)
    slow, client = bench.worker(b"echo"), bench.client()
    job = client.ask(b"echo")
    assert job is not None
    bench.at(10.0, slow)
    assert job.state == WAITING
    client.ask(b"echo")
    bench.at(12.0, slow)
    assert len(slow.jobs) == 1  # no new job while its answer is outstanding
    assert slow.partial(b"late part") == LATE
    assert slow.answer(b"too late") == LATE
    assert client.heard == []
    assert slow.jobs == [job.id, job.id]  # now it may try again
    assert slow.given[0][0] != slow.given[1][0]
    slow.answer(b"in time")
    assert client.finals() == [b"in time"]
    assert bench.broker.accounting.strays == 0


def test_a_late_failure_or_forward_is_dropped_too() -> None:
    for how in ("fail", "forward"):
        bench = Bench(timeout=10, retries=0)
        slow, client = bench.worker(b"echo"), bench.client()
        client.ask(b"echo")
        bench.at(10.0, slow)
        assert client.reasons() == ["retries-exhausted"]
        assert (slow.fail() if how == "fail" else slow.forward(b"elsewhere")) == LATE
        assert client.reasons() == ["retries-exhausted"]
        assert b"elsewhere" not in bench.broker.services
        client.ask(b"echo")
        assert len(slow.jobs) == 2


def test_a_fresh_registration_forgives_a_late_answer() -> None:
    bench = Bench(timeout=10, retries=0)
    slow, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo")
    bench.at(10.0, slow)
    client.ask(b"echo")
    assert len(slow.jobs) == 1
    assert slow.register(b"echo")
    assert len(slow.jobs) == 2
    # The old answer, should it still come, is nobody's.
    assert slow.answer(token=slow.given[0][0]) == STRAY
    assert slow.answer() == ANSWERED
    assert client.finals() == [b"answer"]


def test_a_token_never_given_is_a_stray() -> None:
    bench = Bench()
    worker, thief, client = bench.worker(b"echo"), bench.worker(b"other"), bench.client()
    client.ask(b"echo")
    token = worker.given[0][0]
    for forged in (b"", b"nonsense", token):
        assert thief.answer(b"forged", forged) == STRAY
        assert thief.fail(forged) == STRAY
        assert thief.forward(b"other", b"x", forged) == STRAY
        assert bench.broker.partial(thief.core, forged, b"forged") == STRAY
    assert bench.broker.accounting.strays == 12
    assert client.heard == []
    assert worker.answer() == ANSWERED


def test_the_same_answer_twice_counts_once() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo")
    token = worker.given[0][0]
    assert worker.answer(b"1") == ANSWERED
    assert worker.answer(b"2", token) == STRAY
    assert bench.broker.partial(worker.core, token, b"3") == STRAY
    assert client.finals() == [b"1"]


def test_a_worker_that_is_gone_can_answer_nothing() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo")
    worker.leave()
    assert worker.answer() == STRAY
    assert client.heard == []


def test_leaving_twice_is_leaving_once() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo")
    worker.leave()
    worker.leave()
    assert bench.broker.services[b"echo"].queue.waiting == 1
    assert [kind for kind, _, _ in bench.ledger.events] == ["joined", "left"]


def many(bench: Bench, jobs: int) -> tuple[object, object, list[int]]:
    """A worker that holds `jobs` jobs of two clients who took turns."""
    worker = bench.worker(b"echo")
    clients = [bench.client(), bench.client()]
    ids = []
    for number in range(jobs):
        job = clients[number % 2].ask(b"echo")
        assert job is not None
        ids.append(job.id)
        worker.ask_for_more()
    assert worker.jobs == ids
    return worker, clients, ids


def test_the_jobs_of_a_lost_worker_keep_their_order() -> None:
    bench = Bench()
    worker, clients, ids = many(bench, 5)
    later = clients[1].ask(b"echo")  # type: ignore[index]
    worker.leave()  # type: ignore[attr-defined]
    heir = bench.worker(b"echo")
    while heir.holds:
        heir.answer()
    assert heir.jobs == [*ids, later.id]


def test_the_oldest_job_of_a_lost_worker_is_the_first_to_find_an_idle_one() -> None:
    bench = Bench()
    worker, _, ids = many(bench, 5)
    heirs = [bench.worker(b"echo") for _ in range(2)]
    worker.leave()  # type: ignore[attr-defined]
    assert [heir.jobs for heir in heirs] == [[ids[0]], [ids[1]]]
    while heirs[0].holds:
        heirs[0].answer()
    assert heirs[0].jobs == [ids[0], *ids[2:]]


def test_jobs_that_overran_together_keep_their_order_too() -> None:
    bench = Bench(timeout=10)
    worker, _, ids = many(bench, 4)
    heir = bench.worker(b"other", b"echo")
    bench.at(10.0, worker, heir)  # type: ignore[arg-type]
    while heir.holds:
        heir.answer()
    assert heir.jobs == ids


def test_a_lost_job_comes_before_all_that_wait() -> None:
    bench = Bench()
    worker, client, others = bench.worker(b"echo"), bench.client(), [bench.client() for _ in range(3)]
    lost = client.ask(b"echo")
    assert lost is not None
    for other in others:
        other.ask(b"echo")
    client.ask(b"echo")
    worker.leave()
    heir = bench.worker(b"echo")
    assert heir.jobs == [lost.id]


def test_a_lost_job_waits_anew() -> None:
    bench = Bench(wait=10, timeout=100)
    worker, client = bench.worker(b"echo"), bench.client()
    job = client.ask(b"echo")
    assert job is not None
    bench.at(50.0, worker)
    assert job.state == RUNNING
    worker.leave()
    bench.at(59.9)
    assert client.heard == []
    bench.at(60.0)
    assert client.reasons() == ["expired"]


@pytest.mark.parametrize("timeout", [0.0, float("inf")])
def test_extreme_run_times_are_what_they_say(timeout: float) -> None:
    bench = Bench(timeout=timeout, retries=1)
    workers, client = [bench.worker(b"echo") for _ in range(2)], bench.client()
    client.ask(b"echo")
    bench.at(1000.0, *workers)
    if timeout:
        assert client.heard == []
        workers[0].answer()
        assert client.finals() == [b"answer"]
    else:
        assert client.reasons() == ["retries-exhausted"]
        assert [len(worker.jobs) for worker in workers] == [1, 1]


def test_retries_go_to_workers_that_did_not_have_it_if_the_first_is_late() -> None:
    bench = Bench(timeout=10, retries=5)
    workers, client = [bench.worker(b"echo") for _ in range(3)], bench.client()
    job = client.ask(b"echo")
    assert job is not None
    bench.at(30.0, *workers)
    assert [len(worker.jobs) for worker in workers] == [1, 1, 1]
    assert job.state == WAITING  # all three owe an answer
    assert workers[1].answer() == LATE
    assert len(workers[1].jobs) == 2
