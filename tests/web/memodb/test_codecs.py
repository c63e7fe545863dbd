"""Values as CBOR and as MemoDB-JSON: both ways without loss, one form each, and everything else refused."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.web.memodb import dagcbor, memojson
from polydomo.web.memodb.cid import CODECS, DAG_CBOR, UNRESTRICTED, Cid
from polydomo.web.memodb.dagcbor import BadCbor
from polydomo.web.memodb.memojson import BadJson

CIDS = st.builds(Cid.of, st.sampled_from(sorted(CODECS)), st.binary(max_size=60))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXTS | st.binary() | CIDS
)
NODES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=30)


def same(one: Any, other: Any) -> bool:
    """Equal, with 1 and 1.0 and True apart, and -0.0 and 0.0, and NaN the same as NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack(">d", one) == struct.pack(">d", other) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


def foreign(node: Any) -> Any:
    """As cbor2 would have it."""
    if isinstance(node, Cid):
        return cbor2.CBORTag(42, b"\0" + node.bytes)
    if isinstance(node, list):
        return [foreign(one) for one in node]
    if isinstance(node, dict):
        return {key: foreign(value) for key, value in node.items()}
    return node


@given(NODES)
def test_cbor_comes_back_as_it_was(node: Any) -> None:
    codec, block = dagcbor.encode(node)
    assert same(dagcbor.decode(block), node)
    assert dagcbor.codec_of(block) == codec
    assert dagcbor.encode(dagcbor.decode(block)) == (codec, block)


@given(NODES)
def test_json_comes_back_as_it_was(node: Any) -> None:
    text = memojson.encode(node)
    assert same(memojson.decode(text), node)
    assert memojson.encode(memojson.decode(text)) == text
    assert dagcbor.encode(memojson.decode(text)) == dagcbor.encode(node)


@given(NODES)
def test_another_reader_understands_it(node: Any) -> None:
    _, block = dagcbor.encode(node)
    assert same(unforeign(cbor2.loads(block)), node)


@given(NODES, st.booleans(), st.booleans())
def test_another_writer_is_understood(node: Any, canonical: bool, indefinite: bool) -> None:
    """cbor2 writes short floats, keys as they come, or lengths that are not known before: all of it means the value."""
    data = cbor2.dumps(foreign(node), canonical=canonical, indefinite_containers=indefinite)
    assert same(dagcbor.decode(data), node)


@given(st.binary(max_size=64))
@settings(max_examples=500)
def test_bytes_are_a_value_or_are_refused(data: bytes) -> None:
    """Only the deterministic form has a codec."""
    codec = dagcbor.codec_of(data)
    try:
        node = dagcbor.decode(data)
    except BadCbor:
        assert codec is None
        return
    written = dagcbor.encode(node)
    assert (written == (codec, data)) == (codec is not None)
    assert (written[1] == data) == (codec is not None)
    assert same(dagcbor.decode(written[1]), node)


def unforeign(node: Any) -> Any:
    if isinstance(node, cbor2.CBORTag):
        return Cid.load(node.value[1:])
    if isinstance(node, list):
        return [unforeign(one) for one in node]
    if isinstance(node, dict):
        return {key: unforeign(value) for key, value in node.items()}
    return node


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "cut off"),
        ("19", "cut off"),
        ("4301", "cut off"),
        ("8201", "cut off"),
        ("9a7fffffff", "cut off"),  # and no room is made for it
        ("0102", "after"),
        ("1801", ""),
        ("190017", ""),
        ("1a0000ffff", ""),
        ("1b00000000ffffffff", ""),
        ("5801aa", ""),
        ("1c", "reserved"),
        ("3bffffffffffffffff", "below"),
        ("fa3f800000", ""),
        ("f93c00", ""),
        ("f97e00", ""),
        ("fb7ff8000000000001", ""),
        ("fbfff8000000000000", ""),
        ("f7", ""),
        ("e0", "simple"),
        ("f818", "simple"),
        ("ff", "simple"),
        ("5f4101ff", ""),
        ("9f01ff", ""),
        ("bf616101ff", ""),
        ("a2616201616102", ""),
        ("a262616101616202", ""),
        ("a2616101616102", "twice"),
        ("a10102", "only texts"),
        ("a1410102", "only texts"),
        ("61ff", "UTF-8"),
        ("63eda080", "UTF-8"),
        ("c001", "tag 0"),
        ("c24101", "tag 2"),
        ("d82a01", "not a byte string"),
        ("d82a4401710001", "zero byte"),
        ("d82a450001710001", "truncated"),
        ("d82a4600ff71000102", "link"),
        ("81" * 129 + "01", "nested deeper"),
    ],
)
def test_what_deterministic_cbor_is_not(written: str, why: str) -> None:
    """Either it is not a value, and `why`; or it is one, in another form."""
    data = bytes.fromhex(written)
    assert dagcbor.codec_of(data) is None
    if why:
        with pytest.raises(BadCbor, match=why):
            dagcbor.decode(data)
    else:
        assert dagcbor.encode(dagcbor.decode(data))[1] != data


