"""wire/curve/keys: key pairs and Z85 (RFC 32)."""

from __future__ import annotations

import os

import pytest
import zmq.utils.z85
from hypothesis import given
from hypothesis import strategies as st

from polydomo.wire.curve.keys import DIGITS, KeyPair, decode_key, encode_key, new_key_pair, public_key
from tests.support.effort import examples

# zmq_curve(7): test keys as hexadecimal and Z85, public then secret.
PAIRS = [
    (
        "BB88471D65E2659B30C55A5321CEBB5AAB2B70A398645C26DCA2B2FCB43FC518",
        "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID",
        "7BB864B489AFA3671FBE69101F94B38972F24816DFB01B51656B3FEC8DFD0888",
        "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs",
    ),
    (
        "54FCBA24E93249969316FB617C872BB0C1D1FF14800427C594CBFACF1BC2D652",
        "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
        "8E0BDD697628B91D8F245587EE95C5B04D48963F79259877B49CD9063AEAD3B7",
        "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6",
    ),
]


@pytest.mark.parametrize(("public", "public_text", "secret", "secret_text"), PAIRS)
def test_the_published_test_keys(public: str, public_text: str, secret: str, secret_text: str) -> None:
    assert encode_key(bytes.fromhex(public)) == public_text
    assert decode_key(secret_text) == bytes.fromhex(secret)
    assert KeyPair(decode_key(secret_text)).public == bytes.fromhex(public)


def test_the_example_of_rfc_32() -> None:
    assert encode_key(bytes.fromhex("864FD26FB559F75B") * 4) == "HelloWorld" * 4


@given(st.binary(min_size=32, max_size=32))
@examples(50)
def test_keys_survive_as_text_which_libzmq_reads_alike(key: bytes) -> None:
    text = encode_key(key)
    assert decode_key(text) == key
    assert zmq.utils.z85.encode(key).decode() == text


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_keys_of_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"32 bytes, not {size}"):
        encode_key(bytes(size))
    with pytest.raises(ValueError, match=f"32 bytes, not {size}"):
        public_key(bytes(size))
    with pytest.raises(ValueError, match=f"32 bytes, not {size}"):
        KeyPair(bytes(size))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "40 characters"),
        ("0" * 39, "not 39"),
        ("0" * 41, "not 41"),
        ("0" * 12 + " " + "0" * 27, "character 13 "),
        ("0" * 39 + "ä", "character 40 "),
        ('"' + "0" * 39, "character 1 "),
        ("0" * 35 + "#####", "characters 36 to 40 "),
        ("%nSc1" + "0" * 35, "characters 1 to 5 "),  # 2^32
    ],
)
def test_texts_that_are_no_keys_are_refused_without_being_quoted(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        decode_key(text)
    assert len(text) < 5 or text[:5] not in str(caught.value)


def test_the_largest_key_is_all_ones() -> None:
    assert encode_key(b"\xff" * 32) == "%nSc0" * 8
    assert decode_key("%nSc0" * 8) == b"\xff" * 32


def test_z85_has_85_different_digits() -> None:
    assert len(set(DIGITS)) == len(DIGITS) == 85


def test_a_key_pair_never_shows_its_secret() -> None:
    pair = new_key_pair(os.urandom)
    for text in (repr(pair), str(pair), f"{pair}", repr([pair])):
        assert encode_key(pair.public) in text
        assert encode_key(pair.secret) not in text
        assert pair.secret.hex() not in text
        assert repr(pair.secret)[2:-1] not in text


def test_a_new_key_pair_takes_its_secret_from_the_given_source() -> None:
    asked: list[int] = []

    def random(size: int) -> bytes:
        asked.append(size)
        return bytes(range(size))

    assert new_key_pair(random).secret == bytes(range(32))
    assert asked == [32]
