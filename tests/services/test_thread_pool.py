"""services/background: threads beside the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from polydomo.services import thread_pool as module
from polydomo.services.thread_pool import ThreadPool


async def outcome(background: ThreadPool, work: Callable[[], Any]) -> Any:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    background.run(work, done.set_result, done.set_exception)
    assert not done.done(), "never before it returns"
    return await asyncio.wait_for(done, 5)


@pytest.fixture
async def background() -> Any:
    made = ThreadPool(asyncio.get_running_loop().call_soon_threadsafe)
    yield made
    made.close()


async def test_answers_come_on_the_loop(background: ThreadPool) -> None:
    assert await outcome(background, threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await outcome(background, lambda: 1 // 0)


async def test_a_long_queue_is_refused(background: ThreadPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE", 1)
    gate = threading.Event()
    first = asyncio.ensure_future(outcome(background, lambda: gate.wait(5)))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="in its queue"):
        await outcome(background, lambda: 1)
    gate.set()
    assert await first
    assert await outcome(background, lambda: 1) == 1


async def test_after_closing_nobody_is_told(background: ThreadPool) -> None:
    gate = threading.Event()
    told: list[object] = []
    background.run(lambda: gate.wait(5), told.append, told.append)
    background.close()
    background.run(lambda: 1, told.append, told.append)
    gate.set()
    await asyncio.sleep(0.05)
    assert told == []


async def test_threads_do_not_run_ahead_of_a_busy_loop() -> None:
    """Results may be megabytes each: no more of them wait for the loop than there are threads."""
    posted: list[Callable[[], None]] = []
    started = threading.Semaphore(0)
    background = ThreadPool(posted.append, threads=2)
    told: list[object] = []
    for _ in range(10):
        background.run(started.release, told.append, told.append)
    for _ in range(2):
        assert started.acquire(timeout=5)
    assert not started.acquire(timeout=0.2)
    for expected in range(1, 11):
        while not posted:
            await asyncio.sleep(0.001)
        posted.pop(0)()
        assert len(told) == expected
    background.close()