@pytest.mark.parametrize(
    ("written", "node"),
    [
        ("1801", 1),
        ("f93c00", 1.0),
        ("fa3f800000", 1.0),
        ("f7", None),
        ("5f4101420203ff", b"\1\2\3"),
        ("7f61616162ff", "ab"),
        ("9f0102ff", [1, 2]),
        ("bf616201616102ff", {"a": 2, "b": 1}),
        ("a2616201616102", {"a": 2, "b": 1}),
        ("d82a460001710001f6", Cid.of(DAG_CBOR, b"\xf6")),
    ],
)
def test_what_is_taken_all_the_same(written: str, node: Any) -> None:
    assert same(dagcbor.decode(bytes.fromhex(written)), node)


@pytest.mark.parametrize(
    "written", ["5f01ff", "5f5f4101ffff", "5f4101", "9f01", "bf6161ff", "a2616101616102", "1fff"]
)
def test_what_is_not_taken_either(written: str) -> None:
    with pytest.raises(BadCbor):
        dagcbor.decode(bytes.fromhex(written))


@pytest.mark.parametrize(
    "node", [2**64, -(2**63) - 1, {1: 2}, {1: 2, 3: 4}, "\ud800", {"\ud800": 1}, (1,), 1j]
)
def test_what_is_no_value(node: Any) -> None:
    with pytest.raises(BadCbor):
        dagcbor.encode(node)


