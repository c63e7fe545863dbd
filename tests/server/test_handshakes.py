"""Peers that speak ZMTP wrongly, slowly, in great numbers or not at all do not disturb others."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import Answer, MdpClient, Serving, echo
from tests.support.zmtp import Raw, command, greeting, message, ready

HANDSHAKE = 0.5
UNAUTHENTICATED = 20
CONNECTIONS = 30

TOML = f"""
[limits]
handshake = {HANDSHAKE}
unauthenticated = {UNAUTHENTICATED}
connections = {CONNECTIONS}
frames = 100
message_bytes = 1000000
"""


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml=TOML) as process:
        yield process


@pytest.fixture(scope="module")
def bystander(server: BrokerProcess) -> Iterator[Serving]:
    with echo(server.endpoint, b"bystander") as serving:
        yield serving


@pytest.fixture(autouse=True)
def client(server: BrokerProcess, bystander: Serving) -> Iterator[MdpClient]:
    """Check that another client is served before, during and after each test."""
    with MdpClient(server.endpoint) as client:
        assert client.call(b"bystander", [b"before"]) == Answer([], [b"before"])
        yield client
        assert client.call(b"bystander", [b"after"]) == Answer([], [b"after"])
    assert bystander.registrations == 1
    assert "Traceback" not in server.log()


@pytest.fixture
def raw(server: BrokerProcess) -> Iterator[Raw]:
    with Raw(server.endpoint) as opened:
        yield opened


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00",
        b"\0SP\0\0\x30\0\0",
        greeting(version=b"\x02\x00"),
        greeting(version=b"\x01\x00"),
        b"\x01\x00",
        b"\xff" + bytes(7) + b"\x01\x00" + bytes(54),
    ],
    ids=["HTTP", "TLS", "SSH", "zero", "NNG", "ZMTP-2.0", "ZMTP-1.0", "ZMTP-1.0-anonymous", "long-frame"],
)
def test_other_protocols_are_turned_away_at_once(raw: Raw, data: bytes):
    """By their first bytes, not by the time they take: a browser is told apart from a slow peer."""
    raw.send(data)
    started = time.monotonic()
    raw.wait_closed()
    assert time.monotonic() - started < HANDSHAKE


@pytest.mark.parametrize("mechanism", [b"PLAIN", b"CURVE", b"GSSAPI", b"", b"\xff\xfe", b"NULL "])
def test_another_security_mechanism_is_refused(raw: Raw, mechanism: bytes):
    raw.send(greeting(mechanism=mechanism))
    raw.wait_closed()


@pytest.mark.parametrize("minor", [0, 1, 9])
def test_every_zmtp_3_is_welcome(raw: Raw, minor: int):
    raw.send(greeting(version=bytes((3, minor))) + ready())
    raw.read(64)
    assert raw.command()[0] == b"READY"


def test_the_future_is_welcome_too(raw: Raw):
    """RFC 37: a peer with a higher version falls back to ours."""
    raw.send(greeting(version=b"\x04\x00") + ready())
    raw.read(64)
    assert raw.command()[0] == b"READY"


def test_a_handshake_byte_by_byte(raw: Raw):
    for byte in greeting() + ready() + message(b"MDPC02", b"\x01", b"bystander", b"slowly"):
        raw.send(bytes((byte,)))
    raw.read(64)
    assert raw.command()[0] == b"READY"
    assert raw.message() == [b"MDPC02", b"\x03", b"bystander", b"slowly"]


@pytest.mark.parametrize(
    "socket_type", [b"PUB", b"SUB", b"XPUB", b"XSUB", b"PUSH", b"PULL", b"REP", b"PAIR", b"", b"x"]
)
def test_wrong_socket_types_are_told_so(raw: Raw, socket_type: bytes):
    """RFC 37: a ROUTER talks to DEALER, REQ and ROUTER."""
    raw.send(greeting() + ready(socket_type))
    assert "socket cannot be connected to a ROUTER" in raw.refusal()
    raw.wait_closed()


@pytest.mark.parametrize(
    "data",
    [
        message(b"MDPC02", b"\x01", b"bystander", b"x"),
        command(b"PING", b"\0\0"),
        command(b"HELLO"),
        command(b""),
        b"\x04\x00",
        b"\x04\x05\x09READY",
        command(b"READY", b"\x0bSocket-Type\0\0\0\xff"),
        command(b"READY", b"\x00"),
        command(b"READY", b"\xffSocket"),
        b"\x06" + (2**40).to_bytes(8, "big"),
        b"\x06" + (100_000).to_bytes(8, "big") + bytes(9000),
        b"\xff" * 20,
    ],
    ids=["message", "PING", "HELLO", "nameless", "empty", "short-name", "short-value", "no-name", "long-name",
         "terabyte", "hundred-kB", "flags"],
)  # fmt: skip
def test_nonsense_instead_of_ready_is_refused(raw: Raw, data: bytes):
    raw.send(greeting() + data)
    started = time.monotonic()
    raw.wait_closed()
    assert time.monotonic() - started < HANDSHAKE


def test_a_peer_that_says_error_is_let_go(raw: Raw):
    raw.send(greeting() + command(b"ERROR", b"\x04nope"))
    raw.wait_closed()


@pytest.mark.parametrize(
    "data", [b"", greeting()[:1], greeting()[:12], greeting(), greeting() + ready()[:-1]]
)
def test_half_a_handshake_is_cut_off_in_time(raw: Raw, data: bytes):
    raw.send(data)
    started = time.monotonic()
    raw.wait_closed()
    assert time.monotonic() - started > HANDSHAKE / 2


def test_a_handshake_that_drips_is_cut_off_in_time(raw: Raw):
    """Slowloris: a byte now and then does not buy more time."""
    started = time.monotonic()
    try:
        for byte in greeting() + ready():
            raw.send(bytes((byte,)))
            time.sleep(HANDSHAKE / 20)
    except ConnectionError:
        pass
    raw.wait_closed()
    assert time.monotonic() - started < HANDSHAKE * 4


def test_a_flood_of_strangers_does_not_disturb_those_who_are_in(server: BrokerProcess, client: MdpClient):
    """limits.unauthenticated: more are turned away; when the flood is over, newcomers are welcome."""
    flood = [Raw(server.endpoint) for _ in range(3 * UNAUTHENTICATED)]
    try:
        assert client.call(b"bystander", [b"meanwhile"]).final == [b"meanwhile"]
        for one in flood:
            one.wait_closed()
    finally:
        for one in flood:
            one.close()
    with MdpClient(server.endpoint) as newcomer:
        assert newcomer.call(b"bystander", [b"x"]).final == [b"x"]


def test_more_connections_than_allowed_are_told_so(server: BrokerProcess, client: MdpClient):
    """limits.connections: those who are in stay; when one leaves, another may come."""
    inside: list[Raw] = []
    try:
        while True:
            one = Raw(server.endpoint)
            inside.append(one)
            one.send(greeting() + ready())
            one.read(64)
            name, reason = one.command()
            if name != b"READY":
                break
        assert (name, b"too many connections" in reason) == (b"ERROR", True)
        assert CONNECTIONS - 5 < len(inside) <= CONNECTIONS
        assert client.call(b"bystander", [b"meanwhile"]).final == [b"meanwhile"]
        inside.pop(0).close()

        def welcome() -> bool:
            with Raw(server.endpoint) as one:
                one.send(greeting() + ready())
                one.read(64)
                return one.command()[0] == b"READY"

        wait_for(welcome)
    finally:
        for one in inside:
            one.close()


def test_a_message_of_too_many_frames_ends_the_connection(raw: Raw):
    """limits.frames, also when they never end."""
    raw.shake()
    raw.send(message(b"MDPC02", b"\x01", b"bystander", *[b"x"] * 97))
    assert len(raw.message()) == 100
    raw.send(message(*[b""] * 101))
    raw.wait_closed()


def test_frames_without_end_are_noticed_before_their_end(raw: Raw):
    raw.shake()
    raw.send(b"\x01\x00" * 200)
    raw.wait_closed()


def test_an_oversize_message_is_refused_by_its_size_alone(raw: Raw):
    """limits.message_bytes: before its body has come, let alone been kept."""
    raw.shake()
    raw.send(b"\x02" + (2**62).to_bytes(8, "big"))
    raw.wait_closed()


def test_frames_that_add_up_to_too_much_are_refused(raw: Raw):
    raw.shake()
    try:
        for _ in range(12):
            raw.send(b"\x03" + (100_000).to_bytes(8, "big") + bytes(100_000))
    except ConnectionError:
        pass
    raw.wait_closed()


@pytest.mark.parametrize("flags", [5, 7, 8, 0x10, 0x80, 0xFF])
def test_impossible_flags_end_the_connection(raw: Raw, flags: int):
    raw.shake()
    raw.send(bytes((flags, 1)) + b"x")
    raw.wait_closed()


def test_a_command_in_the_middle_of_a_message_ends_the_connection(raw: Raw):
    raw.shake()
    raw.send(b"\x01\x01x" + command(b"PING", b"\0\0"))
    raw.wait_closed()


def test_unknown_commands_are_ignored(raw: Raw):
    """So that newer peers can be talked to."""
    raw.shake()
    raw.send(command(b"NEWER", b"than us") + message(b"MDPC02", b"\x01", b"bystander", b"x"))
    assert raw.message() == [b"MDPC02", b"\x03", b"bystander", b"x"]


def test_a_peer_that_vanishes_in_mid_message(server: BrokerProcess):
    for data in (
        b"\x02" + (1000).to_bytes(8, "big") + bytes(10),
        b"\x01",
        message(b"MDPW02", b"\x01", b"svc")[:-1],
    ):
        with Raw(server.endpoint) as one:
            one.shake()
            one.send(data)
