"""Principals of peers by their listener, with CURVE on: libzmq, NNG and HTTP peers that have no key."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pynng
import pytest
import zmq

from polydomo import web
from polydomo.core.principals import CALL, Authority
from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.connection import Dealer
from polydomo.sdk.transport import ConnectionLost, open_transport
from polydomo.sdk.url import parse
from polydomo.server.endpoints import parse_listener
from polydomo.server.identification import BY_KEY, Identification, user_name
from polydomo.server.security_settings import SecuritySection
from polydomo.server.server import BrokerServer
from polydomo.server.settings import BrokerSection, LimitsSection, Settings
from polydomo.wire.curve.keys import encode_key
from tests.support import memo
from tests.support.curve import CLIENT, SERVER
from tests.support.zmq_ends import patient, zmq_socket

KEYS = {
    "curve_publickey": encode_key(CLIENT.public).encode(),
    "curve_secretkey": encode_key(CLIENT.secret).encode(),
    "curve_serverkey": encode_key(SERVER.public).encode(),
}
ME = f"user:{getpass.getuser()}"


class Calls(Authority):
    """An authority that allows everything, and the principals whose calls it allowed."""

    def __init__(self) -> None:
        self.callers: dict[bytes, str] = {}  # by service

    def allows(self, principal: str, verb: str, service: bytes, name: bytes) -> bool:
        if verb == CALL:
            self.callers[service] = principal
        return True


class Broker(BrokerServer):
    """A broker with CURVE and listeners of all kinds. `callers`: who called, by service."""

    def __init__(self, folder: Path) -> None:
        secret = encode_key(SERVER.secret)
        (folder / "broker.key").write_text(f'curve\n    secret-key = "{secret}"\n')
        broker = BrokerSection(
            zmq=[
                "tcp://127.0.0.1:*",
                "tcp://127.0.0.1:*?principal=legacy",
                f"ipc://{folder}/zmq?auth=user",
                f"ipc://{folder}/keyed",
            ],
            nng=["tcp://127.0.0.1:*", f"ipc://{folder}/nng?auth=user"],
            http=["127.0.0.1:0", "127.0.0.1:0?principal=local"],
            events=["tcp://127.0.0.1:*", "tcp://127.0.0.1:*?principal=watcher"],
            data="",
        )
        security = SecuritySection(curve="on", keys=str(folder), auto_accept=True, roles="off")
        limits = LimitsSection(handshake=1.0)
        super().__init__(Settings(broker=broker, security=security, limits=limits), [web.join])
        calls = Calls()
        self.callers = calls.callers
        self.broker.principals.use(calls)

    async def caller_of(self, service: bytes) -> str:
        """Return who called a service, once somebody has."""
        while service not in self.callers:
            await asyncio.sleep(0.005)
        return self.callers[service]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Broker]:
    server = Broker(tmp_path)
    await server.start()
    yield server
    server.stop(drain=False)
    await server.wait()


async def caller(server: Broker, place: str, keys: dict[str, bytes]) -> str:
    """Call a service and return the principal that did so."""
    async with zmq_socket(zmq.DEALER, **keys) as client:
        client.connect(place)
        await client.send_multipart([b"MDPC02", b"\1", b"called", b"body"])
        return await server.caller_of(b"called")


@patient
async def test_peers_of_a_listener_with_a_principal_need_no_key(server: Broker) -> None:
    assert await caller(server, server.zmq.bound[1], {}) == "legacy"
    assert "?" not in server.zmq.bound[1]


@patient
async def test_the_principal_of_a_local_peer_is_its_user(server: Broker) -> None:
    assert await caller(server, server.zmq.bound[2], {}) == ME


@patient
@pytest.mark.parametrize("number", [0, 3])
async def test_the_other_listeners_of_a_broker_with_keys_need_one(server: Broker, number: int) -> None:
    place = server.zmq.bound[number]
    address = parse(place.replace("tcp:", "mdp:").replace("ipc:", "mdp+ipc:")).addresses[0]
    with pytest.raises(ConnectionLost, match="CURVE"):
        await open_transport(Dealer(address, REAL_TIME, print, print))
    assert await caller(server, place, KEYS) not in ("anonymous", ME)


@patient
async def test_a_subscriber_has_the_principal_of_its_listener(server: Broker) -> None:
    async with zmq_socket(zmq.SUB) as subscriber:
        subscriber.connect(server.events.bound[1])
        subscriber.subscribe(b"")
        while not server.events.listening:
            await asyncio.sleep(0.005)
    assert [peer.principal for peer in server.events.listening] == ["watcher"]


@patient
async def test_nng_peers_have_the_principal_of_their_listener(server: Broker) -> None:
    for place, principal in zip(server.nng.bound, ("anonymous", ME), strict=True):
        service = principal.replace(":", "-")
        with pynng.Req0(resend_time=-1) as client:
            client.dial(place, block=False)
            await client.asend(memo.job(service))
            assert await server.caller_of(service.encode()) == principal


@patient
async def test_http_requests_have_the_principal_of_their_listener(server: Broker) -> None:
    for place, principal in zip(server.endpoints()["http"], ("anonymous", "local"), strict=True):
        host, _, port = place.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/services/%b/jobs?durable=false HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            b"content-length: 0\r\n\r\n" % principal.encode()
        )
        assert await server.caller_of(principal.encode()) == principal
        writer.close()
        await writer.wait_closed()


def test_a_user_without_a_name_is_known_by_its_number() -> None:
    assert user_name(os.getuid()) == getpass.getuser()
    assert user_name(3_000_000_001) == "3000000001"


def test_peers_without_options_are_anonymous_until_they_show_a_key() -> None:
    assert BY_KEY.principal_of(asyncio.BaseTransport()) == "anonymous"
    assert Identification(principal="legacy").principal_of(asyncio.BaseTransport()) == "legacy"


def test_a_system_without_credentials_refuses_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_listener("ipc:///x?auth=user").identification.by_user
    monkeypatch.setattr("polydomo.server.endpoints.PEER_CREDENTIALS", None)
    with pytest.raises(Exception, match="does not tell the users"):
        parse_listener("ipc:///x?auth=user")
    assert hasattr(socket, "SO_PEERCRED")
