"""The first eight bytes."""

from __future__ import annotations

import pytest

from polydomo.errors import ProtocolError
from polydomo.wire.sp import hello
from tests.support import sp


def test_ours_are_those_of_the_specification() -> None:
    assert hello.encode(hello.REP) == sp.REP_HELLO
    assert hello.encode(hello.REQ) == sp.REQ_HELLO


@pytest.mark.parametrize("protocol", [0x10, 0x20, 0x30, 0x31, 0x62, 0xFFFF])
def test_the_protocol_is_read(protocol: int) -> None:
    assert hello.decode(sp.hello(protocol)) == protocol


@pytest.mark.parametrize("data", [b"G", b"\0S ", b"\0SP\1", b"\xff\0\0\0"])
def test_others_are_refused_by_their_first_bytes(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="does not speak SP"):
        hello.check_start(data)


@pytest.mark.parametrize("size", range(9))
def test_a_hello_may_come_in_pieces(size: int) -> None:
    hello.check_start(sp.REQ_HELLO[:size])


def test_the_reserved_bytes_are_zero() -> None:
    with pytest.raises(ProtocolError, match="not zero"):
        hello.decode(b"\0SP\0\0\x30\0\1")


def test_protocols_have_names_for_people() -> None:
    assert hello.name(0x62) == "SURVEYOR"
    assert hello.name(0x1234) == "0x1234"
