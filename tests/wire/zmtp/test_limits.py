"""wire/zmtp/connection: what a peer cannot make us hold. Limits are judged by headers, not bodies."""

from __future__ import annotations

import tracemalloc

import pytest

from polydomo.wire.stream import CLOSED
from polydomo.wire.zmtp.connection import COMMAND_MAX, ConnectionLimits
from tests.support import zmtp
from tests.support.recorder import feed, in_traffic

LIMITS = ConnectionLimits(message_bytes=1000, frames=4)

HUGE = b"\x02" + (1 << 62).to_bytes(8, "big")


@pytest.mark.parametrize("cuts", [[], range(10)], ids=["whole", "byte by byte"])
@pytest.mark.parametrize("start", [HUGE, b"\x02" + b"\xff" * 8, b"\x06" + (1 << 62).to_bytes(8, "big")])
def test_a_header_that_announces_exabytes_makes_no_room_for_them(start: bytes, cuts: range) -> None:
    connection, noted = in_traffic()  # with the default limits
    tracemalloc.start()
    feed(connection, start, cuts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert "more than" in noted.failures[0]
    assert connection.phase == CLOSED


@pytest.mark.parametrize("cuts", [[], range(2000)], ids=["whole", "byte by byte"])
def test_a_message_of_exactly_the_limit_passes_and_one_more_byte_does_not(cuts: range) -> None:
    exact = zmtp.message(b"a", b"x" * (1000 - 3 - 9))
    assert len(exact) == 1000
    connection, noted = in_traffic(limits=LIMITS)
    feed(connection, exact + exact, cuts)
    assert len(noted.messages) == 2
    connection, noted = in_traffic(limits=LIMITS)
    feed(connection, zmtp.message(b"a", b"x" * (1000 - 3 - 8)), cuts)
    assert noted.messages == []
    assert "1000 bytes" in noted.failures[0]


@pytest.mark.parametrize("cuts", [[], range(2000)], ids=["whole", "byte by byte"])
def test_many_small_frames_count_together(cuts: range) -> None:
    connection, noted = in_traffic(limits=ConnectionLimits(message_bytes=1000, frames=10_000))
    feed(connection, b"\x01\x00" * 600, cuts)
    assert noted.calls == [("failed", "a message of more than 1000 bytes")]


@pytest.mark.parametrize("cuts", [[], range(100)], ids=["whole", "byte by byte"])
def test_a_frame_too_many_is_refused_when_its_header_is_seen(cuts: range) -> None:
    connection, noted = in_traffic(limits=LIMITS)
    feed(connection, zmtp.message(b"1", b"2", b"3", b"4"), cuts)
    assert noted.messages == [[b"1", b"2", b"3", b"4"]]
    connection, noted = in_traffic(limits=LIMITS)
    feed(connection, zmtp.message(b"1", b"2", b"3", b"4", b"5" * 50)[: 4 * 3 + 2], cuts)
    assert "4 frames" in noted.failures[0]


@pytest.mark.parametrize("cuts", [[], range(20)], ids=["whole", "byte by byte"])
def test_a_long_command_is_refused_by_its_header(cuts: range) -> None:
    connection, noted = in_traffic()
    feed(connection, b"\x06" + (COMMAND_MAX + 1).to_bytes(8, "big"), cuts)
    assert "command" in noted.failures[0]


@pytest.mark.parametrize("cuts", [[], range(0, 70_000, 1000)], ids=["whole", "in pieces"])
def test_a_command_of_exactly_the_limit_passes(cuts: range) -> None:
    connection, noted = in_traffic()
    feed(connection, zmtp.command(b"FUTURE", bytes(COMMAND_MAX - 7)) + zmtp.message(b"a"), cuts)
    assert noted.calls == [("message", b"a")]


def test_a_limit_in_the_middle_of_a_chunk_hands_on_what_was_before_it() -> None:
    connection, noted = in_traffic(limits=LIMITS)
    connection.receive(zmtp.message(b"a") + HUGE + b"rest")
    assert [call[0] for call in noted.calls] == ["message", "failed"]


def test_an_unfinished_message_is_never_held_beyond_its_limit() -> None:
    connection, noted = in_traffic(limits=ConnectionLimits(message_bytes=10_000, frames=1 << 30))
    for _ in range(30_000):
        connection.receive(b"\x01")
        connection.receive(b"\x00")
        assert connection.kept() <= 10_002
    assert len(noted.failures) == 1


def test_a_slow_message_of_many_pieces_costs_no_more_than_a_fast_one() -> None:
    """Each piece is looked at once: no copying of all that came before for every little piece."""
    connection, noted = in_traffic()
    body = bytes(4_000_000)
    wire = zmtp.message(b"head", body)
    tracemalloc.start()
    for start in range(0, len(wire) - 1000, 1000):
        connection.receive(wire[start : start + 1000])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * len(body)  # a bytearray grows by moving; a copy per piece would still show in time
    assert noted.calls == []
