"""The account of what peers make the broker hold."""

from __future__ import annotations

import pytest

from polydomo.core.broker import Broker
from polydomo.server.memory_budget import MemoryBudget
from tests.support.core import make_broker


class Holding:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cut(self, reason: str) -> None:
        self.reasons.append(reason)


@pytest.fixture
def broker() -> Broker:
    return make_broker()


def test_largest_holder_is_cut_first_and_no_more_than_needed(broker: Broker) -> None:
    budget = MemoryBudget(broker, 1000)
    small, large, last = Holding(), Holding(), Holding()
    budget.hold(small, 300)
    budget.hold(large, 600)
    budget.hold(last, 200)
    assert (small.reasons, last.reasons) == ([], [])
    assert len(large.reasons) == 1
    assert "held most (600 bytes)" in large.reasons[0]
    assert budget.transit == 500


def test_holder_that_grows_beyond_the_limit_by_itself_is_cut(broker: Broker) -> None:
    budget = MemoryBudget(broker, 1000)
    one = Holding()
    budget.hold(one, 1001)
    assert len(one.reasons) == 1
    assert budget.transit == 0


def test_sizes_are_totals_and_released_ones_count_no_more(broker: Broker) -> None:
    budget = MemoryBudget(broker, 1000)
    one, two = Holding(), Holding()
    budget.hold(one, 100)
    budget.hold(one, 400)
    budget.hold(two, 400)
    assert budget.transit == 800
    budget.release(one)
    budget.release(one)
    assert budget.show() == {"limit": 1000, "jobs": 0, "transit": 400, "holders": 1, "cut": 0}


def test_jobs_may_use_what_transit_leaves_but_not_its_reserve(broker: Broker) -> None:
    budget = MemoryBudget(broker, 800)
    assert broker.accounting.memory_limit == 700
    one = Holding()
    budget.hold(one, 300)
    assert broker.accounting.memory_limit == 500
    budget.release(one)
    assert broker.accounting.memory_limit == 700


def test_jobs_that_fill_the_broker_do_not_cut_small_holders(broker: Broker) -> None:
    budget = MemoryBudget(broker, 800)
    broker.accounting.memory = 790
    one = Holding()
    budget.hold(one, 100)
    assert one.reasons == []
    budget.hold(one, 101)
    assert len(one.reasons) == 1
