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


def sent(side: NfpWorkerProtocol) -> list[list[bytes]]:
    """The messages in its output."""
    data = side.take_output()
    found = []
    while data:
        end = measure(bytearray(data), 0)[0]
        found.append(split(data[:end]))
        data = data[end:]
    return found


def received(side: NfpWorkerProtocol, frames: list[bytes], now: float = 0.0) -> NfpRequest | None:
    data = join(frames)
    return side.receive(Message(data, 0, len(data)), now)


@pytest.fixture
def side() -> NfpWorkerProtocol:
    """Open and ready, at 0."""
    side = NfpWorkerProtocol(b"svc", b"{}")
    side.start(0.0)
    received(side, OPENED)
    sent(side)
    return side


@pytest.mark.clause("NFP-F-01")
def test_open_is_answered_before_ready():
    """NFP §NFP/Worker: W OPEN, B OPEN, W READY. What the broker says of keepalives holds for both."""
    side = NfpWorkerProtocol(b"svc", b'{"name":"w1"}', 2.5, 4)
    side.start(0.0)
    assert sent(side) == [[b"", b"NFPW01", b"\x00", b'{"name":"w1"}']]
    assert not side.ready
    received(side, OPENED)
    assert sent(side) == [READY]
    assert (side.interval, side.liveness, side.answer) == (1.0, 3, OPENED[3])


@pytest.mark.parametrize("answer", [b"", b"opaque", b"[]", b'{"keepalive_ms":-1,"liveness":"many"}'])
def test_an_answer_that_says_nothing_changes_nothing(answer: bytes):
    side = NfpWorkerProtocol(b"svc", b"", 2.5, 4)
    side.start(0.0)
    received(side, [*OPENED[:3], answer])
    assert (side.interval, side.liveness, side.ready) == (2.5, 4, True)


def test_a_broker_that_leaves_open_unanswered_gets_ready_all_the_same():
    side = NfpWorkerProtocol(b"svc", b"{}", 2.5, 4)
    side.start(0.0)
    sent(side)
    side.tick(2.5)
    assert sent(side) == [READY]


@pytest.mark.clause("NFP-F-02", "NFP-O-04")
def test_ready_is_sent_once(side: NfpWorkerProtocol):
    """NFP §Opening and Closing: MUST NOT send a further READY."""
    received(side, OPENED)
    assert sent(side) == []


@pytest.mark.parametrize(
    ("word", "command"),
    [(b"\x04", POST), (b"\x06", GET), (b"\x07", DELETE), (b"\x10", PUT), (b"\x11", MMI)],
)
def test_what_the_broker_asks(side: NfpWorkerProtocol, word: bytes, command: int):
    request = received(side, [b"", b"NFPB01", word, TOKEN, b"", UUID, b"one", b"two"])
    assert request is not None
    assert (request.command, request.service, request.address, request.uuid) == (command, b"svc", TOKEN, UUID)
    assert split(request.body) == [b"one", b"two"]


@pytest.mark.clause("NFP-P-01", "NFP-P-02")
def test_answers_have_one_address_frame_and_an_empty_one(side: NfpWorkerProtocol):
    """NFP §POST and RESPONSE Processing."""
    request = received(side, [b"", b"NFPB01", b"\x04", TOKEN, b"", UUID, b"x"])
    assert request is not None
    side.partial(request, join([b"piece"]), 0.1)
    side.event(TOKEN, UUID, b"step", b"1 of 2", 0.2)
    side.final(request, join([b"one", b"two"]), 0.3)
    side.respond(TOKEN, UUID, b"500", b"", 0.4)
    assert sent(side) == [
        [b"", b"NFPW01", b"\x09", TOKEN, b"", UUID, b"200", b"piece"],
        [b"", b"NFPW01", b"\x08", TOKEN, b"", UUID, b"200", b"step", b"1 of 2"],
        [b"", b"NFPW01", b"\x05", TOKEN, b"", UUID, b"200", b"one", b"two"],
        [b"", b"NFPW01", b"\x05", TOKEN, b"", UUID, b"500", b""],
    ]


