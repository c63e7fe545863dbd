"""A WMP manager in the test's process, and workers over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from polydomo.dialects.wmp.selection import LongestIdle
from polydomo.errors import ConfigError, JobFailed, WorkerError
from polydomo.sdk import Client, Manager, SyncManager, Worker
from polydomo.sdk.context import Context
from tests.support.wmp_peer import WmpWorker


async def test_a_manager_and_our_worker():
    async with Manager("tcp://127.0.0.1:*") as manager:
        worker = Worker(manager.worker_url, concurrency=3)

        @worker.service
        async def double(number: int, ctx: Context) -> int:
            ctx.progress("working")
            if number < 0:
                raise ValueError("too small")
            return number * 2

        async with worker:
            assert await asyncio.gather(*(manager.call("double", n) for n in range(20))) == [
                2 * n for n in range(20)
            ]
            with pytest.raises(WorkerError, match="too small"):
                await manager.call("double", -1)
            handle = manager.submit("double", 4)
            assert [part async for part in handle.partials()] == ["working"]
            assert await handle.result() == 8


async def test_a_raw_dealer_under_it():
    async with Manager(["tcp://127.0.0.1:*"], codec="raw") as manager:
        with WmpWorker(manager.bound[0], b"raw") as worker:
            asked = asyncio.create_task(manager.call("raw", b"x"))
            task = await asyncio.to_thread(worker.take)
            worker.reply(task, [b"y"])
            assert await asked == b"y"


async def test_one_worker_and_two_managers():
    async with Manager("tcp://127.0.0.1:*") as one, Manager("tcp://127.0.0.1:*") as other:
        places = [manager.bound[0].removeprefix("tcp://") for manager in (one, other)]
        worker = Worker(f"wmp://{','.join(places)}", concurrency=2)

        @worker.service
        async def echo(body: object) -> object:
            await asyncio.sleep(0.001)
            return body

        async with worker:
            answers = await asyncio.gather(
                *(manager.call("echo", number) for manager in (one, other) for number in range(50))
            )
        assert answers == [*range(50), *range(50)]


async def test_a_cancelled_and_a_late_job_are_stopped_at_the_worker():
    begun, stopped = [], []
    async with Manager("tcp://127.0.0.1:*") as manager:
        worker = Worker(manager.worker_url)

        @worker.service
        async def wait(body: dict[str, str]) -> str:
            begun.append(body["why"])
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                stopped.append(body["why"])
                raise
            return "never"

        async with worker:
            handle = manager.submit("wait", {"why": "cancelled"})
            async with asyncio.timeout(15):
                while not begun:
                    await asyncio.sleep(0.01)
            handle.cancel()
            with pytest.raises((JobFailed, asyncio.CancelledError)):
                await handle.result()
            with pytest.raises(JobFailed) as late:
                await manager.call("wait", {"why": "late"}, deadline=0.3)
            assert late.value.reason == "deadline"
            async with asyncio.timeout(15):
                while stopped != begun:  # on a busy machine the second may not have got so far
                    await asyncio.sleep(0.01)


async def test_a_rule_of_one_s_own():
    picked = []

    class Noted(LongestIdle):
        def pick(self):
            found = super().pick()
            if found is not None:
                picked.append(found.core.name)
            return found

    async with Manager("tcp://127.0.0.1:*", rule=Noted, labels={"zone": "a"}) as manager:
        workers = [
            Worker(manager.worker_url, name=name, labels={"zone": zone})
            for name, zone in (("right", "a"), ("wrong", "b"))
        ]
        for worker in workers:
            worker.add("work", lambda body: body)
        async with workers[0], workers[1]:
            for number in range(5):
                assert await manager.call("work", number) == number
    assert picked == [b"right"] * 5


async def test_workers_of_little_weight_get_jobs_too():
    """A manager has no store; its choice by weight is random all the same."""
    done: list[str] = []
    async with Manager("tcp://127.0.0.1:*", rule="weighted") as manager:
        workers = [
            Worker(manager.worker_url, name=name, labels={"weight": weight})
            for name, weight in (("light", 1), ("heavy", 3), ("other", 1))
        ]
        for worker in workers:
            worker.add("work", lambda body, name=worker.name: done.append(name))
        async with workers[0], workers[1], workers[2], asyncio.timeout(30):
            while set(done) != {"light", "heavy", "other"}:
                await manager.call("work", None)


def test_the_same_without_an_event_loop():
    with (
        SyncManager("tcp://127.0.0.1:*", codec="raw") as manager,
        WmpWorker(manager.bound[0], b"raw") as worker,
    ):
        assert manager.worker_url.startswith("wmp://127.0.0.1:")
        handle = manager.submit("raw", b"x")
        worker.reply(worker.take(), [b"y"])
        assert handle.result() == b"y"


def test_wrong_words_are_refused():
    with pytest.raises(ConfigError, match="no rule 'best'"):
        Manager(rule="best")
    with pytest.raises(ConfigError, match="no clients"):
        Client("wmp://127.0.0.1:5555")
    with pytest.raises(RuntimeError, match="not listening yet"):
        Manager().worker_url  # noqa: B018


@pytest.mark.parametrize("more", [{"labels": {"a": 1}}, {"name": "x"}])
async def test_labels_and_names_are_not_for_all_dialects(more: dict[str, object]):
    worker = Worker("mdp://127.0.0.1:1", **more)  # type: ignore[arg-type]
    worker.add("x", lambda body: body)
    with pytest.raises(ConfigError, match="wmp://"):
        await worker.run()


async def test_two_on_one_port_is_an_error_that_says_so():
    async with Manager("tcp://127.0.0.1:*") as manager:
        with pytest.raises(ConfigError, match="cannot listen"):
            async with Manager(manager.bound[0]):
                pass
