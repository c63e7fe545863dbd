"""core: heartbeats and who is given up (MDP §Heartbeating; DECISIONS §Expiry of busy workers)."""

from __future__ import annotations

from polydomo.core.policy import Heartbeat, Policy
from tests.support.core import Bench, check_empty

# Bench's workers beat each second and are given up after three.


def test_a_silent_idle_worker_is_given_up_after_liveness_intervals() -> None:
    bench = Bench()
    worker = bench.worker(b"a")
    bench.at(2.9)
    assert worker.core in bench.broker.workers
    bench.at(3.0)
    assert worker.core not in bench.broker.workers
    assert worker.dismissals == ["expired"]
    assert [kind for kind, _, _ in bench.ledger.events] == ["joined", "expired", "left"]
    check_empty(bench.broker)
    bench.at(100.0)
    assert len(worker.dismissals) == 1


def test_signs_of_life_keep_it() -> None:
    bench = Bench()
    worker = bench.worker(b"a")
    for now in range(50):
        bench.at(now + 0.9)
        worker.seen()
    assert worker.core in bench.broker.workers
    assert worker.dismissals == []


def test_heartbeats_are_sent_each_interval() -> None:
    bench = Bench()
    worker = bench.worker(b"a")
    bench.at(5.5, worker)
    assert worker.beats == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_no_heartbeat_is_sent_when_something_else_was() -> None:
    """MDP §Heartbeating: SHOULD NOT beat beside other commands."""
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    for tenth in range(55):
        bench.at(tenth / 10, worker)
        client.ask(b"a")
        worker.answer()
    assert worker.beats == []
    bench.at(6.4, worker)
    assert worker.beats == [6.4]


def test_a_busy_worker_gets_heartbeats_too() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    bench.at(0.5)
    client.ask(b"a")
    bench.at(4.0, worker)
    assert worker.beats == [1.5, 2.5, 3.5]


def test_a_busy_worker_that_cannot_beat_has_its_jobs_time() -> None:
    """Many have one thread: they are silent while they work."""
    bench = Bench(timeout=60)
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    bench.at(59.9)
    assert worker.core in bench.broker.workers
    worker.answer()
    assert client.finals() == [b"answer"]
    bench.at(62.8)
    assert worker.core in bench.broker.workers
    bench.at(62.9)
    assert worker.core not in bench.broker.workers


def test_one_that_overran_its_job_in_silence_is_given_up_after_it() -> None:
    bench = Bench(timeout=10, retries=0)
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    bench.at(10.0)
    assert client.reasons() == ["retries-exhausted"]
    assert worker.core in bench.broker.workers
    bench.at(12.9)
    assert worker.core in bench.broker.workers
    bench.at(13.0)
    assert worker.core not in bench.broker.workers


def test_a_busy_worker_that_has_beaten_while_busy_is_held_to_it() -> None:
    bench = Bench(timeout=60)
    worker, other, client = bench.worker(b"a"), bench.worker(b"a"), bench.client()
    job = client.ask(b"a")
    assert job is not None
    bench.at(1.1, worker, other)  # more than an interval after the dispatch
    assert worker.core.beats_busy
    bench.at(4.0, other)
    assert worker.core in bench.broker.workers
    bench.at(4.2, other)
    assert worker.core not in bench.broker.workers
    assert other.jobs == [job.id]


def test_a_beat_that_crossed_the_job_on_its_way_proves_nothing() -> None:
    bench = Bench(timeout=60)
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    bench.at(0.1)
    worker.seen()
    assert not worker.core.beats_busy
    bench.at(50.0)
    assert worker.core in bench.broker.workers


def test_beating_while_idle_proves_nothing_about_being_busy() -> None:
    bench = Bench(timeout=60)
    worker, client = bench.worker(b"a"), bench.client()
    bench.at(30.0, worker)
    client.ask(b"a")
    bench.at(80.0)
    assert worker.core in bench.broker.workers
    assert not worker.core.beats_busy