def test_a_task_of_its_own_has_no_address(side: NfpWorkerProtocol):
    side.manage(UUID, b"{}", 0.0)
    assert sent(side) == [[b"", b"NFPW01", b"\x11", b"", b"", UUID, b"200", b"{}"]]
    assert received(side, [b"", b"NFPB01", b"\x11", b"", b"", UUID, b"200", b"{}"]) is None
    assert side.invalid == 0


@pytest.mark.clause("NFP-K-03", "NFP-K-04")
def test_a_keepalive_only_after_an_interval_without_anything_else(side: NfpWorkerProtocol):
    """NFP §Keepaliving: SHOULD NOT send KEEPALIVE while also sending other commands."""
    side.event(b"", UUID, b"news", b"", 0.9)
    sent(side)
    side.tick(side.due)
    assert sent(side) == []
    side.tick(1.9)
    assert sent(side) == [KEEPALIVE]


@pytest.mark.clause("NFP-O-05", "NFP-K-02")
def test_silence_ends_it_and_anything_is_a_sign_of_life(side: NfpWorkerProtocol):
    """NFP §Keepaliving: any command but DISCONNECT counts; a multiple of the interval without one is the end."""
    received(side, [b"", b"NFPB01", b"\x02", b"svc"], 1.0)
    received(side, [b"", b"NFPB01", b"\x06", TOKEN, b"", UUID, b""], 2.0)
    for now in (1.0, 2.0, 3.0, 4.0):
        side.tick(now)
        assert not side.lost
    side.tick(5.0)
    assert side.lost


def test_being_stopped_oneself_is_not_the_brokers_silence(side: NfpWorkerProtocol):
    side.tick(1.0)
    side.tick(100.0)
    assert not side.lost


@pytest.mark.clause("NFP-O-11")
def test_nothing_follows_the_brokers_disconnect(side: NfpWorkerProtocol):
    """NFP §Opening and Closing: it must send no further commands."""
    received(side, [b"", b"NFPB01", b"\x03", b"svc", b"why"])
    assert side.closed
    side.respond(TOKEN, UUID, b"200", b"", 0.0)
    side.tick(2.0)
    side.disconnect()
    assert sent(side) == []


def test_its_own_disconnect_is_the_last_it_says(side: NfpWorkerProtocol):
    side.disconnect()
    side.respond(TOKEN, UUID, b"200", b"", 0.0)
    assert sent(side) == [[b"", b"NFPW01", b"\x03", b"svc", b""]]


@pytest.mark.clause("NFP-O-06")
def test_it_may_say_disconnect_before_ready():
    side = NfpWorkerProtocol(b"svc", b"{}")
    side.start(0.0)
    sent(side)
    side.disconnect()
    assert sent(side) == [[b"", b"NFPW01", b"\x03", b"svc", b""]]


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
def test_nonsense_is_counted_and_dropped(side: NfpWorkerProtocol, frames: list[bytes]):
    assert received(side, frames) is None
    assert side.invalid == 1
    assert not side.closed


def test_nothing_is_asked_of_a_worker_that_is_not_ready():
    side = NfpWorkerProtocol(b"svc", b"{}")
    side.start(0.0)
    assert received(side, [b"", b"NFPB01", b"\x04", TOKEN, b"", UUID, b"x"]) is None
    assert side.invalid == 1


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
    side = NfpWorkerProtocol(b"svc", b"{}")
    side.start(0.0)
    for frames in messages:
        request = received(side, frames)
        if request is not None:
            assert side.ready
            assert request.address
            assert request.uuid
        assert side.due >= 0.0
        assert side.interval > 0
        assert side.liveness > 0
    said = sent(side)
    assert said[0][2] == b"\x00"
    assert [message[2] for message in said[1:]] in ([], [b"\x01"])
