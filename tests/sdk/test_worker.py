"""The worker against a broker in memory: services, concurrency, contexts, stopping, reconnecting."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from polydomo.errors import ConfigError, JobFailed, WorkerError
from polydomo.sdk import Client, Context, SyncContext, SyncWorker, Worker
from polydomo.sdk.testing import LocalBroker
from tests.sdk.support import gated_worker, until


async def test_names_come_from_the_decorator_or_the_function(url: str):
    worker = Worker(url)

    @worker.service
    def bare(body: Any) -> str:
        return "bare"

    @worker.service()
    def empty(body: Any) -> str:
        return "empty"

    @worker.service("named", codec="raw")
    def function(body: bytes) -> bytes:
        return body[::-1]

    worker.add("added", lambda body: "added")
    async with worker, Client(url) as client:
        assert await client.call("bare") == "bare"
        assert await client.call("empty") == "empty"
        assert await client.call("named", b"abc") == b"cba"
        assert await client.call("added") == "added"
    assert bare(None) == "bare"  # the decorated function is still itself


def test_what_cannot_be_offered_is_said_early():
    worker = Worker("mdp://nowhere")
    worker.add("twice", lambda body: body)
    with pytest.raises(ValueError, match="offered already"):
        worker.add("twice", lambda body: body)
    with pytest.raises(ValueError, match="the broker's own"):
        worker.add("mmi.mine", lambda body: body)
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        worker.add("x" * 256, lambda body: body)
    with pytest.raises(ValueError, match="at least 1"):
        Worker("mdp://nowhere", concurrency=0)


async def test_it_says_what_it_offers_and_may_be_sent_to_another_broker(local: LocalBroker, url: str):
    worker = Worker("mdp://nowhere", concurrency=2)
    twin = SyncWorker("mdp://nowhere")

    @worker.service
    async def asks(body: Any, ctx: Context) -> Any:
        return await ctx.call("answers", body)

    worker.add("answers", lambda body: body + 1)
    assert worker.services == ["asks", "answers"]
    assert (twin.services, twin.worker.services) == ([], [])
    worker.use(url)
    twin.use(url)
    assert twin.worker.url == worker.url
    async with worker, Client(url) as client:
        assert await client.call("asks", 1) == 2
        with pytest.raises(RuntimeError, match="before the worker runs"):
            worker.use(url)


async def test_a_worker_without_services_does_not_run(url: str):
    with pytest.raises(ConfigError, match="offers no service"):
        await Worker(url).run()
    with pytest.raises(ConfigError, match="offers no service"):
        async with Worker(url):
            pass


async def test_a_running_worker_takes_no_more_services_and_no_second_run(url: str):
    worker, gate, _ = gated_worker(url)
    async with worker:
        with pytest.raises(RuntimeError, match="before the worker runs"):
            worker.add("late", lambda body: body)
        with pytest.raises(RuntimeError, match="is running"):
            await worker.run()
    async with worker, Client(url) as client:  # but it may run again
        gate.set()
        assert await client.call("gated", 1) == 1


async def test_so_many_jobs_run_at_once_and_no_more(url: str):
    worker, gate, asked = gated_worker(url, concurrency=3)
    async with worker, Client(url) as client:
        calls = [asyncio.create_task(client.call("gated", number)) for number in range(7)]
        await until(lambda: len(asked) == 3)
        await asyncio.sleep(0.05)
        assert len(asked) == 3
        gate.set()
        assert await asyncio.gather(*calls) == list(range(7))


async def test_threads_run_side_by_side(url: str):
    worker = Worker(url, concurrency=3)
    meeting = threading.Barrier(3)

    @worker.service
    def meet(body: Any) -> int:
        return meeting.wait(10)

    async with worker, Client(url) as client:
        assert sorted(await asyncio.gather(*[client.call("meet") for _ in range(3)])) == [0, 1, 2]


async def test_a_context_tells_of_the_job(url: str):
    worker = Worker(url)
    seen: list[Context | SyncContext] = []

    @worker.service
    async def one(body: Any, ctx: Context) -> None:
        seen.append(ctx)

    @worker.service
    def two(body: Any, ctx: SyncContext) -> None:
        seen.append(ctx)

    async with worker, Client(url) as client:
        for name in ("one", "two"):
            await client.call(name)
    assert [(type(ctx), ctx.service) for ctx in seen] == [(Context, "one"), (SyncContext, "two")]
    assert seen[0].job != seen[1].job


async def test_a_service_calls_another(url: str):
    worker = Worker(url, concurrency=3)  # on DCP all services share the slots, and each call here holds one

    @worker.service
    def double(number: int) -> int:
        return 2 * number

    @worker.service
    async def four(number: int, ctx: Context) -> int:
        return await ctx.call("double", await ctx.call("double", number))

    @worker.service
    def eight(number: int, ctx: SyncContext) -> int:
        return 2 * ctx.call("four", number)

    async with worker, Client(url) as client:
        assert await client.call("eight", 5) == 40


async def test_an_error_comes_through_all_who_asked(url: str):
    worker = Worker(url, concurrency=2)

    @worker.service
    def inner(number: int) -> int:
        raise KeyError(number)

    @worker.service
    async def outer(number: int, ctx: Context) -> int:
        return await ctx.call("inner", number)

    async with worker, Client(url) as client:
        with pytest.raises(WorkerError) as told:
            await client.call("outer", 5)
    assert told.value.kind == "KeyError"
    assert "raise KeyError(number)" in told.value.traceback


async def test_a_job_is_passed_on(url: str):
    worker = Worker(url)

    @worker.service
    async def first(body: str, ctx: Context) -> str:
        ctx.forward("second", body + " first")
        return "not sent"

    @worker.service
    def second(body: str, ctx: SyncContext) -> str:
        ctx.forward("third", body + " second")
        return "not sent"

    @worker.service
    async def third(body: str) -> str:
        return body + " third"

    async with worker, Client(url) as client:
        assert await client.call("first", "hello") == "hello first second third"


async def test_dcp_hands_a_job_over_and_is_free_at_once(local: LocalBroker):
    url = local.url_for("dcp")
    front = Worker(url)
    front.add("front", lambda body, ctx: ctx.forward("gated", body))
    back, gate, asked = gated_worker(url)
    async with front, back, Client(url) as client:
        calls = [asyncio.create_task(client.call("front", number)) for number in range(3)]
        await until(lambda: asked)
        async with asyncio.timeout(10):
            while (await client.services())[1]["waiting"] < 2:
                await asyncio.sleep(0.001)
        [row] = await client.workers("front")
        assert (row["state"], row["done"]) == ("idle", 3)
        gate.set()
        assert await asyncio.gather(*calls) == [0, 1, 2]


async def test_mdp_passes_partials_of_the_next_service_through(local: LocalBroker):
    worker = Worker(local.url)
    worker.add("front", lambda body, ctx: ctx.forward("count", body))

    @worker.service
    def count(to: int) -> Any:
        yield from range(to)
        return "done"

    async with worker, Client(local.url) as client:
        assert [part async for part in client.stream("front", 3)] == [0, 1, 2, "done"]


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), SystemExit(3), asyncio.CancelledError(), StopIteration(), TimeoutError("x")],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_service_raises_it_is_there_for_the_next_job(url: str, error: BaseException):
    worker = Worker(url)

    @worker.service
    async def fails(body: Any) -> None:
        raise error

    @worker.service
    def fails_in_a_thread(body: Any) -> None:
        raise error

    async with worker, Client(url) as client:
        for name in ("fails", "fails_in_a_thread"):
            for _ in range(3):
                with pytest.raises(WorkerError):
                    await client.call(name)
        assert sum(row["done"] for row in await client.workers()) == 6


async def test_answers_that_cannot_be_sent_fail_the_job(url: str):
    worker = Worker(url)
    worker.add("bad", lambda body: object())
    async with worker, Client(url) as client:
        with pytest.raises(WorkerError, match="cannot be sent as json"):
            await client.call("bad")


async def test_bodies_that_cannot_be_read_fail_the_job(url: str):
    worker = Worker(url)
    worker.add("strict", lambda body: body)
    async with worker, Client(url) as client:
        with pytest.raises(WorkerError, match="are not json") as told:
            await client.call("strict", b"\xff")
        assert told.value.kind == "BodyError"


async def test_stopping_finishes_the_job_in_hand(url: str):
    worker, gate, asked = gated_worker(url)
    async with Client(url) as client:
        async with worker:
            call = asyncio.create_task(client.call("gated", 1))
            await until(lambda: asked)
            worker.stop()
            asyncio.get_running_loop().call_later(0.05, gate.set)
        assert await call == 1
        assert not await client.offered("gated")


async def test_a_stopping_worker_begins_nothing_new(url: str):
    worker, gate, asked = gated_worker(url)
    other, other_gate, other_asked = gated_worker(url)
    other_gate.set()
    async with Client(url) as client:
        async with worker:
            calls = [asyncio.create_task(client.call("gated", number)) for number in range(4)]
            await until(lambda: asked)
            worker.stop()
            gate.set()
        async with other:
            assert await asyncio.gather(*calls) == [0, 1, 2, 3]
    assert len(asked) == 1
    assert sorted([*asked, *other_asked]) == [0, 1, 2, 3]


async def test_jobs_that_take_too_long_to_finish_are_left_behind(virtual: LocalBroker, virtual_url: str):
    worker, _, asked = gated_worker(virtual_url, grace=20)
    other, other_gate, other_asked = gated_worker(virtual_url)
    other_gate.set()
    async with Client(virtual_url, timeout=None) as client:
        running = asyncio.create_task(worker.run())
        await worker.ready()
        call = asyncio.create_task(client.call("gated", 1))
        await virtual.settle()
        worker.stop()
        await virtual.advance(19)
        assert not running.done()
        await virtual.advance(2)
        await running
        async with other:
            assert await call == 1
    assert (asked, other_asked) == ([1], [1])


async def test_stopping_twice_does_not_wait(url: str):
    worker, _, asked = gated_worker(url)
    async with Client(url, retries=0) as client:
        running = asyncio.create_task(worker.run())
        await worker.ready()
        handle = client.submit("gated", 1)
        await until(lambda: asked)
        worker.stop()
        worker.stop()
        async with asyncio.timeout(5):
            await running
        handle.cancel()


async def test_cancelling_a_run_drops_everything(url: str):
    worker, _, asked = gated_worker(url)
    async with Client(url) as client:
        running = asyncio.create_task(worker.run())
        await worker.ready()
        handle = client.submit("gated", 1)
        await until(lambda: asked)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        handle.cancel()
        assert not await client.offered("gated")


async def test_a_worker_without_a_broker_can_be_stopped(local: LocalBroker, url: str):
    await local.crash()
    worker, _, _ = gated_worker(url)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.05)
    worker.stop()
    async with asyncio.timeout(5):
        await running


async def test_a_restarted_broker_finds_its_workers_again(local: LocalBroker, url: str):
    worker, gate, _ = gated_worker(url, concurrency=2)
    gate.set()
    async with worker, Client(url) as client:
        assert await client.call("gated", 1) == 1
        await local.crash()
        await local.restart()
        assert await client.call("gated", 2) == 2
        await worker.ready()
        assert sum(row["credit"] for row in await client.workers()) == 2


async def test_workers_follow_to_the_second_endpoint(dialect: str):
    async with LocalBroker() as one, LocalBroker() as two:
        worker, gate, _ = gated_worker(f"{dialect}+local://{one.name},{two.name}")
        gate.set()
        async with worker, Client(two.url_for(dialect)) as client:
            await one.crash()
            assert await client.call("gated", 1) == 1


async def test_idle_workers_stay_registered_by_their_heartbeats(virtual: LocalBroker, virtual_url: str):
    worker, _, _ = gated_worker(virtual_url, concurrency=2)
    async with worker, Client(virtual_url) as client:
        since = [row["since"] for row in await client.workers()]
        await virtual.advance(120)
        rows = await client.workers()
        assert [row["since"] for row in rows] == [before + 120 for before in since]


async def test_a_busy_worker_beats_and_is_not_given_more_than_it_can_hold(
    virtual: LocalBroker, virtual_url: str
):
    worker, gate, asked = gated_worker(virtual_url, concurrency=2)
    async with worker, Client(virtual_url, timeout=None) as client:
        calls = [asyncio.create_task(client.call("gated", number)) for number in range(5)]
        await virtual.advance(55)
        assert len(asked) == 2
        assert sum(row["holds"] for row in await client.workers()) == 2
        assert all(row["seen"] <= 2.5 for row in await client.workers())
        gate.set()
        assert await asyncio.gather(*calls) == list(range(5))


async def test_a_worker_whose_broker_froze_looks_for_another(virtual: LocalBroker, dialect: str):
    async with LocalBroker(clock=virtual.clock) as other:
        worker, gate, _ = gated_worker(f"{dialect}+local://{virtual.name},{other.name}")
        gate.set()
        async with worker, Client(other.url) as client:
            virtual.freeze()
            await virtual.advance(9)
            assert not await client.offered("gated")
            await virtual.advance(6)
            assert await client.offered("gated")


async def test_an_overrunning_job_is_given_up_and_its_late_answer_dropped(
    virtual: LocalBroker, virtual_url: str
):
    worker, gate, _ = gated_worker(virtual_url)
    async with worker, Client(virtual_url, timeout=None) as client:
        call = asyncio.create_task(client.call("gated", 1))
        await virtual.advance(125)  # 60 s to run, then 60 s to wait for another worker
        with pytest.raises(JobFailed):
            await call
        gate.set()
        await virtual.settle()
        assert await client.call("gated", 2) == 2


async def test_answers_reach_nobody_after_the_connection_was_lost(local: LocalBroker, url: str):
    """The job was given to another; this worker finishes it, drops the answer and goes on."""
    worker, gate, asked = gated_worker(url)
    async with worker, Client(url) as client:
        call = asyncio.create_task(client.call("gated", 1))
        await until(lambda: asked)
        await local.crash()
        await local.restart()
        gate.set()
        assert await call == 1
        assert len(await client.jobs("gated")) == 1
        # NFP's worker offers it to the broker, which does not know it any more.
        assert (await client.broker())["strays"] == ("nfp" in url)
