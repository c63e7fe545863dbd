"""Peers that do not read their answers: the backlog is limited, and others are not delayed."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import Answer, Manager, MdpClient, MdpWorker, Peers, Silence, peers_of
from tests.support.zmtp import Raw, message

MIB = 1024 * 1024
OUTPUT = 8 * MIB
STALLED = 1.0

TOML = f"""
[limits]
output_bytes = {OUTPUT}
stalled = {STALLED}
client_bytes = {OUTPUT}
[services.patient]
timeout = 600
"""


@pytest.fixture
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml=TOML) as process:
        yield process


@pytest.fixture
def peers(server: BrokerProcess) -> Iterator[Peers]:
    with peers_of(server.endpoint) as opened:
        yield opened


@pytest.fixture
def reading_paused(server: BrokerProcess) -> Iterator[Raw]:
    """A connected peer that will not read."""
    with Raw(server.endpoint, receive_buffer=65536) as raw:
        yield raw.shake()


def resident(broker: BrokerProcess) -> int:
    return psutil.Process(broker.pid).memory_info().rss


def test_a_client_that_never_reads_is_held_and_then_cut(
    server: BrokerProcess, peers: Peers, reading_paused: Raw
):
    """limits.stalled. Until then it is not read from, so that it cannot pile up more."""
    peers.echo(b"echo")
    before = resident(server)
    reading_paused.socket.settimeout(0.2)
    request = message(b"MDPC02", b"\x01", b"echo", bytes(256 * 1024))
    try:
        for _ in range(200):
            reading_paused.send(request)
    except (TimeoutError, ConnectionError):
        pass
    assert resident(server) - before < 4 * OUTPUT
    assert peers(MdpClient).call(b"echo", [b"x"]) == Answer([], [b"x"])
    wait_for(lambda: "peer cut" in server.log(), 20)
    reading_paused.wait_closed()
    with Manager(server.endpoint) as manager:
        wait_for(lambda: manager.show("show_broker")["active"] == 0)


def test_a_client_whose_answers_are_too_much_is_cut_at_once(
    server: BrokerProcess, peers: Peers, reading_paused: Raw
):
    """limits.output_bytes: many small requests, each with a big answer."""
    worker = peers(MdpWorker, b"big")
    for _ in range(100):
        reading_paused.send(message(b"MDPC02", b"\x01", b"big", b"x"))
    for _ in range(100):
        try:
            worker.reply(worker.take(timeout=2), [bytes(MIB)])
        except Silence:  # its client may be cut: then there are no more requests
            if "peer cut" in server.log():
                break
    wait_for(lambda: "does not read its answers" in server.log())
    reading_paused.wait_closed()


def test_a_worker_that_does_not_read_its_job_loses_it(
    server: BrokerProcess, peers: Peers, reading_paused: Raw
):
    """The worker registers and never reads the large job that is sent to it."""
    reading_paused.send(message(b"MDPW02", b"\x01", b"patient"))
    client = peers(MdpClient)
    manager = peers(Manager)
    wait_for(lambda: manager.offered(b"patient"))
    client.request(b"patient", bytes(32 * MIB))
    wait_for(lambda: manager.show("show_workers")[0]["state"] == "busy")
    peers.echo(b"patient")
    assert client.answer(b"patient").final == [bytes(32 * MIB)]
    reading_paused.wait_closed()


def test_a_slow_reader_that_does_read_is_kept(server: BrokerProcess, peers: Peers, reading_paused: Raw):
    """Slow is not dead: as long as it takes something within the time, it gets everything."""
    peers.echo(b"echo")
    reading_paused.send(message(b"MDPC02", b"\x01", b"echo", bytes(6 * MIB)))
    manager = peers(Manager)
    started = manager.show("show_broker")["uptime"]
    got = 0
    while got < 6 * MIB:
        got += len(reading_paused.read(256 * 1024))
        seen = manager.show("show_broker")["uptime"]
        wait_for(lambda seen=seen: manager.show("show_broker")["uptime"] > seen + STALLED / 8)
    assert manager.show("show_broker")["uptime"] - started > 2 * STALLED
    assert "peer cut" not in server.log()


def test_a_bad_peer_that_never_reads_does_not_linger(
    server: BrokerProcess, peers: Peers, reading_paused: Raw
):
    """A breach of the protocol closes the connection without waiting for megabytes of unread output."""
    reading_paused.send(message(b"MDPW02", b"\x01", b"patient"))
    manager = peers(Manager)
    wait_for(lambda: manager.offered(b"patient"))
    client = peers(MdpClient)
    client.fence()
    before = descriptors(server)
    client.request(b"patient", bytes(32 * MIB))
    wait_for(lambda: manager.show("show_workers")[0]["state"] == "busy")
    reading_paused.send(b"\xff\xff\xff")
    wait_for(lambda: descriptors(server) < before)


def descriptors(broker: BrokerProcess) -> int:
    return psutil.Process(broker.pid).num_fds()
