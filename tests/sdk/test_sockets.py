"""The SDK's peers with a foreign broker: their sockets, and every message they send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import zmq

from polydomo import Client, Worker


class Router:
    """A bare pyzmq ROUTER that writes down who sent what."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.heard: list[list[bytes]] = []
        self.kinds: set[str] = set()  # the peers' socket types, as their handshakes said
        self.peers: set[bytes] = set()

    async def next(self) -> list[bytes]:
        """The next message without its identity, which is in `last`."""
        for _ in range(1000):
            if self.socket.poll(0):
                frames = self.socket.recv_multipart(copy=False)
                self.kinds.add(frames[1].get("Socket-Type"))
                self.last = frames[0].bytes
                self.peers.add(self.last)
                self.heard.append([frame.bytes for frame in frames[1:]])
                return self.heard[-1]
            await asyncio.sleep(0.005)
        raise AssertionError("nothing came")

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart([self.last, *frames])


@pytest.fixture
def router() -> Iterator[Router]:
    router = Router()
    yield router
    router.socket.close()
    router.context.term()


@pytest.mark.clause("MDP-C-04")
async def test_an_mdp_client_has_a_dealer(router: Router):
    async with Client(f"mdp://127.0.0.1:{router.port}") as client:
        call = client.submit("echo", b"hello")
        assert await router.next() == [b"MDPC02", b"\x01", b"echo", b"hello"]
        router.send(b"MDPC02", b"\x03", b"echo", b"there")
        assert await call.result() == b"there"
    assert router.kinds == {"DEALER"}


@pytest.mark.clause("MDP-O-01")
async def test_an_mdp_worker_has_one_dealer_for_its_whole_conversation(router: Router):
    worker = Worker(f"mdp://127.0.0.1:{router.port}", heartbeat=0.05, liveness=100)
    worker.add("echo", lambda body: body)
    running = asyncio.create_task(worker.run())
    assert await router.next() == [b"MDPW02", b"\x01", b"echo"]
    for number in (b"1", b"2"):
        router.send(b"MDPW02", b"\x02", b"client", b"", number)
        while (await router.next())[1] != b"\x04":  # heartbeats between
            pass
    worker.stop()
    await running
    assert router.kinds == {"DEALER"}
    assert len(router.peers) == 1


@pytest.mark.clause("DCP-C-01", "DCP-H-01")
async def test_a_dcp_client_has_a_dealer_and_never_sends_a_heartbeat(router: Router):
    """However long it waits: what asks for a sign of life is ZMTP's PING, which no DCP broker sees."""
    async with Client(f"dcp://127.0.0.1:{router.port}", ping=0.05) as client:
        call = client.submit("echo", b"hello")
        request = await router.next()
        await asyncio.sleep(0.4)  # eight times the silence after which it asks
        router.send(b"", b"DGBX\x01", b"\x05", b"me", b"", request[5], b"", b"there")
        assert await call.result() == b"there"
        assert not router.socket.poll(100)
    assert router.kinds == {"DEALER"}
    assert [message[2] for message in router.heard] == [b"\x04"]
