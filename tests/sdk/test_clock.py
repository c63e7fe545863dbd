"""The virtual clock: time that moves only when a test advances it."""

from __future__ import annotations

import asyncio

import pytest

from polydomo.sdk.clock import REAL_TIME, VirtualClock


async def test_timers_ring_in_order_when_time_is_moved():
    clock = VirtualClock()
    start = clock.time()
    rung: list[tuple[str, float]] = []
    clock.call_later(2.0, lambda: rung.append(("two", clock.time() - start)))
    clock.call_later(1.0, lambda: rung.append(("one", clock.time() - start)))
    gone = clock.call_later(1.5, lambda: rung.append(("cancelled", 0.0)))
    gone.cancel()
    assert clock.next() == start + 1.0
    clock.move_to(start + 1.0)
    clock.move_to(clock.next())
    assert rung == [("one", 1.0), ("two", 2.0)]
    assert clock.next() == float("inf")


async def test_time_never_goes_back():
    clock = VirtualClock()
    now = clock.time()
    clock.move_to(now - 5)
    assert clock.time() == now


async def test_sleeping_and_timing_out_follow_the_clock():
    clock = VirtualClock()
    sleeper = asyncio.create_task(clock.sleep(10))

    async def impatient() -> str:
        try:
            async with clock.timeout(5):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    waiting = asyncio.create_task(impatient())
    await asyncio.sleep(0)
    clock.move_to(clock.time() + 5)
    assert await waiting == "timed out"
    assert not sleeper.done()
    clock.move_to(clock.time() + 5)
    await sleeper


async def test_a_block_in_time_is_left_alone():
    clock = VirtualClock()
    for limit in (5, None):
        async with clock.timeout(limit):
            await asyncio.sleep(0)
    assert clock.next() == float("inf")


async def test_real_time_passes_by_itself():
    before = REAL_TIME.time()
    await REAL_TIME.sleep(0.01)
    assert REAL_TIME.time() >= before + 0.009
    with pytest.raises(TimeoutError):
        async with REAL_TIME.timeout(0.01):
            await asyncio.Event().wait()
