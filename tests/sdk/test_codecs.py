"""Encoding values as bodies, and decoding them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.sdk import codecs
from polydomo.sdk.codecs import BodyError, Codec
from polydomo.wire.frames import join, split
from tests.support.effort import examples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize("name", ["json", "msgpack", "cbor"])
@given(VALUES)
@examples(60)
def test_values_come_back_as_they_were(name: str, value: Any):
    codec = codecs.find(name)
    body = codecs.encode(value, codec)
    assert len(split(body)) == 1
    assert codecs.decode(body, codec) == value


def test_json_has_no_word_for_infinity():
    assert codecs.decode(codecs.encode(float("inf"), codecs.JSON), codecs.JSON) is None
    assert codecs.decode(codecs.encode(float("inf"), codecs.MSGPACK), codecs.MSGPACK) == float("inf")


@pytest.mark.parametrize("name", ["json", "msgpack", "cbor", "raw"])
@pytest.mark.parametrize("value", [b"as it is", bytearray(b"as it is"), memoryview(b"as it is")])
def test_bytes_are_one_frame_whatever_the_codec(name: str, value: Any):
    assert split(codecs.encode(value, codecs.find(name))) == [b"as it is"]


def test_raw_sends_lists_of_bytes_as_frames_and_gives_them_back():
    body = codecs.encode([b"one", b"", b"two"], codecs.RAW)
    assert split(body) == [b"one", b"", b"two"]
    assert codecs.decode(body, codecs.RAW) == [b"one", b"", b"two"]
    assert codecs.decode(join([b"one"]), codecs.RAW) == b"one"
    assert codecs.decode(join([b""]), codecs.RAW) == b""
    assert codecs.decode(b"", codecs.RAW) == []


@pytest.mark.parametrize("value", [{"x": 1}, "text", None, [], [b"one", "two"]])
def test_raw_sends_nothing_else(value: Any):
    with pytest.raises(BodyError, match="cannot be sent as raw"):
        codecs.encode(value, codecs.RAW)


@pytest.mark.parametrize("name", ["json", "msgpack", "cbor"])
def test_an_empty_body_is_none(name: str):
    codec = codecs.find(name)
    assert codecs.decode(b"", codec) is None
    assert codecs.decode(join([b""]), codec) is None


@pytest.mark.parametrize(("name", "bad"), [("json", b"hello"), ("msgpack", b"\xc1"), ("cbor", b"\xff")])
def test_what_cannot_be_read_is_said_with_its_bytes(name: str, bad: bytes):
    with pytest.raises(BodyError) as told:
        codecs.decode(join([bad]), codecs.find(name))
    assert repr(bad) in str(told.value)
    assert "codec='raw'" in str(told.value)


def test_several_frames_are_not_one_value():
    with pytest.raises(BodyError, match="2 frames"):
        codecs.decode(join([b"1", b"2"]), codecs.JSON)


def test_what_cannot_be_sent_is_said_with_its_type():
    with pytest.raises(BodyError, match="a object cannot be sent as json"):
        codecs.encode(object(), codecs.JSON)


def test_bring_your_own():
    upper = Codec("upper", lambda value: value.upper().encode(), lambda data: data.decode().lower())
    assert codecs.find(upper) is upper
    assert split(codecs.encode("hello", upper)) == [b"HELLO"]
    assert codecs.decode(join([b"HELLO"]), upper) == "hello"


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match="json, msgpack, cbor, raw"):
        codecs.find("xml")
