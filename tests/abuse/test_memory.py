"""Memory that hostile peers can make the broker take, and for how long."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.support import sp
from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import MdpClient
from tests.support.zmtp import Raw

MIB = 1024 * 1024


def resident(broker: BrokerProcess) -> int:
    return psutil.Process(broker.pid).memory_info().rss


def connections(broker: BrokerProcess) -> int:
    return psutil.Process(broker.pid).num_fds()


@pytest.fixture
def roomy() -> Iterator[BrokerProcess]:
    """Broker with the limits that it has by default."""
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
