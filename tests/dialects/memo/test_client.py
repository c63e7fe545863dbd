"""A memo01 client's side, message by message."""

from __future__ import annotations

import pytest

from polydomo.dialects.memo.client import MemoClientProtocol
from polydomo.dialects.memo.messages import FRAMES, TIMEOUT_MAX
from polydomo.wire.frames import frame, join

JOB = bytes.fromhex("85666d656d6f30310240646563686f")  # and the timeout
RESULT = bytes.fromhex("83666d656d6f30310340")


def sent(data: bytes) -> tuple[bytes, bytes]:
    """Its request ID and content."""
    assert int.from_bytes(data[:8], "big") == len(data) - 8
    return data[8:12], data[12:]


def test_a_job_is_the_specifications_bytes():
    side = MemoClientProtocol(7)
    id = side.next_id()
    assert id == b"\x80\0\0\x08"
    data = side.request(id, b"echo", 10.0, frame(b"hello"), False)
    assert sent(data) == (id, JOB + b"\x19\x27\x10hello")


def test_every_request_has_an_id_of_its_own_with_its_high_bit_set():
    side = MemoClientProtocol(0x7FFF_FFFE)
    assert [side.next_id() for _ in range(3)] == [b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x80\0\0\1"]


def test_over_ipc_a_byte_stands_before_the_size():
    side = MemoClientProtocol(0)
    id = side.next_id()
    assert side.request(id, b"echo", 1, b"", True) == b"\1" + side.request(id, b"echo", 1, b"", False)


@pytest.mark.parametrize(
    ("limit", "milliseconds"),
    [
        (None, b"\x1a" + TIMEOUT_MAX.to_bytes(4, "big")),
        (1e9, b"\x1a" + TIMEOUT_MAX.to_bytes(4, "big")),
        (0.0, b"\1"),
    ],
)
def test_time_limits(limit: float | None, milliseconds: bytes):
    data = MemoClientProtocol(0).request(b"\x80\0\0\1", b"echo", limit, frame(b""), False)
    assert sent(data)[1] == JOB + milliseconds


def test_several_frames_are_packed_and_taken_apart_again():
    side = MemoClientProtocol(0)
    body = join([b"one", b"", b"two"])
    content = sent(side.request(b"\x80\0\0\1", b"echo", 10, body, False))[1]
    assert content.endswith(FRAMES + body)
    answer = b"xx" + RESULT + FRAMES + body
    assert side.receive(answer, 2, len(answer)) == body


def test_a_result_in_any_encoding_is_one():
    side = MemoClientProtocol(0)
    indefinite = bytes.fromhex("9f666d656d6f303118035f40ffff") + b"body"
    assert side.receive(indefinite, 0, len(indefinite)) == frame(b"body")
    assert side.receive(RESULT, 0, len(RESULT)) == frame(b"")


@pytest.mark.parametrize(
    "data", [b"", b"hello", JOB + b"\1", bytes.fromhex("83666d656d6f30310540"), RESULT[:-1]]
)
def test_anything_else_is_dropped(data: bytes):
    assert MemoClientProtocol(0).receive(data, 0, len(data)) is None
