"""Misbehaving NNG peers are refused or limited, and do not disturb others."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import psutil
import pynng
import pytest

from tests.support import sp
from tests.support.broker import BrokerProcess, wait_for
from tests.support.memo import Contexts, job, unpack
from tests.support.sp import REP_HELLO, Raw

MIB = 1024 * 1024

TOML = """
[limits]
handshake = 0.5
message_bytes = "1MiB"
output_bytes = "16MiB"
stalled = 3.0
invalid = 10
unauthenticated = 50
"""


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(nng=True, toml=TOML) as process:
        yield process


@pytest.fixture(autouse=True)
def others(server: BrokerProcess) -> Iterator[None]:
    """A worker and a client that are there before, and served the same way after."""
    with Contexts(server.nng) as contexts:
        worker, client = contexts(), contexts()
        worker.ready("good")
        yield
        client.job("good", b"x")
        assert worker.next().payload == b"x"
        worker.result(b"y", True)
        assert client.receive().payload == b"y"


@pytest.mark.parametrize(
    "size", [1 * MIB + 1, 1 << 40, (1 << 64) - 1], ids=["a byte too many", "a terabyte", "all"]
)
def test_an_oversized_message_is_refused_by_its_head(server: BrokerProcess, size: int) -> None:
    before = psutil.Process(server.pid).memory_info().rss
    with Raw(server.nng) as raw:
        raw.send(size.to_bytes(8, "big"))
        assert raw.is_closed()
    assert f"a message of {size} bytes" in server.log()
    assert psutil.Process(server.pid).memory_info().rss - before < 10 * MIB


@pytest.mark.parametrize(
    "kind", ["Surveyor0", "Pub0", "Sub0", "Push0", "Pair0", "Bus0", "Respondent0", "Rep0"]
)
def test_other_protocols_are_refused(server: BrokerProcess, kind: str) -> None:
    before = server.log().count("peer refused")
    with getattr(pynng, kind)(reconnect_time_min=60_000, reconnect_time_max=60_000) as peer:
        peer.dial(server.nng, block=False)
        wait_for(lambda: server.log().count("peer refused") > before)
    assert "a REQ is needed here" in server.log()


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" + bytes(8) + b"\x7f\3",
        b"\0SP\1\0\x30\0\0",
        b"\0SP\0\0\x30\0\1",
        bytes(8),
    ],
)
def test_what_is_not_sp_is_refused(server: BrokerProcess, first: bytes) -> None:
    with Raw(server.nng, first) as raw:
        assert raw.is_closed()


@pytest.mark.parametrize("first", [b"", b"\0", b"\0SP\0\0\x30\0"])
def test_a_slow_handshake_is_cut(server: BrokerProcess, first: bytes) -> None:
    with Raw(server.nng, first) as raw:
        assert raw.receive(8) == REP_HELLO
        assert raw.is_closed()
    assert "no handshake within 0.5 s" in server.log()


def test_a_flood_of_handshakes_is_bounded(server: BrokerProcess) -> None:
    crowd = [Raw(server.nng, b"") for _ in range(80)]
    assert all(raw.is_closed() for raw in crowd)
    for raw in crowd:
        raw.close()
    assert "made room for others" in server.log()


def test_malformed_messages_do_not_break_the_connection_until_there_are_many(server: BrokerProcess) -> None:
    with Raw(server.nng) as raw:
        raw.receive(8)
        for number in range(9):
            raw.send(sp.request(number, b"\x85\x66memo01\xff garbage"))
        raw.send(sp.request(100, job("mmi.service", b"x")))
        number, content = raw.receive_message()
        assert (number, unpack(content).payload) == (100, b"404")
        raw.send(sp.request(101, job("mmi.service", b"x")) + sp.request(102, b"garbage"))
        assert raw.receive_message()[0] == 101
        assert raw.is_closed()
    assert "10 invalid messages" in server.log()


@pytest.mark.parametrize("bad", [bytes(8), (3).to_bytes(8, "big"), (4).to_bytes(8, "big") + bytes(4)])
def test_a_message_without_a_request_id_ends_it(server: BrokerProcess, bad: bytes) -> None:
    with Raw(server.nng) as raw:
        raw.send(bad)
        assert raw.is_closed()


def test_a_message_in_single_bytes_arrives(server: BrokerProcess) -> None:
    with Raw(server.nng, b"") as raw:
        raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in sp.REQ_HELLO + sp.request(7, job("mmi.service", b"x")):
            raw.send(bytes((byte,)))
        assert raw.receive(8) == REP_HELLO
        number, content = raw.receive_message()
        assert (number, unpack(content).payload) == (7, b"404")


@pytest.mark.parametrize(
    ("answers", "reason"), [(14, "reads too slowly"), (100, "does not read its answers")]
)
def test_a_client_that_never_reads_is_cut(server: BrokerProcess, answers: int, reason: str) -> None:
    """When it has read too little for a while, or at once when too much waits for it."""
    with Contexts(server.nng) as working, Raw(server.nng) as raw:
        worker = working()
        worker.ready("loud")
        raw.send(b"".join(sp.request(number, job("loud", b"x")) for number in range(answers)))
        for number in range(answers):
            assert worker.next().payload == b"x"
            worker.result(bytes(900_000), number == answers - 1)
        wait_for(lambda: reason in server.log())


def test_the_log_stays_readable(server: BrokerProcess) -> None:
    """One line for a peer, however often it does something wrong."""
    with Raw(server.nng) as raw:
        raw.receive(8)
        before = server.log().count("message dropped")
        for number in range(5):
            raw.send(sp.request(number, b"garbage"))
        raw.send(sp.request(100, job("mmi.service", b"x")))
        raw.receive_message()
    assert server.log().count("message dropped") == before + 1
