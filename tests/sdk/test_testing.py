"""The test kit: a broker in memory, its clock, and how its jobs ended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from polydomo.errors import JobFailed, Unreachable
from polydomo.sdk import Client, SyncClient, SyncWorker, Worker
from polydomo.sdk.testing import LocalBroker, SyncLocalBroker
from polydomo.server.settings import Settings
from polydomo.testing import LocalBroker as ShortName
from tests.sdk.support import gated_worker


class Unlucky(Exception):
    pass


async def test_join_waits_for_every_job(url: str, local: LocalBroker):
    worker, gate, asked = gated_worker(url, concurrency=2)
    async with worker, Client(url) as client:
        handles = [client.submit("gated", number) for number in range(5)]
        asyncio.get_running_loop().call_later(0.02, gate.set)
        await local.join()
        assert len(asked) == 5
        assert [await handle for handle in handles] == [0, 1, 2, 3, 4]


async def test_join_raises_what_the_worker_raised(url: str, local: LocalBroker):
    worker = Worker(url)

    @worker.service
    async def unlucky(body: Any) -> None:
        raise Unlucky(body)

    async with worker, Client(url) as client:
        handle = client.submit("unlucky", "first")
        with pytest.raises(Unlucky, match="first"):
            await local.join()
        assert handle.done()
        await local.join()  # told once
        client.submit("unlucky", "second")
        await local.join(check=False)
        await local.join()


async def test_join_works_beside_a_ledger(tmp_path: Path):
    settings = Settings()
    settings.ledger.folder = str(tmp_path)
    async with LocalBroker(settings=settings) as local:
        worker = Worker(local.url)

        @worker.service
        async def unlucky(body: Any) -> None:
            raise Unlucky(body)

        async with worker, Client(local.url) as client:
            client.submit("unlucky", "once")
            with pytest.raises(Unlucky, match="once"):
                await local.join()
    assert list(tmp_path.rglob("*.parquet"))


async def test_join_tells_of_jobs_that_never_ran(virtual: LocalBroker, virtual_url: str):
    async with Client(virtual_url, timeout=None) as client:
        handle = client.submit("nobody")
        await virtual.advance(61)
        with pytest.raises(JobFailed, match="no worker took it"):
            await virtual.join()
        assert handle.done()


async def test_join_does_not_wait_for_ever(url: str, local: LocalBroker):
    async with Client(url) as client:
        handle = client.submit("nobody")
        with pytest.raises(TimeoutError):
            await local.join(timeout=0.05)
        handle.cancel()


async def test_virtual_time_costs_none(virtual: LocalBroker):
    worker, gate, _ = gated_worker(virtual.url)
    gate.set()
    async with worker, Client(virtual.url) as client:
        before = time.monotonic()
        uptime = (await client.broker())["uptime"]
        await virtual.advance(600)
        assert (await client.broker())["uptime"] - uptime == pytest.approx(600)
        assert time.monotonic() - before < 10
        assert await client.call("gated", 1) == 1


async def test_virtual_time_stands_still(virtual: LocalBroker):
    async with Client(virtual.url) as client:
        uptime = (await client.broker())["uptime"]
        await asyncio.sleep(0.05)
        assert (await client.broker())["uptime"] == uptime


async def test_real_time_cannot_be_moved(local: LocalBroker):
    with pytest.raises(RuntimeError, match="virtual=True"):
        await local.advance(1)


async def test_a_closed_broker_is_not_found_any_more():
    async with LocalBroker() as local:
        url = local.url
    async with Client(url, connect_timeout=0.1) as client:
        with pytest.raises(Unreachable, match="no broker called"):
            await client.call("echo", 1)


def test_it_prints_nothing_between_what_the_program_prints():
    """In a program that set up no logging; structlog by itself prints to stdout."""
    program = (
        "from polydomo.testing import SyncLocalBroker\n"
        "with SyncLocalBroker() as broker:\n    print(broker.url)\n    broker.crash()\n    broker.restart()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines() == ["mdp+local://broker-1"]
    assert done.stderr == ""


async def test_two_brokers_do_not_know_each_other(local: LocalBroker):
    async with ShortName() as other, gated_worker(other.url)[0], Client(local.url) as client:
        assert other.url != local.url
        assert not await client.offered("gated")


def test_the_sync_twin():
    with SyncLocalBroker(virtual=True) as local:
        worker = SyncWorker(local.url_for("dcp"))
        worker.add("double", lambda number: 2 * number)

        @worker.service
        def unlucky(body: Any) -> None:
            raise Unlucky(body)

        with worker, SyncClient(local.url) as client:
            assert client.call("double", 4) == 8
            client.submit("unlucky", "again")
            with pytest.raises(Unlucky, match="again"):
                local.join()
            waiting = client.submit("nobody", timeout=None)
            local.advance(61)
            with pytest.raises(JobFailed):
                waiting.result()
            local.crash()
            local.restart()
            local.settle()
            call = client.submit("double", 5)
            local.advance(1)
            assert call.result() == 10
            local.drain()
            local.freeze()


async def test_a_broker_on_another_loop_can_be_used_too():
    """A sync broker in an async test: two loops, two threads."""
    with SyncLocalBroker() as local:
        worker, gate, _ = gated_worker(local.url)
        gate.set()
        async with worker, Client(local.url) as client:
            assert await asyncio.gather(*[client.call("gated", number) for number in range(20)]) == list(
                range(20)
            )
