"""CBOR, beside an implementation that we did not write."""

from __future__ import annotations

import math

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import ProtocolError
from polydomo.wire import cbor

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)), max_leaves=20
)
MAPS = st.dictionaries(st.text(), VALUES, max_size=6)


@given(MAPS)
def test_what_we_write_others_read(value: dict[str, object]):
    assert cbor2.loads(cbor.encode(value)) == value
    assert cbor.decode_map(cbor.encode(value)) == value


@given(MAPS)
def test_what_others_write_we_read(value: dict[str, object]):
    assert cbor.decode_map(cbor2.dumps(value)) == value
    assert cbor.decode_map(cbor2.dumps(value, canonical=True)) == value


@given(MAPS)
def test_equal_values_are_equal_bytes(value: dict[str, object]):
    turned = dict(reversed(list(value.items())))
    assert cbor.encode(value) == cbor.encode(turned)


@given(st.binary(max_size=64))
def test_noise_is_refused_and_nothing_else_happens(noise: bytes):
    try:
        value = cbor.decode_map(noise)
    except ProtocolError:
        return
    assert isinstance(value, dict)


def test_floats_are_as_short_as_they_can_be():
    assert cbor.encode(1.5) == bytes.fromhex("f93e00")
    assert cbor.encode(100000.0) == bytes.fromhex("fa47c35000")
    assert cbor.encode(1.1) == bytes.fromhex("fb3ff199999999999a")
    assert cbor.encode(math.nan) == bytes.fromhex("f97e00")
    assert cbor.encode(math.inf) == bytes.fromhex("f97c00")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("bf6161 9f01ff ff", {"a": [1]}),  # indefinite lengths
        ("a1 6161 5f 4101 4102 ff", {"a": b"\1\2"}),
        ("a1 6161 7f 6162 6163 ff", {"a": "bc"}),
        ("a1 6161 c1 1a514b67b0", {"a": 1363896240}),  # a tag is skipped
        ("a1 6161 f7", {"a": None}),
        ("a1 7a00000001 61 1b0000000000000001", {"a": 1}),  # longer heads than needed
        ("a1 6161 f93c00", {"a": 1.0}),
    ],
)
def test_any_well_formed_encoding_is_read(data: str, value: object):
    assert cbor.decode_map(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    "data",
    [
        "",
        "01",
        "80",
        "a1",
        "a16161",
        "a0 00",
        "a1 01 01",  # a key that is no text
        "a2 6161 01 6161 02",  # twice
        "a1 61ff 01",
        "a1 6161 7f 61c3 61a9 ff",  # a character in two pieces
        "a1 6161 5f 6161 ff",
        "a1 6161 1c",
        "a1 6161 f8ff",
        "a1 6161 ff",
        "a1 6161 9b ffffffffffffffff",
        "bb ffffffffffffffff",
        "a1 6161 3f",
        "a1 6161" + "81" * 40 + "01",
        "a1 6161" + "c1" * 40 + "01",
    ],
)
def test_what_is_not_well_formed_is_refused(data: str):
    with pytest.raises(ProtocolError):
        cbor.decode_map(bytes.fromhex(data))


@pytest.mark.parametrize("value", [2**64, -(2**64) - 1, {1: 2}, object(), {"a": {1}}])
def test_what_cannot_be_written_is_refused(value: object):
    with pytest.raises((TypeError, ValueError)):
        cbor.encode(value)
