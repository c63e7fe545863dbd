"""What connections keep in memory: it is in the budget while it is there, and gone when they are."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import weakref
from collections.abc import AsyncIterator, Callable

import pytest

from polydomo import web
from polydomo.server.server import BrokerServer
from polydomo.server.settings import MIB, Settings
from polydomo.web.connection import HttpConnection
from polydomo.web.http_server import HttpServer

BODY = 4 * MIB

# More than the kernel takes for a peer that does not read.
UNREAD = 12 * MIB

UPLOAD = b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    settings = Settings()
    settings.broker.zmq = ["tcp://127.0.0.1:*"]
    settings.broker.http = ["127.0.0.1:*"]
    settings.broker.data = ""
    settings.limits.memory = 64 * MIB
    settings.http.patience = 30.0
    made = BrokerServer(settings, (web.join,))
    await made.start()
    try:
        yield made
    finally:
        made.stop(drain=False)
        await made.wait()


class Peer:
    """A raw connection to a server in this process. A small receive buffer: what is unread stays at the broker."""

    def __init__(self, server: BrokerServer) -> None:
        host, _, port = server.endpoints()["http"][0].rpartition(":")
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.sock.connect((host, int(port)))
        self.sock.setblocking(False)
        self.loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(self.loop.sock_sendall(self.sock, data), 20)

    async def receive(self, size: int = 65536) -> bytes:
        return await asyncio.wait_for(self.loop.sock_recv(self.sock, size), 20)

    def close(self) -> None:
        self.sock.close()


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < end, condition
        await asyncio.sleep(0.01)


def connections(server: BrokerServer) -> list[HttpConnection]:
    extension = server.extensions[0]
    assert isinstance(extension, HttpServer)
    return [one for one in extension.state.connections if isinstance(one, HttpConnection)]


def request(path: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def header(response: bytes, name: str) -> str:
    """Return the value of a header; its name may be in any case, its value is as it was sent."""
    found = re.search(rf"^{name}: *(\S+)", response.decode("latin-1"), re.IGNORECASE | re.MULTILINE)
    assert found is not None
    return found[1]


async def large_result(server: BrokerServer, size: int) -> str:
    """The path of a job whose result has `size` bytes."""
    client, worker = Peer(server), Peer(server)
    await client.send(request("/v1/services/large/jobs", b"x"))
    accepted = await client.receive()
    await worker.send(request("/v1/workers/poll", b'{"services": ["large"], "wait": 10}'))
    attempt = header(await worker.receive(), "location")
    await worker.send(request(f"{attempt}/result", bytes(size)).replace(b"POST", b"PUT", 1))
    assert b" 204 " in await worker.receive()
    client.close()
    worker.close()
    await until(lambda: not connections(server))
    return header(accepted, "location") + "/result"


@pytest.mark.parametrize(
    "path",
    [b"/v1/services/s/jobs", b"/v1/services/s/bulk", b"/memodb/v1/cid", b"/v1/workers/poll", b"/nothing"],
)
async def test_body_that_was_cut_is_freed_without_the_garbage_collector(
    server: BrokerServer, path: bytes
) -> None:
    gc.collect()
    gc.disable()
    try:
        peer = Peer(server)
        await peer.send(UPLOAD % (path, 2 * BODY) + bytes(BODY if path[:3] == b"/v1" else 70_000))
        await until(lambda: connections(server))
        made = weakref.ref(connections(server)[0])
        cycle = weakref.ref(connections(server)[0].cycle)
        peer.close()
        await until(lambda: made() is None and cycle() is None)
        assert server.budget.transit == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("end", ["peer", "broker"])
@pytest.mark.parametrize("kind", ["poll", "events", "wait", "unread", "answered", "pipelined"])
async def test_connection_is_freed_without_the_garbage_collector(
    server: BrokerServer, kind: str, end: str
) -> None:
    sent = {
        "poll": request("/v1/workers/poll", json.dumps({"services": ["none"], "wait": 20}).encode()),
        "events": request("/v1/services/none/jobs", b"x", accept="text/event-stream"),
        "wait": request("/v1/services/none/jobs", b"x", prefer="wait=20"),
        "answered": b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        "unread": b"",
        "pipelined": b"",
    }[kind]
    if kind == "unread":
        path = await large_result(server, UNREAD)
        sent = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
    if kind == "pipelined":
        sent = request("/v1/services/none/jobs", b"x", prefer="wait=20") * 5
    gc.collect()
    gc.disable()
    try:
        peer = Peer(server)
        await peer.send(sent)
        await until(lambda: connections(server) and connections(server)[0].cycle is not None)
        if kind == "unread":
            await until(lambda: server.budget.transit)
        made = weakref.ref(connections(server)[0])
        cycle = weakref.ref(connections(server)[0].cycle)
        if end == "broker":
            connections(server)[0].transport.abort()
        else:
            peer.close()
        await until(lambda: made() is None and cycle() is None)
        assert server.budget.transit == 0
    finally:
        gc.enable()
        peer.close()


async def test_bodies_are_in_the_budget_until_the_core_has_them(server: BrokerServer) -> None:
    peer = Peer(server)
    await peer.send(UPLOAD % (b"/v1/services/s/jobs?durable=false", BODY) + bytes(BODY - 1))
    await until(lambda: server.budget.transit >= BODY - 1)
    assert server.broker.accounting.memory == 0
    await peer.send(b"x")
    assert b" 202 " in await peer.receive()
    assert server.budget.transit == 0
    assert server.broker.accounting.memory >= BODY
    peer.close()


async def test_response_that_is_not_read_is_in_the_budget(server: BrokerServer) -> None:
    path = await large_result(server, UNREAD)
    peer = Peer(server)
    ask = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
    await peer.send(ask * 3)
    await until(lambda: server.budget.transit > UNREAD // 2)
    # The second and third wait until the first is read: each would be a large response in memory, too.
    most, left = 0, 3 * UNREAD
    while left > 0:
        most = max(most, server.budget.transit)
        left -= len(await peer.receive(1 << 20))
    assert most < 1.5 * UNREAD
    peer.close()
    await until(lambda: server.budget.transit == 0)


async def test_garbage_after_requests_that_wait_for_an_unread_response_does_not_cost_them_theirs(
    server: BrokerServer,
) -> None:
    path = await large_result(server, UNREAD)
    peer = Peer(server)
    ask = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
    await peer.send(ask * 3 + b"\x00garbage\r\n\r\n")
    await until(lambda: server.budget.transit > UNREAD // 2)
    read, data = 0, b"x"
    while data:
        data = await peer.receive(1 << 20)
        read += len(data)
    assert read > 3 * UNREAD
    peer.close()


async def test_largest_is_cut_with_an_answer_when_the_budget_is_reached(
    server: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    size = 30 * MIB
    peers = [Peer(server) for _ in range(3)]
    for number, peer in enumerate(peers):
        await peer.send(UPLOAD % (b"/v1/services/s/jobs?durable=false", size) + bytes((24 - number) * MIB))
    found = await peers[0].receive()
    assert b" 429 " in found
    assert b"broker-full" in found
    assert server.budget.cuts == 1
    await until(lambda: (23 + 22) * MIB <= server.budget.transit < 50 * MIB)
    for peer in peers:
        peer.close()


async def test_unread_events_are_in_the_budget_and_go_with_their_reader(server: BrokerServer) -> None:
    reader, worker = Peer(server), Peer(server)
    await reader.send(request("/v1/services/chatty/jobs", b"x", accept="text/event-stream"))
    await worker.send(request("/v1/workers/poll", b'{"services": ["chatty"], "wait": 10}'))
    attempt = header(await worker.receive(), "location")
    sent = 0
    while not server.budget.cuts:
        assert sent < 128 * MIB
        await worker.send(request(f"{attempt}/partials", b"x" * (2 * MIB)))
        assert b" 20" in await worker.receive()
        sent += 2 * MIB
    assert sent >= server.settings.limits.memory - 12 * MIB
    await until(lambda: server.budget.transit == 0)
    await until(lambda: len(connections(server)) == 1)
    reader.close()
    worker.close()


async def test_response_that_is_read_drop_by_drop_is_cut(server: BrokerServer) -> None:
    server.settings.limits.stalled = 0.5
    path = await large_result(server, UNREAD)
    peer = Peer(server)
    await peer.send(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    await until(lambda: server.budget.transit)
    end = asyncio.get_running_loop().time() + 20
    while connections(server):
        assert asyncio.get_running_loop().time() < end
        await peer.receive(20)
        await asyncio.sleep(0.01)
    assert server.budget.transit == 0
    peer.close()


async def test_response_that_is_read_slowly_but_steadily_is_not_cut(server: BrokerServer) -> None:
    server.settings.limits.stalled = 0.5
    path = await large_result(server, MIB)
    peer = Peer(server)
    await peer.send(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    read = 0
    while read < MIB:
        data = await peer.receive(20_000)
        assert data
        read += len(data)
        await asyncio.sleep(0.03)  # twice the time that silence may last
    peer.close()