def test_depth_and_number_are_bounded() -> None:
    deep: Any = 1
    for _ in range(dagcbor.DEPTH_MAX):
        deep = [deep]
    _, block = dagcbor.encode(deep)
    assert same(dagcbor.decode(block), deep)
    assert same(memojson.decode(memojson.encode(deep)), deep)
    with pytest.raises(BadCbor, match="nested deeper"):
        dagcbor.encode([deep])
    with pytest.raises(BadJson, match="nested deeper"):
        memojson.decode(b"[" * 129 + b"]" * 129)
    with pytest.raises(BadJson, match="nested deeper"):
        memojson.decode(b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(BadCbor, match="items"):
        dagcbor.decode(
            b"\x9a" + (dagcbor.ITEMS_MAX + 1).to_bytes(4, "big") + b"\x01" * (dagcbor.ITEMS_MAX + 1)
        )
    with pytest.raises(BadJson, match="items"):
        memojson.decode(b"[" + b"1," * (dagcbor.ITEMS_MAX + 1) + b"1]")
    commas = b'"' + b"," * (dagcbor.ITEMS_MAX + 1) + b'"'
    assert memojson.decode(commas) == commas[1:-1].decode()


@pytest.mark.parametrize("node", [2**63, 2**64 - 1, math.inf, -math.inf, math.nan, [{"a": math.inf}]])
def test_what_dag_cbor_has_no_room_for_has_its_own_codec(node: Any) -> None:
    assert dagcbor.encode(node)[0] == UNRESTRICTED
    assert dagcbor.encode([2**63 - 1, -(2**63), 1.5])[0] == DAG_CBOR


@pytest.mark.parametrize(
    ("text", "cid"),
    [
        ("27", "uAXEAAhgb"),
        ("-99", "uAXEAAjhi"),
        ("null", "uAXEAAfY"),
        ("true", "uAXEAAfU"),
        ("128758927483", "uAXEACRsAAAAd-qFQew"),
        ('{"float":"6.283"}', "uAXEACftAGSHKwIMSbw"),
        ('"∞"', "uAXEABGPiiJ4"),
        ("[1,2,3]", "uAXEABIMBAgM"),
        ('{"map":{"foo":"bar","oof":"rab"}}', "uAXEAEaJjZm9vY2JhcmNvb2ZjcmFi"),
        ('{"cid":"uAXEAAhgb"}', "uAXEACtgqRwABcQACGBs"),
        (
            '[{"cid":"uAXEAAhgb"},{"cid":"uAXEACRsAAAAd-qFQew"}]',
            "uAXEAHILYKkcAAXEAAhgb2CpOAAFxAAkbAAAAHfqhUHs",
        ),
    ],
)
def test_json_has_the_cids_that_memodb_gives(text: str, cid: str) -> None:
    codec, block = dagcbor.encode(memojson.decode(text.encode()))
    assert str(Cid.of(codec, block)) == cid
    assert memojson.encode(memojson.decode(text.encode())) == text.encode()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-4.5, "-4.5"),
        (0.1, "0.1"),
        (123456.78, "123456.78"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (1.1e-7, "1.1e-7"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (333333333.33333325, "333333333.33333325"),
        (2.0**68, "295147905179352830000"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_floats_as_ecmascript_prints_them(number: float, text: str) -> None:
    assert memojson.float_text(number) == text
    assert same(memojson.decode(json.dumps({"float": text}).encode()), number)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("-0", 0),
        (" [ 1\n,\t2 ] ", [1, 2]),
        ('{"float":"1E22"}', 1e22),
        ('{"float":"1.5e+9999"}', math.inf),
        ('{"float":"-1.0e+28"}', -1e28),
        ('{"base64":""}', b""),
        ('{"base64":"AP8w"}', b"\x00\xff0"),
        ('{"map":{}}', {}),
        ('{"map":{"cid":"x","map":1}}', {"cid": "x", "map": 1}),
        ('"\\u2022\\ud834\\udd1e"', "•𝄞"),
        ('"\\uDADA"', "\ufffd"),
        ('"\\u0000\\n"', "\0\n"),
    ],
)
def test_json_that_is_a_value(text: str, node: Any) -> None:
    assert same(memojson.decode(text.encode()), node)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nul",
        "01",
        "+1",
        "1.0",
        "1e3",
        "NaN",
        "-Infinity",
        "100000000000000000000",
        "-9223372036854775809",
        "1" * 5000,
        "[1,]",
        '["x"',
        "1 2",
        "{}",
        '{"foo":"bar"}',
        '{"map":{},"cid":"uAXEAAfY"}',
        '{"map":[]}',
        '{"map":{"a":1,"a":1}}',
        '{"map":{"a":{"b":1}}}',
        '{"cid":1}',
        '{"cid":"bafyqaapw"}',
        '{"cid":"uAXEAAQJ"}',
        '{"base64":"AA"}',
        '{"base64":"AB=="}',
        '{"base64":"A A="}',
        '{"base64":"__8="}',
        '{"base64":"é==="}',
        '{"float":1}',
        '{"float":"nan"}',
        '{"float":"1_0"}',
        '{"float":" 1"}',
        '{"float":"0x1"}',
        '{"float":"01"}',
        '{"float":"١"}',
        '"\x01"',
    ],
)
def test_json_that_is_none(text: str) -> None:
    with pytest.raises(BadJson):
        memojson.decode(text.encode())


@pytest.mark.parametrize("data", [b'"\x81"', b'"\xed\xa0\x80"', b"\xff\xfe1\x00"])
def test_json_is_utf_8(data: bytes) -> None:
    with pytest.raises(BadJson, match="UTF-8"):
        memojson.decode(data)


def test_keys_are_written_in_cbors_order() -> None:
    node = {"bb": 1, "a": 2, "c": 3, "é": 4}
    assert memojson.encode(node) == '{"map":{"a":2,"c":3,"bb":1,"é":4}}'.encode()


@given(NODES)
def test_links_are_found(node: Any) -> None:
    assert sorted(map(str, dagcbor.links(node))) == sorted(map(str, expected(node)))


def expected(node: Any) -> list[Cid]:
    if isinstance(node, Cid):
        return [node]
    inner = node if isinstance(node, list) else node.values() if isinstance(node, dict) else []
    return [cid for one in inner for cid in expected(one)]
