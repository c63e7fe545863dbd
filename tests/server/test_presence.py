"""server/presence: whether a peer is there, by the kernel's word and by PING."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from polydomo.server.presence import GONE, HERE, UNKNOWN, Presence, hung_up
from tests.support.recorder import connect, handshake

PATIENCE = 2.0


class FakeTransport(asyncio.Transport):
    """A transport over a socket that nothing is read from."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock})
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing


class Probed:
    """A peer: the connection's broker end, and the socket of the other end."""

    def __init__(self, version: bytes, near: socket.socket, far: socket.socket) -> None:
        self.heard = 0.0
        self.reading = True
        self.connection, self.noted = connect()
        self.connection.receive(handshake(version=version))
        self.noted.take_sent()
        self.transport: Any = FakeTransport(near)
        self.far = far
        self.presence = Presence()

    def is_read(self) -> bool:
        return self.reading

    def ask(self, now: float) -> None:
        self.presence.ask(self, now, PATIENCE)

    def is_alive(self, now: float) -> bool:
        return self.presence.is_alive(self, now, PATIENCE)

    def state(self, now: float) -> str:
        return self.presence.state(self, now, PATIENCE)


@pytest.fixture(params=["tcp", "ipc"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    if request.param == "ipc":
        near, far = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            far = socket.create_connection(listener.getsockname())
            near, _ = listener.accept()
    with near, far:
        yield near, far


@pytest.fixture
def peer(ends: tuple[socket.socket, socket.socket]) -> Probed:
    return Probed(b"\x03\x01", *ends)


@pytest.fixture
def old_peer(ends: tuple[socket.socket, socket.socket]) -> Probed:
    """Of ZMTP 3.0, which has no PING."""
    return Probed(b"\x03\x00", *ends)


def test_a_peer_that_says_anything_after_the_ping_is_here(peer: Probed) -> None:
    peer.ask(10.0)
    assert b"PING" in peer.noted.take_sent()
    assert peer.state(10.0) == UNKNOWN
    peer.heard = 10.5
    assert peer.state(10.6) == HERE


def test_a_peer_that_does_not_answer_in_time_is_gone(peer: Probed) -> None:
    peer.ask(10.0)
    assert peer.state(11.9) == UNKNOWN
    assert peer.state(12.0) == GONE


def test_what_was_said_before_the_ping_proves_nothing(peer: Probed) -> None:
    peer.heard = 9.9
    peer.ask(10.0)
    assert peer.state(12.0) == GONE


def test_one_ping_is_enough_while_it_is_unanswered(peer: Probed) -> None:
    for now in (10.0, 11.0):
        peer.ask(now)
    assert peer.noted.take_sent().count(b"PING") == 1
    assert peer.state(12.0) == GONE
    peer.heard = 12.5
    peer.ask(13.0)
    assert peer.noted.take_sent().count(b"PING") == 1
    assert peer.state(13.0) == UNKNOWN


def test_a_closed_connection_is_known_to_the_kernel_though_nothing_is_read(peer: Probed) -> None:
    peer.reading = False
    peer.ask(10.0)
    assert not hung_up(peer.transport)
    peer.far.sendall(b"unread")
    peer.far.close()
    assert hung_up(peer.transport)
    assert peer.state(10.0) == GONE


@pytest.mark.parametrize("when", ["asked", "later"])
def test_a_peer_that_is_not_read_is_here_as_long_as_it_is_connected(peer: Probed, when: str) -> None:
    """Its PONG waits behind what is not read."""
    peer.reading = when == "later"
    peer.ask(10.0)
    peer.reading = False
    assert peer.state(12.5) == UNKNOWN
    peer.reading = True
    assert peer.state(14.0) == HERE


def test_a_peer_without_ping_is_here_as_long_as_it_is_connected(old_peer: Probed) -> None:
    old_peer.ask(10.0)
    assert old_peer.noted.take_sent() == b""
    assert old_peer.state(12.5) == UNKNOWN
    assert old_peer.state(14.0) == HERE
    old_peer.far.close()
    assert old_peer.state(14.0) == GONE


@pytest.mark.parametrize("ends", ["tcp"], indirect=True)
def test_the_kernel_is_told_to_give_up_a_peer_without_ping_soon(old_peer: Probed) -> None:
    sock = old_peer.transport.get_extra_info("socket")
    old_peer.ask(10.0)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2000
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 1


def test_a_claim_is_refused_until_the_answer_is_overdue(peer: Probed) -> None:
    """For dialects in which a second worker is refused at once and tries again."""
    assert peer.is_alive(10.0)
    assert peer.is_alive(11.0)
    assert not peer.is_alive(12.0)
    peer.heard = 12.1
    assert peer.is_alive(12.2)
