"""wire/zmtp/greeting: the first 64 bytes (RFC 37 §Version Negotiation), and who is turned away by them."""

from __future__ import annotations

import pytest

from polydomo.errors import ProtocolError
from polydomo.wire.zmtp import greeting
from tests.support import zmtp


def test_ours_is_version_3_1_in_64_bytes() -> None:
    assert greeting.encode(b"NULL") == zmtp.greeting()
    assert len(greeting.encode(b"CURVE")) == greeting.SIZE


@pytest.mark.parametrize(("version", "major", "minor"), [(b"\3\0", 3, 0), (b"\3\1", 3, 1), (b"\4\7", 4, 7)])
def test_zmtp_3_and_newer_are_understood(version: bytes, major: int, minor: int) -> None:
    theirs = greeting.decode(zmtp.greeting(version))
    assert (theirs.major, theirs.minor, theirs.mechanism) == (major, minor, b"NULL")


def test_the_mechanism_is_read() -> None:
    assert greeting.decode(greeting.encode(b"CURVE")).mechanism == b"CURVE"


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"G", "0x47"),  # GET / HTTP/1.1
        (b"\x16", "0x16"),  # TLS
        (b"\x01\x00", "ZMTP 1.0"),  # an anonymous ZMTP 1.0 peer: a short frame
        (b"\xff\0\0\0\0\0\0\0\x09\x00", "ZMTP 1.0"),  # its long form
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x00", "ZMTP 1.0"),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x01", "ZMTP 2.0"),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x02", "ZMTP 2.0"),
    ],
)
def test_what_is_not_zmtp_3_is_refused_as_soon_as_it_shows(first: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as caught:
        greeting.check_start(first)
    assert "ZeroMQ 4.0 or newer" in str(caught.value)
    for shorter in range(len(first)):
        if first[0] == 0xFF:
            greeting.check_start(first[:shorter])


@pytest.mark.parametrize("mechanism", [b"", b"NU LL", b"N\xc3LL", b"NULL\0X"])
def test_a_mechanism_that_is_no_name_is_refused(mechanism: bytes) -> None:
    with pytest.raises(ProtocolError, match="mechanism"):
        greeting.decode(zmtp.greeting(mechanism=mechanism))
