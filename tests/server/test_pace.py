"""How long a peer may stand still in the middle of a transfer, and what its unread output takes."""

from __future__ import annotations

from polydomo.server.backlog import Backlog
from polydomo.server.heap import GAPS_MIN, Heap
from polydomo.server.pace import SLOWEST, Pace


def test_transfer_may_stand_still_for_the_limit() -> None:
    pace = Pace(60, now=100)
    assert pace.keeps_up(60, 159, 0)
    assert not pace.keeps_up(60, 160, 0)


def test_dripping_bytes_do_not_renew_the_limit() -> None:
    pace = Pace(60, now=0)
    lasted = next(second for second in range(1, 1000) if not pace.keeps_up(60, second, 1))
    assert lasted <= 61


def test_slow_but_steady_transfer_goes_on_for_ever() -> None:
    pace = Pace(60, now=0)
    assert all(pace.keeps_up(60, 5 * turn, 5 * SLOWEST) for turn in range(1, 10_000))


def test_fast_start_does_not_buy_a_long_stand_still() -> None:
    pace = Pace(60, now=0)
    assert pace.keeps_up(60, 1, 1 << 30)
    assert not pace.keeps_up(60, 62, 0)


def test_write_is_held_until_its_last_byte_is_sent() -> None:
    backlog = Backlog(unsent=300, size=4000)
    assert backlog.held == 4000
    assert backlog.update(1) == 299
    assert backlog.held == 4000
    backlog.add(50)
    backlog.add(70)
    assert backlog.held == 4120
    assert backlog.update(121 - 1) == 1
    assert backlog.held == 120
    assert backlog.update(69) == 51
    assert backlog.held == 70
    assert backlog.update(0) == 69
    assert backlog.held == 0


def test_heap_is_trimmed_when_more_is_taken_than_held() -> None:
    resident = 100
    trimmed = 0

    def trim() -> None:
        nonlocal trimmed, resident
        trimmed += 1
        resident = 150 + 4 * GAPS_MIN

    heap = Heap(lambda: resident, trim)
    resident = 100 + 5 * GAPS_MIN
    heap.inspect(held=5 * GAPS_MIN, limit=0)
    assert trimmed == 0
    heap.inspect(held=4 * GAPS_MIN, limit=0)
    assert trimmed == 1
    heap.inspect(held=4 * GAPS_MIN, limit=0)
    assert trimmed == 1
