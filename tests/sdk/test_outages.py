"""Brokers that are killed, stopped and started again, in processes of their own, while the SDK talks to them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from polydomo.errors import Unreachable
from polydomo.sdk import Client, SyncClient, Worker
from tests.sdk.support import gated_worker, until
from tests.support.broker import BrokerProcess, wait_for


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start(port: int) -> BrokerProcess:
    return BrokerProcess(zmq=f"tcp://127.0.0.1:{port}")


@asynccontextmanager
async def calling(client: Client, service: str) -> AsyncIterator[Counter[int]]:
    """Calls on and on, several at a time; counts the answers of each, and every call must have one."""
    answered: Counter[int] = Counter()
    stop = asyncio.Event()

    async def caller(first: int) -> None:
        number = first
        while not stop.is_set():
            assert await client.call(service, number) == number
            answered[number] += 1
            number += 4

    callers = [asyncio.create_task(caller(first)) for first in range(4)]
    try:
        yield answered
    finally:
        stop.set()
        await asyncio.gather(*callers)


async def test_a_broker_restarted_on_the_same_port_is_found_again(dialect: str):
    port = free_port()
    url = f"{dialect}://127.0.0.1:{port}"
    worker, gate, _ = gated_worker(url, concurrency=4)
    gate.set()
    with ExitStack() as brokers:
        first = brokers.enter_context(start(port))
        async with worker, Client(url, connect_timeout=15) as client, calling(client, "gated") as answered:
            await until(lambda: answered.total() > 50)
            await asyncio.to_thread(first.kill)
            brokers.enter_context(await asyncio.to_thread(start, port))
            before = answered.total()
            await until(lambda: answered.total() > before + 50, 20)
    assert set(answered.values()) == {1}


async def test_when_the_first_broker_is_killed_everything_goes_on_at_the_second(dialect: str):
    """With requests outstanding on it: each is answered, none is lost."""
    with BrokerProcess() as one, BrokerProcess() as two:
        places = ",".join(process.endpoint.removeprefix("tcp://") for process in (one, two))
        url = f"{dialect}://{places}"
        worker, gate, asked = gated_worker(url, concurrency=8)
        async with worker, Client(url) as client:
            calls = [asyncio.create_task(client.call("gated", number)) for number in range(20)]
            await until(lambda: len(asked) == 8)
            await asyncio.to_thread(one.kill)
            gate.set()
            assert await asyncio.gather(*calls) == list(range(20))
            async with calling(client, "gated") as answered:
                await until(lambda: answered.total() > 20)


async def test_a_broker_that_is_told_to_stop_loses_nothing(dialect: str):
    """Running jobs are finished by it, new ones go to the second; without a single retry."""
    with BrokerProcess() as one, BrokerProcess() as two:
        places = [process.endpoint.removeprefix("tcp://") for process in (one, two)]
        first, gate, asked = gated_worker(f"{dialect}://{places[0]}")
        second, open_gate, _ = gated_worker(f"{dialect}://{places[1]}")
        open_gate.set()
        async with first, second, Client(f"{dialect}://{','.join(places)}", retries=0) as client:
            running = asyncio.create_task(client.call("gated", "old"))
            await until(lambda: asked)
            one.signal(signal.SIGTERM)
            await until(lambda: "stopping" in one.log())
            assert await client.call("gated", "new") == "new"
            gate.set()
            assert await running == "old"
            assert await asyncio.to_thread(one.process.wait, 10) == 0
        assert asked == ["old"]


async def test_a_frozen_broker_is_noticed_by_client_and_worker(dialect: str):
    brisk = "[heartbeat]\ninterval = 0.2\nliveness = 5\n"
    with BrokerProcess(toml=brisk) as one, BrokerProcess(toml=brisk) as two:
        places = ",".join(process.endpoint.removeprefix("tcp://") for process in (one, two))
        url = f"{dialect}://{places}"
        worker, gate, asked = gated_worker(url, heartbeat=0.2, liveness=5)
        gate.set()
        async with worker, Client(url, ping=0.2, connect_timeout=2) as client:
            assert await client.call("gated", 1) == 1
            one.signal(signal.SIGSTOP)
            assert await client.call("gated", 2, timeout=20) == 2
        assert (asked[0], asked[-1]) == (1, 2)


async def test_a_killed_broker_without_a_second_is_said_within_the_time(dialect: str):
    with BrokerProcess() as only:
        url = only.endpoint.replace("tcp", dialect)
        worker, _, asked = gated_worker(url, grace=0)
        async with worker, Client(url, connect_timeout=0.5) as client:
            call = asyncio.create_task(client.call("gated", 1))
            await until(lambda: asked)
            await asyncio.to_thread(only.kill)
            with pytest.raises(Unreachable, match="no broker could be reached"):
                await asyncio.wait_for(call, 10)


WORKER = """
import asyncio, sys
from pathlib import Path
from polydomo import Worker

url, folder = sys.argv[1], Path(sys.argv[2])

class Noted(Worker):
    def stop(self):
        super().stop()
        (folder / "stopping").touch()

worker = Noted(url, grace=60)

@worker.service
async def slow(body):
    (folder / "begun").touch()
    while not (folder / "go").exists():
        await asyncio.sleep(0.005)
    return body

worker.run_forever()
(folder / "ended").touch()
"""


class WorkerProcess:
    """`run_forever` in a process of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "-c", WORKER, url, str(folder)])

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()

    def touched(self, name: str) -> Any:
        return (self.folder / name).exists


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_a_worker_finish_its_job(
    broker: BrokerProcess, dialect: str, tmp_path: Path, number: int
):
    url = broker.endpoint.replace("tcp", dialect)
    with WorkerProcess(url, tmp_path) as worker:
        async with Client(url, retries=0) as client:
            call = asyncio.create_task(client.call("slow", "finished"))
            await until(worker.touched("begun"), 20)
            os.kill(worker.process.pid, number)
            await until(worker.touched("stopping"))
            (tmp_path / "go").touch()
            assert await call == "finished"
            assert await asyncio.to_thread(worker.process.wait, 10) == 0
            assert (tmp_path / "ended").exists()
            assert not await client.offered("slow")


def test_a_second_signal_does_not_wait_for_it(broker: BrokerProcess, tmp_path: Path):
    url = broker.endpoint.replace("tcp", "mdp")
    with WorkerProcess(url, tmp_path) as worker, SyncClient(url) as client:
        handle = client.submit("slow")
        wait_for(worker.touched("begun"), 20)
        os.kill(worker.process.pid, signal.SIGTERM)
        wait_for(worker.touched("stopping"))
        assert worker.process.poll() is None
        os.kill(worker.process.pid, signal.SIGTERM)
        assert worker.process.wait(10) == 0
        handle.cancel()


async def test_a_killed_workers_job_goes_to_another(broker: BrokerProcess, dialect: str, tmp_path: Path):
    url = broker.endpoint.replace("tcp", dialect)
    other = Worker(url)
    other.add("slow", lambda body: "rescued")
    async with Client(url, retries=0) as client:
        with WorkerProcess(url, tmp_path) as worker:
            call = asyncio.create_task(client.call("slow"))
            await until(worker.touched("begun"), 20)
        async with other:
            assert await call == "rescued"
