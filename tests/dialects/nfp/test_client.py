"""The SDK's side of an NFP client, without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.dialects.nfp.client import NfpAnswer, NfpClientProtocol
from polydomo.dialects.nfp.messages import EVENT, MMI, OPEN, RESPONSE, STREAM
from polydomo.wire.frames import Message, join, split

UUID = b"7d444840-9dc0-11d1-b245-5ffdce74fad2"


def received(protocol: NfpClientProtocol, *frames: bytes) -> NfpAnswer | None:
    data = join(frames)
    return protocol.receive(Message(data, 0, len(data)))


@pytest.mark.clause("NFP-F-01")
def test_it_opens_with_four_frames():
    """NFP §OPEN."""
    assert split(NfpClientProtocol().open(b'{"push":true}')) == [b"", b"NFPC01", b"\x00", b'{"push":true}']


@pytest.mark.clause("NFP-F-05")
@pytest.mark.parametrize(("command", "code"), [("post", b"\x04"), ("put", b"\x10")])
def test_what_carries_a_body(command: str, code: bytes):
    """NFP §POST: empty, header, command, service, target, UUID, body; an empty body is an empty frame."""
    protocol = NfpClientProtocol()
    make = getattr(protocol, command)
    head = [b"", b"NFPC01", code, b"svc", b"any", UUID]
    assert split(make(b"svc", b"any", UUID, join([b"one", b"two"]))) == [*head, b"one", b"two"]
    assert split(make(b"svc", b"any", UUID, b"")) == [*head, b""]


@pytest.mark.clause("NFP-F-07")
@pytest.mark.parametrize(("command", "code"), [("get", b"\x06"), ("delete", b"\x07")])
def test_what_asks_about_a_job(command: str, code: bytes):
    """NFP §GET, §DELETE: seven frames."""
    message = getattr(NfpClientProtocol(), command)(b"svc", b"w1,w2", UUID)
    assert split(message) == [b"", b"NFPC01", code, b"svc", b"w1,w2", UUID, b""]


@pytest.mark.clause("NFP-F-01")
def test_the_brokers_open():
    protocol = NfpClientProtocol()
    answer = received(protocol, b"", b"NFPB01", b"\x00", b'{"broker":"b"}')
    assert answer is not None
    assert (answer.command, split(answer.body)) == (OPEN, [b'{"broker":"b"}'])


@pytest.mark.clause("NFP-F-06")
@pytest.mark.parametrize(
    ("word", "command"), [(b"\x05", RESPONSE), (b"\x08", EVENT), (b"\x09", STREAM), (b"\x11", MMI)]
)
@pytest.mark.parametrize("status", [b"200", b"200 OK", b"408 it took too long"])
def test_what_comes_back(word: bytes, command: int, status: bytes):
    """NFP §RESPONSE; §Status Frames: text behind the three digits means nothing."""
    answer = received(NfpClientProtocol(), b"", b"NFPB01", word, b"svc", UUID, status, b"one", b"two")
    assert answer is not None
    assert (answer.command, answer.service, answer.uuid) == (command, b"svc", UUID)
    assert answer.status == int(status[:3])
    assert split(answer.body) == [b"one", b"two"]


@pytest.mark.parametrize(
    "frames",
    [
        [b"NFPB01", b"\x05", b"svc", UUID, b"200", b""],
        [b"", b"NFPW01", b"\x05", b"svc", UUID, b"200", b""],
        [b"", b"NFPB01", b"\x04", b"svc", UUID, b"200", b""],
        [b"", b"NFPB01", b"\x77", b"svc", UUID, b"200", b""],
        [b"", b"NFPB01", b"\x05", b"svc", b"", b"200", b""],
        [b"", b"NFPB01", b"\x05", b"svc", UUID, b"fine", b""],
        [b"", b"NFPB01", b"\x05", b"svc", UUID],
        [b"", b"NFPB01"],
        [b""],
    ],
)
def test_nonsense_is_dropped(frames: list[bytes]):
    assert received(NfpClientProtocol(), *frames) is None


WORDS = st.sampled_from(
    [
        b"",
        b"NFPB01",
        b"\x00",
        b"\x05",
        b"\x08",
        b"\x09",
        b"\x11",
        b"0x05",
        UUID,
        b"200",
        b"300 x",
        b"20",
        b"{}",
    ]
)


@given(st.lists(st.one_of(WORDS, st.binary(max_size=8)), max_size=9))
def test_whatever_comes_is_understood_or_dropped(frames: list[bytes]):
    answer = received(NfpClientProtocol(), *frames)
    if answer is not None and answer.command != OPEN:
        assert answer.uuid
        assert 0 <= answer.status <= 999
