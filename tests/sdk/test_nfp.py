"""NFP's own features: several workers at once, names and resources, options, events, input, jobs by their UUID."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import pytest

from polydomo.errors import ConfigError, JobFailed, Refused, Timeout, WorkerError
from polydomo.sdk import Client, Context, SyncClient, SyncContext, SyncWorker, Worker
from polydomo.sdk.testing import LocalBroker, SyncLocalBroker
from tests.sdk.support import gated_worker, until


@pytest.fixture
def url(local: LocalBroker) -> str:
    return local.url_for("nfp")


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with Client(url, timeout=10) as client:
        yield client


def named(url: str, name: str, **options: Any) -> Worker:
    """Says who it is; fails if told its own name."""
    worker = Worker(url, name=name, **options)

    @worker.service
    async def who(body: Any) -> Any:
        if body == {"fail": name}:
            raise ValueError(f"not {name}")
        return [name, body]

    return worker


async def test_a_worker_by_its_name(url: str, client: Client):
    async with named(url, "w1"), named(url, "w2"):
        for name in ("w1", "w2", "w1"):
            assert await client.call("who", 1, target=name) == [name, 1]
            assert await client.request("who", [b"1"], target=[name]) == [b'["%b",1]' % name.encode()]


async def test_a_worker_that_is_not_there_yet_is_waited_for(url: str, client: Client):
    call = client.submit("who", 1, target="w2")
    async with named(url, "w1"):
        await call.accepted()
        assert await client.call("who", 1) == ["w1", 1]
        assert not call.done()
        async with named(url, "w2"):
            assert await call == ["w2", 1]


async def test_the_worker_that_has_a_resource(url: str, client: Client):
    async with named(url, "w1", resources=["a", "b"]), named(url, "w2", resources=["c"]) as second:
        assert await client.call("who", 1, resource="b") == ["w1", 1]
        assert await client.call("who", 1, resource="c") == ["w2", 1]
        assert await client.gather("who", 1, resources=["a", "c"]) == {"w1": ["w1", 1], "w2": ["w2", 1]}
        assert await client.gather("who", 1, resources=["a", "b"]) == {"w1": ["w1", 1]}
        second.set_resources(["d"])
        assert await client.call("who", 1, resource="d") == ["w2", 1]


async def test_resources_that_the_broker_shares_out(local: LocalBroker, url: str, client: Client):
    server = local._server
    assert server is not None
    server.broker.control.share_out(b"has", [b"a", b"b", b"c", b"d", b"e", b"f"])
    told: dict[str, list[str]] = {}

    def having(name: str) -> Worker:
        worker = Worker(url, name=name)
        worker.add("has", lambda body, ctx: ctx.resources)
        worker.on_resources = lambda service, resources: told.update({name: resources})
        return worker

    async with having("w1"):
        await until(lambda: sorted(told.get("w1", [])) == list("abcdef"))
        assert sorted(await client.call("has", target="w1")) == list("abcdef")
        async with having("w2"):
            await until(lambda: told.get("w2") and len(told["w1"]) < 6)
            assert sorted(told["w1"] + told["w2"]) == list("abcdef")
            for name, resources in dict(told).items():
                for resource in resources:
                    assert await client.call("has", resource=resource) == resources, name
        await until(lambda: len(told["w1"]) == 6)


async def test_broadcast_asks_everybody(url: str, client: Client):
    async with named(url, "w1"), named(url, "w2"), named(url, "w3"):
        asked = client.broadcast("who", {"fail": "w2"})
        answers = await asked
        assert answers["w1"] == ["w1", {"fail": "w2"}]
        assert answers["w3"] == ["w3", {"fail": "w2"}]
        assert isinstance(answers["w2"], WorkerError)
        assert (answers["w2"].kind, answers["w2"].message) == ("ValueError", "who: ValueError: not w2")
        assert asked.failures == {"w2": answers["w2"]}
        assert await asked == answers, "it may be asked again"
        assert (await client.call("who", 5, target="all")).keys() == {"w1", "w2", "w3"}
        assert (await client.submit("who", 5, target=["w1", "w3"])).keys() == {"w1", "w3"}


async def test_a_gather_comes_as_it_comes(url: str, client: Client):
    first, gate, asked = gated_worker(url, name="w1")
    second, gate2, _ = gated_worker(url, name="w2")
    async with first, second:
        gathering = client.gather("gated", 7, ["w1", "w2"])
        answers = aiter(gathering)
        await until(lambda: asked)
        gate.set()
        assert await anext(answers) == ("w1", 7)
        assert not gathering.done()
        gate2.set()
        assert [each async for each in answers] == [("w2", 7)]
        assert await gathering == {"w1": 7, "w2": 7}
        assert await client.gather("gated", 8, ["w2"]) == {"w2": 8}, "one is a gather, too"
    job = await client.job(gathering.id)
    assert await job.result() == {"w1": 7, "w2": 7}


async def test_one_worker_that_fails_alone_is_in_its_place(url: str, client: Client):
    async with named(url, "w1"):
        answers = await client.gather("who", {"fail": "w1"}, ["w1"])
        assert isinstance(answers["w1"], WorkerError)


async def test_workers_of_three_dialects_answer_a_broadcast(local: LocalBroker, client: Client):
    workers = []
    for dialect in ("mdp", "dcp", "nfp"):
        worker = Worker(local.url_for(dialect))
        worker.add("dialect", lambda body, dialect=dialect: dialect)
        workers.append(worker)
    async with workers[0], workers[1], workers[2]:
        answers = await client.broadcast("dialect")
        assert sorted(answers.values()) == ["dcp", "mdp", "nfp"]
        found = {await client.call("dialect", target=name) for name in answers}
        assert found == {"dcp", "mdp", "nfp"}, "and each can be called by its name"


async def test_other_dialects_clients_call_nfp_workers(local: LocalBroker, url: str):
    async with named(url, "w1"):
        for dialect in ("mdp", "dcp"):
            async with Client(local.url_for(dialect)) as client:
                assert await client.call("who", 1) == ["w1", 1]
                with pytest.raises(WorkerError) as caught:
                    await client.call("who", {"fail": "w1"})
                assert caught.value.kind == "ValueError"
                assert await client.request("who", [b'{"x": 1}']) == [b'["w1",{"x":1}]']


async def test_options_reach_the_broker_and_not_the_function(url: str, client: Client):
    worker, gate, asked = gated_worker(url)
    async with worker:
        first = client.submit("gated", {"n": 0})
        await until(lambda: asked)
        calls = [client.submit("gated", {"n": n}, priority=n) for n in (1, 2, 3)]
        for call in calls:
            await call.accepted()
        gate.set()
        await asyncio.gather(first.result(), *[call.result() for call in calls])
    assert asked == [{"n": 0}, {"n": 3}, {"n": 2}, {"n": 1}]


async def test_one_key_is_one_execution(url: str, client: Client):
    worker, gate, asked = gated_worker(url, concurrency=4)
    async with worker:
        calls = [client.submit("gated", {"n": 1}, key="same") for _ in range(20)]
        for call in calls:
            await call.accepted()
        gate.set()
        assert [await call for call in calls] == [{"n": 1}] * 20
    assert asked == [{"n": 1}]


async def test_a_uuid_is_one_job(url: str, client: Client):
    worker, gate, asked = gated_worker(url, concurrency=4)
    async with worker, Client(url) as other:
        calls = [each.submit("gated", 1, id="u-1") for each in (client, client, other)]
        await until(lambda: asked)
        await asyncio.sleep(0.05)
        gate.set()
        assert [await call for call in calls] == [1, 1, 1]
        assert asked == [1]
        with pytest.raises(Refused, match="duplicate-id"):
            await client.call("gated", 2, id="u-1")


async def test_events_and_partials_of_a_job(url: str, client: Client):
    worker = Worker(url, name="w1")

    @worker.service
    async def steps(to: int, ctx: Context) -> str:
        for number in range(to):
            ctx.event("step", {"number": number})
            ctx.progress(number)
        return "done"

    async with worker:
        handle = client.submit("steps", 3)
        seen = [event async for event in handle.events()]
        assert [(event.worker, event.kind, event.body["number"]) for event in seen] == [
            ("w1", "step", number) for number in range(3)
        ]
        assert [part async for part in handle.partials()] == [0, 1, 2]
        assert await handle == "done"
        assert [part async for part in client.stream("steps", 2)] == [0, 1, "done"]


async def test_input_to_a_running_job(url: str, client: Client):
    worker = Worker(url, concurrency=2)

    @worker.service
    async def adds(body: Any, ctx: Context) -> Any:
        return [body, await ctx.input(5), await ctx.input(5)]

    @worker.service
    async def starves(body: Any, ctx: Context) -> Any:
        await ctx.input(0.01)

    async with worker, Client(url) as other:
        handle = client.submit("adds", 1)
        await handle.put(2)
        await (await other.job(handle.id)).put(3)
        assert await handle == [1, 2, 3]
        with pytest.raises(JobFailed):
            await handle.put(4)
        with pytest.raises(WorkerError, match="no input within"):
            await client.call("starves")


async def test_input_to_a_job_that_waits_for_a_worker(url: str, client: Client):
    worker = Worker(url)

    @worker.service
    async def adds(body: Any, ctx: Context) -> Any:
        return [body, await ctx.input(5)]

    handle = client.submit("adds", 1)
    putting = asyncio.create_task(handle.put(2))
    await handle.accepted()
    async with worker:
        await putting
        assert await handle == [1, 2]


async def test_any_client_finds_a_job_by_its_uuid(url: str, client: Client):
    worker, gate, asked = gated_worker(url)
    async with worker, Client(url) as other:
        handle = client.submit("gated", {"x": 1})
        assert UUID(handle.id)
        await until(lambda: asked)
        job = await other.job(handle.id)
        assert job.state == "pending"
        with pytest.raises(Timeout):
            await job.result(0.05)
        waiting = asyncio.create_task(job.result(5))
        gate.set()
        assert await waiting == {"x": 1}
        assert await handle == {"x": 1}
        assert (await other.job(handle.id)).state == "done"


async def test_a_job_nobody_knows(client: Client):
    job = await client.job("never")
    assert job.state == "unknown"
    assert not await job.cancel()
    with pytest.raises(JobFailed) as caught:
        await job.result()
    assert caught.value.reason == "unknown"


async def test_a_failed_job_tells_those_who_ask_later(url: str, client: Client):
    async with named(url, "w1"):
        handle = client.submit("who", {"fail": "w1"})
        with pytest.raises(WorkerError):
            await handle
        job = await client.job(handle.id)
        assert job.state == "failed"
        with pytest.raises(WorkerError) as caught:
            await job.result()
        assert caught.value.kind == "ValueError"


@pytest.mark.parametrize("by", ["handle", "job"])
async def test_cancel_ends_queued_and_running_jobs(url: str, client: Client, by: str):
    worker, gate, asked = gated_worker(url)
    async with worker, Client(url) as other:
        running = client.submit("gated", 1)
        await until(lambda: asked)
        queued = client.submit("gated", 2)
        await queued.accepted()
        for handle in (queued, running):
            if by == "handle":
                handle.cancel()
            else:
                job = await other.job(handle.id)
                assert await job.cancel()
                assert job.state == "failed"
            with pytest.raises(JobFailed) as caught:
                await handle
            assert caught.value.reason == "cancelled"
        gate.set()
        assert await client.call("gated", 3) == 3, "its slot is free again"
    assert asked == [1, 3]


async def test_a_stream_that_is_left_ends_its_job(url: str, client: Client):
    worker = Worker(url)
    ended = asyncio.Event()

    @worker.service
    async def endless(body: Any, ctx: Context) -> None:
        try:
            while True:
                ctx.progress(1)
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    async with worker:
        stream = client.stream("endless")
        assert await anext(stream) == 1
        await stream.aclose()
        await asyncio.wait_for(ended.wait(), 5)


async def test_workers_are_managed_through_the_broker(url: str, client: Client):
    """NFP §WMMI, one function after the other."""

    async def manage(task: str, target: str = "w1") -> Any:
        return await client.call("mmi.service.worker", {"task": task}, target=target)

    async with named(url, "w1", resources=["r"]) as worker, named(url, "w2"):
        shown = await manage("show_workers", "all")
        assert {name: [row["service"] for row in rows] for name, rows in shown.items()} == {
            "w1": ["who"],
            "w2": ["who"],
        }
        broker = (await manage("show_broker"))["w1"]
        assert broker["status"]["workers"] == 2
        assert broker["open"]["keepalive_ms"] == 2500
        await client.call("who", 1)
        assert [row["dialect"] for row in (await manage("show_clients"))["w1"]] == ["nfp/0.1"]
        for task in ("disconnect", "restart"):
            assert "status" in (await manage(task))["w1"]
            await until(lambda: not worker._sessions[0].registered.is_set())
            await worker.ready()
            assert await client.call("who", 1, target="w1") == ["w1", 1]
        assert "status" in (await manage("shutdown"))["w1"]
        await until(lambda: not worker._sessions)
        assert [row["name"] for row in await client.workers("who")] == ["w2"]


async def test_what_other_dialects_cannot_say_is_told_at_once(local: LocalBroker, dialect: str):
    if dialect == "nfp":
        return
    url = local.url_for(dialect)
    async with Client(url) as client:
        with pytest.raises(ValueError, match="nfp://"):
            await client.call("echo", {}, priority=3)
        with pytest.raises(ValueError, match="nfp://"):
            client.submit("echo", {}, target="w1")
        for impossible in (
            lambda: client.broadcast("echo"),
            lambda: client.gather("echo", None, ["w1"]),
            client.events,
        ):
            with pytest.raises((RuntimeError, ValueError), match="nfp://"):
                impossible()
        with pytest.raises(RuntimeError, match="nfp://"):
            await client.job("u-1")
        handle = client.submit("echo")
        assert handle.id == ""
        with pytest.raises(RuntimeError, match="NFP"):
            await handle.put(1)
        handle.cancel()
    for options in ({"name": "x"}, {"store": "x.db"}, {"events": "tcp://127.0.0.1:1"}):
        with pytest.raises(ValueError, match="nfp://"):
            Client(url, **options)  # type: ignore[arg-type]
    worker = Worker(url, name="w1")
    worker.add("echo", lambda body: body)
    with pytest.raises(ConfigError, match="nfp://"):
        await worker.run()


async def test_nonsense_is_told_at_once(client: Client):
    with pytest.raises(TypeError, match="colour"):
        client.submit("echo", {}, colour="red")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="not both"):
        client.submit("echo", {}, target="w1", resource="r1")
    with pytest.raises(ValueError, match="name"):
        client.submit("echo", {}, target=[])
    with pytest.raises(ValueError, match="targets= or resources="):
        client.gather("echo", {})
    with pytest.raises(ValueError, match="gather"):
        await client.request("echo", [b""], target="all")
    with pytest.raises(ValueError, match="options"):
        client.submit("echo", {"options": {}}, priority=1)
    with pytest.raises(RuntimeError, match="store="):
        await client.recover()


# The sync twins


@pytest.fixture
def sync_local() -> Iterator[SyncLocalBroker]:
    with SyncLocalBroker() as broker:
        yield broker


def test_the_sync_twins(sync_local: SyncLocalBroker):
    url = sync_local.url_for("nfp")
    worker = SyncWorker(url, name="w1", resources=["a"], concurrency=2)

    @worker.service
    def talk(body: Any, ctx: SyncContext) -> Any:
        ctx.event("asked", body)
        ctx.progress("half")
        return [body, ctx.input(5)]

    @worker.service
    def echo(body: Any, ctx: SyncContext) -> Any:
        return [body, ctx.resources]

    with worker, SyncClient(url, timeout=10) as client:
        handle = client.submit("talk", {"x": 1})
        handle.accepted()
        assert [(event.kind, event.body) for event in [next(handle.events())]] == [("asked", {"x": 1})]
        assert next(handle.partials()) == "half"
        job = client.job(handle.id)
        assert job.state == "pending"
        handle.put(2)
        assert job.result(5) == handle.result() == [{"x": 1}, 2]
        assert (job.state, job.refresh()) == ("done", "done")
        assert client.call("echo", 1, target="w1") == [1, ["a"]]
        assert client.broadcast("echo", 1).result() == {"w1": [1, ["a"]]}
        gathered = client.gather("echo", 1, resources=["a"])
        assert list(gathered) == [("w1", [1, ["a"]])]
        assert gathered.done()
        assert not gathered.failures
        worker.set_resources(["b"])
        assert client.call("echo", 1, resource="b") == [1, ["b"]]
        begun = threading.Thread(target=client.submit("talk", 1).cancel)
        begun.start()
        begun.join()
