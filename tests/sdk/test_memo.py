"""The SDK's MemoDB peers at a real broker, with peers of other kinds and through its outages."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import pynng
import pytest

from polydomo.errors import Timeout, Unreachable
from polydomo.sdk import Client, SyncClient, SyncWorker, Worker
from polydomo.sdk.channel_memo import MemoChannel
from polydomo.sdk.testing import LocalBroker
from polydomo.sdk.url import parse
from tests.sdk.support import echo_worker, gated_worker, until
from tests.sdk.test_outages import calling
from tests.support.broker import BrokerProcess
from tests.support.peers import MdpClient, MdpWorker, Peers, peers_of


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with BrokerProcess(nng=True) as process:
        yield process


@pytest.fixture
def url(running: BrokerProcess) -> str:
    return memo(running)


@pytest.fixture
def peers(running: BrokerProcess) -> Iterator[Peers]:
    with peers_of(running.endpoint) as opened:
        yield opened


@pytest.fixture
def service(request: pytest.FixtureRequest) -> str:
    """A name no other test uses."""
    return request.node.name


def memo(*processes: BrokerProcess) -> str:
    return f"memo://{','.join(process.nng.removeprefix('tcp://') for process in processes)}"


async def test_there_and_back(url: str):
    async with echo_worker(url, concurrency=4), Client(url) as client:
        assert await client.offered("echo")
        assert await client.call("echo", {"x": [1, None]}) == {"x": [1, None]}
        assert await client.request("echo", [b"one", b"", b"two"]) == [b"one", b"", b"two"]
        many = await asyncio.gather(*[client.call("echo", number) for number in range(500)])
        assert many == list(range(500))


async def test_big_bodies(url: str):
    body = bytes(range(256)) * (8 * 4096)
    async with echo_worker(url), Client(url) as client:
        assert await client.call("echo", body) == body


async def test_a_memo_client_and_an_mdp_worker_of_others(url: str, peers: Peers, service: str):
    peers.echo(service.encode(), MdpWorker)
    async with Client(url) as client:
        assert await client.call(service, {"x": 1}) == {"x": 1}
        assert await client.request(service, [b"one", b"two"]) == [b"one", b"two"]


async def test_a_memo_worker_and_an_mdp_client_of_others(url: str, peers: Peers, service: str):
    worker = Worker(url)
    worker.add(service, lambda body: [body, body])
    async with worker:
        answer = await asyncio.to_thread(peers(MdpClient).call, service.encode(), [b"1"])
        assert answer.final == [b"[1,1]"]


async def test_a_memo_worker_and_nngs_own_client(url: str, service: str):
    worker = Worker(url)
    worker.add(service, lambda body: body + 1)
    async with worker:
        with pynng.Req0(dial=url.replace("memo", "tcp"), recv_timeout=10_000) as client:
            header = cbor2.dumps(["memo01", 2, b"", service, 5000], canonical=True)
            await client.asend(header + b"41")
            assert await client.arecv() == bytes.fromhex("83666d656d6f30310340") + b"42"


async def test_a_memo_client_and_nngs_own_worker(url: str, service: str):
    with pynng.Req0(dial=url.replace("memo", "tcp"), recv_timeout=10_000) as worker:
        await worker.asend(cbor2.dumps(["memo01", 1, b"", [service]], canonical=True))
        async with Client(url) as client:
            call = client.submit(service, b"hello", timeout=7)
            asked = await worker.arecv()
            _, kind, id, name, timeout = header = cbor2.loads(asked)
            assert (kind, name, timeout) == (2, service, 7000)
            payload = asked[len(cbor2.dumps(header, canonical=True)) :]
            await worker.asend(cbor2.dumps(["memo01", 3, id, True], canonical=True) + payload.upper())
            assert await call.result() == b"HELLO"


def test_the_sync_twins(url: str, service: str):
    worker = SyncWorker(url)
    worker.service(service)(lambda body: body * 2)
    with worker, SyncClient(url) as client:
        assert client.call(service, 21) == 42


async def test_unix_sockets(tmp_path: Path):
    with BrokerProcess(nng=f"ipc://{tmp_path}/nng"):
        url = f"memo+ipc://{tmp_path}/nng"
        async with echo_worker(url), Client(url) as client:
            assert await client.call("echo", {"x": 1}) == {"x": 1}


async def test_a_job_that_nobody_takes_is_sent_again_until_somebody_does():
    """MemoDB's brokers say nothing when they give a job up."""
    with BrokerProcess(nng=True, toml="[memodb]\nwait = 0.1\n") as process:
        url = memo(process)
        async with Client(url, resend=0.2) as client:
            call = client.submit("echo", 1)
            await asyncio.sleep(0.3)
            async with echo_worker(url):
                assert await call.result() == 1
            with pytest.raises(Timeout):
                await client.call("echo", 1, timeout=0.3)


