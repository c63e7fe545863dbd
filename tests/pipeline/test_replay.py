"""Tests of the replay against queues with known results: by hand, by formula, by another algorithm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.pipeline.replay import (
    Floats,
    Trace,
    busiest,
    load_within,
    loaded,
    trace,
    waits,
)


def erlang_c(servers: int, load: float) -> float:
    """Return the share of jobs that wait in M/M/c."""
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def by_time(arrivals: Floats, seconds: Floats, servers: int) -> list[float]:
    """Simulate the same queue differently: every job checks all servers."""
    free = [-math.inf] * servers
    found = []
    for came, takes in zip(arrivals, seconds, strict=True):
        index = min(range(servers), key=free.__getitem__)
        begin = max(came, free[index])
        free[index] = begin + takes
        found.append(begin - came)
    return found


@pytest.mark.parametrize(
    ("arrivals", "seconds", "servers", "expected"),
    [
        ([], [], 1, []),
        ([], [], 3, []),
        ([5.0], [2.0], 1, [0.0]),
        ([0, 1, 2], [1, 1, 1], 1, [0, 0, 0]),  # each is done when the next one arrives
        ([0, 1, 2, 10], [3, 3, 3, 1], 1, [0, 2, 4, 0]),  # a queue that builds up and empties
        ([0, 0, 0, 0], [4, 1, 2, 1], 2, [0, 0, 1, 3]),  # the first free server takes the next job
        ([0, 0, 0], [5, 5, 5], 3, [0, 0, 0]),
        ([-10, -9], [4, 1], 2, [0, 0]),  # times may start anywhere
        ([-10, -9], [4, 1], 1, [0, 3]),
    ],
)
def test_traces_made_by_hand(
    arrivals: list[float], seconds: list[float], servers: int, expected: list[float]
) -> None:
    found = waits(np.array(arrivals, dtype=float), np.array(seconds, dtype=float), servers)
    assert found.tolist() == pytest.approx(expected)


def test_d_d_1_never_waits_below_full_load_and_grows_steadily_above() -> None:
    came = np.arange(1000.0)
    assert waits(came, np.full(1000, 0.999), 1).max() == 0
    late = waits(came, np.full(1000, 1.5), 1)
    assert late.tolist() == pytest.approx((came * 0.5).tolist())


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (3, 2.4), (10, 8.0)])
def test_m_m_c_waits_as_erlang_says(servers: int, load: float) -> None:
    random = np.random.RandomState(servers)
    number = 400_000
    came = np.cumsum(random.exponential(1.0, number))
    found = waits(came, random.exponential(load, number), servers)
    waiting = erlang_c(servers, load)
    mean = waiting * load / (servers - load)
    assert (found > 0).mean() == pytest.approx(waiting, rel=0.03)
    assert found.mean() == pytest.approx(mean, rel=0.08)
    # Waits are exponentially distributed.
    p95 = max(0.0, math.log(waiting / 0.05)) * load / (servers - load)
    assert np.quantile(found, 0.95) == pytest.approx(p95, rel=0.08)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 30)), max_size=60),
    st.integers(1, 6),
)
def test_it_agrees_with_the_plain_way_and_more_servers_never_hurt(
    jobs: list[tuple[float, float]], servers: int
) -> None:
    made = trace(np.array([job[0] for job in jobs]), np.array([job[1] for job in jobs]))
    found = waits(made.arrivals, made.seconds, servers)
    assert found.tolist() == pytest.approx(by_time(made.arrivals, made.seconds, servers), abs=1e-6)
    assert (waits(made.arrivals, made.seconds, servers + 1) <= found + 1e-6).all()


def test_servers_are_needed() -> None:
    with pytest.raises(ValueError, match="servers is 0"):
        waits(np.zeros(1), np.zeros(1), 0)


def test_a_trace_is_ordered_and_begins_at_nought() -> None:
    made = trace(np.array([7.0, 5.0, 6.0]), np.array([1.0, -2.0, 3.0]), np.array([True, False, True]))
    assert made.arrivals.tolist() == [0, 1, 2]
    assert made.seconds.tolist() == [0, 3, 1]
    assert made.counted.tolist() == [False, True, True]
    assert made.seconds.sum() == 4


def poisson(number: int = 20_000) -> Trace:
    random = np.random.RandomState(3)
    return trace(np.cumsum(random.exponential(1.0, number)), random.exponential(0.5, number))


@pytest.mark.parametrize("factor", [0.3, 1.0, 1.5, 2.0, 3.0])
def test_a_load_is_that_many_times_the_jobs_at_the_same_times(factor: float) -> None:
    before = poisson()
    after = loaded(before, factor)
    assert len(after) == pytest.approx(factor * len(before), rel=0.03)
    assert after.seconds.sum() == pytest.approx(factor * before.seconds.sum(), rel=0.05)
    assert (np.diff(after.arrivals) >= 0).all()
    # In every tenth of the time, not only in total.
    edges = np.linspace(0, before.arrivals[-1], 11)
    share = np.histogram(after.arrivals, edges)[0] / np.histogram(before.arrivals, edges)[0]
    assert share == pytest.approx(np.full(10, factor), rel=0.1)


def test_copies_are_no_twins() -> None:
    """A doubled Poisson process is one of twice the rate, with the same waits."""
    doubled = loaded(poisson(200_000), 2.0)
    found = waits(doubled.arrivals, doubled.seconds, 2)
    expected = erlang_c(2, 1.0) * 0.5 / (2 - 1.0)
    assert found.mean() == pytest.approx(expected, rel=0.08)


def test_no_load_is_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        loaded(poisson(10), 0.0)


def test_the_busiest_stretch_is_the_one_with_most_work() -> None:
    came = np.concatenate([np.arange(0, 1000, 10.0), np.arange(400, 500, 1.0)])
    made = trace(came, np.ones(len(came)))
    begin, end = busiest(made, 100)
    assert 390 <= begin <= 410
    assert end == begin + 100
    assert load_within(made, begin, end) == pytest.approx(1.1, rel=0.02)
    assert busiest(made, 5000) == (0.0, math.inf)
    assert busiest(trace(np.zeros(0), np.zeros(0)), 10) == (0.0, math.inf)
