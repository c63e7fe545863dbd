"""core: how many jobs a worker may hold at once (DCP §Requests & Replies: "ask for more work")."""

from __future__ import annotations

from polydomo.core.model import Worker
from tests.support.core import Bench, FakeWorker


def test_a_worker_holds_one_job_unless_it_asks_for_more() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    for _ in range(5):
        client.ask(b"echo")
    assert len(worker.holds) == 1
    worker.ask_for_more()
    assert len(worker.holds) == 2
    worker.ask_for_more()
    assert len(worker.holds) == 3


def test_asking_is_bounded() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    for _ in range(10):
        client.ask(b"echo")
    for _ in range(10):
        worker.ask_for_more(bound=4)
    assert len(worker.holds) == 4
    assert worker.core.credit == 4


def test_asking_without_using_it_does_not_pile_up() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo")
    for _ in range(10):
        worker.ask_for_more()
    assert worker.core.credit == 2
    for _ in range(5):
        client.ask(b"echo")
    assert len(worker.holds) == 2


def test_an_idle_worker_asks_for_nothing() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    worker.ask_for_more()
    assert worker.core.credit == 1
    client.ask(b"echo")
    client.ask(b"echo")
    assert len(worker.holds) == 1


def test_what_was_asked_for_is_kept_while_there_is_work_and_forgotten_when_idle() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    for _ in range(6):
        client.ask(b"echo")
    worker.ask_for_more()
    worker.ask_for_more()
    for _ in range(3):
        worker.answer()
        assert len(worker.holds) == 3
    for _ in range(3):
        worker.answer()
    assert worker.core.credit == 1
    client.ask(b"echo")
    client.ask(b"echo")
    assert len(worker.holds) == 1


def test_a_worker_with_room_left_takes_new_jobs_at_once() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo")
    worker.ask_for_more()
    assert worker.core in bench.broker.services[b"echo"].idle
    client.ask(b"echo")
    assert len(worker.holds) == 2
    assert worker.core not in bench.broker.services[b"echo"].idle


def test_answers_may_come_in_any_order() -> None:
    bench = Bench()
    worker, client = bench.worker(b"echo"), bench.client()
    for _ in range(3):
        client.ask(b"echo")
        worker.ask_for_more()
    for token, _ in reversed(worker.given):
        worker.answer(b"for " + token, token)
    assert client.finals() == [b"for " + token for token, _ in reversed(worker.given)]


def test_a_worker_with_room_and_one_that_is_idle_take_turns() -> None:
    bench = Bench()
    busy, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo")
    busy.ask_for_more()
    idle = bench.worker(b"echo")
    client.ask(b"echo")
    client.ask(b"echo")
    assert (len(busy.holds), len(idle.holds)) == (2, 1)


def test_a_credit_of_its_own_from_the_start() -> None:
    """Our own SDK's workers say how many jobs they can hold; they need not ask."""
    bench = Bench()
    client = bench.client()
    worker = FakeWorker(bench.broker, b"native", bench.beat)
    worker.core.base_credit = worker.core.credit = 3
    for _ in range(5):
        client.ask(b"echo")
    worker.register(b"echo")
    assert len(worker.holds) == 3
    while worker.holds:
        worker.answer()
    assert worker.core.credit == 3
    for _ in range(5):
        client.ask(b"echo")
    assert len(worker.holds) == 3


def test_one_late_answer_stops_new_jobs_whatever_the_credit() -> None:
    bench = Bench(timeout=10, retries=0)
    worker, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo")
    worker.ask_for_more()
    bench.at(5.0, worker)
    client.ask(b"echo")
    bench.at(10.0, worker)
    assert client.reasons() == ["retries-exhausted"]
    client.ask(b"echo")
    client.ask(b"echo")
    worker.answer(token=worker.given[1][0])
    assert len(worker.given) == 2
    worker.answer(token=worker.given[0][0])  # the late one
    assert len(worker.given) == 4
    assert isinstance(worker.core, Worker)
    assert len(worker.core.running) == 2


def test_credit_counts_over_all_services_of_a_worker() -> None:
    bench = Bench()
    worker, client = bench.worker(b"a", b"b"), bench.client()
    client.ask(b"a")
    client.ask(b"b")
    client.ask(b"a")
    assert len(worker.holds) == 1
    worker.ask_for_more()
    assert len(worker.holds) == 2
    assert bench.broker.services[b"a"].queue.waiting + bench.broker.services[b"b"].queue.waiting == 1
