"""wire/curve/server: HELLO, WELCOME, INITIATE and READY from the server's side, with a client made by hand."""

from __future__ import annotations

import os

import pytest

from polydomo.errors import ProtocolError
from polydomo.wire.curve.keys import new_key_pair
from polydomo.wire.curve.server import CurveServer
from polydomo.wire.frames import split
from polydomo.wire.zmtp import commands
from tests.support.curve import CLIENT, LOW_ORDER, METADATA, SERVER, HandClient, short

OURS = b"\x01a\0\0\0\1b"


def new_server() -> CurveServer:
    server = CurveServer(SERVER, os.urandom)
    assert server.start(OURS) == b""
    return server


def data_of(command: bytes, name: bytes) -> bytes:
    """The data of a command frame."""
    assert command[0] & 4
    found, data = commands.decode(split(command)[0])
    assert found == name
    return data


def welcomed() -> tuple[CurveServer, HandClient]:
    """Both ends after WELCOME."""
    server, client = new_server(), HandClient()
    client.welcomed(data_of(server.receive(b"HELLO", client.hello()), b"WELCOME"))
    return server, client


def test_a_client_is_served_in_the_steps_of_rfc_26() -> None:
    server, client = new_server(), HandClient()
    welcome = server.receive(b"HELLO", client.hello())
    assert len(split(welcome)[0]) == 168
    client.welcomed(data_of(welcome, b"WELCOME"))
    assert server.metadata is None
    assert server.receive(b"INITIATE", client.initiate()) == b""
    assert server.metadata == METADATA
    assert server.key == CLIENT.public
    assert client.ready(data_of(server.finish(), b"READY")) == OURS


def test_the_greeting_says_server() -> None:
    server = new_server()
    assert (server.name, server.as_server, server.sends_error) == (b"CURVE", True, True)


def test_each_connection_has_its_own_keys_and_cookie() -> None:
    _, one = welcomed()
    _, other = welcomed()
    assert one.server_short != other.server_short
    assert one.cookie != other.cookie


def test_nothing_of_the_client_is_kept_before_initiate() -> None:
    server, client = welcomed()
    kept = [getattr(server, name, None) for name in dir(server)]  # compiled, it has no __dict__
    assert client.public not in kept
    assert client.secret not in kept


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": b"\2\0"}, "CurveZMQ 2.0"),
        ({"version": b"\1\1"}, "CurveZMQ 1.1"),
        ({"padding": bytes(71) + b"\1"}, "padding"),
        ({"nonce": 0}, "nonce"),
        ({"content": bytes(63) + b"\1"}, "zeros"),
        ({"public": CLIENT.public}, "another key"),
    ],
)
def test_a_wrong_hello_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        new_server().receive(b"HELLO", HandClient().hello(**change))  # type: ignore[arg-type]


def test_a_client_of_another_server_is_refused() -> None:
    stranger = new_key_pair(os.urandom)
    with pytest.raises(ProtocolError, match="another key"):
        new_server().receive(b"HELLO", HandClient(stranger.public).hello())


@pytest.mark.parametrize("key", LOW_ORDER)
def test_short_term_keys_of_low_order_are_refused(key: bytes) -> None:
    with pytest.raises(ProtocolError, match="public key"):
        new_server().receive(b"HELLO", HandClient().hello(public=key))


@pytest.mark.parametrize("key", LOW_ORDER)
def test_long_term_keys_of_low_order_are_refused(key: bytes) -> None:
    server, client = welcomed()
    with pytest.raises(ProtocolError, match="public key"):
        server.receive(b"INITIATE", client.initiate(key=key))
    assert server.metadata is None


@pytest.mark.parametrize("size", [0, 193, 195, 1000])
def test_a_hello_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="194"):
        new_server().receive(b"HELLO", HandClient().hello().ljust(size, b"\0")[:size])


@pytest.mark.parametrize("size", [0, 96, 104, 247])
def test_a_short_initiate_is_refused(size: int) -> None:
    server, client = welcomed()
    with pytest.raises(ProtocolError, match="248 or more"):
        server.receive(b"INITIATE", client.initiate(metadata=b"")[:size])


def test_metadata_may_be_empty() -> None:
    server, client = welcomed()
    server.receive(b"INITIATE", client.initiate(metadata=b""))
    assert server.metadata == b""


@pytest.mark.parametrize("name", [b"INITIATE", b"READY", b"MESSAGE", b"WELCOME", b"hello", b"\xff"])
def test_hello_must_come_first(name: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected HELLO"):
        new_server().receive(name, bytes(300))


def test_a_second_hello_is_refused() -> None:
    server, client = welcomed()
    with pytest.raises(ProtocolError, match="expected INITIATE"):
        server.receive(b"HELLO", client.hello(nonce=2))


def test_nothing_may_follow_initiate_in_the_handshake() -> None:
    server, client = welcomed()
    initiate = client.initiate()
    server.receive(b"INITIATE", initiate)
    with pytest.raises(ProtocolError, match="expected nothing"):
        server.receive(b"INITIATE", initiate)


def test_a_nonce_that_hello_used_is_refused_in_initiate() -> None:
    server, client = welcomed()
    with pytest.raises(ProtocolError, match="nonce"):
        server.receive(b"INITIATE", client.initiate(nonce=1))


def test_the_cookie_of_another_connection_is_refused() -> None:
    _, other = welcomed()
    server, client = welcomed()
    with pytest.raises(ProtocolError, match="cookie"):
        server.receive(b"INITIATE", client.initiate(cookie=other.cookie))


def test_a_replayed_initiate_is_refused_by_another_connection() -> None:
    """Even after the same HELLO, which anybody can repeat."""
    server, client = new_server(), HandClient()
    hello = client.hello()
    client.welcomed(data_of(server.receive(b"HELLO", hello), b"WELCOME"))
    initiate = client.initiate()
    server.receive(b"INITIATE", initiate)
    again = new_server()
    again.receive(b"HELLO", hello)
    with pytest.raises(ProtocolError, match="cookie"):
        again.receive(b"INITIATE", initiate)


def test_a_key_that_the_client_does_not_own_is_refused() -> None:
    server, client = welcomed()
    thief = new_key_pair(os.urandom)
    with pytest.raises(ProtocolError, match="does not own"):
        server.receive(b"INITIATE", client.initiate(vouching=thief.secret))
    assert (server.key, server.metadata) == (b"", None)


def test_a_vouch_for_another_connection_is_refused() -> None:
    server, client = welcomed()
    with pytest.raises(ProtocolError, match="another connection or server"):
        server.receive(b"INITIATE", client.initiate(vouched=HandClient().public + SERVER.public))


def test_a_vouch_for_another_server_is_refused() -> None:
    """A server that a client trusts cannot use the client's vouch towards a second server."""
    server, client = welcomed()
    with pytest.raises(ProtocolError, match="another connection or server"):
        server.receive(b"INITIATE", client.initiate(vouched=client.public + CLIENT.public))


def test_ready_has_the_first_nonce() -> None:
    server, client = welcomed()
    server.receive(b"INITIATE", client.initiate())
    assert data_of(server.finish(), b"READY")[:8] == short(1)
