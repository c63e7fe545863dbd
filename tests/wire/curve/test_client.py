"""wire/curve/client: HELLO, WELCOME, INITIATE and READY from the client's side, with a server made by hand."""

from __future__ import annotations

import os

import pytest

from polydomo.errors import ProtocolError
from polydomo.wire.curve.client import CurveClient
from polydomo.wire.curve.keys import new_key_pair
from polydomo.wire.frames import split
from tests.support.curve import CLIENT, LOW_ORDER, METADATA, SERVER, HandServer
from tests.wire.curve.test_server import data_of

OURS = b"\x01a\0\0\0\1b"


def new_client() -> CurveClient:
    return CurveClient(CLIENT, SERVER.public, os.urandom)


def greeted(secret: bytes = SERVER.secret) -> tuple[CurveClient, HandServer]:
    """Both ends after HELLO; `secret` is the server's long-term key."""
    client, server = new_client(), HandServer(secret)
    hello = client.start(OURS)
    assert len(split(hello)[0]) == 200
    if secret == SERVER.secret:
        server.greeted(data_of(hello, b"HELLO"))
    else:
        server.client = data_of(hello, b"HELLO")[74:106]
    return client, server


def initiated() -> tuple[CurveClient, HandServer]:
    client, server = greeted()
    initiate = client.receive(b"WELCOME", server.welcome())
    assert server.initiated(data_of(initiate, b"INITIATE")) == (CLIENT.public, OURS)
    return client, server


def test_a_server_is_called_in_the_steps_of_rfc_26() -> None:
    client, server = initiated()
    assert client.metadata is None
    assert client.receive(b"READY", server.ready(METADATA)) == b""
    assert client.metadata == METADATA
    assert client.key == SERVER.public
    assert client.finish() == b""


def test_the_greeting_says_client_and_no_error_is_sent() -> None:
    """RFC 26: a client does not send ERROR."""
    client = new_client()
    assert (client.name, client.as_server, client.sends_error) == (b"CURVE", False, False)


def test_each_connection_has_its_own_key() -> None:
    assert greeted()[1].client != greeted()[1].client


def test_the_clients_key_is_not_sent_before_the_server_is_known() -> None:
    assert CLIENT.public not in new_client().start(OURS)
    client, server = greeted()
    assert CLIENT.public not in client.receive(b"WELCOME", server.welcome())


def test_a_server_with_another_key_is_refused() -> None:
    client, server = greeted(new_key_pair(os.urandom).secret)
    with pytest.raises(ProtocolError, match="expected key"):
        client.receive(b"WELCOME", server.welcome())
    assert client.key == b""


@pytest.mark.parametrize("key", LOW_ORDER)
def test_keys_of_low_order_are_refused(key: bytes) -> None:
    with pytest.raises(ProtocolError, match="public key"):
        CurveClient(CLIENT, key, os.urandom).start(OURS)
    client, server = greeted()
    with pytest.raises(ProtocolError, match="public key"):
        client.receive(b"WELCOME", server.welcome(public=key))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_server_key_of_another_size_is_refused_at_once(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        CurveClient(CLIENT, bytes(size), os.urandom)


@pytest.mark.parametrize("size", [0, 159, 161])
def test_a_welcome_of_another_size_is_refused(size: int) -> None:
    client, server = greeted()
    with pytest.raises(ProtocolError, match="160"):
        client.receive(b"WELCOME", server.welcome().ljust(size, b"\0")[:size])


@pytest.mark.parametrize("size", [0, 8, 23])
def test_a_short_ready_is_refused(size: int) -> None:
    client, server = initiated()
    with pytest.raises(ProtocolError, match="24 or more"):
        client.receive(b"READY", server.ready(b"")[:size])


@pytest.mark.parametrize("name", [b"HELLO", b"READY", b"INITIATE", b"MESSAGE"])
def test_welcome_must_come_first(name: bytes) -> None:
    client, _ = greeted()
    with pytest.raises(ProtocolError, match="expected WELCOME"):
        client.receive(name, bytes(160))


def test_a_second_welcome_or_ready_is_refused() -> None:
    client, server = initiated()
    with pytest.raises(ProtocolError, match="expected READY"):
        client.receive(b"WELCOME", server.welcome())
    client.receive(b"READY", server.ready(METADATA))
    with pytest.raises(ProtocolError, match="expected nothing"):
        client.receive(b"READY", server.ready(METADATA, 2))


def test_the_welcome_of_another_connection_is_refused() -> None:
    _, other = greeted()
    client, _ = greeted()
    with pytest.raises(ProtocolError, match="expected key"):
        client.receive(b"WELCOME", other.welcome())


def test_the_ready_of_another_connection_is_refused() -> None:
    _, other = initiated()
    client, _ = initiated()
    with pytest.raises(ProtocolError, match="READY"):
        client.receive(b"READY", other.ready(METADATA))
