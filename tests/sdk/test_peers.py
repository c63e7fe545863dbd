"""The SDK over real sockets with foreign peers, through a broker in a process of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polydomo.errors import Timeout, WorkerError
from polydomo.sdk import Client, Context, SyncClient, SyncWorker, Worker
from tests.support.broker import BrokerProcess
from tests.support.peers import (
    DcpPeer,
    DcpPeer4,
    Mdp01Client,
    Mdp01Worker,
    MdpClient,
    MdpWorker,
    Peers,
    Serving,
    Task,
    TomoClient,
    TomoWorker,
    peers_of,
)

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with BrokerProcess() as process:
        yield process


@pytest.fixture
def peers(running: BrokerProcess) -> Iterator[Peers]:
    with peers_of(running.endpoint) as opened:
        yield opened


@pytest.fixture
def url(running: BrokerProcess, dialect: str) -> str:
    return running.endpoint.replace("tcp", dialect)


@pytest.fixture
def service(request: pytest.FixtureRequest) -> str:
    """A name no other test uses."""
    return request.node.name


@pytest.mark.parametrize("form", [MdpWorker, Mdp01Worker, TomoWorker, DcpPeer, DcpPeer4])
async def test_our_client_calls_a_foreign_worker(url: str, peers: Peers, service: str, form: Any):
    peers.echo(service.encode(), form)
    async with Client(url) as client:
        assert await client.call(service, {"x": 1}) == {"x": 1}
        assert await client.call(service, b"bytes") == b"bytes"
        assert await client.request(service, [b"one", b"", b"two"]) == [b"one", b"", b"two"]
        many = await asyncio.gather(*[client.call(service, number) for number in range(50)])
        assert many == list(range(50))


@pytest.mark.parametrize("form", [MdpClient, Mdp01Client, TomoClient, DcpPeer, DcpPeer4])
async def test_a_foreign_client_calls_our_worker(url: str, peers: Peers, service: str, form: Any):
    worker = Worker(url, concurrency=2)

    @worker.service(service)
    def upper(body: dict[str, str]) -> dict[str, str]:
        return {key: value.upper() for key, value in body.items()}

    async with worker:
        client = peers(form)
        answer = await asyncio.to_thread(client.call, service.encode(), [b'{"x":"hello"}'])
        assert answer.final == [b'{"x":"HELLO"}']


@pytest.mark.parametrize("dialect", ["mdp"], indirect=True)
async def test_a_foreign_workers_partials_are_streamed(url: str, peers: Peers, service: str):
    def handle(worker: MdpWorker, task: Task) -> None:
        for number in range(3):
            worker.partial(task, [b"%d" % number])
        worker.reply(task, [b'"done"'])

    endpoint, name = peers.endpoint, service.encode()
    peers.open.append(Serving(lambda context: MdpWorker(endpoint, name, context=context), handle))
    async with Client(url) as client:
        assert [part async for part in client.stream(service)] == [0, 1, 2, "done"]


@pytest.mark.parametrize("dialect", ["mdp"], indirect=True)
@pytest.mark.parametrize("form", [MdpClient, TomoClient])
async def test_our_partials_reach_a_foreign_client(url: str, peers: Peers, service: str, form: Any):
    worker = Worker(url)

    @worker.service(service)
    async def count(to: int, ctx: Context) -> str:
        for number in range(to):
            ctx.progress(number)
        return "done"

    async with worker:
        answer = await asyncio.to_thread(peers(form).call, service.encode(), [b"3"])
        assert answer.partials == [[b"0"], [b"1"], [b"2"]]
        assert answer.final == [b'"done"']


@pytest.mark.parametrize("form", [MdpClient, Mdp01Client, TomoClient, DcpPeer, DcpPeer4])
async def test_a_foreign_client_is_told_of_a_failure_in_plain_json(
    url: str, peers: Peers, service: str, form: Any
):
    """Never with our own mark, which it could not understand."""
    worker = Worker(url)

    @worker.service(service)
    def fails(body: Any) -> None:
        raise ValueError("no such thing")

    async with worker:
        answer = await asyncio.to_thread(peers(form).call, service.encode(), [b"1"])
        assert [json.loads(frame) for frame in answer.final] == [{"error": "no such thing"}]


async def test_a_worker_of_each_dialect_calls_and_forwards_to_the_other(running: BrokerProcess, service: str):
    tcp = running.endpoint
    workers = {dialect: Worker(tcp.replace("tcp", dialect)) for dialect in ("mdp", "dcp")}
    for dialect, worker in workers.items():
        other = "dcp" if dialect == "mdp" else "mdp"

        async def asks(body: Any, ctx: Context, other: str = other) -> Any:
            return ["asked", await ctx.call(f"{service}-{other}-end", body)]

        worker.add(f"{service}-{dialect}-asks", asks)
        worker.add(f"{service}-{dialect}-end", lambda body, dialect=dialect: [dialect, body])
        worker.add(
            f"{service}-{dialect}-on",
            lambda body, ctx, other=other: ctx.forward(f"{service}-{other}-end", body),
        )
    async with workers["mdp"], workers["dcp"], Client(tcp.replace("tcp", "mdp")) as client:
        assert await client.call(f"{service}-mdp-asks", 1) == ["asked", ["dcp", 1]]
        assert await client.call(f"{service}-dcp-asks", 1) == ["asked", ["mdp", 1]]
        assert await client.call(f"{service}-mdp-on", 1) == ["dcp", 1]
        assert await client.call(f"{service}-dcp-on", 1) == ["mdp", 1]


async def test_our_failures_cross_dialects(running: BrokerProcess, service: str, dialect: str):
    worker = Worker(running.endpoint.replace("tcp", "dcp" if dialect == "mdp" else "mdp"))

    @worker.service(service)
    def fails(body: Any) -> None:
        raise KeyError(body)

    async with worker, Client(running.endpoint.replace("tcp", dialect)) as client:
        with pytest.raises(WorkerError) as told:
            await client.call(service, "x")
        assert told.value.kind == "KeyError"


async def test_big_bodies_go_through(url: str, service: str):
    worker = Worker(url, codec="raw", concurrency=2)
    worker.add(service, lambda body: body)
    big = bytes(range(256)) * 40_000  # 10 MB
    async with worker, Client(url) as client:
        answers = await asyncio.gather(*[client.call(service, big) for _ in range(4)])
        assert all(answer == big for answer in answers)


async def test_our_worker_gives_way_to_a_foreign_one(url: str, peers: Peers, service: str):
    """It stops, and says so: the next job goes to the other without waiting for anything to expire."""
    worker = Worker(url)
    worker.add(service, lambda body: "ours")
    async with Client(url, timeout=5) as client:
        async with worker:
            assert await client.call(service) == "ours"
        peers.echo(service.encode())
        assert await client.call(service, "theirs") == "theirs"


async def test_nobody_answers_in_time(url: str, service: str):
    async with Client(url) as client:
        with pytest.raises(Timeout):
            await client.call(service, timeout=0.1)


def test_the_sync_twins_over_sockets(url: str, service: str):
    worker = SyncWorker(url)

    @worker.service(service)
    def count(to: int) -> Any:
        yield from range(to)

    with worker, SyncClient(url) as client:
        assert client.call(service, 3) == 2
        assert list(client.stream(service, 3)) == ([2] if url.startswith("dcp") else [0, 1, 2])


async def test_unix_sockets(tmp_path: Path, dialect: str):
    path = tmp_path / "broker.sock"
    with BrokerProcess(zmq=f"ipc://{path}"):
        url = f"{dialect}+ipc://{path}"
        worker = Worker(url)
        worker.add("double", lambda number: 2 * number)
        async with worker, Client(url) as client:
            assert await client.call("double", 21) == 42
