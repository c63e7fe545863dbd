"""memo01's messages: the vectors, any well-formed encoding in, the deterministic one out, payloads and frames."""

from __future__ import annotations

import io

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.dialects.memo import messages
from polydomo.dialects.memo.messages import (
    DISCONNECT,
    FRAMES,
    HEADER_MAX,
    HEARTBEAT,
    JOB,
    READY,
    RESULT,
    body_of,
    payload_of,
    read,
)
from polydomo.errors import ProtocolError
from polydomo.wire import frames

ID = b"\1\2\3\4"

VECTORS = [
    (messages.ready([b"echo"]), "84666d656d6f3031014081646563686f"),
    (messages.job(b"", b"echo", 10000), "85666d656d6f30310240646563686f192710"),
    (messages.job(ID, b"echo", 10000), "85666d656d6f3031024401020304646563686f192710"),
    (messages.result(ID), "83666d656d6f3031034401020304"),
    (messages.result(ID, True), "84666d656d6f3031034401020304f5"),
    (messages.result(b""), "83666d656d6f30310340"),
    (messages.heartbeat(ID), "83666d656d6f3031044401020304"),
    (messages.disconnect(ID), "83666d656d6f3031054401020304"),
]

names = st.text(max_size=30).map(lambda text: text.encode())
ids = st.binary(max_size=40)
timeouts = st.integers(0, 2**64 - 1)


def head_of(data: bytes) -> messages.Header:
    return read(data, 0, len(data))


@pytest.mark.clause("MEMO-F-03")
@pytest.mark.parametrize(("made", "vector"), VECTORS)
def test_the_known_bytes(made: bytes, vector: str) -> None:
    assert made.hex() == vector


@pytest.mark.clause("MEMO-F-03")
@given(services=st.lists(names, max_size=5), id=ids, name=names, timeout=timeouts, leaving=st.booleans())
def test_what_is_written_is_deterministic_cbor(
    services: list[bytes], id: bytes, name: bytes, timeout: int, leaving: bool
) -> None:
    for made in (
        messages.ready(services),
        messages.job(id, name, timeout),
        messages.result(id, leaving),
        messages.heartbeat(id),
        messages.disconnect(id),
    ):
        assert cbor2.dumps(cbor2.loads(made), canonical=True) == made


@given(services=st.lists(names, max_size=5, unique=True), id=ids, name=names, timeout=timeouts)
def test_what_is_written_is_read(services: list[bytes], id: bytes, name: bytes, timeout: int) -> None:
    header = head_of(messages.ready(services))
    assert (header.kind, header.id) == (READY, b"")
    assert header.services == sorted(services, key=lambda each: (len(each), each))
    data = messages.job(id, name, timeout) + b"payload"
    header = head_of(data)
    assert (header.kind, header.id, header.service, header.timeout) == (JOB, id, name, timeout)
    assert data[header.end :] == b"payload"
    for leaving in (False, True):
        data = messages.result(id, leaving) + b"payload"
        header = head_of(data)
        assert (header.kind, header.id, header.leaving) == (RESULT, id, leaving)
        assert data[header.end :] == b"payload"
    assert head_of(messages.heartbeat(id)).kind == HEARTBEAT
    assert head_of(messages.disconnect(id)).kind == DISCONNECT


def long_head(major: int, value: int, width: int) -> bytes:
    """A head that is longer than it needs to be."""
    return bytes((major << 5 | (24 + width.bit_length() - 1),)) + value.to_bytes(width, "big")


@pytest.mark.clause("MEMO-F-01")
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_heads_may_be_longer_than_needed(width: int) -> None:
    data = (
        long_head(4, 5, width)
        + long_head(3, 6, width)
        + b"memo01"
        + long_head(0, 2, width)
        + long_head(2, 1, width)
        + b"i"
        + long_head(3, 4, width)
        + b"echo"
        + long_head(0, 7, width)
    )
    assert cbor2.loads(data) == ["memo01", 2, b"i", "echo", 7]
    header = head_of(data + b"payload")
    assert (header.id, header.service, header.timeout, header.end) == (b"i", b"echo", 7, len(data))


@pytest.mark.clause("MEMO-F-01")
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x9f\x66memo01\x01\x40\x9f\x61a\x61b\xff\xff", READY),
        (b"\x9f\x7f\x64memo\x6201\xff\x02\x5f\xff\x7f\x61a\xff\x00\xff", JOB),
        (b"\x9f\x66memo01\x03\x5f\x41a\x41b\xff\xff", RESULT),
        (b"\x9f\x66memo01\x03\x40\xf5\xff", RESULT),
        (b"\x9f\x66memo01\x04\x40\xff", HEARTBEAT),
    ],
)
def test_lengths_may_be_indefinite(data: bytes, kind: int) -> None:
    header = head_of(data)
    assert header.kind == kind
    assert header.end == len(data)
    found = cbor2.loads(data)
    assert header.id == found[2]
    assert header.leaving == (kind == RESULT and len(found) == 4)


@pytest.mark.clause("MEMO-F-01")
@given(
    name=names,
    id=ids,
    timeout=timeouts,
    payload=st.binary(max_size=30),
    leaving=st.sampled_from([None, True, False]),
)
def test_the_split_is_where_cbor2_has_it(
    name: bytes, id: bytes, timeout: int, payload: bytes, leaving: bool | None
) -> None:
    fields = [] if leaving is None else [leaving]
    for items in (["memo01", 2, id, name.decode(), timeout], ["memo01", 3, id, *fields]):
        data = cbor2.dumps(items) + payload
        stream = io.BytesIO(data)
        assert cbor2.load(stream) == items
        assert head_of(data).end == stream.tell()
        assert stream.read() == payload


