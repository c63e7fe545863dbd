"""wire/zmtp/connection: from the first byte to the first message (RFC 37 §The Handshake)."""

from __future__ import annotations

import pytest

from polydomo.errors import ProtocolError
from polydomo.wire.frames import split
from polydomo.wire.stream import CLOSED, GREETING, HANDSHAKE, TRAFFIC
from polydomo.wire.zmtp import commands
from polydomo.wire.zmtp.connection import COMPATIBLE, IDENTITY_MAX, Connection, ConnectionLimits
from tests.support import zmtp
from tests.support.recorder import Recorder, connect, handshake, run_to_rest

ALL_TYPES = [
    b"REQ",
    b"REP",
    b"DEALER",
    b"ROUTER",
    b"PUB",
    b"XPUB",
    b"SUB",
    b"XSUB",
    b"PUSH",
    b"PULL",
    b"PAIR",
]

# RFC 37 §Socket Type compatibility.
TABLE = {
    b"ROUTER": {b"REQ", b"DEALER", b"ROUTER"},
    b"DEALER": {b"REP", b"DEALER", b"ROUTER"},
    b"PUB": {b"SUB", b"XSUB"},
    b"SUB": {b"PUB", b"XPUB"},
}


def error_in(sent: bytes) -> str:
    """The reason in an ERROR command that is all that was sent."""
    name, data = commands.decode(split(sent)[0])
    assert name == commands.ERROR
    return commands.decode_error(data)


def test_both_ends_meet_and_talk() -> None:
    router, dealer = connect(b"ROUTER"), connect(b"DEALER", server=False, identity=b"anna")
    run_to_rest(router, dealer)
    assert router[0].phase == dealer[0].phase == TRAFFIC
    dealer[1].transmit(zmtp.message(b"", b"hello"))
    router[1].transmit(zmtp.message(b"x" * 1000))
    run_to_rest(router, dealer)
    assert router[1].calls == [("ready", b"DEALER", b"anna", 1), ("message", b"", b"hello")]
    assert dealer[1].calls == [("ready", b"ROUTER", b"", 1), ("message", b"x" * 1000)]


def test_the_greeting_goes_out_before_anything_came() -> None:
    connection, noted = connect()
    assert noted.sent == zmtp.greeting()
    assert connection.phase == GREETING


@pytest.mark.parametrize(("version", "minor"), [(b"\3\0", 0), (b"\3\1", 1), (b"\3\2", 1), (b"\4\0", 1)])
def test_the_peers_version_is_remembered(version: bytes, minor: int) -> None:
    connection, noted = connect()
    connection.receive(handshake(version=version))
    assert noted.calls == [("ready", b"DEALER", b"", minor)]
    assert connection.peer is not None
    assert connection.peer.minor == minor


def test_messages_may_follow_the_handshake_at_once() -> None:
    connection, noted = connect()
    connection.receive(
        handshake() + zmtp.message(b"one") + zmtp.command(b"PING", b"\0\0") + zmtp.message(b"two")
    )
    assert noted.messages == [[b"one"], [b"two"]]


def test_the_listening_end_says_ready_only_after_the_peer_was_accepted() -> None:
    connection, noted = connect()
    noted.take_sent()
    connection.receive(zmtp.greeting())
    assert connection.phase == HANDSHAKE
    assert noted.sent == b""
    connection.receive(zmtp.ready(b"DEALER"))
    assert noted.sent == zmtp.ready(b"ROUTER")


def test_the_connecting_end_says_ready_after_the_greeting() -> None:
    connection, noted = connect(b"DEALER", server=False, identity=b"me")
    noted.take_sent()
    connection.receive(zmtp.greeting())
    assert noted.sent == zmtp.ready(b"DEALER", b"me")


def test_a_refused_peer_gets_error_and_never_ready() -> None:
    connection, noted = connect(recorder=Recorder(refuse="the identity is taken"))
    noted.take_sent()
    connection.receive(handshake() + zmtp.message(b"too early"))
    assert error_in(noted.sent) == "the identity is taken"
    assert noted.calls == [("failed", "the identity is taken")]
    assert connection.phase == CLOSED


