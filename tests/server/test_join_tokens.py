"""Join tokens on real sockets: libzmq's peers and our own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq

from polydomo import Client, Worker
from polydomo.dialects.session import JOIN_PROPERTY
from polydomo.errors import Unreachable
from polydomo.security.invitations import Invitations
from polydomo.security.keys import ACCEPTED, PENDING, KeyFolder
from polydomo.server.server import BrokerServer
from polydomo.server.settings import BrokerSection, SecuritySection, Settings
from polydomo.wire.curve.keys import encode_key, new_key_pair
from tests.support.zmq_ends import patient, zmq_socket


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "keys")


@pytest.fixture
async def server(folder: KeyFolder) -> AsyncIterator[BrokerServer]:
    security = SecuritySection(curve="on", keys=str(folder.path), roles="off")
    server = BrokerServer(
        Settings(broker=BrokerSection(zmq=["tcp://127.0.0.1:*"], data=""), security=security)
    )
    await server.start()
    yield server
    server.stop(drain=False)
    await server.wait()


def new_token(folder: KeyFolder, name: str) -> str:
    return Invitations(folder.path).new(name, 60)[0]


def url_of(server: BrokerServer, folder: KeyFolder, file: Path, token: str, scheme: str = "mdp") -> str:
    place = server.zmq.bound[0].replace("tcp", scheme)
    return f"{place}?server_key={encode_key(folder.open().public)}&key={file}&join_token={token}"


@patient
async def test_a_libzmq_peer_joins_with_its_metadata(server: BrokerServer, folder: KeyFolder) -> None:
    pair = new_key_pair(os.urandom)
    token = new_token(folder, "worker-1")
    options = {
        "curve_publickey": encode_key(pair.public).encode(),
        "curve_secretkey": encode_key(pair.secret).encode(),
        "curve_serverkey": encode_key(folder.open().public).encode(),
        "metadata": JOIN_PROPERTY + b":" + token.encode(),
    }
    async with zmq_socket(zmq.DEALER, routing_id=b"anna", **options) as client:
        client.connect(server.zmq.bound[0])
        await client.send_multipart([b"MDPC02", b"\1", b"mmi.service", b"nobody"])
        assert (await client.recv_multipart())[-1] == b"404"
        assert [peer.principal for peer in server.zmq.peers] == ["worker-1"]
    assert [(key.name, key.state) for key in folder.entries()] == [("worker-1", ACCEPTED)]


@patient
async def test_our_worker_makes_its_key_and_joins_at_once(
    server: BrokerServer, folder: KeyFolder, tmp_path: Path
) -> None:
    worker_file, client_file = tmp_path / "worker.key", tmp_path / "client.key"
    worker = Worker(url_of(server, folder, worker_file, new_token(folder, "worker-1"), "dcp"))

    @worker.service("upper")
    async def upper(text: str) -> str:
        return text.upper()

    url = url_of(server, folder, client_file, new_token(folder, "client-1"))
    async with worker:
        async with Client(url) as client:
            assert await client.call("upper", "joined") == "JOINED"
        async with Client(url) as client:  # with the token that was used, and the key that it was used for
            assert await client.call("upper", "again") == "AGAIN"
    assert sorted(key.name for key in folder.entries(ACCEPTED)) == ["client-1", "worker-1"]
    assert not folder.entries(PENDING)


@patient
async def test_of_many_peers_with_one_token_one_joins(
    server: BrokerServer, folder: KeyFolder, tmp_path: Path
) -> None:
    token = new_token(folder, "worker-1")

    async def join(number: int) -> str:
        url = url_of(server, folder, tmp_path / f"{number}.key", token)
        async with Client(url, connect_timeout=0.5) as client:
            try:
                await client.broker()
            except Unreachable as error:
                return str(error)
            return "joined"

    said = await asyncio.gather(*map(join, range(8)))
    assert said.count("joined") == 1
    assert sum("waits for approval; the join token" in text for text in said) == 7
    assert [key.name for key in folder.entries(ACCEPTED)] == ["worker-1"]
    assert len(folder.entries(PENDING)) == 7