GARBAGE = {
    "nothing": b"",
    "no array": b"\x66memo01",
    "another protocol": b"\x83\x66memo02\x04\x40",
    "bytes for text": b"\x83\x46memo01\x04\x40",
    "no type": b"\x83\x66memo01\x61a\x40",
    "type 0": b"\x83\x66memo01\x00\x40",
    "type 6": b"\x83\x66memo01\x06\x40",
    "text for the ID": b"\x83\x66memo01\x04\x60",
    "no ID": b"\x82\x66memo01\x04",
    "an item too many": b"\x84\x66memo01\x04\x40\x00",
    "an item too few": b"\x84\x66memo01\x02\x40\x61a",
    "READY without a list": b"\x83\x66memo01\x01\x40",
    "READY with a name for a list": b"\x84\x66memo01\x01\x40\x61a",
    "READY with a number for a name": b"\x84\x66memo01\x01\x40\x81\x01",
    "READY with a payload": b"\x84\x66memo01\x01\x40\x80x",
    "HEARTBEAT with a payload": b"\x83\x66memo01\x04\x40x",
    "DISCONNECT with a payload": b"\x83\x66memo01\x05\x40x",
    "a negative time-out": b"\x85\x66memo01\x02\x40\x61a\x20",
    "a time-out in fractions": b"\x85\x66memo01\x02\x40\x61a\xf9\x3c\x00",
    "RESULT with a number for its flag": b"\x84\x66memo01\x03\x40\x01",
    "RESULT with null for its flag": b"\x84\x66memo01\x03\x40\xf6",
    "RESULT with a flag of two bytes": b"\x84\x66memo01\x03\x40\xf8\x15",
    "cut short": b"\x85\x66memo01\x02\x40\x61",
    "a length beyond the end": b"\x85\x66memo01\x02\x40\x7b\xff\xff\xff\xff\xff\xff\xff\xff",
    "a reserved length": b"\x85\x66memo01\x02\x5c",
    "an indefinite number": b"\x85\x66memo01\x1f",
    "no UTF-8": b"\x85\x66memo01\x02\x40\x62\xc3\x28\x00",
    "chunks of another kind": b"\x85\x66memo01\x02\x5f\x61a\xff\x61a\x00",
    "chunks within chunks": b"\x85\x66memo01\x02\x5f\x5f\xff\xff\x61a\x00",
    "a map": b"\xa1\x66memo01\x01",
    "a tag": b"\xd9\xd9\xf7\x83\x66memo01\x04\x40",
    "an array that never ends": b"\x9f\x66memo01\x04\x40",
    "a list of very many": b"\x84\x66memo01\x01\x40\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_refused(what: str) -> None:
    data = GARBAGE[what]
    with pytest.raises(ProtocolError):
        head_of(data)


@pytest.mark.parametrize("made", [made for made, _ in VECTORS])
def test_every_beginning_of_a_header_is_refused(made: bytes) -> None:
    for size in range(len(made)):
        with pytest.raises(ProtocolError):
            head_of(made[:size])


def test_a_header_is_bounded() -> None:
    fits = messages.job(bytes(HEADER_MAX - 30), b"echo", 0)
    assert head_of(fits).end == len(fits)
    with pytest.raises(ProtocolError, match="too long"):
        head_of(messages.job(bytes(HEADER_MAX), b"echo", 0))
    with pytest.raises(ProtocolError, match="more than"):
        head_of(messages.ready([b"%d" % number for number in range(1001)]))


def test_nothing_beyond_the_end_is_read() -> None:
    """Messages lie in one buffer behind each other."""
    data = messages.heartbeat(ID)
    with pytest.raises(ProtocolError):
        read(data, 0, len(data) - 1)


def test_names_are_written_by_length_and_then_bytes() -> None:
    assert cbor2.loads(messages.ready([b"bb", b"c", b"aa", b"c"]))[3] == ["c", "aa", "bb"]


# Bodies of several frames


@given(st.lists(st.one_of(st.binary(max_size=20), st.just(bytes(300)), st.just(FRAMES)), max_size=4))
def test_any_body_survives_the_way_there_and_back(parts: list[bytes]) -> None:
    body = frames.join(parts)
    assert body_of(payload_of(body)) == body


@given(st.one_of(st.binary(max_size=30), st.binary(max_size=30).map(lambda rest: FRAMES + rest)))
def test_any_payload_survives_the_way_there_and_back(payload: bytes) -> None:
    assert payload_of(body_of(payload)) == payload


def test_one_frame_is_its_bytes() -> None:
    assert payload_of(frames.frame(b"hello")) == b"hello"
    assert payload_of(frames.frame(bytes(300))) == bytes(300)
    assert payload_of(frames.frame(b"")) == b""


def test_several_are_packed_as_they_lie() -> None:
    body = frames.join([b"a", b"b"])
    assert payload_of(body) == FRAMES + body
    assert payload_of(b"") == FRAMES


@pytest.mark.parametrize(
    "rest", [b"\0", b"\0\5abc", b"\1\1a", b"\4\0", b"\0\0\0\0", b"\2\0\0", b"\1\0" * 1024 + b"\0\0"]
)
def test_frames_that_are_not_sound_are_one(rest: bytes) -> None:
    assert frames.split(body_of(FRAMES + rest)) == [FRAMES + rest]
