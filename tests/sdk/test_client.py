"""The client against a broker in memory: calls, streams, handles, time-outs, retries, fail-over."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from polydomo.errors import JobFailed, Refused, Timeout, UnknownService, Unreachable, WorkerError
from polydomo.sdk import BodyError, Client, Context, Worker
from polydomo.sdk.testing import LocalBroker
from polydomo.server.settings import ServiceSection, Settings
from tests.sdk.support import echo_worker, gated_worker, until


@pytest.mark.parametrize("codec", ["json", "msgpack", "cbor"])
async def test_a_call_brings_its_answer(url: str, codec: str):
    async with echo_worker(url), Client(url, codec=codec) as client:
        assert await client.call("echo", {"x": [1, None, "ü"]}) == {"x": [1, None, "ü"]}
        assert await client.call("echo") is None


async def test_bytes_bring_bytes_unless_a_codec_is_named(url: str):
    async with echo_worker(url), Client(url) as client:
        assert await client.call("echo", b"hello") == b"hello"
        assert await client.call("echo", bytearray(b"hello")) == b"hello"
        assert await client.call("echo", b'{"x": 1}', codec="json") == {"x": 1}
        assert await client.call("echo", [b"a", b"b"], codec="raw") == [b"a", b"b"]
        with pytest.raises(BodyError, match="are not json"):
            await client.call("echo", b"hello", codec="json")


@pytest.mark.parametrize("frames", [[b"one"], [b"one", b"", b"two"], [b""], [b"x" * 70_000]])
async def test_raw_frames_there_and_back(url: str, frames: list[bytes]):
    async with echo_worker(url), Client(url) as client:
        assert await client.request("echo", frames) == frames


async def test_many_calls_at_once_get_their_own_answers(url: str):
    async with echo_worker(url, concurrency=3), Client(url, connections=4, window=16) as client:
        numbers = list(range(200))
        random.Random(1).shuffle(numbers)
        assert await asyncio.gather(*[client.call("echo", number) for number in numbers]) == numbers


async def test_mdp_uses_as_many_connections_as_it_may(local: LocalBroker):
    worker, gate, asked = gated_worker(local.url, concurrency=8)
    async with worker, Client(local.url, connections=3) as client, Client(local.url) as other:
        calls = [asyncio.create_task(client.call("gated", number)) for number in range(5)]
        await until(lambda: len(asked) == 3)
        assert len(await other.jobs("gated")) == 3
        gate.set()
        assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4]


async def test_dcp_has_its_window_outstanding_on_one_connection(local: LocalBroker):
    url = local.url_for("dcp")
    worker, gate, asked = gated_worker(url, concurrency=8)
    async with worker, Client(url, window=4) as client, Client(url) as other:
        calls = [asyncio.create_task(client.call("gated", number)) for number in range(6)]
        await until(lambda: len(asked) == 4)
        assert len(await other.jobs("gated")) == 4
        gate.set()
        assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4, 5]


async def test_a_stream_gives_partials_and_then_the_final(local: LocalBroker, dialect: str):
    """To MDP and NFP clients. DCP has one reply per request: its clients get the final answer only."""
    worker = Worker(local.url)

    @worker.service
    async def count(to: int, ctx: Context) -> str:
        for number in range(to):
            ctx.progress(number)
        return "done"

    async with worker, Client(local.url_for(dialect)) as client:
        found = [part async for part in client.stream("count", 3)]
        assert found == (["done"] if dialect == "dcp" else [0, 1, 2, "done"])
        assert await client.call("count", 3) == "done"


async def test_partials_arrive_while_the_job_runs(local: LocalBroker):
    worker = Worker(local.url)
    gate = asyncio.Event()

    @worker.service
    async def half(body: Any, ctx: Context) -> str:
        ctx.progress("half")
        await gate.wait()
        return "whole"

    async with worker, Client(local.url) as client:
        stream = client.stream("half")
        assert await anext(stream) == "half"
        gate.set()
        assert await anext(stream) == "whole"


async def test_a_handle_waits_later(url: str):
    worker, gate, asked = gated_worker(url)
    async with worker, Client(url) as client:
        handle = client.submit("gated", 7)
        await until(lambda: asked == [7])
        assert not handle.done()
        gate.set()
        assert await handle == 7
        assert handle.done()
        assert await handle.result() == 7
        assert [part async for part in handle.partials()] == []


async def test_a_cancelled_handle_stops_waiting_and_harms_nobody(url: str):
    worker, gate, asked = gated_worker(url, concurrency=2)
    async with worker, Client(url) as client:
        handle = client.submit("gated", "given up")
        await until(lambda: asked)
        handle.cancel()
        with pytest.raises(JobFailed, match="cancelled by the client") as told:
            await handle.result()
        assert told.value.reason == "cancelled"
        gate.set()
        assert await client.call("gated", "next") == "next"


async def test_a_waiter_may_go_without_the_job(url: str):
    worker, gate, asked = gated_worker(url)
    async with worker, Client(url) as client:
        handle = client.submit("gated", 7)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await handle
        gate.set()
        assert await handle == 7
        assert asked == [7]


async def test_a_worker_that_raises_is_told_to_its_caller(url: str):
    worker = Worker(url)

    @worker.service
    def divide(by: int) -> float:
        return 1 / by

    async with worker, Client(url) as client:
        with pytest.raises(WorkerError, match="divide: ZeroDivisionError: division by zero") as told:
            await client.call("divide", 0)
        assert told.value.kind == "ZeroDivisionError"
        assert "return 1 / by" in told.value.traceback
        assert "polydomo/sdk" not in told.value.traceback
        assert await client.call("divide", 2) == 0.5


async def test_time_runs_out(virtual: LocalBroker, virtual_url: str):
    async with Client(virtual_url) as client:
        call = asyncio.create_task(client.call("nobody", 1, timeout=5))
        await virtual.advance(4.9)
        assert not call.done()
        await virtual.advance(0.2)
        with pytest.raises(Timeout, match="nobody: no answer within 5 s"):
            await call


async def test_a_late_answer_is_not_taken_for_the_next_one(url: str):
    worker, gate, _ = gated_worker(url)
    async with worker, Client(url, connections=1) as client:
        with pytest.raises(Timeout):
            await client.call("gated", "first", timeout=0.05)
        gate.set()
        assert await client.call("gated", "second") == "second"


async def test_the_broker_gives_a_waiting_job_up(virtual: LocalBroker, virtual_url: str):
    async with Client(virtual_url, timeout=None) as client:
        call = asyncio.create_task(client.call("nobody"))
        await virtual.advance(61)
        with pytest.raises(JobFailed, match="no worker took it within 60 s") as told:
            await call
        assert told.value.reason == "expired"


async def test_a_full_queue_refuses(dialect: str):
    settings = Settings(services={"full": ServiceSection(queue=1)})
    async with LocalBroker(settings=settings) as local, Client(local.url_for(dialect)) as client:
        waiting = client.submit("full", 1)
        await local.settle()
        with pytest.raises(Refused, match="queue-full"):
            await client.call("full", 2)
        waiting.cancel()


async def test_a_service_nobody_offers_can_be_told_at_once(url: str):
    async with echo_worker(url), Client(url) as client:
        with pytest.raises(UnknownService, match="no worker offers 'missing'"):
            await client.call("missing", 1, wait=False)
        assert await client.call("echo", 1, wait=False) == 1
        assert await client.offered("echo")
        assert not await client.offered("missing")


@pytest.mark.parametrize("name", ["", "x" * 256])
async def test_impossible_names_are_refused_before_they_are_sent(url: str, name: str):
    async with Client(url) as client:
        with pytest.raises(ValueError, match="1 to 255 bytes"):
            await client.call(name)
        with pytest.raises(ValueError, match="1 to 255 bytes"):
            client.submit(name)


async def test_the_catalogue(url: str):
    async with echo_worker(url, concurrency=2), Client(url) as client:
        await client.call("echo", 1)
        [service] = await client.services()
        assert (service["name"], service["done"]) == ("echo", 1)
        workers = await client.workers("echo")
        assert sum(worker["credit"] for worker in workers) == 2
        assert await client.workers("missing") == []
        [job] = await client.jobs("echo", state="done")
        assert (job["service"], job["state"]) == ("echo", "done")
        assert (await client.broker())["services"] == 1
        with pytest.raises(WorkerError, match="no state 'gone'"):
            await client.jobs(state="gone")


async def test_a_lost_connection_is_made_again_and_the_request_sent_again(local: LocalBroker, url: str):
    worker, gate, asked = gated_worker(url)
    async with worker, Client(url) as client:
        call = asyncio.create_task(client.call("gated", 1))
        await until(lambda: asked == [1])
        await local.crash()
        gate.set()
        await local.restart()
        assert await call == 1
        # NFP's jobs have names: the worker knows that it has done this one.
        assert asked == ([1] if "nfp" in url else [1, 1])


async def test_without_retries_a_request_is_never_sent_twice(local: LocalBroker, url: str):
    worker, gate, asked = gated_worker(url)
    async with worker, Client(url) as client:
        call = asyncio.create_task(client.call("gated", 1, retries=0))
        await until(lambda: asked == [1])
        await local.crash()
        gate.set()
        await local.restart()
        with pytest.raises(Unreachable, match="sent 1 times"):
            await call
        assert asked == [1]


async def test_an_idle_client_finds_a_restarted_broker(local: LocalBroker, url: str):
    async with echo_worker(url), Client(url) as client:
        assert await client.call("echo", 1) == 1
        await local.crash()
        await local.restart()
        assert await client.call("echo", 2) == 2


async def test_nobody_there_is_unreachable_after_a_while(virtual: LocalBroker, virtual_url: str):
    await virtual.crash()
    async with Client(virtual_url, connect_timeout=3) as client:
        call = asyncio.create_task(client.call("echo", 1))
        await virtual.settle()
        assert not call.done()
        await virtual.advance(4)
        with pytest.raises(Unreachable, match="is down"):
            await call


async def test_no_call_outlives_its_time_even_while_connecting(virtual: LocalBroker, virtual_url: str):
    await virtual.crash()
    async with Client(virtual_url, connect_timeout=30) as client:
        call = asyncio.create_task(client.call("echo", 1, timeout=1))
        await virtual.advance(2)
        with pytest.raises(Unreachable, match="could not be sent within 1 s"):
            await call


async def test_the_second_endpoint_takes_over(dialect: str):
    async with LocalBroker() as one, LocalBroker() as two:
        both = f"{dialect}+local://{one.name},{two.name}"
        first, gate, asked = gated_worker(one.url_for(dialect))
        second, other_gate, other_asked = gated_worker(two.url_for(dialect))
        other_gate.set()
        async with second, Client(both) as client:
            async with first:
                calls = [asyncio.create_task(client.call("gated", number)) for number in range(5)]
                await until(lambda: asked)
                await one.crash()
                assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4]
                gate.set()
            assert sorted(other_asked) == [0, 1, 2, 3, 4]
            assert await client.call("gated", 5) == 5


async def test_a_broker_that_stops_sends_new_requests_elsewhere_and_finishes_the_old(dialect: str):
    async with LocalBroker() as one, LocalBroker() as two:
        both = f"{dialect}+local://{one.name},{two.name}"
        first, gate, asked = gated_worker(one.url_for(dialect))
        second, other_gate, other_asked = gated_worker(two.url_for(dialect))
        other_gate.set()
        async with first, second, Client(both, retries=0) as client:
            running = asyncio.create_task(client.call("gated", "running"))
            await until(lambda: asked)
            one.drain()
            assert await client.call("gated", "new") == "new"
            assert other_asked == ["new"]
            gate.set()
            assert await running == "running"
            assert asked == ["running"]


async def test_a_broker_that_stops_refuses_if_there_is_no_other(local: LocalBroker, url: str):
    async with Client(url) as client:
        assert not await client.offered("echo")
        local.drain()
        with pytest.raises(Refused, match="draining"):
            await client.call("echo", 1)


async def test_a_broker_that_answers_no_ping_is_given_up(virtual: LocalBroker, virtual_url: str):
    """It accepts, and says nothing more: what a stopped process looks like."""
    async with LocalBroker(clock=virtual.clock) as other, echo_worker(other.url):
        dialect = virtual_url.partition("+")[0]
        async with Client(f"{dialect}+local://{virtual.name},{other.name}", ping=5, timeout=None) as client:
            assert not await client.offered("echo")
            virtual.freeze()
            call = asyncio.create_task(client.call("echo", 1))
            await virtual.advance(9)
            assert not call.done()
            await virtual.advance(2)
            assert await call == 1


async def test_a_quiet_broker_that_answers_pings_is_waited_for(virtual: LocalBroker, virtual_url: str):
    worker, gate, asked = gated_worker(virtual_url)
    async with worker, Client(virtual_url, ping=5, timeout=None, retries=0) as client:
        call = asyncio.create_task(client.call("gated", 1))
        await virtual.advance(50)
        assert asked == [1]
        gate.set()
        assert await call == 1


async def test_closing_ends_what_is_under_way(url: str):
    worker, gate, asked = gated_worker(url)
    async with worker:
        async with Client(url) as client:
            call = asyncio.create_task(client.call("gated", 1))
            handle = client.submit("gated", 2)
            await until(lambda: asked)
        for waiting in (call, handle):
            with pytest.raises(Unreachable, match="the client was closed"):
                await waiting
        with pytest.raises(Unreachable, match="the client was closed"):
            await client.call("gated", 3)
        gate.set()
