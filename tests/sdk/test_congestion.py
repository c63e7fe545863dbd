"""The congestion window of a MemoDB client."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

import pytest

from polydomo.sdk.clock import VirtualClock
from polydomo.sdk.congestion import START, CongestionWindow


async def served(
    window: CongestionWindow, clock: VirtualClock, workers: int, took: float, answers: int
) -> list[int]:
    """Workers that take their time, and more who want to be served than there can ever be; the window's sizes."""
    wanting = [asyncio.create_task(window.enter()) for _ in range(4 * window.most)]
    running: list[float] = []
    queued = 0
    sizes = []
    await asyncio.sleep(0)
    taken = 0
    for _ in range(answers):
        queued += window.used - taken
        taken = window.used
        while queued and len(running) < workers:
            queued -= 1
            heappush(running, clock.time() + took)
        clock.move_to(heappop(running))
        window.leave(True)
        taken -= 1
        wanting.append(asyncio.create_task(window.enter()))
        sizes.append(window.limit)
        await asyncio.sleep(0)
    for task in wanting:
        task.cancel()
    await asyncio.gather(*wanting, return_exceptions=True)
    return sizes


@pytest.mark.parametrize(("workers", "took"), [(1, 0.1), (4, 0.01), (40, 1.0), (200, 0.5)])
async def test_it_finds_about_as_many_as_there_are_workers(workers: int, took: float):
    clock = VirtualClock()
    sizes = await served(CongestionWindow(512, clock), clock, workers, took, 40 * max(workers, 50))
    late = sorted(sizes[len(sizes) // 2 :])
    assert 0.7 * workers <= late[len(late) // 2] <= 2.5 * workers + 8


async def test_it_never_grows_beyond_its_bound():
    clock = VirtualClock()
    sizes = await served(CongestionWindow(50, clock), clock, 1000, 0.1, 3000)
    assert max(sizes) == 50
    assert sorted(sizes)[len(sizes) // 2] >= 40  # and stays near it


async def test_while_nobody_waits_it_stays():
    clock = VirtualClock()
    window = CongestionWindow(512, clock)
    for _ in range(1000):
        await window.enter()
        clock.move_to(clock.time() + 0.01)
        window.leave(True)
    assert window.limit == START


async def test_it_is_halved_when_an_answer_does_not_come():
    window = CongestionWindow(512, VirtualClock())
    sizes = []
    for _ in range(6):
        window.shrink()
        sizes.append(window.limit)
    assert sizes == [8, 4, 2, 1, 1, 1]


async def test_whoever_gives_up_waiting_takes_nobodys_place():
    window = CongestionWindow(1, VirtualClock())
    await window.enter()
    first, second, third = [asyncio.create_task(window.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    window.leave()  # before the first has noticed
    await asyncio.sleep(0)
    assert second.done()
    window.leave()
    third.cancel()  # let in, and gone before it could notice
    await asyncio.gather(first, third, return_exceptions=True)
    assert window.used == 0
    await window.enter()


def test_a_window_without_room():
    with pytest.raises(ValueError, match="at least"):
        CongestionWindow(0, VirtualClock())
