"""A closed connection's peer and parser are freed without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator

import pytest

from polydomo.server.events import Subscriber
from polydomo.server.nng_peer import NngPeer
from polydomo.server.server import BrokerServer
from polydomo.server.settings import BrokerSection, LimitsSection, Settings
from polydomo.server.zmq_peer import ZmqPeer
from polydomo.wire.sp import connection as sp_connection
from polydomo.wire.zmtp import connection as zmtp_connection
from tests.support import memo, sp
from tests.support.zmtp import greeting, message, ready

ANYWHERE = "tcp://127.0.0.1:*"

PARTS = (ZmqPeer, NngPeer, Subscriber, zmtp_connection.Connection, sp_connection.Connection)

# What peers say before they leave.
ZMTP = {
    "nothing": [],
    "mdp client": [message(b"MDPC02", b"\x01", b"nobody", b"x")],
    "mdp worker": [message(b"MDPW02", b"\x01", b"svc")],
    "unfinished message": [b"\x02" + (1 << 20).to_bytes(8, "big") + bytes(300_000)],
}

SP = {
    "nothing": [],
    "client": [sp.request(1, memo.job("nobody", b"x"))],
    "worker": [sp.request(1, memo.ready("svc"))],
    "unfinished message": [(1 << 20).to_bytes(8, "big") + bytes(300_000)],
}


# Parts of servers that other tests of this process still have.
OTHERS: list[object] = []


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    OTHERS[:] = parts()
    gc.disable()
    yield
    gc.enable()
    OTHERS.clear()


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    settings = Settings(
        broker=BrokerSection(zmq=[ANYWHERE], events=[ANYWHERE], nng=[ANYWHERE]),
        limits=LimitsSection(client_grace=0),
    )
    settings.memodb.grace = 0.05
    server = BrokerServer(settings)
    await server.start()
    yield server
    server.stop(drain=False)
    await server.wait()


async def come_and_go(place: str, hello: bytes, said: list[bytes]) -> None:
    host, _, port = place.removeprefix("tcp://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(hello)
    await reader.readexactly(8)
    for data in said:
        writer.write(data)
    await writer.drain()
    await asyncio.sleep(0.05)  # so that more than the handshake is behind it, mostly
    writer.close()
    await writer.wait_closed()


def parts() -> list[object]:
    return [part for part in gc.get_objects() if type(part) in PARTS]


def left_behind() -> list[str]:
    others = {id(part) for part in OTHERS}
    return [type(part).__name__ for part in parts() if id(part) not in others]


async def nothing_is_left() -> None:
    for _ in range(50):
        if not left_behind():
            return
        await asyncio.sleep(0.1)
    assert left_behind() == []


@pytest.mark.parametrize("name", ZMTP)
async def test_zeromq_peer_is_freed(uncollected: None, server: BrokerServer, name: str) -> None:
    for identity in (b"", b"me"):
        await come_and_go(server.zmq.bound[0], greeting() + ready(identity=identity), ZMTP[name])
    await nothing_is_left()


@pytest.mark.parametrize("name", SP)
async def test_nng_peer_is_freed(uncollected: None, server: BrokerServer, name: str) -> None:
    await come_and_go(server.nng.bound[0], sp.REQ_HELLO, SP[name])
    await nothing_is_left()


@pytest.mark.parametrize("hello", [greeting(), greeting() + ready(b"SUB") + b"\x04\x0b\x09SUBSCRIBEx"])
async def test_subscriber_is_freed(uncollected: None, server: BrokerServer, hello: bytes) -> None:
    await come_and_go(server.events.bound[0], hello, [])
    await nothing_is_left()


async def test_refused_peer_is_freed(uncollected: None, server: BrokerServer) -> None:
    await come_and_go(server.zmq.bound[0], greeting() + ready(b"PUB"), [])
    await nothing_is_left()
