"""The sync twins: the same names, blocking."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from polydomo.errors import JobFailed, Timeout, UnknownService, WorkerError
from polydomo.sdk import (
    Client,
    Gather,
    Handle,
    Job,
    Subscription,
    SyncClient,
    SyncContext,
    SyncGather,
    SyncHandle,
    SyncJob,
    SyncSubscription,
    SyncWorker,
    Worker,
)
from polydomo.sdk.background_loop import shared_loop
from polydomo.sdk.context import BaseContext, Context
from polydomo.sdk.testing import LocalBroker, SyncLocalBroker


@pytest.fixture
def local() -> Iterator[SyncLocalBroker]:
    with SyncLocalBroker() as broker:
        yield broker


def worker_of(url: str, **options: Any) -> SyncWorker:
    worker = SyncWorker(url, **options)

    @worker.service
    def double(number: int) -> int:
        return 2 * number

    @worker.service
    def count(to: int) -> Any:
        yield from range(to)
        return "done"

    @worker.service("fails")
    def function(body: Any) -> None:
        raise ValueError(body)

    @worker.service
    async def twice(number: int, ctx: Context) -> int:
        return await ctx.call("double", number)

    return worker


@pytest.mark.parametrize(
    ("asynchronous", "sync"),
    [
        (Client, SyncClient),
        (Handle, SyncHandle),
        (Gather, SyncGather),
        (Job, SyncJob),
        (Subscription, SyncSubscription),
        (Worker, SyncWorker),
        (LocalBroker, SyncLocalBroker),
        (Context, SyncContext),
    ],
)
def test_twins_have_the_same_methods_in_the_same_order(asynchronous: type, sync: type):
    def names(kind: type) -> list[str]:
        return [name for name in vars(kind) if not name.startswith("_")]

    # What is for those who build on the async classes, or is called by the event loop, has no twin; `worker` is the
    # way from one twin to the other.
    inner = {"exchange", "accept", "worker_failed", "abandon", "due", "tick", "body", "pieces"}
    if asynchronous is LocalBroker:
        inner |= {"start"}
    twins = [name for name in names(sync) if name not in ("worker", "state")]
    assert [name for name in names(asynchronous) if name not in inner] == twins
    for name in twins:
        ours, theirs = vars(sync)[name], vars(asynchronous)[name]
        if inspect.isfunction(ours) and name != "service":
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters), (
                name
            )


def test_calls_streams_and_handles(local: SyncLocalBroker):
    with worker_of(local.url), SyncClient(local.url, timeout=10) as client:
        assert client.call("double", 21) == 42
        assert client.call("twice", 21) == 42
        assert list(client.stream("count", 3)) == [0, 1, 2, "done"]
        handle = client.submit("count", 2)
        assert list(handle.partials()) == [0, 1]
        assert handle.result() == "done"
        assert handle.done()
        assert client.request("double", [b"4"]) == [b"8"]
        with pytest.raises(WorkerError, match="ValueError: x"):
            client.call("fails", "x")
        with pytest.raises(UnknownService):
            client.call("missing", wait=False)


def test_the_catalogue(local: SyncLocalBroker):
    with worker_of(local.url), SyncClient(local.url) as client:
        assert client.offered("double")
        assert [row["name"] for row in client.services()] == ["count", "double", "fails", "twice"]
        assert len(client.workers("double")) == 1
        assert client.jobs() == []
        assert client.broker()["workers"] == 4


def test_time_runs_out_and_waiting_can_be_given_up(local: SyncLocalBroker):
    with SyncClient(local.url) as client:
        with pytest.raises(Timeout):
            client.call("nobody", timeout=0.05)
        handle = client.submit("nobody")
        handle.cancel()
        with pytest.raises(JobFailed, match="cancelled by the client"):
            handle.result()
        stream = client.stream("nobody", timeout=0.05)
        with pytest.raises(Timeout):
            next(stream)


def test_a_stream_that_is_left_early_cancels_its_job(local: SyncLocalBroker):
    url = local.url_for("nfp")
    worker = SyncWorker(url)

    @worker.service
    def endless(body: Any, ctx: SyncContext) -> Any:
        while not ctx.cancelled:
            time.sleep(0.01)
            yield "more"

    with worker, SyncClient(url) as client:
        for part in client.stream("endless"):
            assert part == "more"
            break
        local.join(check=False)


def test_one_client_serves_many_threads(local: SyncLocalBroker):
    url = local.url_for("dcp")
    with worker_of(url, concurrency=4), SyncClient(url) as client, ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda number: client.call("double", number), range(100))
        assert list(found) == list(range(0, 200, 2))


def test_a_worker_runs_in_the_foreground_until_another_thread_stops_it(local: SyncLocalBroker):
    worker = worker_of(local.url)
    thread = threading.Thread(target=worker.run)
    thread.start()
    worker.ready()
    with SyncClient(local.url) as client:
        assert client.call("double", 1) == 2
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_a_plain_function_asks_another_service(local: SyncLocalBroker):
    worker = worker_of(local.url)

    @worker.service
    def plus(number: int, ctx: SyncContext) -> int:
        assert isinstance(ctx, BaseContext)
        return ctx.call("double", number) + 1

    with worker, SyncClient(local.url) as client:
        assert client.call("plus", 3) == 7


def test_waiting_on_the_loop_one_runs_on_is_an_error_not_a_deadlock(local: SyncLocalBroker):
    client = SyncClient(local.url)

    async def inside() -> None:
        client.call("double", 1)

    with pytest.raises(RuntimeError, match="use the async class there"):
        shared_loop().run(inside())


def test_all_share_one_loop_and_a_forked_child_gets_its_own():
    assert shared_loop() is shared_loop()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        before = shared_loop()
        os.write(writing, b"y" if before.pid == os.getpid() else b"n")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reading, 1) == b"y"
    os.close(reading)
    os.close(writing)
