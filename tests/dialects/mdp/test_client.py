"""The client's side of MDP/0.2, pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.dialects.mdp.client import MdpClientProtocol
from polydomo.wire.frames import Message, join, split
from tests.support.effort import examples

NAMES = st.binary(min_size=1, max_size=300)
BODIES = st.lists(st.binary(max_size=300), min_size=1, max_size=4)


def message(*frames: bytes) -> Message:
    data = join(frames)
    return Message(data, 0, len(data))


@given(NAMES, BODIES)
@examples(100)
def test_a_request_has_the_frames_of_the_specification(service: bytes, body: list[bytes]):
    wire = MdpClientProtocol().request(service, join(body))
    assert split(wire) == [b"MDPC02", b"\x01", service, *body]


def test_an_empty_body_becomes_an_empty_frame():
    """§MDP/Client: a REQUEST has "4 or more frames"."""
    assert split(MdpClientProtocol().request(b"echo", b"")) == [b"MDPC02", b"\x01", b"echo", b""]


@given(NAMES, BODIES, st.lists(BODIES, max_size=3))
@examples(100)
def test_partials_and_then_the_final_are_read(
    service: bytes, final: list[bytes], partials: list[list[bytes]]
):
    protocol = MdpClientProtocol()
    protocol.request(service, join([b"x"]))
    for body in partials:
        answer = protocol.receive(message(b"MDPC02", b"\x02", service, *body))
        assert answer is not None
        assert (split(answer.body), answer.final, protocol.waiting) == (body, False, True)
    answer = protocol.receive(message(b"MDPC02", b"\x03", service, *final))
    assert answer is not None
    assert (split(answer.body), answer.final, protocol.waiting) == (final, True, False)


def test_one_request_at_a_time():
    """§MDP/Client: one request, its answer, and then the next."""
    protocol = MdpClientProtocol()
    protocol.request(b"echo", b"")
    with pytest.raises(RuntimeError, match="one request at a time"):
        protocol.request(b"echo", b"")


def test_after_the_final_the_next_request_may_be_of_another_service():
    protocol = MdpClientProtocol()
    for service in (b"one", b"two"):
        protocol.request(service, join([b"x"]))
        answer = protocol.receive(message(b"MDPC02", b"\x03", service, b"y"))
        assert answer is not None
        assert answer.final


@pytest.mark.parametrize(
    "frames",
    [
        [b"MDPC02", b"\x03", b"other", b"y"],
        [b"MDPC02", b"\x03", b"echo"],
        [b"MDPC02", b"\x04", b"echo", b"y"],
        [b"MDPC01", b"\x03", b"echo", b"y"],
        [b"", b"MDPC02", b"\x03", b"echo", b"y"],
        [b"MDPC02"],
        [b""],
    ],
    ids=[
        "another-service",
        "no-body",
        "no-such-command",
        "another-version",
        "empty-first",
        "header-only",
        "empty",
    ],
)
def test_what_answers_nothing_is_dropped(frames: list[bytes]):
    protocol = MdpClientProtocol()
    protocol.request(b"echo", b"")
    assert protocol.receive(message(*frames)) is None
    assert protocol.waiting


def test_an_answer_without_a_request_is_dropped():
    """§MDP/Client: after a FINAL there SHALL be nothing."""
    protocol = MdpClientProtocol()
    assert protocol.receive(message(b"MDPC02", b"\x03", b"echo", b"y")) is None


def test_frames_may_be_encoded_in_the_long_form():
    """RFC 37 lets a short frame have a long size."""
    protocol = MdpClientProtocol()
    protocol.request(b"echo", b"")
    data = b"\x03" + (6).to_bytes(8, "big") + b"MDPC02" + join([b"\x03", b"echo", b"y"])
    answer = protocol.receive(Message(data, 0, len(data)))
    assert answer is not None
    assert split(answer.body) == [b"y"]


def test_a_message_in_the_middle_of_a_buffer_is_read_in_its_bounds():
    protocol = MdpClientProtocol()
    protocol.request(b"echo", b"")
    one = join([b"MDPC02", b"\x03", b"echo", b"y"])
    answer = protocol.receive(Message(b"before" + one + b"behind", 6, 6 + len(one)))
    assert answer is not None
    assert split(answer.body) == [b"y"]
