"""One address with as many connections as there may be does not shut out others."""

from __future__ import annotations

import resource
import select
import socket
import time
from collections.abc import Callable

import pytest

from tests.support.broker import BrokerProcess
from tests.web.desk import Desk, read_all

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"


class Crowd:
    """Connections of one address that stay."""

    def __init__(self, desk: Desk, source: str) -> None:
        self.desk = desk
        self.source = source
        self.socks: list[socket.socket] = []

    def open(self, count: int, request: Callable[[int], bytes]) -> None:
        for number in range(count):
            sock = socket.create_connection(self.desk.place, timeout=20, source_address=(self.source, 0))
            sock.sendall(request(number))
            self.socks.append(sock)

    def heard(self) -> list[bytes]:
        """Return the answers that have arrived, and remove their connections from the crowd."""
        poller = select.poll()
        known = {sock.fileno(): sock for sock in self.socks}
        for number in known:
            poller.register(number, select.POLLIN)
        found = []
        for number, _ in poller.poll(0):
            sock = known[number]
            self.socks.remove(sock)
            with sock:
                found.append(read_all(sock))
        return found

    def close(self) -> None:
        for sock in self.socks:
            sock.close()


def long_poll(desk: Desk) -> Callable[[int], bytes]:
    def request(number: int) -> bytes:
        said = b'{"services": ["nothing"], "worker": "w-%d", "wait": 60}' % number
        return desk.request("POST", "/v1/workers/poll", said)

    return request


def half_a_head(number: int) -> bytes:
    return b"GET /healthz HTTP/1.1\r\nhost: 127"


def half_a_body(number: int) -> bytes:
    return b"POST /v1/services/s/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\nx"


@pytest.mark.parametrize("kind", ["long polls", "heads", "bodies", "idle"])
def test_others_are_answered_within_a_second(full: bool, kind: str) -> None:
    limit, others = (2000, 200) if full else (100, 30)
    if full and resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 3000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with BrokerProcess(toml=f'[http]\nconnections = {limit}\nslow = "60s"\n', http=True) as broker:
        desk = Desk(broker)
        crowd = Crowd(desk, "127.0.0.2")
        requests = {
            "long polls": long_poll(desk),
            "heads": half_a_head,
            "bodies": half_a_body,
            "idle": lambda number: b"",
        }
        try:
            crowd.open(limit + 20, requests[kind])
            in_time = 0
            for number in range(others):
                began = time.monotonic()
                source = (f"127.0.1.{1 + number % 250}", 0)
                with socket.create_connection(desk.place, timeout=20, source_address=source) as sock:
                    sock.sendall(HEALTH)
                    answered = b" 200 " in read_all(sock)[:20]
                in_time += answered and time.monotonic() - began < 1
            assert in_time >= 0.99 * others
            heard = crowd.heard()
            assert heard, "some of the crowd have made room"
            if kind == "long polls":  # each is told why
                assert all(b" 503 " in found and b"too-many-connections" in found for found in heard)
        finally:
            crowd.close()
        assert "Traceback" not in broker.log(), broker.log()[-5000:]


def test_clients_of_a_trusted_proxy_share_by_their_own_addresses(full: bool) -> None:
    limit = 1000 if full else 60
    toml = f'[http]\nconnections = {limit}\ntrusted_proxies = ["127.0.0.9"]\n'
    with BrokerProcess(toml=toml, http=True) as broker:
        desk = Desk(broker)
        proxy = Crowd(desk, "127.0.0.9")
        poll = long_poll(desk)

        def forwarded(number: int) -> bytes:
            address = b"203.0.113.1" if number >= 10 else b"203.0.113.%d" % (100 + number)
            return poll(number).replace(b"\r\n", b"\r\nx-forwarded-for: " + address + b"\r\n", 1)

        try:
            proxy.open(limit, forwarded)
            quiet = proxy.socks[:10]
            for number in range(20):
                source = (f"127.0.1.{1 + number}", 0)
                with socket.create_connection(desk.place, timeout=20, source_address=source) as sock:
                    sock.sendall(HEALTH)
                    assert b" 200 " in read_all(sock)[:20]
            assert not select.select(quiet, [], [], 0)[0], "only the client with most connections makes room"
        finally:
            proxy.close()
