"""Abuse: memory that hostile peers can make the broker use, and for how long."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest

from tests.support import sp
from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import Answer, Manager, MdpClient, MdpWorker, echo
from tests.support.zmtp import Raw, message

MIB = 1024 * 1024


def resident(broker: BrokerProcess) -> int:
    return psutil.Process(broker.pid).memory_info().rss


def connections(broker: BrokerProcess) -> int:
    return psutil.Process(broker.pid).num_fds()


@pytest.fixture
def roomy() -> Iterator[BrokerProcess]:
    """Start a broker with the default limits."""
    with BrokerProcess(nng=True, http=True) as process:
        yield process


def half_zmtp_message(broker: BrokerProcess, size: int) -> socket.socket:
    raw = Raw(broker.endpoint).shake()
    raw.send(b"\x02" + (size + 1).to_bytes(8, "big") + bytes(size))
    return raw.socket


def half_sp_message(broker: BrokerProcess, size: int) -> socket.socket:
    raw = sp.Raw(broker.nng)
    raw.receive(8)
    raw.send((size + 5).to_bytes(8, "big") + b"\x80\0\0\1" + bytes(size))
    return raw.socket


def half_http_request(broker: BrokerProcess, size: int) -> socket.socket:
    host, _, port = broker.http.removeprefix("http://").strip("/").rpartition(":")
    opened = socket.create_connection((host, int(port)), 20)
    head = f"POST /api/v1/services/any/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size + 1}\r\n\r\n"
    opened.sendall(head.encode() + bytes(size))
    return opened


@pytest.mark.parametrize("attack", [half_zmtp_message, half_sp_message, half_http_request])
def test_connection_cut_in_mid_message_leaves_no_memory_behind(
    roomy: BrokerProcess, full: bool, attack: Callable[[BrokerProcess, int], socket.socket]
) -> None:
    number, size, bound = (1000, 60 * MIB, 100 * MIB) if full else (40, 8 * MIB, 100 * MIB)
    with MdpClient(roomy.endpoint) as client:
        client.fence()
        attack(roomy, 1).close()
        idle = connections(roomy)
        before = resident(roomy)
        for _ in range(number):
            attack(roomy, size).close()
        client.fence()
        wait_for(lambda: connections(roomy) <= idle)
        wait_for(
            lambda: resident(roomy) <= before + bound, 10, f"{(resident(roomy) - before) / MIB:.0f} MiB more"
        )


def test_peers_that_neither_read_nor_finish_stay_within_the_memory_limit(full: bool) -> None:
    """limits.memory: the peer that holds most is disconnected, and others are served. The memory of the broker's
    process itself is not included."""
    number, share, limit, slack = (200, 4 * MIB, 1024 * MIB, 0.1) if full else (40, 3 * MIB, 96 * MIB, 0.5)
    toml = f"[limits]\nmemory = {limit}\n"
    peers: list[Raw] = []
    with (
        BrokerProcess(toml=toml) as broker,
        echo(broker.endpoint, b"echo"),
        MdpWorker(broker.endpoint, b"big") as worker,
        MdpClient(broker.endpoint) as client,
    ):
        assert client.call(b"echo", [b"before"]) == Answer([], [b"before"])
        base = resident(broker)
        most = 0
        try:
            for _ in range(number):
                reading_paused = Raw(broker.endpoint, receive_buffer=65536).shake()
                peers.append(reading_paused)
                reading_paused.send(message(b"MDPC02", b"\x01", b"big", b"x"))
                worker.reply(worker.take(), [bytes(share)])
                dripping = Raw(broker.endpoint).shake()
                peers.append(dripping)
                dripping.send(b"\x02" + (2 * share).to_bytes(8, "big"))
                with suppress(ConnectionError):
                    dripping.send(bytes(share))
                assert client.call(b"echo", [b"meanwhile"]) == Answer([], [b"meanwhile"])
                most = max(most, resident(broker))
            with Manager(broker.endpoint) as manager:
                budget = manager.show("show_broker")["memory_budget"]
        finally:
            for peer in peers:
                peer.close()
        assert budget["transit"] <= limit
        assert budget["cut"] > 0
        assert "limits.memory" in broker.log()
        assert "Traceback" not in broker.log()
        assert most - base <= (1 + slack) * limit, f"{(most - base) / MIB:.0f} MiB above {base / MIB:.0f} MiB"


def test_dripping_peers_are_cut_however_often_a_byte_comes() -> None:
    """limits.stalled: neither a byte sent now and then nor a byte read now and then renews it."""
    with BrokerProcess(toml="[limits]\nstalled = 1\n") as broker, echo(broker.endpoint, b"echo"):
        sender = Raw(broker.endpoint).shake()
        reader = Raw(broker.endpoint, receive_buffer=65536).shake()
        with sender, reader:
            sender.send(b"\x02" + (1000).to_bytes(8, "big"))
            reader.send(message(b"MDPC02", b"\x01", b"echo", bytes(16 * MIB)))

            def drip() -> bool:
                with suppress(ConnectionError):
                    sender.send(b"x")
                with suppress(ConnectionError):
                    reader.socket.recv(1)
                return "sends too slowly" in broker.log() and "reads too slowly" in broker.log()

            wait_for(drip, 20)
