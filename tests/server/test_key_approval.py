"""Keys of peers on real sockets: pending, accepted, rejected, revoked; libzmq's peers and our own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from polydomo import Client, Worker
from polydomo.errors import ConfigError, Unreachable
from polydomo.security.key_files import create_key_pair, fingerprint
from polydomo.security.keys import ACCEPTED, PENDING, REJECTED, ClientKey, KeyFolder
from polydomo.server import server as server_module
from polydomo.server.server import BrokerServer
from polydomo.server.settings import BrokerSection, SecuritySection, Settings
from polydomo.wire.curve.keys import KeyPair, encode_key, new_key_pair
from polydomo.wire.zmtp import commands, greeting
from tests.support.zmq_ends import patient, zmq_socket

ANYWHERE = "tcp://127.0.0.1:*"


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "keys")


@pytest.fixture
async def server(folder: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokerServer]:
    monkeypatch.setattr(server_module, "INSPECTION", 0.05)
    security = SecuritySection(curve="on", keys=str(folder.path), roles="off")
    broker = BrokerSection(zmq=[ANYWHERE], events=[ANYWHERE], data="")
    server = BrokerServer(Settings(broker=broker, security=security))
    await server.start()
    yield server
    server.stop(drain=False)
    await server.wait()


async def until(condition: Callable[[], Any]) -> Any:
    while True:
        found = condition()
        if found:
            return found
        await asyncio.sleep(0.005)


def curve(folder: KeyFolder, pair: KeyPair) -> dict[str, bytes | int]:
    """The options of a libzmq socket."""
    return {
        "curve_publickey": encode_key(pair.public).encode(),
        "curve_secretkey": encode_key(pair.secret).encode(),
        "curve_serverkey": encode_key(folder.open().public).encode(),
        "reconnect_ivl": 20,
    }


def accept(folder: KeyFolder, pair: KeyPair, name: str = "") -> ClientKey:
    return folder.move(folder.resolve(encode_key(pair.public)), ACCEPTED, name)


def revoke(folder: KeyFolder, pair: KeyPair) -> None:
    folder.move(folder.resolve(encode_key(pair.public)), REJECTED)


def refusals(server: BrokerServer) -> list[str]:
    """The reasons that the operator reads, as they are logged."""
    reasons: list[str] = []
    server.peer_log.add = lambda event, peer, reason: reasons.append(reason)  # type: ignore[method-assign]
    return reasons


async def ask(client: zmq.asyncio.Socket) -> bytes:
    await client.send_multipart([b"MDPC02", b"\1", b"mmi.service", b"nobody"])
    answer: bytes = (await client.recv_multipart())[-1]
    return answer


def url_of(server: BrokerServer, folder: KeyFolder, file: Path | None, scheme: str = "mdp") -> str:
    place = server.zmq.bound[0].replace("tcp", scheme)
    key = encode_key(folder.open().public)
    return f"{place}?server_key={key}" + ("" if file is None else f"&key={file}")


@patient
async def test_a_libzmq_peer_gets_in_after_its_key_was_accepted(
    server: BrokerServer, folder: KeyFolder
) -> None:
    pair = new_key_pair(os.urandom)
    refused = refusals(server)
    async with zmq_socket(zmq.DEALER, routing_id=b"anna", **curve(folder, pair)) as client:
        client.connect(server.zmq.bound[0])
        answer = asyncio.create_task(ask(client))
        (waiting,) = await until(lambda: folder.entries(PENDING))
        assert (waiting.name, waiting.fingerprint) == ("anna", fingerprint(pair.public))
        assert waiting.address.startswith("127.0.0.1:")
        await until(lambda: len(refused) >= 3)
        assert f"keys accept {fingerprint(pair.public)}" in refused[0]
        assert not server.zmq.peers
        assert len(folder.entries()) == 1
        accept(folder, pair)
        assert await answer == b"404"
        (peer,) = server.zmq.peers
        assert (peer.principal, peer.key) == ("anna", pair.public)


@patient
async def test_revoking_a_key_closes_its_connections_only(server: BrokerServer, folder: KeyFolder) -> None:
    one, two = new_key_pair(os.urandom), new_key_pair(os.urandom)
    accept(folder, one, "one")
    accept(folder, two, "two")
    async with (
        zmq_socket(zmq.DEALER, **curve(folder, one)) as first,
        zmq_socket(zmq.DEALER, **curve(folder, two)) as second,
    ):
        for client in (first, second):
            client.connect(server.zmq.bound[0])
            assert await ask(client) == b"404"
        (kept,) = (peer for peer in server.zmq.peers if peer.principal == "two")
        revoke(folder, one)
        await until(lambda: server.zmq.peers == {kept})
        assert await ask(second) == b"404"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await ask(first)
        assert server.zmq.peers == {kept}


@patient
async def test_a_revoked_worker_loses_its_service(server: BrokerServer, folder: KeyFolder) -> None:
    pair = new_key_pair(os.urandom)
    accept(folder, pair)
    async with zmq_socket(zmq.DEALER, **curve(folder, pair)) as worker:
        worker.connect(server.zmq.bound[0])
        await worker.send_multipart([b"MDPW02", b"\1", b"echo"])
        service = await until(lambda: server.broker.services.get(b"echo"))
        await until(lambda: service.workers)
        revoke(folder, pair)
        await until(lambda: not service.workers)


@patient
async def test_the_events_socket_asks_for_keys_too(server: BrokerServer, folder: KeyFolder) -> None:
    pair = new_key_pair(os.urandom)
    async with zmq_socket(zmq.SUB, **curve(folder, pair)) as subscriber:
        subscriber.subscribe(b"svc.")
        subscriber.connect(server.events.bound[0])
        heard = asyncio.ensure_future(
            subscriber.recv_multipart()
        )  # libzmq subscribes again only while it is called
        await until(lambda: folder.entries(PENDING))
        assert not server.events.peers
        accept(folder, pair, "listener")
        await until(lambda: server.events.listening)
        server.events.published(b"svc", b"anna", "started", b"{}")
        assert await heard == [b"svc.anna.started", b"{}"]
        revoke(folder, pair)
        await until(lambda: not server.events.peers)


@patient
@pytest.mark.parametrize("kind", [zmq.DEALER, zmq.SUB])
async def test_a_libzmq_peer_without_curve_gets_nowhere(server: BrokerServer, kind: int) -> None:
    """libzmq itself gives up when it reads the broker's greeting."""
    group = server.zmq if kind == zmq.DEALER else server.events
    async with zmq_socket(kind) as peer:
        monitor = peer.get_monitor_socket()
        monitor.linger = 0
        peer.connect(group.bound[0])
        found: list[int] = []
        try:
            while zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL not in found:
                found.append(parse_monitor_message(await monitor.recv_multipart())["event"])
        finally:
            peer.disable_monitor()
            monitor.close()
        assert zmq.EVENT_HANDSHAKE_SUCCEEDED not in found
    assert not group.peers


