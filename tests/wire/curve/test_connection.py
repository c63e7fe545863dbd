"""wire/zmtp/connection with CURVE: from the greeting to messages and commands, on both ends."""

from __future__ import annotations

import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import ProtocolError
from polydomo.wire.curve.client import CurveClient
from polydomo.wire.curve.keys import new_key_pair
from polydomo.wire.curve.server import CurveServer
from polydomo.wire.frames import split
from polydomo.wire.stream import BUFFER_STEP, CLOSED, HANDSHAKE, SECURE_TRAFFIC
from polydomo.wire.zmtp import commands
from polydomo.wire.zmtp.connection import COMMAND_MAX, Connection, ConnectionLimits, PeerInfo
from tests.support import zmtp
from tests.support.curve import CLIENT, METADATA, SERVER, HandClient, Side, curve_pair, short
from tests.support.effort import examples
from tests.support.recorder import Call, Recorder, connect, feed, run_to_rest

BODIES = st.one_of(st.binary(max_size=9), st.sampled_from([bytes(222), bytes(223), bytes(3000)]))
MESSAGES = st.lists(st.lists(BODIES, min_size=1, max_size=4), max_size=6)


def established(limits: ConnectionLimits | None = None) -> tuple[Side, Side]:
    """A router and a dealer after the handshake, without recorded calls."""
    router, dealer = curve_pair(limits)
    run_to_rest(router, dealer)
    assert router[0].phase == dealer[0].phase == SECURE_TRAFFIC
    router[1].calls.clear()
    dealer[1].calls.clear()
    return router, dealer


def send(side: Side, data: bytes) -> None:
    side[1].transmit(side[0].seal(data))


def server_side(recorder: Recorder | None = None) -> Side:
    mechanism = CurveServer(SERVER, os.urandom)
    return connect(b"ROUTER", mechanism=mechanism, recorder=recorder)


def test_both_ends_meet_and_talk() -> None:
    router, dealer = curve_pair()
    run_to_rest(router, dealer)
    send(dealer, zmtp.message(b"", b"hello") + zmtp.message(b"again"))
    send(router, zmtp.message(b"x" * 1000))
    run_to_rest(router, dealer)
    assert router[1].calls == [
        ("ready", b"DEALER", b"anna", 1),
        ("message", b"", b"hello"),
        ("message", b"again"),
    ]
    assert dealer[1].calls == [("ready", b"ROUTER", b"", 1), ("message", b"x" * 1000)]
    assert router[0].peer is not None
    assert dealer[0].peer is not None
    assert (router[0].peer.key, dealer[0].peer.key) == (CLIENT.public, SERVER.public)


def test_nothing_readable_is_on_the_wire() -> None:
    router, dealer = curve_pair()
    seen = b""
    for _ in range(4):
        seen += dealer[1].sent + router[1].sent
        router[0].receive(dealer[1].take_sent())
        dealer[0].receive(router[1].take_sent())
    send(dealer, zmtp.message(b"the body"))
    dealer[0].ping(1.0, b"the context")
    seen += dealer[1].sent
    for secret in (
        b"anna",
        b"Socket-Type",
        b"the body",
        b"PING",
        b"the context",
        CLIENT.public,
        CLIENT.secret,
    ):
        assert secret not in seen


@pytest.mark.parametrize(("version", "minor"), [(b"\3\0", 0), (b"\3\1", 1)])
def test_the_owner_knows_the_key_before_the_peer_is_told_of_its_success(version: bytes, minor: int) -> None:
    peers: list[PeerInfo] = []

    class Owner(Recorder):
        def peer_ready(self, peer: PeerInfo) -> None:
            assert b"READY" not in self.sent
            peers.append(peer)

    connection, noted = server_side(Owner())
    client = HandClient()
    shake(connection, noted, client, version)
    assert [(peer.key, peer.minor) for peer in peers] == [(CLIENT.public, minor)]
    assert connection.phase == SECURE_TRAFFIC


def shake(connection: Connection, noted: Recorder, client: HandClient, version: bytes = b"\3\1") -> None:
    """Complete the handshake of a server with a client made by hand."""
    noted.take_sent()
    connection.receive(zmtp.greeting(version, b"CURVE") + zmtp.command(b"HELLO", client.hello()))
    name, data = commands.decode(split(noted.take_sent())[0])
    assert name == b"WELCOME"
    client.welcomed(data)
    connection.receive(zmtp.command(b"INITIATE", client.initiate()))
    name, data = commands.decode(split(noted.take_sent())[0])
    assert name == b"READY"
    assert b"ROUTER" in client.ready(data)


