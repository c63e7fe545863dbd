"""core: who gets which job (MDP §Overall Topology: least recently used workers, clients served fairly)."""

from __future__ import annotations

from polydomo.core.broker import ANSWERED
from polydomo.core.model import JOB_COST
from polydomo.core.states import DONE, FAILED, RUNNING, WAITING
from tests.support.core import Bench, check_empty


def test_a_job_goes_to_an_idle_worker_at_once_and_its_answer_to_the_client() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    job = client.ask(b"echo", b"hello", b"envelope")
    assert job is not None
    assert worker.bodies == [b"hello"]
    assert job.state == RUNNING
    assert job.worker is worker.core
    assert worker.answer(b"world") == ANSWERED
    assert client.heard == [("final", job.id, b"world")]
    assert client.envelopes == [b"envelope"]
    assert job.state == DONE
    assert bench.broker.accounting.active == 0


def test_a_job_waits_for_the_first_worker_of_its_service() -> None:
    bench = Bench()
    client = bench.client()
    job = client.ask(b"echo")
    assert job is not None
    assert job.state == WAITING
    other = bench.worker(b"other")
    assert other.jobs == []
    worker = bench.worker(b"echo")
    assert worker.jobs == [job.id]


def test_partial_answers_come_before_the_final_one() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    job = client.ask(b"echo")
    assert job is not None
    worker.partial(b"1")
    worker.partial(b"2")
    worker.answer(b"3")
    assert [(what, body) for what, _, body in client.heard] == [
        ("partial", b"1"),
        ("partial", b"2"),
        ("final", b"3"),
    ]
    assert job.partials == 2
    assert job.size_out == 3


def test_the_least_recently_used_worker_is_next() -> None:
    bench = Bench()
    workers = [bench.worker(b"echo") for _ in range(3)]
    client = bench.client()
    for _ in range(2):
        for worker in workers:
            before = len(worker.jobs)
            client.ask(b"echo")
            assert len(worker.jobs) == before + 1
            worker.answer()
    # The last to become free is the last to be used again, not the last to have been given something.
    jobs = [client.ask(b"echo") for _ in range(3)]
    assert all(jobs)
    for index in (2, 0, 1):
        workers[index].answer()
    for index in (2, 0, 1):
        count = len(workers[index].jobs)
        client.ask(b"echo")
        assert len(workers[index].jobs) == count + 1


def test_one_clients_ten_thousand_jobs_do_not_starve_anothers_one() -> None:
    bench = Bench()
    greedy, modest = bench.client(), bench.client()
    for _ in range(10_000):
        greedy.ask(b"echo")
    job = modest.ask(b"echo")
    assert job is not None
    worker = bench.worker(b"echo")
    worker.answer()
    assert worker.jobs[1] == job.id
    worker.answer()
    assert modest.finals() == [b"answer"]


def test_each_clients_own_jobs_keep_their_order() -> None:
    bench = Bench()
    clients = [bench.client() for _ in range(3)]
    asked: dict[int, int] = {}
    for index in (0, 0, 1, 0, 2, 1, 0, 0, 2, 2, 1, 0):
        job = clients[index].ask(b"echo")
        assert job is not None
        asked[job.id] = index
    worker = bench.worker(b"echo")
    while worker.holds:
        worker.answer()
    for index, client in enumerate(clients):
        ids = [job for job in worker.jobs if asked[job] == index]
        assert ids == sorted(ids)
        assert [job for _, job, _ in client.heard] == ids


def test_three_clients_take_turns() -> None:
    bench = Bench()
    clients = [bench.client() for _ in range(3)]
    owner = {}
    for index, client in enumerate(clients):
        for _ in range(4):
            job = client.ask(b"echo")
            assert job is not None
            owner[job.id] = index
    worker = bench.worker(b"echo")
    while worker.holds:
        worker.answer()
    assert [owner[job] for job in worker.jobs] == [0, 1, 2] * 4


def test_a_worker_of_several_services_serves_them_in_turn() -> None:
    bench = Bench()
    client = bench.client()
    names = {}
    for service in (b"a", b"b", b"c"):
        for _ in range(3):
            job = client.ask(service)
            assert job is not None
            names[job.id] = service
    worker = bench.worker(b"a", b"b", b"c")
    while worker.holds:
        worker.answer()
    served = [names[job] for job in worker.jobs]
    assert sorted(served[-8:-2]) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    assert len(served) == 9


def test_a_worker_busy_for_one_service_is_not_idle_at_its_others() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a", b"b"), bench.client()
    first, second = client.ask(b"a"), client.ask(b"b")
    assert first is not None
    assert second is not None
    assert worker.jobs == [first.id]
    worker.answer()
    assert worker.jobs == [first.id, second.id]


def test_registering_a_second_service_while_busy_waits_for_the_first_job() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a"), bench.client()
    client.ask(b"a")
    client.ask(b"b")
    worker.register(b"b")
    assert len(worker.jobs) == 1
    worker.answer()
    assert len(worker.jobs) == 2


def test_a_worker_says_it_failed_and_the_job_is_not_tried_again() -> None:
    bench = Bench()
    worker, other, client = bench.worker(b"echo"), bench.worker(b"echo"), bench.client()
    job = client.ask(b"echo")
    assert job is not None
    assert worker.fail() == ANSWERED
    assert client.heard == [("failed", job.id, "worker-error")]
    assert job.state == FAILED
    assert other.jobs == []
    client.ask(b"echo")
    client.ask(b"echo")
    assert len(worker.jobs) + len(other.jobs) == 3


def test_everything_that_ended_is_in_the_journal_once() -> None:
    bench = Bench(queue=1)
    client = bench.client()
    client.ask(b"x")
    client.ask(b"x")  # refused: one waits already
    worker = bench.worker(b"x")
    worker.answer()
    client.ask(b"x")
    worker.fail()
    worker.leave()
    assert sorted(bench.ledger.finished_ids) == [1, 2, 3]
    assert [kind for kind, _, _ in bench.ledger.events] == ["joined", "left"]
    check_empty(bench.broker)


def test_the_books_say_who_did_what() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo", b"12345")
    client.ask(b"echo", b"123")
    broker, service = bench.broker, bench.broker.services[b"echo"]
    assert (broker.accounting.active, broker.accounting.memory, service.running, service.queue.waiting) == (
        2,
        8 + 2 * JOB_COST,
        1,
        1,
    )
    assert (client.core.jobs, client.core.size, client.core.total) == (2, 8, 2)
    worker.answer()
    worker.fail()
    assert (broker.accounting.active, broker.accounting.memory, service.running, service.queue.waiting) == (
        0,
        0,
        0,
        0,
    )
    counts = service.counts
    assert (
        broker.accounting.totals.done,
        broker.accounting.totals.failed,
        counts.done,
        counts.failed,
        worker.core.done,
    ) == (1, 1, 1, 1, 2)
    assert (client.core.jobs, client.core.size, client.core.total) == (0, 0, 2)
    assert [job.id for job in broker.accounting.recent] == [1, 2]


def test_what_has_ended_keeps_no_bodies() -> None:
    """The last thousand jobs are remembered to be looked at; a thousand times 64 MiB must not be."""
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    for _ in range(2):
        client.ask(b"echo", bytes(1000), bytes(1000))
    worker.answer()
    worker.fail()
    bench.broker.control.drain()
    client.ask(b"echo", bytes(1000), bytes(1000))
    assert len(bench.broker.accounting.recent) == 3
    for job in bench.broker.accounting.recent:
        assert job.body == job.envelope == b""
        assert job.failure is None or not job.failure.body
    assert client.envelopes == [bytes(1000)] * 3