async def test_a_restarted_broker_is_found_again():
    with BrokerProcess(nng=True) as process:
        url = memo(process)
        worker, gate, _ = gated_worker(url, concurrency=4)
        gate.set()
        async with worker, Client(url, connect_timeout=15) as client, calling(client, "gated") as answered:
            await until(lambda: answered.total() > 50)
            await asyncio.to_thread(process.kill)
            await asyncio.to_thread(process.start_again)
            before = answered.total()
            await until(lambda: answered.total() > before + 50, 20)
    assert set(answered.values()) == {1}


async def test_when_the_first_broker_is_killed_everything_goes_on_at_the_second():
    with BrokerProcess(nng=True) as one, BrokerProcess(nng=True) as two:
        url = memo(one, two)
        worker, gate, asked = gated_worker(url, concurrency=8)
        async with worker, Client(url) as client:
            calls = [asyncio.create_task(client.call("gated", number)) for number in range(20)]
            await until(lambda: len(asked) == 8)
            await asyncio.to_thread(one.kill)
            gate.set()
            assert await asyncio.gather(*calls) == list(range(20))


async def test_a_frozen_broker_is_noticed_by_client_and_worker():
    """SP has no ping: a second connection shows that nobody is there."""
    with BrokerProcess(nng=True) as one, BrokerProcess(nng=True) as two:
        url = memo(one, two)
        worker, gate, asked = gated_worker(url, heartbeat=0.1, liveness=5)
        gate.set()
        async with worker, Client(url, ping=0.3, connect_timeout=2) as client:
            assert await client.call("gated", 1) == 1
            one.signal(signal.SIGSTOP)
            assert await client.call("gated", 2, timeout=20) == 2
        assert (asked[0], asked[-1]) == (1, 2)


async def test_a_connection_that_is_cut_costs_no_second_execution(running: BrokerProcess, service: str):
    """Client and worker are back at once, and what they had goes on where it was."""
    proxy = Cutter(running.nng)
    await proxy.start()
    url = f"memo://127.0.0.1:{proxy.port}"
    gate, asked = asyncio.Event(), Counter[Any]()
    worker = Worker(url, concurrency=5)

    async def gated(body: Any) -> Any:
        asked[body] += 1
        await gate.wait()
        return body

    worker.add(service, gated)
    async with worker, Client(url) as client:
        calls = [client.submit(service, number) for number in range(10)]
        await until(lambda: asked.total() == 5)
        before = proxy.connections
        proxy.cut()
        await until(lambda: proxy.connections >= before + 2)
        gate.set()
        assert [await call.result() for call in calls] == list(range(10))
    assert set(asked.values()) == {1}
    await proxy.stop()


async def test_nobody_there_is_said_within_the_time(unused_tcp_port: int):
    async with Client(f"memo://127.0.0.1:{unused_tcp_port}", connect_timeout=0.2) as client:
        with pytest.raises(Unreachable, match="Connection refused"):
            await client.call("echo")


async def test_a_zeromq_broker_is_told_apart(running: BrokerProcess):
    url = running.endpoint.replace("tcp", "memo")
    async with Client(url, connect_timeout=0.2) as client:
        with pytest.raises(Unreachable, match="does not speak SP"):
            await client.call("echo")


async def test_what_only_nfp_has_words_for(local: LocalBroker):
    url = local.url_for("memo")
    with pytest.raises(ValueError, match="are for nfp:// URLs, not for memo"):
        Client(url, name="me")
    async with Client(url) as client:
        with pytest.raises(RuntimeError, match="not supported by memo"):
            client.broadcast("echo")


async def test_what_has_not_left_yet_is_not_repeated():
    """A large request on a slow line must not queue up behind itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"memo://127.0.0.1:{server.getsockname()[1]}"
        async with Client(url, resend=0.02, timeout=0.3, ping=0) as client:
            call = client.submit("echo", bytes(1 << 25))
            line, _ = await asyncio.to_thread(server.accept)
            with line:
                line.sendall(b"\0SP\0\0\x31\0\0")  # and it reads nothing
                with pytest.raises(Timeout):
                    await call.result()
                channel = client._channel
                assert isinstance(channel, MemoChannel)
                assert channel._connection is not None
                transport = channel._connection.transport._transport
                assert transport is not None
                assert transport.get_write_buffer_size() < 1 << 25


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("memo://broker.example", "tcp://broker.example:12703"),
        ("memo://[::1]:7", "tcp://[::1]:7"),
        ("memo+ipc:///run/memodb.socket", "ipc:///run/memodb.socket"),
        ("memo+local://test", "local://test"),
    ],
)
def test_urls(text: str, place: str):
    url = parse(text)
    assert (url.dialect, [str(found) for found in url.addresses]) == ("memo", [place])


class Cutter:
    """A proxy whose connections can be cut."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = (host, int(port))
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._writers += [writer, far_writer]
        self.connections += 1
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pass(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        sink.close()