def test_a_client_made_by_hand_is_served() -> None:
    connection, noted = server_side()
    client = HandClient()
    shake(connection, noted, client)
    connection.receive(client.message(3, b"\1one") + client.message(4, b"\0two"))
    assert noted.messages == [[b"one", b"two"]]
    connection.receive(client.message(5, b"\2\4PING\0\0ctx"))
    assert client.opened(split(noted.take_sent())[0]) == b"\2\4PONGctx"
    connection.receive(client.message(5, b"\0again"))
    assert noted.messages == [[b"one", b"two"]]
    assert "out of order" in noted.failures[0]


def test_a_server_says_in_its_greeting_that_it_is_one() -> None:
    assert server_side()[1].sent == zmtp.greeting(mechanism=b"CURVE")[:32] + b"\1" + bytes(31)
    client = connect(b"DEALER", server=False, mechanism=CurveClient(CLIENT, SERVER.public, os.urandom))
    assert client[1].sent == zmtp.greeting(mechanism=b"CURVE")


def test_two_servers_refuse_each_other() -> None:
    connection, noted = server_side()
    connection.receive(zmtp.greeting(mechanism=b"CURVE")[:32] + b"\1" + bytes(31))
    assert noted.failures == ["both sides are servers of the security mechanism CURVE"]


def test_two_clients_refuse_each_other() -> None:
    sides = [
        connect(b"DEALER", server=False, mechanism=CurveClient(CLIENT, SERVER.public, os.urandom))
        for _ in range(2)
    ]
    run_to_rest(sides[0], sides[1])
    assert "expected WELCOME" in sides[0][1].failures[0] + sides[1][1].failures[0]


def test_the_connecting_end_may_be_the_server() -> None:
    """zmq_curve(7): the roles are independent of who binds and who connects."""
    router = connect(b"ROUTER", mechanism=CurveClient(CLIENT, SERVER.public, os.urandom))
    dealer = connect(b"DEALER", server=False, mechanism=CurveServer(SERVER, os.urandom))
    run_to_rest(router, dealer)
    assert router[0].phase == dealer[0].phase == SECURE_TRAFFIC


@pytest.mark.parametrize("mechanism", [b"NULL", b"PLAIN", b"GSSAPI"])
def test_there_is_no_way_down_to_another_mechanism(mechanism: bytes) -> None:
    connection, noted = server_side()
    noted.take_sent()
    connection.receive(zmtp.greeting(mechanism=mechanism) + zmtp.ready(b"DEALER") + zmtp.message(b"a"))
    assert noted.calls == [
        ("failed", f"the peer requires the security mechanism {mechanism.decode()}, this side CURVE")
    ]
    assert connection.phase == CLOSED


def test_a_plain_ready_in_a_curve_handshake_is_refused() -> None:
    connection, noted = server_side()
    connection.receive(zmtp.greeting(mechanism=b"CURVE") + zmtp.ready(b"DEALER") + zmtp.message(b"a"))
    assert "expected HELLO" in noted.failures[0]
    assert noted.messages == []


def test_a_refused_client_gets_the_reason() -> None:
    router, dealer = curve_pair(refuse="the key is unknown")
    run_to_rest(router, dealer)
    assert router[1].calls == [("failed", "the key is unknown")]
    assert dealer[1].calls == [("failed", "the peer refused the connection: the key is unknown")]


def test_a_client_never_sends_error() -> None:
    """RFC 26 §General Design."""
    client = CurveClient(CLIENT, new_key_pair(os.urandom).public, os.urandom)
    dealer = connect(b"DEALER", server=False, mechanism=client, recorder=Recorder(refuse="no"))
    dealer[1].take_sent()
    dealer[0].receive(zmtp.greeting(mechanism=b"CURVE"))
    assert len(dealer[1].take_sent()) == 202  # HELLO
    dealer[0].receive(zmtp.command(b"WELCOME", bytes(160)))
    assert dealer[1].sent == b""
    assert "expected key" in dealer[1].failures[0]


def test_metadata_is_checked_as_with_null() -> None:
    connection, noted = server_side()
    client = HandClient()
    noted.take_sent()
    connection.receive(zmtp.greeting(mechanism=b"CURVE") + zmtp.command(b"HELLO", client.hello()))
    client.welcomed(commands.decode(split(noted.take_sent())[0])[1])
    connection.receive(zmtp.command(b"INITIATE", client.initiate(metadata=METADATA[:-1])))
    assert "metadata" in noted.failures[0]
    assert noted.sent[2:8] == b"\5ERROR"


