"""CIDs: the vectors of MemoDB's own users, every base, and nothing that is not one."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.web.memodb.cid import CODECS, DAG_CBOR, RAW, BadCid, Cid


@pytest.mark.parametrize(
    ("codec", "block", "text"),
    [
        (DAG_CBOR, b"\x02", "uAXEAAQI"),
        (DAG_CBOR, b"\x04", "uAXEAAQQ"),
        (DAG_CBOR, b"\x18\x1b", "uAXEAAhgb"),
        (DAG_CBOR, b"\xf6", "uAXEAAfY"),
        (RAW, b"\x55\xaa", "uAVUAAlWq"),
        (RAW, b"", "uAVUAAA"),
        (
            DAG_CBOR,
            bytes.fromhex("781a") + bytes(range(97, 123)),
            "uAXEAHHgaYWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo",
        ),
    ],
)
def test_small_content_is_inside(codec: int, block: bytes, text: str) -> None:
    cid = Cid.of(codec, block)
    assert str(cid) == text
    assert Cid.parse(text) == cid
    assert cid.content == block


def test_a_large_list_as_memodb_names_it() -> None:
    """The numbers 0 to 1023 in a list."""
    from polydomo.web.memodb.dagcbor import encode

    codec, block = encode(list(range(1024)))
    assert str(Cid.of(codec, block)) == "uAXGg5AIg6aa9gvagXHAJtTCI5l_QXWbIMNnQN6905en1kSnHNPo"


def test_identity_ends_where_the_hash_is_shorter() -> None:
    assert Cid.of(RAW, b"x" * 34).content == b"x" * 34
    hashed = Cid.of(RAW, b"x" * 35)
    assert hashed.content is None
    assert hashed.digest == hashlib.blake2b(b"x" * 35, digest_size=32).digest()
    assert hashed.bytes[:6] == bytes.fromhex("0155a0e40220")
    assert len(Cid.of(RAW, b"x" * 34).bytes) == len(hashed.bytes)


@given(st.sampled_from(sorted(CODECS)), st.binary(max_size=80))
def test_every_base_means_the_same(codec: int, block: bytes) -> None:
    cid = Cid.of(codec, block)
    data = cid.bytes
    url = base64.urlsafe_b64encode(data).decode()
    plain = base64.b64encode(data).decode()
    b32 = base64.b32encode(data).decode().rstrip("=")
    texts = [
        "u" + url.rstrip("="),
        "U" + url,
        "m" + plain.rstrip("="),
        "M" + plain,
        "b" + b32.lower(),
        "B" + b32,
        "f" + data.hex(),
        "F" + data.hex().upper(),
        "z" + _base58(data),
        "/cid/u" + url.rstrip("="),
    ]
    assert {Cid.parse(text) for text in texts} == {cid}
    assert str(cid) == texts[0]
    assert Cid.of(codec, block) == cid
    assert Cid.of(codec, block + b"x") != cid
    assert Cid.load_from(b"??" + data + b"more", 2) == (cid, 2 + len(data))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "too short"),
        ("u", "too short"),
        ("AXEAAQI", "not a known base"),
        ("éAXEAAQI", "not a known base"),
        ("uAXEAAQJ", "malformed"),  # bits that stand for nothing are set
        ("uAXEAAQI=", "malformed"),
        ("UAXEAAQI==", "malformed"),
        ("uAXEA AQI", "malformed"),
        ("uAXEAA+I", "malformed"),
        ("mAXEAA-I", "malformed"),
        ("uAXEAAQIAA", "malformed"),
        ("fABCD", "malformed"),
        ("B" + "abcd", "malformed"),
        ("z0", "malformed"),
        ("f0171000102ff", "1 bytes after"),
        ("f01710002", "truncated"),
        ("f0171", "truncated"),
        ("f0071000102", "version 0"),
        ("f017000", "codec 0x70"),
        ("f01711220" + "00" * 32, "hash 0x12"),
        ("f0171a0e4021f" + "00" * 31, "not 31"),
        ("f8100710001", "shortest form"),
        ("f" + "ff" * 12, "more than nine bytes"),
        ("u" + "A" * 9000, "too long"),
    ],
)
def test_what_is_no_cid(text: str, why: str) -> None:
    with pytest.raises(BadCid, match=why):
        Cid.parse(text)


@given(st.text(max_size=60))
def test_any_text_is_a_cid_or_is_refused(text: str) -> None:
    try:
        cid = Cid.parse(text)
    except BadCid:
        return
    assert Cid.parse(str(cid)) == cid


def _base58(data: bytes) -> str:
    letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    number = int.from_bytes(data, "big")
    out = ""
    while number:
        number, digit = divmod(number, 58)
        out = letters[digit] + out
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + out