@patient
@pytest.mark.parametrize("kind", ["zmq", "events"])
async def test_a_peer_that_insists_on_null_gets_the_reason(server: BrokerServer, kind: str) -> None:
    host, port = server.groups[kind].bound[0].removeprefix("tcp://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(greeting.encode(b"NULL") + commands.encode(commands.READY, b"\x0bSocket-Type\0\0\0\3SUB"))
    answer = (await reader.read())[greeting.SIZE :]
    assert b"ERROR" in answer
    assert b"requires the security mechanism NULL, this side CURVE" in answer
    writer.close()


@patient
async def test_a_key_cannot_take_the_identity_of_another(server: BrokerServer, folder: KeyFolder) -> None:
    """Neither while the other one is connected, nor while it may return to its answers."""
    owner, thief = new_key_pair(os.urandom), new_key_pair(os.urandom)
    accept(folder, owner, "owner")
    accept(folder, thief, "thief")
    refused = refusals(server)
    async with zmq_socket(zmq.DEALER, routing_id=b"me", **curve(folder, owner)) as first:
        first.connect(server.zmq.bound[0])
        assert await ask(first) == b"404"
        async with zmq_socket(zmq.DEALER, routing_id=b"me", **curve(folder, thief)) as second:
            second.connect(server.zmq.bound[0])
            await until(lambda: refused)
            assert await ask(first) == b"404"
        await first.send_multipart([b"MDPC02", b"\1", b"nobody", b"body"])
        await until(lambda: server.broker.accounting.active)
    await until(lambda: server.zmq.suspended)
    del refused[:]
    async with zmq_socket(zmq.DEALER, routing_id=b"me", **curve(folder, thief)) as second:
        second.connect(server.zmq.bound[0])
        await until(lambda: refused)
    assert server.zmq.suspended


@patient
@pytest.mark.parametrize("scheme", ["mdp", "dcp", "nfp"])
async def test_our_client_and_worker_meet_with_keys(
    server: BrokerServer, folder: KeyFolder, tmp_path: Path, scheme: str
) -> None:
    accept(folder, create_key_pair(tmp_path / "worker.key"), "worker")
    accept(folder, create_key_pair(tmp_path / "client.key"), "client")
    worker = Worker(url_of(server, folder, tmp_path / "worker.key", scheme))

    @worker.service("upper")
    async def upper(text: str) -> str:
        return text.upper()

    async with worker, Client(url_of(server, folder, tmp_path / "client.key", scheme)) as client:
        assert await client.call("upper", "curve") == "CURVE"
        if scheme == "nfp":
            async with client.events(service="upper"):
                assert [peer.principal for peer in server.events.peers] == ["client"]
    assert not folder.entries(PENDING)


@patient
async def test_our_wmp_worker_serves_with_keys(
    server: BrokerServer, folder: KeyFolder, tmp_path: Path
) -> None:
    accept(folder, create_key_pair(tmp_path / "my.key"), "mine")
    worker = Worker(url_of(server, folder, tmp_path / "my.key", "wmp"))

    @worker.service("upper")
    async def upper(text: str) -> str:
        return text.upper()

    async with worker, Client(url_of(server, folder, tmp_path / "my.key")) as client:
        assert await client.call("upper", "curve") == "CURVE"


@patient
async def test_our_client_is_told_why_it_is_refused_and_gets_in_later(
    server: BrokerServer, folder: KeyFolder, tmp_path: Path
) -> None:
    pair = create_key_pair(tmp_path / "my.key")
    url = url_of(server, folder, tmp_path / "my.key")
    async with Client(url, connect_timeout=1) as client:
        with pytest.raises(Unreachable, match="waits for approval") as raised:
            await client.call("mmi.service.broker", {"task": "show_broker"})
        assert fingerprint(pair.public) in str(raised.value)
        assert [entry.fingerprint for entry in folder.entries(PENDING)] == [fingerprint(pair.public)]
        accept(folder, pair)
        assert (await client.broker())["name"]
        revoke(folder, pair)
        await until(lambda: not server.zmq.peers)
        with pytest.raises(Unreachable, match="is rejected"):
            await client.call("mmi.service.broker", {"task": "show_broker"})


@patient
async def test_a_wrong_server_key_is_reported_with_what_to_check(
    server: BrokerServer, folder: KeyFolder, tmp_path: Path
) -> None:
    wrong = new_key_pair(os.urandom).public
    create_key_pair(tmp_path / "my.key")
    place = server.zmq.bound[0].replace("tcp", "mdp")
    url = f"{place}?server_key={encode_key(wrong)}&key={tmp_path / 'my.key'}"
    async with Client(url, connect_timeout=1) as client:
        with pytest.raises(Unreachable) as raised:
            await client.call("mmi.service.broker", {"task": "show_broker"})
    assert fingerprint(wrong) in raised.value.advice
    assert "polydomo keys show" in raised.value.advice
    assert not folder.entries()


@patient
async def test_a_client_without_keys_is_told_that_it_needs_some(server: BrokerServer) -> None:
    async with Client(server.zmq.bound[0].replace("tcp", "mdp"), connect_timeout=1) as client:
        with pytest.raises(Unreachable) as raised:
            await client.call("mmi.service.broker", {"task": "show_broker"})
    assert "POLYDOMO_SERVER_KEY" in raised.value.advice


@patient
async def test_unknown_keys_get_in_at_once_in_a_lab(server: BrokerServer, folder: KeyFolder) -> None:
    lab = SecuritySection(curve="on", keys=str(folder.path), auto_accept=True, roles="off")
    server.reload(Settings(broker=server.settings.broker, security=lab))
    async with Client(url_of(server, folder, None)) as client:
        assert (await client.broker())["name"]
    assert [entry.state for entry in folder.entries()] == [ACCEPTED]


async def test_curve_without_a_folder_is_a_mistake_in_the_configuration() -> None:
    security = SecuritySection(curve="on")
    server = BrokerServer(Settings(broker=BrokerSection(zmq=[ANYWHERE], data=""), security=security))
    with pytest.raises(ConfigError, match="no folder for the keys"):
        await server.start()