def test_a_handshake_command_longer_than_allowed_is_refused_by_its_header() -> None:
    router, _ = curve_pair(ConnectionLimits(handshake_bytes=1000))
    router[0].receive(zmtp.greeting(mechanism=b"CURVE") + b"\x06" + (1 << 62).to_bytes(8, "big"))
    assert "handshake" in router[1].failures[0]


def test_messages_cannot_leave_unencrypted_before_the_handshake_is_over() -> None:
    router, dealer = curve_pair()
    router[0].receive(dealer[1].take_sent())
    assert router[0].phase == HANDSHAKE
    with pytest.raises(RuntimeError, match="handshake"):
        router[0].seal(zmtp.message(b"secret"))
    router[0].fail(ProtocolError("enough"))
    assert router[0].seal(zmtp.message(b"secret")) == b""


def test_nothing_leaves_a_closed_connection() -> None:
    router, _ = established()
    router[0].close()
    assert router[0].seal(zmtp.message(b"secret")) == b""
    router[0].ping(1.0)
    router[0].receive(b"anything")
    assert (router[1].sent, router[1].calls, router[0].kept()) == (b"", [], 0)


def test_pings_and_subscriptions_are_encrypted() -> None:
    router, dealer = established()
    dealer[0].ping(2.5, b"ctx")
    run_to_rest(router, dealer)
    assert router[0].ttl == 2.5
    assert dealer[1].calls == [("ponged", b"ctx")]
    publisher = connect(b"PUB", mechanism=CurveServer(SERVER, os.urandom))
    subscriber = connect(b"SUB", server=False, mechanism=CurveClient(CLIENT, SERVER.public, os.urandom))
    run_to_rest(publisher, subscriber)
    subscriber[0].subscribe(b"jobs.")
    assert b"jobs." not in subscriber[1].sent
    subscriber[0].subscribe(b"t" * 300, False)
    run_to_rest(publisher, subscriber)
    assert publisher[1].calls[1:] == [("subscription", b"jobs.", True), ("subscription", b"t" * 300, False)]


def test_collected_messages_are_written_before_a_pong() -> None:
    """What is encrypted first is written first, or the peer refuses it."""
    router, dealer = established()
    collected = [zmtp.message(b"answer")]

    def flush() -> None:
        while collected:
            send(router, collected.pop())

    router[1].flush = flush  # type: ignore[method-assign]
    dealer[0].ping(1.0)
    run_to_rest(router, dealer)
    assert dealer[1].calls == [("message", b"answer"), ("ponged", b"")]


def test_an_error_inside_a_message_ends_the_connection() -> None:
    router, dealer = established()
    send(dealer, zmtp.message(b"a") + zmtp.command(b"ERROR", b"\3bye") + zmtp.message(b"b"))
    run_to_rest(router, dealer)
    assert router[1].calls == [("message", b"a"), ("failed", "the peer sent ERROR: bye")]
    assert dealer[1].calls == []


def test_a_plain_error_after_the_handshake_is_only_a_violation() -> None:
    """Anybody on the way could have sent it."""
    router, _ = established()
    router[0].receive(zmtp.command(b"ERROR", b"\3bye"))
    assert "flags 0x04" in router[1].failures[0]
    assert router[1].sent == b""


def test_a_long_command_is_refused() -> None:
    router, dealer = established()
    send(dealer, zmtp.command(b"FUTURE", bytes(COMMAND_MAX)))
    run_to_rest(router, dealer)
    assert "command of more than" in router[1].failures[0]


@given(MESSAGES, st.lists(st.integers(0, 4000), max_size=8))
@examples(40)
def test_messages_arrive_whole_and_in_order_however_they_are_cut(
    messages: list[list[bytes]], cuts: list[int]
) -> None:
    router, dealer = established()
    stream = dealer[0].seal(b"".join([zmtp.message(*frames) for frames in messages]))
    feed(router[0], stream, cuts)
    assert router[1].calls == [("message", *frames) for frames in messages]
    assert router[0].kept() == 0


def what_happens(stream: bytes, cuts: object, seed: int) -> tuple[list[Call], bytes, int]:
    """The calls, the answer and the end phase of a router that gets the bytes of `client_stream`."""
    (connection, noted), _ = curve_pair(ConnectionLimits(message_bytes=2000, frames=4), seed=seed)
    feed(connection, stream, cuts)  # type: ignore[arg-type]
    return noted.calls, noted.sent, connection.phase


