"""The client's side of DCP v1, pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.dialects.dcp.client import DcpClientProtocol
from polydomo.wire.frames import Message, join, split
from tests.support.effort import examples

PARTS = st.lists(st.binary(max_size=300), max_size=4)
METADATA = st.lists(st.binary(min_size=1, max_size=300), max_size=4)


def message(*frames: bytes) -> Message:
    data = join(frames)
    return Message(data, 0, len(data))


@given(st.binary(min_size=1, max_size=300), st.binary(min_size=1, max_size=300), PARTS)
@examples(100)
def test_a_request_has_the_parts_of_the_specification(service: bytes, mark: bytes, data: list[bytes]):
    """§Requests & Replies, with the client's address left to the broker."""
    wire = DcpClientProtocol().request(service, mark, join(data))
    assert split(wire) == [b"", b"DGBX\x01", b"\x04", service, b"", mark, b"", *data]


def test_a_metadata_part_may_not_be_empty():
    """§Requests & Replies: metadata ends at the first empty part."""
    with pytest.raises(ValueError, match="may not be empty"):
        DcpClientProtocol().request(b"echo", b"", b"")


@pytest.mark.parametrize("kind", [b"\x05", b"\x05\0\0\0"], ids=["one-byte", "four-bytes"])
@given(METADATA, PARTS, st.binary(max_size=20))
@examples(100)
def test_a_reply_is_read_with_its_metadata(
    kind: bytes, metadata: list[bytes], data: list[bytes], address: bytes
):
    envelope = [address, b""] if address else [b""]
    reply = DcpClientProtocol().receive(message(b"", b"DGBX\x01", kind, *envelope, *metadata, b"", *data))
    assert reply is not None
    assert (reply.metadata, split(reply.body)) == (metadata, data)


def test_data_parts_may_be_empty():
    reply = DcpClientProtocol().receive(
        message(b"", b"DGBX\x01", b"\x05", b"me", b"", b"1", b"", b"", b"x", b"")
    )
    assert reply is not None
    assert split(reply.body) == [b"", b"x", b""]


@pytest.mark.parametrize(
    "frames",
    [
        [b"", b"DGBX\x01", b"\x03"],
        [b"", b"DGBX\x01", b"\x04", b"me", b"", b"1", b"", b"x"],
        [b"", b"DGBX\x01", b"\x05"],
        [b"", b"DGBX\x01", b"\x05", b"me"],
        [b"", b"DGBX\x01", b"\x05", b"me", b"", b"1"],
        [b"", b"DGBX\x01", b"\x05", b"me", b"not empty", b"1", b""],
        [b"", b"DGBX\x02", b"\x05", b"me", b"", b"1", b"", b"x"],
        [b"", b"DGBX\x01", b"\x05\0", b"me", b"", b"1", b"", b"x"],
        [b"DGBX\x01", b"\x05", b"me", b"", b"1", b"", b"x"],
        [b""],
    ],
)
def test_what_is_no_reply_is_dropped(frames: list[bytes]):
    assert DcpClientProtocol().receive(message(*frames)) is None
