"""dialects/registry: the first message says which dialect its peer speaks."""

from __future__ import annotations

import pytest

from polydomo.dialects.dcp.session import DcpSession
from polydomo.dialects.mdp.session import MdpSession
from polydomo.dialects.registry import SESSION_FACTORIES
from polydomo.dialects.session import header
from polydomo.wire.frames import Message
from tests.support import zmtp
from tests.support.dialects import Desk

DCP = [b"", b"DGBX\x01"]


@pytest.mark.parametrize("name", [b"MDPC01", b"MDPC02", b"MDPW01", b"MDPW02"])
def test_mdp_is_told_by_its_four_headers(name: bytes) -> None:
    for lead in ([], [b""]):
        seat = Desk().seat()
        seat.send(*lead, name, b"\1", b"x", b"y")
        assert isinstance(seat.link.session, MdpSession)


def test_dcp_is_told_by_its_protocol_and_version() -> None:
    seat = Desk().seat()
    seat.send(*DCP, b"\2")
    assert isinstance(seat.link.session, DcpSession)


@pytest.mark.parametrize(
    "frames", [[b"DGBX\x02"], [b"MDPC03"], [b"mdpc02"], [b"MDPC02 "], [b""], [b"", b"", b"MDPC02"]]
)
def test_what_nobody_speaks_is_dropped_and_counted(frames: list[bytes]) -> None:
    seat = Desk().seat()
    seat.send(*frames)
    assert seat.link.session is None
    assert seat.link.invalid == len(seat.complaints) == 1
    assert seat.take() == []
    seat.send(b"MDPC02", b"\1", b"mmi.service", b"x")
    assert seat.take() == [[b"MDPC02", b"\3", b"mmi.service", b"404"]]


def test_every_header_has_one_opener() -> None:
    mdp = {b"MDPC01", b"MDPC02", b"MDPW01", b"MDPW02"}
    assert set(SESSION_FACTORIES) == {*mdp, b"DGBX\x01", b"NFPC01", b"NFPW01", b"WMP1"}


def test_looking_for_the_header_takes_nothing() -> None:
    for frames, found in (([b"A", b"B"], b"A"), ([b"", b"B", b"C"], b"B"), ([b""], b""), ([b"", b""], b"")):
        data = zmtp.message(*frames)
        message = Message(data, 0, len(data))
        assert header(message) == found
        assert message.frames() == frames


def test_one_connection_may_speak_several_dialects() -> None:
    desk = Desk()
    seat = desk.seat()
    for _ in range(2):
        seat.send(b"MDPC02", b"\1", b"mmi.service", b"x")
        assert seat.take() == [[b"MDPC02", b"\3", b"mmi.service", b"404"]]
        seat.send(*DCP, b"\4", b"mmi.service", b"", b"meta", b"", b"x")
        assert seat.take() == [[*DCP, b"\5", seat.link.identity, b"", b"meta", b"", b"404"]]
    assert len(seat.link.sessions()) == 2
    seat.drop()
    assert not desk.broker.clients
