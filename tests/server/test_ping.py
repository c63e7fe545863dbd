"""ZMTP's own heartbeats: peers that are silent are asked, and those that promised to speak are held to it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess
from tests.support.peers import Peer
from tests.support.zmtp import Raw, command, greeting, message, ready

PING = 0.3


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml=f"[zmq]\nping = {PING}") as process:
        yield process


@pytest.fixture
def raw(server: BrokerProcess) -> Iterator[Raw]:
    with Raw(server.endpoint) as opened:
        yield opened


def test_a_ping_is_answered_with_its_context(raw: Raw):
    """RFC 37: PONG returns the context."""
    raw.shake()
    for context in (b"", b"x", b"sixteen octets!!"):
        raw.send(command(b"PING", b"\0\0" + context))
        assert raw.command() == (b"PONG", context)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0" + b"seventeen octets!"])
def test_a_malformed_ping_ends_the_connection(raw: Raw, data: bytes):
    raw.shake()
    raw.send(command(b"PING", data))
    raw.wait_closed()


def test_a_silent_peer_is_pinged_and_kept_while_it_answers(raw: Raw):
    """Again and again, for much longer than a peer that does not answer is given."""
    raw.shake()
    end = time.monotonic() + 10 * PING
    count = 0
    while time.monotonic() < end:
        name, data = raw.command()
        assert name == b"PING"
        raw.send(command(b"PONG", data[2:]))
        count += 1
    assert count >= 3
    raw.send(message(b"MDPC02", b"\x01", b"mmi.service", b"x"))
    assert raw.message()[-1] == b"404"


def test_a_silent_peer_that_does_not_answer_is_given_up(raw: Raw):
    raw.shake()
    found = raw.wait_closed()
    assert b"\x04PING" in found


def test_an_old_peer_is_not_pinged(server: BrokerProcess, raw: Raw):
    """ZMTP 3.0 has no PING; its silence is its right."""
    raw.send(greeting(version=b"\x03\x00") + ready())
    raw.read(64)
    raw.command()
    with Raw(server.endpoint) as other:  # a newer one, which is cut
        other.shake().wait_closed()
    raw.send(message(b"MDPC02", b"\x01", b"mmi.service", b"x"))
    assert raw.message()[-1] == b"404"


def test_a_peer_that_breaks_its_own_promise_is_given_up():
    """RFC 37: a PING's TTL is the silence after which the peer is disconnected."""
    with (
        BrokerProcess(toml="[zmq]\nping = 0\n[limits]\nstalled = 0.5") as broker,
        Raw(broker.endpoint) as raw,
    ):
        raw.shake()
        raw.send(command(b"PING", b"\0\x02"))
        assert raw.command()[0] == b"PONG"
        raw.wait_closed()


def test_libzmq_answers_pings(server: BrokerProcess):
    """A real peer that says nothing stays."""
    with Peer(server.endpoint) as peer, Raw(server.endpoint) as other:
        assert peer.fence() == []
        monitor = peer.socket.get_monitor_socket()
        other.shake().wait_closed()
        assert not monitor.poll(0)
        peer.socket.disable_monitor()
        monitor.close()
        assert peer.fence() == []