def test_an_owner_that_gives_the_peer_up_while_it_is_welcomed_hears_nothing_more() -> None:
    connection, noted = connect()
    noted.on_ready = lambda: connection.fail(ProtocolError("too many"))
    noted.take_sent()
    connection.receive(handshake() + zmtp.message(b"not for anybody"))
    assert noted.messages == []
    assert noted.failures == ["too many"]
    assert error_in(noted.sent) == "too many"


@pytest.mark.parametrize("ours", list(COMPATIBLE))
@pytest.mark.parametrize("theirs", ALL_TYPES)
def test_socket_types_meet_as_rfc_37_allows(ours: bytes, theirs: bytes) -> None:
    connection, noted = connect(ours)
    noted.take_sent()
    connection.receive(zmtp.greeting() + zmtp.ready(theirs))
    if theirs in TABLE[ours]:
        assert connection.phase == TRAFFIC
    else:
        assert connection.phase == CLOSED
        assert theirs.decode() in error_in(noted.sent)
        assert len(noted.failures) == 1


def test_a_peer_without_a_socket_type_is_refused() -> None:
    connection, noted = connect()
    connection.receive(zmtp.greeting() + zmtp.command(b"READY"))
    assert "nameless" in noted.failures[0]


@pytest.mark.parametrize("identity", [b"", b"a", b"\xff\0", b"i" * IDENTITY_MAX])
def test_identities_of_up_to_255_bytes_are_accepted(identity: bytes) -> None:
    connection, noted = connect()
    connection.receive(zmtp.greeting() + zmtp.ready(b"DEALER", identity))
    assert noted.calls == [("ready", b"DEALER", identity, 1)]


@pytest.mark.parametrize(
    ("identity", "words"), [(b"i" * 256, "256 bytes"), (b"\0abcd", "zero byte"), (b"\0", "zero")]
)
def test_longer_ones_and_those_that_begin_with_a_zero_are_refused(identity: bytes, words: str) -> None:
    connection, noted = connect()
    noted.take_sent()
    connection.receive(zmtp.greeting() + zmtp.ready(b"DEALER", identity))
    assert words in error_in(noted.sent)
    assert connection.phase == CLOSED


@pytest.mark.parametrize("mechanism", [b"PLAIN", b"CURVE", b"null"])
def test_a_peer_that_wants_another_mechanism_is_told(mechanism: bytes) -> None:
    connection, noted = connect()
    noted.take_sent()
    connection.receive(zmtp.greeting(mechanism=mechanism))
    assert mechanism.decode() in error_in(noted.sent)
    assert "NULL" in noted.failures[0]


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x01\x00\x00\x01\x00",  # ZMTP 1.0
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05\0\0",  # ZMTP 2.0
    ],
)
def test_older_peers_and_other_protocols_are_refused_without_an_answer(first: bytes) -> None:
    connection, noted = connect()
    noted.take_sent()
    connection.receive(first)
    assert len(noted.failures) == 1
    assert noted.sent == b""  # they would not understand a command
    assert connection.phase == CLOSED


@pytest.mark.parametrize("name", [b"HELLO", b"INITIATE", b"ready", b"PING"])
def test_anything_but_ready_is_refused(name: bytes) -> None:
    connection, noted = connect()
    connection.receive(zmtp.greeting())
    noted.take_sent()
    connection.receive(zmtp.command(name))
    assert "READY" in error_in(noted.sent)
    assert connection.phase == CLOSED


def test_error_from_the_peer_ends_the_handshake_with_its_reason() -> None:
    connection, noted = connect(b"DEALER", server=False)
    connection.receive(zmtp.greeting())
    noted.take_sent()
    connection.receive(zmtp.command(b"ERROR", b"\7go away") + zmtp.message(b"but first"))
    assert noted.calls == [("failed", "the peer refused the connection: go away")]
    assert noted.sent == b""
    assert connection.phase == CLOSED


def test_our_two_ends_understand_each_others_refusal() -> None:
    router = connect(b"ROUTER", recorder=Recorder(refuse="too many connections"))
    dealer = connect(b"DEALER", server=False)
    run_to_rest(router, dealer)
    assert router[1].failures == ["too many connections"]
    assert dealer[1].calls == [("failed", "the peer refused the connection: too many connections")]


