"""Half handshakes by the thousand: others connect all the same."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import Answer, MdpClient, Serving, echo
from tests.support.zmtp import Raw, greeting, message, ready

# Longer than any test here: no peer is cut for being slow.
TOML = """
[limits]
handshake = 60
unauthenticated = {unauthenticated}
connections = {connections}
"""


@pytest.fixture(scope="module")
def server(full: bool) -> Iterator[BrokerProcess]:
    toml = TOML.format(unauthenticated=2000 if full else 100, connections=10_000 if full else 40)
    with BrokerProcess(
        "--insecure", "--events", "tcp://127.0.0.1:*", toml=toml, zmq="tcp://0.0.0.0:*", nng=True
    ) as process:
        process.endpoint = process.endpoint.replace("0.0.0.0", "127.0.0.1").replace("*", "127.0.0.1")
        yield process


@pytest.fixture(scope="module")
def worker(server: BrokerProcess) -> Iterator[Serving]:
    with echo(server.endpoint, b"echo") as serving:
        yield serving


def connect(place: str, source: str) -> socket.socket:
    host, _, port = place.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)), 20, (source, 0))


def ask(broker: BrokerProcess, source: str) -> bool:
    """Connect from `source`, ask for something, and return whether the answer came in time."""
    asker = Raw.__new__(Raw)
    asker._unread = b""
    begun = time.monotonic()
    try:
        asker.socket = connect(broker.endpoint, source)
        with asker:
            asker.shake()
            asker.send(message(b"MDPC02", b"\x01", b"echo", b"x"))
            answered = asker.message() == [b"MDPC02", b"\x03", b"echo", b"x"]
    except OSError:
        return False
    return answered and time.monotonic() - begun < 1.0


def test_half_handshakes_of_one_address_shut_nobody_out(
    server: BrokerProcess, worker: Serving, full: bool
) -> None:
    """Neither those from elsewhere nor those from the same address."""
    number = 5000 if full else 250
    with MdpClient(server.endpoint) as client:
        assert client.call(b"echo", [b"before"]) == Answer([], [b"before"])
        half: list[socket.socket] = []
        served = []
        try:
            places = [server.endpoint, server.nng, server.events[0]]
            for index in range(number):
                half.append(connect(places[index % 3], "127.0.0.1"))
                if index % 3 == 0:
                    half[-1].sendall(greeting())
                if index % 25 == 24:
                    served.append(ask(server, f"127.0.0.{2 + index % 200}"))
                    served.append(ask(server, "127.0.0.1"))
            assert served.count(True) >= 0.99 * len(served), f"{served.count(True)} of {len(served)}"
            assert client.call(b"echo", [b"meanwhile"]) == Answer([], [b"meanwhile"])
        finally:
            for one in half:
                one.close()
    assert "made room for others" in server.log()
    assert "Traceback" not in server.log()


def test_connections_of_one_address_leave_places_to_others(
    server: BrokerProcess, worker: Serving, full: bool
) -> None:
    """limits.connections: an address that has most of them gets no more; one that has few gets one of its."""
    if full:
        pytest.skip("the same at any size")
    crowd: list[Raw] = []
    try:
        while True:
            one = Raw(server.endpoint)
            crowd.append(one)
            one.send(greeting() + ready())
            one.read(64)
            name, reason = one.command()
            if name != b"READY":
                break
        assert b"too many connections" in reason
        for last in range(2, 12):
            assert ask(server, f"127.0.0.{last}")
    finally:
        for one in crowd:
            one.close()
    assert worker.registrations == 1


def test_broker_without_file_descriptors_says_so_and_goes_on() -> None:
    with BrokerProcess() as broker, echo(broker.endpoint, b"echo"):
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (60, 60))
        with MdpClient(broker.endpoint) as client:
            assert client.call(b"echo", [b"before"]) == Answer([], [b"before"])
            crowd: list[Raw] = []
            try:
                for _ in range(100):
                    crowd.append(Raw(broker.endpoint))
                    with suppress(ConnectionError):
                        crowd[-1].shake()
                wait_for(lambda: "out of file descriptors" in broker.log())
                assert client.call(b"echo", [b"meanwhile"]) == Answer([], [b"meanwhile"])
            finally:
                for one in crowd:
                    one.close()
            wait_for(lambda: ask(broker, "127.0.0.1"))
