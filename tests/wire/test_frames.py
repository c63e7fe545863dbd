"""wire/frames: how messages lie in bytes (RFC 37/ZMTP §Framing), and how a head is cut from a body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.wire import frames
from polydomo.wire.frames import LONG, MORE, Message
from tests.support.effort import examples
from tests.support.zmtp import message as by_hand

# Sizes on both sides of the step from one length byte to eight.
BODIES = st.one_of(
    st.binary(max_size=20), st.sampled_from([bytes(254), bytes(255), bytes(256), bytes(70_000)])
)


@pytest.mark.parametrize("size", [0, 1, 254, 255])
def test_a_frame_of_up_to_255_bytes_is_short(size: int) -> None:
    assert frames.frame(bytes(size)) == bytes((0, size)) + bytes(size)
    assert frames.frame(bytes(size), True) == bytes((1, size)) + bytes(size)


@pytest.mark.parametrize("size", [256, 65_536])
def test_a_longer_frame_has_eight_size_bytes(size: int) -> None:
    assert frames.frame(bytes(size)) == b"\x02" + size.to_bytes(8, "big") + bytes(size)
    assert frames.frame(bytes(size), True) == b"\x03" + size.to_bytes(8, "big") + bytes(size)


@given(st.lists(BODIES, max_size=6))
@examples(60)
def test_join_and_split_are_each_others_inverse(bodies: list[bytes]) -> None:
    joined = frames.join(bodies)
    assert frames.split(joined) == bodies
    assert joined == (by_hand(*bodies) if bodies else b"")


@given(st.lists(BODIES, max_size=3), st.lists(BODIES, min_size=1, max_size=3))
@examples(60)
def test_a_head_before_a_body_is_one_message(head: list[bytes], body: list[bytes]) -> None:
    assert frames.head(*head) + frames.join(body) == frames.join([*head, *body])


def test_the_named_frames_are_what_they_say() -> None:
    assert frames.frame(b"", True) == frames.DELIMITER
    assert frames.frame(b"") == frames.EMPTY_BODY


@given(
    st.lists(BODIES, min_size=1, max_size=5), st.integers(0, 5), st.binary(max_size=9), st.binary(max_size=9)
)
@examples(60)
def test_take_gives_frames_from_the_front_and_rest_what_follows(
    bodies: list[bytes], taken: int, before: bytes, after: bytes
) -> None:
    data = before + frames.join(bodies) + after
    message = Message(data, len(before), len(data) - len(after))
    taken = min(taken, len(bodies))
    assert [message.take() for _ in range(taken)] == bodies[:taken]
    assert message.rest() == frames.join(bodies[taken:])
    assert message.frames() == bodies[taken:]
    assert message.take() is None
    assert message.rest() == b""


def test_a_short_body_in_a_long_frame_is_understood() -> None:
    """RFC 37 lets a sender use the long form for any size; libzmq does not, others do."""
    assert frames.split(b"\x03" + (2).to_bytes(8, "big") + b"ab" + b"\x02" + bytes(8)) == [b"ab", b""]


@given(st.lists(BODIES, min_size=1, max_size=4), st.data())
@examples(60)
def test_measure_finds_the_end_or_says_how_much_is_missing(bodies: list[bytes], data: st.DataObject) -> None:
    whole = frames.join(bodies)
    assert frames.measure(bytearray(whole + b"next"), 0) == (len(whole), 0, len(bodies))
    have = data.draw(st.integers(0, len(whole) - 1))
    reached, need, count = frames.measure(bytearray(whole[:have]), 0)
    assert have < need <= len(whole)
    assert reached <= have
    assert frames.split(whole[:reached]) == bodies[:count]
    # It can be asked to go on from where it was.
    end, rest, more = frames.measure(bytearray(whole), reached)
    assert (end, rest, count + more) == (len(whole), 0, len(bodies))


def test_measure_believes_no_size_but_makes_no_room_for_it() -> None:
    header = bytes((LONG | MORE,)) + (1 << 62).to_bytes(8, "big")
    assert frames.measure(bytearray(header), 0) == (0, (1 << 62) + 9, 0)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "None"),
        (b"", "b''"),
        (b"x" * 32, repr(b"x" * 32)),
        (b"\0" * 33, repr(bytes(32)) + "... (33 bytes)"),
    ],
)
def test_a_frame_is_shown_by_its_beginning(body: bytes | None, text: str) -> None:
    assert frames.shown(body) == text