def client_stream(messages: bytes, seed: int) -> bytes:
    """All that the client of `curve_pair(seed=seed)` sends, up to the messages."""
    router, dealer = curve_pair(seed=seed)
    sent = b""
    while router[1].sent or dealer[1].sent:
        data = dealer[1].take_sent()
        sent += data
        router[0].receive(data)
        dealer[0].receive(router[1].take_sent())
    return sent + dealer[0].seal(messages)


@given(
    st.lists(
        st.one_of(
            st.lists(BODIES, min_size=1, max_size=5).map(lambda frames: zmtp.message(*frames)),
            st.builds(zmtp.command, st.sampled_from([b"PING", b"PONG", b"X"]), st.binary(max_size=20)),
        ),
        max_size=4,
    ).map(b"".join),
    st.lists(st.integers(0, 4000), max_size=5),
    st.integers(0, 5000),
    st.integers(0, 3),
)
@examples(30)
def test_a_whole_connection_does_not_depend_on_how_it_was_cut(
    messages: bytes, cuts: list[int], keep: int, seed: int
) -> None:
    stream = client_stream(messages, seed)[:keep]
    whole = what_happens(stream, [], seed)
    assert what_happens(stream, range(len(stream)), seed) == whole
    assert what_happens(stream, cuts, seed) == whole


@given(MESSAGES, st.lists(st.integers(0, 4000), max_size=6), st.sets(st.integers(0, 6)))
@examples(40)
def test_pausing_loses_nothing_and_keeps_the_order(
    messages: list[list[bytes]], cuts: list[int], pause_after: set[int]
) -> None:
    router, dealer = established()
    connection, noted = router

    def maybe_pause(frames: list[bytes]) -> None:
        assert not connection.paused
        if len(noted.calls) in pause_after:
            connection.pause()

    noted.on_message = maybe_pause
    if 0 in pause_after:
        connection.pause()
    feed(connection, dealer[0].seal(b"".join([zmtp.message(*frames) for frames in messages])), cuts)
    while connection.paused:
        connection.resume()
    assert noted.calls == [("message", *frames) for frames in messages]
    assert connection.kept() == 0


def test_pausing_and_going_on_from_inside_a_message_changes_nothing() -> None:
    router, dealer = established()
    depth = 0

    def hiccup(frames: list[bytes]) -> None:
        nonlocal depth
        depth += 1
        assert depth == 1
        router[0].pause()
        router[0].resume()
        depth -= 1

    router[1].on_message = hiccup
    router[0].receive(dealer[0].seal(zmtp.message(b"a") + zmtp.message(b"b") + zmtp.message(b"c")))
    assert router[1].messages == [[b"a"], [b"b"], [b"c"]]


def test_what_the_owner_expects_is_recognized() -> None:
    router, dealer = established()
    router[1].expected = b"\x01\x01a\x01\x00"
    send(dealer, zmtp.message(b"a", b"", b"body") + zmtp.message(b"b", b"", b"body"))
    run_to_rest(router, dealer)
    assert router[1].messages == [[b"a", b"", b"body"], [b"b", b"", b"body"]]
    assert router[1].guessed == 1


def test_an_unfinished_message_is_reported_while_it_grows() -> None:
    router, dealer = established()
    sizes: list[int] = []
    router[1].buffered = sizes.append  # type: ignore[method-assign, assignment]
    wire = dealer[0].seal(zmtp.message(b"head", bytes(3 * BUFFER_STEP)))
    for start in range(0, len(wire), 10_000):
        router[0].receive(wire[start : start + 10_000])
    assert sizes[-1] == 0
    assert [size // BUFFER_STEP for size in sizes] == [1, 2, 0]
    assert router[0].spanned == 1
    assert len(router[1].messages) == 1


def test_a_header_that_announces_exabytes_makes_no_room_for_them() -> None:
    router, _ = established()
    tracemalloc.start()
    router[0].receive(b"\x02" + (1 << 62).to_bytes(8, "big"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert "more than" in router[1].failures[0]


def test_null_writes_messages_as_they_are() -> None:
    connection, _ = connect()
    data = zmtp.message(b"a", b"b")
    assert connection.seal(data) is data


def test_a_replayed_stream_of_a_client_is_worthless() -> None:
    """The second server has other keys for the connection."""
    stream = client_stream(zmtp.message(b"pay"), seed=1)
    assert what_happens(stream, [], seed=1)[0][-1] == ("message", b"pay")
    calls, _, phase = what_happens(stream, [], seed=2)
    assert calls[0][0] == "failed"
    assert phase == CLOSED


def test_nonces_of_the_handshake_are_not_used_again() -> None:
    _, dealer = established()
    assert dealer[0].seal(zmtp.message(b"a"))[10:18] == short(3)
