"""wire/zmtp/connection: messages and commands once the handshake is over (RFC 37 §Traffic)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import ProtocolError
from polydomo.wire.stream import CLOSED, TRAFFIC
from polydomo.wire.zmtp.connection import ConnectionLimits
from tests.support import zmtp
from tests.support.effort import examples
from tests.support.recorder import Recorder, connect, feed, handshake, in_traffic

BODIES = st.one_of(st.binary(max_size=9), st.sampled_from([bytes(255), bytes(256), bytes(3000)]))
MESSAGES = st.lists(st.lists(BODIES, min_size=1, max_size=4), max_size=6)


@given(MESSAGES, st.lists(st.integers(0, 4000), max_size=8))
@examples(80)
def test_messages_arrive_whole_and_in_order_however_they_are_cut(
    messages: list[list[bytes]], cuts: list[int]
) -> None:
    connection, noted = in_traffic()
    feed(connection, b"".join([zmtp.message(*frames) for frames in messages]), cuts)
    assert noted.calls == [("message", *frames) for frames in messages]
    assert connection.kept() == 0


def test_a_short_body_may_come_in_a_long_frame() -> None:
    connection, noted = in_traffic()
    connection.receive(b"\x03" + (1).to_bytes(8, "big") + b"a" + b"\x02" + bytes(8))
    assert noted.messages == [[b"a", b""]]


def test_nothing_is_handed_on_before_the_last_frame_is_here() -> None:
    connection, noted = in_traffic()
    whole = zmtp.message(b"a", b"b" * 300, b"")
    connection.receive(whole[:-1])
    assert noted.calls == []
    assert connection.kept() == len(whole) - 1
    connection.receive(whole[-1:])
    assert noted.messages == [[b"a", b"b" * 300, b""]]


@pytest.mark.parametrize("flags", [0x05, 0x07, 0x08, 0x10, 0x80, 0xFF, 0x0C])
def test_flags_zmtp_3_does_not_know_are_refused_as_soon_as_they_are_seen(flags: int) -> None:
    for pieces in ([bytes((flags, 100))], [bytes((flags,)), b"\x64"]):
        connection, noted = in_traffic()
        for piece in pieces:
            connection.receive(piece)
        assert "flags" in noted.failures[0]
        assert connection.phase == CLOSED


@pytest.mark.parametrize("start", [b"\x04\x20", b"\x06" + (32).to_bytes(8, "big")])
def test_a_command_between_the_frames_of_a_message_is_refused_by_its_header(start: bytes) -> None:
    """RFC 37: traffic = *(message | command); a message's frames stand together."""
    for cuts in ([], range(20)):
        connection, noted = in_traffic()
        feed(connection, b"\x01\x01a" + start, cuts)
        assert "flags" in noted.failures[0]


def test_ping_is_answered_with_pong_and_its_context() -> None:
    connection, noted = in_traffic()
    connection.receive(zmtp.command(b"PING", b"\0\x64"))
    assert noted.take_sent() == zmtp.command(b"PONG")
    assert connection.ttl == 10.0
    connection.receive(zmtp.command(b"PING", b"\0\0" + b"c" * 16))
    assert noted.take_sent() == zmtp.command(b"PONG", b"c" * 16)
    assert connection.ttl == 0.0
    assert noted.calls == []


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0" + b"c" * 17])
def test_a_ping_without_ttl_or_with_a_long_context_is_refused(data: bytes) -> None:
    connection, noted = in_traffic()
    connection.receive(zmtp.command(b"PING", data))
    assert "PING" in noted.failures[0]
    assert noted.sent == b""


@pytest.mark.parametrize(
    ("ttl", "wire"), [(0, b"\0\0"), (0.25, b"\0\2"), (90, b"\x03\x84"), (1e9, b"\xff\xff")]
)
def test_our_ping_carries_its_ttl_in_tenths_of_a_second(ttl: float, wire: bytes) -> None:
    connection, noted = in_traffic()
    connection.ping(ttl, b"ctx")
    assert noted.sent == zmtp.command(b"PING", wire + b"ctx")


def test_pong_is_reported() -> None:
    connection, noted = in_traffic()
    connection.receive(zmtp.command(b"PONG", b"ctx") + zmtp.command(b"PONG"))
    assert noted.calls == [("ponged", b"ctx"), ("ponged", b"")]


def test_unknown_commands_are_ignored() -> None:
    connection, noted = in_traffic()
    connection.receive(zmtp.command(b"FUTURE", b"x" * 400) + zmtp.ready(b"REP") + zmtp.message(b"a"))
    assert noted.calls == [("message", b"a")]


def test_a_command_without_a_name_is_refused() -> None:
    connection, noted = in_traffic()
    connection.receive(b"\x04\x00" + zmtp.message(b"a"))
    assert len(noted.calls) == 1
    assert noted.failures


def test_error_in_traffic_ends_the_connection() -> None:
    connection, noted = in_traffic()
    connection.receive(zmtp.message(b"a") + zmtp.command(b"ERROR", b"\3bye") + zmtp.message(b"b"))
    assert noted.calls == [("message", b"a"), ("failed", "the peer sent ERROR: bye")]