@pytest.mark.parametrize(
    "instead",
    [
        zmtp.message(b"hello"),
        zmtp.message(b"hello", b"world"),
        zmtp.command(b"PING", b"\0\0"),
        b"\x05\x06\x05READY",  # a command with MORE
        b"\x0c\x06\x05READY",  # a reserved bit
        zmtp.command(b"READY", b"\x0bSocket-Type\0\0\0\xffDEALER"),
        b"\x04\x00",
    ],
)
def test_only_a_sound_ready_ends_the_handshake(instead: bytes) -> None:
    connection, noted = connect()
    noted.take_sent()
    connection.receive(zmtp.greeting() + instead)
    assert len(noted.calls) == 1
    assert noted.failures
    assert error_in(noted.sent)
    assert connection.phase == CLOSED


def test_a_handshake_command_longer_than_allowed_is_refused_by_its_header() -> None:
    connection, noted = connect(limits=ConnectionLimits(handshake_bytes=1000))
    connection.receive(zmtp.greeting() + b"\x06" + (1 << 62).to_bytes(8, "big"))
    assert "handshake" in noted.failures[0]


def test_metadata_up_to_the_limit_is_fine() -> None:
    whole = zmtp.ready(b"DEALER", b"me", X_Big=b"x" * 800)
    connection, noted = connect(limits=ConnectionLimits(handshake_bytes=len(whole)))
    connection.receive(zmtp.greeting() + whole)
    assert connection.phase == TRAFFIC
    connection, noted = connect(limits=ConnectionLimits(handshake_bytes=len(whole) - 1))
    connection.receive(zmtp.greeting() + whole)
    assert "handshake" in noted.failures[0]


def test_nobody_is_kept_waiting_in_a_handshake_by_message_frames() -> None:
    """A peer cannot make us hold a message before it has said who it is."""
    connection, noted = connect()
    connection.receive(zmtp.greeting())
    for _ in range(5000):
        connection.receive(b"\x01\x10" + bytes(16))
        assert connection.kept() <= 8192 + 18
    assert len(noted.failures) == 1


def test_the_peers_properties_are_kept() -> None:
    connection, _ = connect()
    connection.receive(zmtp.greeting() + zmtp.ready(b"DEALER", b"me", **{"X-Polydomo": b"1.0"}))
    assert connection.peer is not None
    assert connection.peer.properties[b"x-polydomo"] == b"1.0"


def test_our_own_properties_are_sent() -> None:
    noted = Recorder()
    connection = Connection(noted, b"ROUTER", True, ConnectionLimits(), properties={b"X-Polydomo": b"1.0"})
    connection.start()
    connection.receive(handshake())
    assert b"\x0aX-Polydomo\0\0\0\x031.0" in noted.sent


def deferring() -> tuple[Connection, Recorder]:
    """A router whose owner lets each peer wait for its decision."""
    connection, noted = connect()
    noted.on_ready = connection.defer
    noted.take_sent()
    return connection, noted


MESSAGES = zmtp.message(b"1") + zmtp.message(b"2", b"more")


@pytest.mark.parametrize("cut", [0, 1, 5, len(MESSAGES) - 1, len(MESSAGES)])
def test_a_peer_that_waits_for_a_decision_gets_no_ready_and_nothing_it_sends_is_lost(cut: int) -> None:
    connection, noted = deferring()
    connection.receive(handshake() + MESSAGES[:cut])
    for byte in MESSAGES[cut:]:
        connection.receive(bytes((byte,)))
    assert noted.calls == [("ready", b"DEALER", b"", 1)]
    assert noted.take_sent() == b""
    connection.admit()
    assert commands.decode(split(noted.take_sent())[0])[0] == b"READY"
    assert noted.messages == [[b"1"], [b"2", b"more"]]
    connection.receive(zmtp.message(b"3"))
    assert noted.messages[2:] == [[b"3"]]


def test_a_peer_that_waited_may_be_refused_with_a_reason() -> None:
    connection, noted = deferring()
    connection.receive(handshake() + MESSAGES)
    connection.fail(ProtocolError("the name is taken"))
    assert error_in(noted.take_sent()) == "the name is taken"
    assert noted.failures == ["the name is taken"]
    connection.admit()  # too late
    connection.receive(MESSAGES)
    assert (connection.phase, noted.messages, noted.take_sent()) == (CLOSED, [], b"")