def test_a_strict_service_gives_up_a_busy_worker_that_only_beat_while_idle() -> None:
    """RFC 18 §Heartbeating: three to five intervals, whatever it is doing."""
    bench = Bench(timeout=60)
    bench.broker.services.policies[b"a"] = Policy(liveness_busy=4)
    worker, other, client = bench.worker(b"a"), bench.worker(b"a"), bench.client()
    bench.at(10.0, worker, other)
    job = client.ask(b"a")
    assert job is not None
    assert worker.jobs == [job.id]
    bench.at(13.9, other)
    assert worker.core in bench.broker.workers
    bench.at(14.0, other)
    assert worker.core not in bench.broker.workers
    assert worker.dismissals == ["expired"]
    assert other.jobs == [job.id]


def test_a_strict_service_keeps_a_busy_worker_that_beats() -> None:
    bench = Bench(timeout=60)
    bench.broker.services.policies[b"a"] = Policy(liveness_busy=2)
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    bench.at(50.0, worker)
    worker.answer()
    assert client.finals() == [b"answer"]


def test_the_strictest_of_the_jobs_that_a_worker_holds_decides() -> None:
    bench = Bench(timeout=60)
    bench.broker.services.policies.update(
        {b"strict": Policy(liveness_busy=2), b"lax": Policy(liveness_busy=20)}
    )
    worker, client = bench.worker(b"strict", b"lax"), bench.client()
    worker.core.base_credit = worker.core.credit = 2
    client.ask(b"lax")
    bench.at(10.0)
    assert worker.core in bench.broker.workers
    client.ask(b"strict")
    bench.at(11.0)
    assert worker.core not in bench.broker.workers


def test_a_worker_whose_protocol_has_no_heartbeats_for_it_has_its_jobs_time() -> None:
    bench = Bench(timeout=60)
    bench.broker.services.policies[b"a"] = Policy(liveness_busy=2)
    worker, client = bench.worker(b"a"), bench.client()
    worker.core.must_beat = False
    client.ask(b"a")
    bench.at(59.0)
    worker.answer()
    assert client.finals() == [b"answer"]


def test_partial_answers_are_signs_of_life() -> None:
    bench = Bench(timeout=60)
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    bench.at(1.5, worker)
    assert worker.core.beats_busy
    for now in range(2, 20):
        bench.at(float(now))
        worker.partial()
    assert worker.core in bench.broker.workers


def test_a_worker_we_do_not_read_from_is_not_given_up_for_its_silence() -> None:
    bench = Bench()
    worker = bench.worker(b"a")
    bench.broker.set_reading_paused(worker.core, True)
    bench.at(100.0)
    assert worker.core in bench.broker.workers
    bench.broker.set_reading_paused(worker.core, False)  # what it sent meanwhile is about to be read
    bench.at(102.9)
    assert worker.core in bench.broker.workers
    bench.at(103.0)
    assert worker.core not in bench.broker.workers


def test_a_deaf_worker_still_loses_a_job_that_runs_too_long() -> None:
    bench = Bench(timeout=10, retries=0)
    worker, client = bench.worker(b"a"), bench.client()
    bench.broker.set_reading_paused(worker.core, True)
    client.ask(b"a")
    bench.at(10.0)
    assert client.reasons() == ["retries-exhausted"]
    assert worker.core in bench.broker.workers


def test_an_expired_workers_jobs_go_to_others() -> None:
    bench = Bench(timeout=60)
    worker, client = bench.worker(b"a"), bench.client()
    job = client.ask(b"a")
    bench.at(1.1, worker)
    heir = bench.worker(b"a")
    bench.at(5.0, heir)
    assert job is not None
    assert heir.jobs == [job.id]


def test_each_kind_of_worker_has_its_own_rhythm() -> None:
    bench = Bench()
    quick = bench.worker(b"a", beat=Heartbeat(0.1, 2))
    slow = bench.worker(b"a", beat=Heartbeat(10.0, 2))
    bench.at(0.3)
    assert quick.core not in bench.broker.workers
    bench.at(19.9)
    assert slow.core in bench.broker.workers
    bench.at(20.0)
    assert slow.core not in bench.broker.workers


def test_a_job_given_up_late_is_not_looked_for_every_moment() -> None:
    """After every ring the next alarm lies in the future, or the loop would spin."""
    bench = Bench(timeout=7)
    workers, client = [bench.worker(b"a") for _ in range(3)], bench.client()
    for _ in range(5):
        client.ask(b"a")
    now, rings = 0.0, 0
    while now < 30.0:
        due = bench.at(now, *workers)
        assert due > now
        now = due
        rings += 1
    assert rings < 300
