"""Keys of our SDK's peers, and our client at a libzmq ROUTER with CURVE."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from polydomo import Client
from polydomo.errors import ConfigError, Unreachable
from polydomo.sdk.curve_keys import CurveKeys, load_keys
from polydomo.security.key_files import create_key_pair, fingerprint
from polydomo.wire.curve.keys import encode_key, new_key_pair
from tests.support.curve import CLIENT, SERVER
from tests.support.zmq_ends import patient, zmq_socket


def test_keys_are_equal_if_both_public_keys_are() -> None:
    keys = CurveKeys(SERVER.public, CLIENT)
    assert keys == CurveKeys(SERVER.public, CLIENT)
    assert len({keys, CurveKeys(SERVER.public, CLIENT), CurveKeys(CLIENT.public, CLIENT)}) == 2
    assert keys != "keys"


def test_the_hint_has_both_fingerprints_and_no_secret() -> None:
    keys = CurveKeys(SERVER.public, CLIENT)
    assert fingerprint(SERVER.public) in keys.hint
    assert fingerprint(CLIENT.public) in keys.hint
    assert encode_key(CLIENT.secret) not in f"{keys.hint} {keys!r} {keys.pair!r}"


def test_a_file_has_the_own_pair_and_a_home_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = create_key_pair(tmp_path / "me.key")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_keys(encode_key(SERVER.public), "~/me.key") == CurveKeys(SERVER.public, pair)


def test_a_malformed_public_key_is_not_quoted() -> None:
    with pytest.raises(ConfigError, match="public key is not valid") as raised:
        load_keys("x" * 39, "")
    assert "xxx" not in str(raised.value)


@pytest.fixture
async def router() -> AsyncIterator[zmq.asyncio.Socket]:
    options = {"curve_server": True, "curve_secretkey": encode_key(SERVER.secret).encode()}
    async with zmq_socket(zmq.ROUTER, **options) as socket:
        socket.bind("tcp://127.0.0.1:*")
        yield socket


def url_of(router: zmq.asyncio.Socket, server_key: bytes) -> str:
    place = router.last_endpoint.decode().replace("tcp", "mdp")
    return f"{place}?server_key={encode_key(server_key)}"


@patient
async def test_our_client_calls_over_a_libzmq_server(router: zmq.asyncio.Socket) -> None:
    async with Client(url_of(router, SERVER.public)) as client:
        call = asyncio.create_task(client.call("echo", "curve"))
        identity, *frames = await router.recv_multipart()
        assert frames == [b"MDPC02", b"\1", b"echo", b'"curve"']
        await router.send_multipart([identity, b"MDPC02", b"\3", b"echo", frames[-1]])
        assert await call == "curve"


@patient
async def test_a_libzmq_server_with_another_key_is_reported_with_what_to_check(
    router: zmq.asyncio.Socket,
) -> None:
    wrong = new_key_pair(os.urandom).public
    async with Client(url_of(router, wrong), connect_timeout=1) as client:
        with pytest.raises(Unreachable) as raised:
            await client.call("echo", "curve")
    assert fingerprint(wrong) in raised.value.advice