def test_nothing_is_handed_on_after_a_failure() -> None:
    connection, noted = in_traffic()
    connection.receive(zmtp.message(b"a") + b"\xff\xff" + zmtp.message(b"b"))
    connection.receive(zmtp.message(b"c"))
    connection.resume()
    connection.fail(ProtocolError("again"))
    assert [call[0] for call in noted.calls] == ["message", "failed"]
    assert connection.kept() == 0
    assert noted.sent == b""  # RFC 37: ERROR belongs to the handshake


def test_an_owner_that_fails_the_connection_from_a_message_hears_nothing_more() -> None:
    noted = Recorder()
    connection, _ = in_traffic(recorder=noted)
    noted.on_message = lambda frames: connection.fail(ProtocolError("enough"))
    connection.receive(zmtp.message(b"a") + zmtp.message(b"b"))
    connection.receive(zmtp.message(b"c"))
    assert noted.calls == [("message", b"a"), ("failed", "enough")]


@given(MESSAGES, st.lists(st.integers(0, 4000), max_size=6), st.sets(st.integers(0, 6)), st.data())
@examples(100)
def test_pausing_in_the_middle_of_anything_loses_nothing_and_keeps_the_order(
    messages: list[list[bytes]], cuts: list[int], pause_after: set[int], data: st.DataObject
) -> None:
    noted = Recorder()
    connection, _ = in_traffic(recorder=noted)

    def maybe_pause(frames: list[bytes]) -> None:
        assert not connection.paused
        if len(noted.calls) in pause_after:
            connection.pause()

    noted.on_message = maybe_pause
    if 0 in pause_after:
        connection.pause()
    stream = b"".join([zmtp.message(*frames) for frames in messages])
    start = 0
    for cut in sorted({min(cut, len(stream)) for cut in cuts} | {len(stream)}):
        seen = len(noted.calls)
        was_paused = connection.paused
        connection.receive(stream[start:cut])
        start = cut
        if was_paused:
            assert len(noted.calls) == seen
            if data.draw(st.booleans()):
                connection.resume()
    while connection.paused:
        connection.resume()
    assert noted.calls == [("message", *frames) for frames in messages]
    assert connection.kept() == 0


def test_a_pause_before_the_handshake_is_over_holds_messages_not_the_handshake() -> None:
    connection, noted = connect()
    connection.pause()
    connection.receive(handshake() + zmtp.message(b"a"))
    assert connection.phase == TRAFFIC
    assert noted.messages == []
    connection.resume()
    assert noted.messages == [[b"a"]]


def test_a_failure_while_paused_drops_what_was_kept() -> None:
    connection, noted = in_traffic()
    connection.pause()
    connection.receive(zmtp.message(b"a"))
    connection.fail(ProtocolError("gone"))
    assert connection.kept() == 0
    connection.resume()
    assert noted.messages == []


def test_pausing_and_going_on_from_inside_a_message_changes_nothing() -> None:
    noted = Recorder()
    connection, _ = in_traffic(recorder=noted)

    def hiccup(frames: list[bytes]) -> None:
        connection.pause()
        connection.resume()

    noted.on_message = hiccup
    connection.receive(zmtp.message(b"a") + zmtp.message(b"b") + zmtp.message(b"c")[:-1])
    connection.receive(b"c")
    assert noted.messages == [[b"a"], [b"b"], [b"c"]]


def test_a_message_that_begins_as_expected_is_handed_on_without_its_head() -> None:
    connection, noted = in_traffic()
    noted.expected = b"\x01\x01a\x01\x00"
    connection.receive(zmtp.message(b"a", b"", b"body", b"more") + zmtp.message(b"a", b"x", b"body"))
    assert noted.guessed == 1
    assert noted.messages == [[b"a", b"", b"body", b"more"], [b"a", b"x", b"body"]]


def test_no_bytes_of_the_peer_match_when_nothing_is_expected() -> None:
    for first in range(256):
        connection, noted = in_traffic()
        connection.receive(bytes((first, 1)) + b"a" * 300)
        assert noted.guessed == 0


def test_an_expected_head_is_under_the_same_limits() -> None:
    connection, noted = in_traffic(limits=ConnectionLimits(message_bytes=100))
    noted.expected = b"\x01\x01a"
    connection.receive(b"\x01\x01a" + b"\x02" + (1 << 62).to_bytes(8, "big"))
    assert "100 bytes" in noted.failures[0]
    connection, noted = in_traffic()
    noted.expected = b"\x01\x01a"
    connection.receive(b"\x01\x01a" + b"\x04\x05\x04PING")
    assert "flags" in noted.failures[0]


def test_growth_of_an_unfinished_message_is_told_in_steps_and_its_end() -> None:
    told: list[int] = []
    connection, recorder = in_traffic()
    recorder.buffered = told.append  # type: ignore[method-assign]
    whole = zmtp.message(bytes(300_000))
    for start in range(0, len(whole), 10_000):
        connection.receive(whole[start : start + 10_000])
    assert told == [70_000, 140_000, 210_000, 280_000, 0]
    assert connection.spanned == 1


def test_closed_connection_keeps_nothing_and_takes_nothing() -> None:
    connection, recorder = in_traffic()
    connection.receive(zmtp.message(bytes(1000))[:500])
    connection.close()
    assert connection.kept() == 0
    connection.receive(zmtp.message(b"x"))
    assert connection.kept() == 0
    assert recorder.calls == []
