"""CURVE between the broker's connections and libzmq peers, and our own SDK's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq

from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.connection import Dealer
from polydomo.sdk.curve_keys import CurveKeys
from polydomo.sdk.subscription import SubTransport
from polydomo.sdk.transport import ConnectionLost, open_transport
from polydomo.sdk.url import Address, parse
from polydomo.server.server import BrokerServer
from polydomo.server.settings import BrokerSection, SecuritySection, Settings
from polydomo.wire.curve.keys import encode_key
from polydomo.wire.frames import Message
from tests.support import zmtp
from tests.support.curve import CLIENT, SERVER
from tests.support.zmq_ends import patient, zmq_socket

ANYWHERE = "tcp://127.0.0.1:*"

KEYS = {
    "curve_publickey": encode_key(CLIENT.public).encode(),
    "curve_secretkey": encode_key(CLIENT.secret).encode(),
    "curve_serverkey": encode_key(SERVER.public).encode(),
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    secret = encode_key(SERVER.secret)
    (tmp_path / "broker.key").write_text(f'curve\n    secret-key = "{secret}"\n')
    security = SecuritySection(curve="on", keys=str(tmp_path), auto_accept=True, roles="off")
    broker = BrokerSection(zmq=[ANYWHERE], events=[ANYWHERE], data="")
    server = BrokerServer(Settings(broker=broker, security=security))
    await server.start()
    yield server
    server.stop(drain=False)
    await server.wait()


def plain(place: str) -> Address:
    return parse(place.replace("tcp://", "mdp://")).addresses[0]


def address_of(place: str) -> Address:
    return plain(place)._replace(keys=CurveKeys(SERVER.public, CLIENT))


async def until(condition: object) -> None:
    while not condition():  # type: ignore[operator]
        await asyncio.sleep(0.005)


@patient
async def test_libzmq_client_and_worker_meet_through_the_broker(server: BrokerServer) -> None:
    place = server.zmq.bound[0]
    async with zmq_socket(zmq.DEALER, **KEYS) as worker, zmq_socket(zmq.DEALER, **KEYS) as client:
        worker.connect(place)
        client.connect(place)
        await worker.send_multipart([b"MDPW02", b"\1", b"echo"])
        for size in (0, 10, 1 << 20):
            body = os.urandom(size)
            await client.send_multipart([b"MDPC02", b"\1", b"echo", body, b"end"])
            frames = await request(worker)
            await worker.send_multipart([b"MDPW02", b"\4", *frames[2:]])
            assert await client.recv_multipart() == [b"MDPC02", b"\3", b"echo", body, b"end"]


async def request(worker: zmq.asyncio.Socket) -> list[bytes]:
    """The worker's next request; heartbeats before it are skipped."""
    while True:
        frames: list[bytes] = await worker.recv_multipart()
        if frames[1] == b"\2":
            return frames


@patient
async def test_a_returning_client_gets_the_answer_that_it_missed(server: BrokerServer) -> None:
    """The answer is encrypted for the connection that it leaves on."""
    place = server.zmq.bound[0]
    async with zmq_socket(zmq.DEALER, **KEYS) as worker:
        worker.connect(place)
        await worker.send_multipart([b"MDPW02", b"\1", b"echo"])
        async with zmq_socket(zmq.DEALER, routing_id=b"me", **KEYS) as client:
            client.connect(place)
            await client.send_multipart([b"MDPC02", b"\1", b"echo", b"body"])
            frames = await request(worker)
        await until(lambda: server.zmq.suspended)
        await worker.send_multipart([b"MDPW02", b"\4", *frames[2:]])
        async with zmq_socket(zmq.DEALER, routing_id=b"me", **KEYS) as client:
            client.connect(place)
            assert await client.recv_multipart() == [b"MDPC02", b"\3", b"echo", b"body"]


@patient
async def test_our_own_transport_speaks_curve(server: BrokerServer) -> None:
    received: asyncio.Queue[list[bytes]] = asyncio.Queue()
    address = address_of(server.zmq.bound[0])

    def on_message(message: Message) -> None:
        received.put_nowait(message.frames())

    dealer = await open_transport(Dealer(address, REAL_TIME, on_message, print, identity=b"me"))
    assert dealer.native
    dealer.send(zmtp.message(b"MDPC02", b"\1", b"mmi.service", b"nobody"))
    dealer.send(zmtp.message(b"MDPC02", b"\1", b"mmi.service", b"nobody"))
    await dealer.settled()
    for _ in range(2):
        assert (await received.get())[-1] == b"404"
    dealer.close()


@patient
async def test_events_are_encrypted(server: BrokerServer) -> None:
    heard: asyncio.Queue[list[bytes]] = asyncio.Queue()
    address = address_of(server.events.bound[0])
    subscriber = await open_transport(
        SubTransport(address, REAL_TIME, lambda message: heard.put_nowait(message.frames()), print)
    )
    subscriber.subscribe(b"svc.")
    await subscriber.settled()
    server.events.published(b"svc", b"anna", "started", b"{}")
    server.events.published(b"other", b"anna", "started", b"{}")
    await subscriber.settled()
    assert await heard.get() == [b"svc.anna.started", b"{}"]
    assert heard.empty()
    subscriber.close()


@patient
async def test_a_plain_peer_is_refused_with_the_reason(server: BrokerServer) -> None:
    address = plain(server.zmq.bound[0])
    with pytest.raises(ConnectionLost, match="CURVE"):
        await open_transport(Dealer(address, REAL_TIME, print, print))
