"""The SDK's side of an NFP worker, without a socket and without a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.dialects.nfp.messages import DELETE, GET, MMI, POST, PUT
from polydomo.dialects.nfp.worker import NfpRequest, NfpWorkerProtocol
from polydomo.wire.frames import Message, join, measure, split

UUID = b"7d444840-9dc0-11d1-b245-5ffdce74fad2"
TOKEN = b"0123abcd"
OPENED = [b"", b"NFPB01", b"\x00", b'{"broker":"b","keepalive_ms":1000,"liveness":3}']
READY = [b"", b"NFPW01", b"\x01", b"svc"]
KEEPALIVE = [b"", b"NFPW01", b"\x02", b"svc"]


def sent(protocol: NfpWorkerProtocol) -> list[list[bytes]]:
    """The messages in its output."""
    data = protocol.take_output()
    found = []
    while data:
        end = measure(bytearray(data), 0)[0]
        found.append(split(data[:end]))
        data = data[end:]
    return found


def received(protocol: NfpWorkerProtocol, frames: list[bytes], now: float = 0.0) -> NfpRequest | None:
    data = join(frames)
    return protocol.receive(Message(data, 0, len(data)), now)


@pytest.fixture
def protocol() -> NfpWorkerProtocol:
    """Open and ready, at 0."""
    protocol = NfpWorkerProtocol(b"svc", b"{}")
    protocol.start(0.0)
    received(protocol, OPENED)
    sent(protocol)
    return protocol


@pytest.mark.clause("NFP-F-01")
def test_open_is_answered_before_ready():
    """NFP §NFP/Worker: W OPEN, B OPEN, W READY. What the broker says of keepalives holds for both."""
    protocol = NfpWorkerProtocol(b"svc", b'{"name":"w1"}', 2.5, 4)
    protocol.start(0.0)
    assert sent(protocol) == [[b"", b"NFPW01", b"\x00", b'{"name":"w1"}']]
    assert not protocol.ready
    received(protocol, OPENED)
    assert sent(protocol) == [READY]
    assert (protocol.interval, protocol.liveness, protocol.answer) == (1.0, 3, OPENED[3])


@pytest.mark.parametrize("answer", [b"", b"opaque", b"[]", b'{"keepalive_ms":-1,"liveness":"many"}'])
def test_an_answer_that_says_nothing_changes_nothing(answer: bytes):
    protocol = NfpWorkerProtocol(b"svc", b"", 2.5, 4)
    protocol.start(0.0)
    received(protocol, [*OPENED[:3], answer])
    assert (protocol.interval, protocol.liveness, protocol.ready) == (2.5, 4, True)


def test_a_broker_that_leaves_open_unanswered_gets_ready_all_the_same():
    protocol = NfpWorkerProtocol(b"svc", b"{}", 2.5, 4)
    protocol.start(0.0)
    sent(protocol)
    protocol.tick(2.5)
    assert sent(protocol) == [READY]


@pytest.mark.clause("NFP-F-02", "NFP-O-04")
def test_ready_is_sent_once(protocol: NfpWorkerProtocol):
    """NFP §Opening and Closing: MUST NOT send a further READY."""
    received(protocol, OPENED)
    assert sent(protocol) == []


@pytest.mark.parametrize(
    ("word", "command"),
    [(b"\x04", POST), (b"\x06", GET), (b"\x07", DELETE), (b"\x10", PUT), (b"\x11", MMI)],
)
def test_what_the_broker_asks(protocol: NfpWorkerProtocol, word: bytes, command: int):
    request = received(protocol, [b"", b"NFPB01", word, TOKEN, b"", UUID, b"one", b"two"])
    assert request is not None
    assert (request.command, request.service, request.address, request.uuid) == (command, b"svc", TOKEN, UUID)
    assert split(request.body) == [b"one", b"two"]


@pytest.mark.clause("NFP-P-01", "NFP-P-02")
def test_answers_have_one_address_frame_and_an_empty_one(protocol: NfpWorkerProtocol):
    """NFP §POST and RESPONSE Processing."""
    request = received(protocol, [b"", b"NFPB01", b"\x04", TOKEN, b"", UUID, b"x"])
    assert request is not None
    protocol.partial(request, join([b"piece"]), 0.1)
    protocol.event(TOKEN, UUID, b"step", b"1 of 2", 0.2)
    protocol.final(request, join([b"one", b"two"]), 0.3)
    protocol.respond(TOKEN, UUID, b"500", b"", 0.4)
    assert sent(protocol) == [
        [b"", b"NFPW01", b"\x09", TOKEN, b"", UUID, b"200", b"piece"],
        [b"", b"NFPW01", b"\x08", TOKEN, b"", UUID, b"200", b"step", b"1 of 2"],
        [b"", b"NFPW01", b"\x05", TOKEN, b"", UUID, b"200", b"one", b"two"],
        [b"", b"NFPW01", b"\x05", TOKEN, b"", UUID, b"500", b""],
    ]


def test_a_task_of_its_own_has_no_address(protocol: NfpWorkerProtocol):
    protocol.manage(UUID, b"{}", 0.0)
    assert sent(protocol) == [[b"", b"NFPW01", b"\x11", b"", b"", UUID, b"200", b"{}"]]
    assert received(protocol, [b"", b"NFPB01", b"\x11", b"", b"", UUID, b"200", b"{}"]) is None


@pytest.mark.clause("NFP-K-03", "NFP-K-04")
def test_a_keepalive_only_after_an_interval_without_anything_else(protocol: NfpWorkerProtocol):
    """NFP §Keepaliving: SHOULD NOT send KEEPALIVE while also sending other commands."""
    protocol.event(b"", UUID, b"news", b"", 0.9)
    sent(protocol)
    protocol.tick(protocol.due)
    assert sent(protocol) == []
    protocol.tick(1.9)
    assert sent(protocol) == [KEEPALIVE]


@pytest.mark.clause("NFP-O-05", "NFP-K-02")
def test_silence_ends_it_and_anything_is_a_sign_of_life(protocol: NfpWorkerProtocol):
    """NFP §Keepaliving: any command but DISCONNECT counts; a multiple of the interval without one is the end."""
    received(protocol, [b"", b"NFPB01", b"\x02", b"svc"], 1.0)
    received(protocol, [b"", b"NFPB01", b"\x06", TOKEN, b"", UUID, b""], 2.0)
    for now in (1.0, 2.0, 3.0, 4.0):
        protocol.tick(now)
        assert not protocol.lost
    protocol.tick(5.0)
    assert protocol.lost


def test_being_stopped_oneself_is_not_the_brokers_silence(protocol: NfpWorkerProtocol):
    protocol.tick(1.0)
    protocol.tick(100.0)
    assert not protocol.lost


@pytest.mark.clause("NFP-O-11")
def test_nothing_follows_the_brokers_disconnect(protocol: NfpWorkerProtocol):
    """NFP §Opening and Closing: it must send no further commands."""
    received(protocol, [b"", b"NFPB01", b"\x03", b"svc", b"why"])
    assert protocol.closed
    protocol.respond(TOKEN, UUID, b"200", b"", 0.0)
    protocol.tick(2.0)
    protocol.disconnect()
    assert sent(protocol) == []


def test_its_own_disconnect_is_the_last_it_says(protocol: NfpWorkerProtocol):
    protocol.disconnect()
    protocol.respond(TOKEN, UUID, b"200", b"", 0.0)
    assert sent(protocol) == [[b"", b"NFPW01", b"\x03", b"svc", b""]]


@pytest.mark.clause("NFP-O-06")
def test_it_may_say_disconnect_before_ready():
    protocol = NfpWorkerProtocol(b"svc", b"{}")
    protocol.start(0.0)
    sent(protocol)
    protocol.disconnect()
    assert sent(protocol) == [[b"", b"NFPW01", b"\x03", b"svc", b""]]


@pytest.mark.clause("NFP-O-02")
@pytest.mark.parametrize(
    "frames",
    [
        [b"NFPB01", b"\x04", TOKEN, b"", UUID, b"x"],
        [b"", b"NFPC01", b"\x04", TOKEN, b"", UUID, b"x"],
        [b"", b"NFPB01", b"\x04", b"", b"", UUID, b"x"],
        [b"", b"NFPB01", b"\x04", TOKEN, b"more", UUID, b"x"],
        [b"", b"NFPB01", b"\x04", TOKEN, b"", b"", b"x"],
        [b"", b"NFPB01", b"\x05", TOKEN, b"", UUID, b"x"],
        [b"", b"NFPB01", b"\x55", TOKEN, b"", UUID, b"x"],
        [b""],
    ],
)
def test_nonsense_is_dropped(protocol: NfpWorkerProtocol, frames: list[bytes]):
    assert received(protocol, frames) is None
    assert not protocol.closed


def test_nothing_is_asked_of_a_worker_that_is_not_ready():
    protocol = NfpWorkerProtocol(b"svc", b"{}")
    protocol.start(0.0)
    assert received(protocol, [b"", b"NFPB01", b"\x04", TOKEN, b"", UUID, b"x"]) is None


WORDS = st.sampled_from(
    [
        b"",
        b"NFPB01",
        b"\x00",
        b"\x02",
        b"\x03",
        b"\x04",
        b"\x06",
        b"\x11",
        b"0x04",
        TOKEN,
        UUID,
        b"{}",
        OPENED[3],
    ]
)


@given(st.lists(st.lists(st.one_of(WORDS, st.binary(max_size=8)), max_size=8), max_size=6))
def test_whatever_comes_is_understood_or_counted(messages: list[list[bytes]]):
    protocol = NfpWorkerProtocol(b"svc", b"{}")
    protocol.start(0.0)
    for frames in messages:
        request = received(protocol, frames)
        if request is not None:
            assert protocol.ready
            assert request.address
            assert request.uuid
        assert protocol.due >= 0.0
        assert protocol.interval > 0
        assert protocol.liveness > 0
    said = sent(protocol)
    assert said[0][2] == b"\x00"
    assert [message[2] for message in said[1:]] in ([], [b"\x01"])
