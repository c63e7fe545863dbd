"""Long queries on the broker's state run in slices, with turns of the event loop in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from polydomo.core.policy import BrokerLimits, Policy
from polydomo.deferred import Deferred
from polydomo.services.management import ManagementService
from polydomo.services.slices import AT_ONCE, SLICE, SlicedQuery, run_sliced
from tests.support.access import manage
from tests.support.core import Bench

MANY = 20 * SLICE


class Turns:
    """A loop that takes a turn when it is told to."""

    def __init__(self) -> None:
        self.queue: deque[Callable[[], None]] = deque()

    def __call__(self, step: Callable[[], None]) -> None:
        self.queue.append(step)

    def settle(self, answer: Any) -> tuple[Any, int]:
        """Return the answer and how many turns it took."""
        assert isinstance(answer, Deferred)
        found: list[Any] = []
        answer.then(found.append, found.append)
        turns = 0
        while not found:
            turns += 1
            self.queue.popleft()()
        return found[0], turns


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.broker.control.configure(BrokerLimits(client_jobs=10**9, services=10**9), Policy(queue=10**9), {})
    return bench


def test_what_takes_few_slices_is_answered_at_once() -> None:
    def look(count: int) -> SlicedQuery[str]:
        for _ in range(count):
            yield
        return "seen"

    turns = Turns()
    assert run_sliced(look(AT_ONCE - 1), turns) == "seen"
    assert run_sliced(look(1000), None) == "seen"
    assert turns.settle(run_sliced(look(1000), turns)) == ("seen", 1000 - AT_ONCE + 1)


def test_what_goes_wrong_in_a_later_slice_is_told() -> None:
    def look() -> SlicedQuery[None]:
        for _ in range(AT_ONCE):
            yield
        raise ValueError("no more")

    turns = Turns()
    error, _ = turns.settle(run_sliced(look(), turns))
    assert str(error) == "no more"


def test_newest_jobs_of_many_are_found_in_slices(bench: Bench) -> None:
    client, turns = bench.client(), Turns()
    management = ManagementService(bench.broker, "house")
    for _ in range(MANY):
        client.ask(b"a")
    management.call_later = turns
    rows, count = turns.settle(manage(management, "show_jobs", limit=3))
    assert [row["id"] for row in rows] == [MANY, MANY - 1, MANY - 2]
    assert count >= 10
    rows, _ = turns.settle(manage(management, "show_jobs", service="b"))
    assert rows == []


def test_jobs_that_go_on_while_they_are_looked_at_are_shown_once(bench: Bench) -> None:
    client, turns = bench.client(), Turns()
    management = ManagementService(bench.broker, "house")
    management.call_later = turns
    for _ in range(MANY):
        client.ask(b"a")
    answer = manage(management, "show_jobs", limit=MANY)
    worker = bench.worker(b"a")
    for _ in range(3 * SLICE):
        worker.answer()
    rows, _ = turns.settle(answer)
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(ids) >= MANY - 3 * SLICE


@pytest.mark.parametrize("task", ["show_services", "show_clients", "show_workers"])
def test_long_lists_are_made_in_slices(bench: Bench, task: str) -> None:
    management = ManagementService(bench.broker, "house")
    turns = Turns()
    for number in range(MANY):
        bench.client().ask(b"s%05d" % number)
        bench.worker(b"w%05d" % number)
    management.call_later = turns
    rows, count = turns.settle(manage(management, task))
    assert count >= 10
    names = [row["name"] for row in rows]
    assert len(names) == (2 * MANY if task == "show_services" else MANY)
    if task == "show_services":
        assert names == sorted(names)
