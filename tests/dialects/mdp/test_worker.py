"""The worker's side of MDP/0.2, pure: time is a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.dialects.mdp.worker import MdpRequest, MdpWorkerProtocol
from polydomo.wire.frames import Message, join, measure, split
from tests.support.effort import examples

BODIES = st.lists(st.binary(max_size=300), min_size=1, max_size=4)
READY = [b"MDPW02", b"\x01", b"echo"]
HEARTBEAT = [b"MDPW02", b"\x05"]
DISCONNECT = [b"MDPW02", b"\x06"]


def message(*frames: bytes) -> Message:
    data = join(frames)
    return Message(data, 0, len(data))


def said(protocol: MdpWorkerProtocol) -> list[list[bytes]]:
    """The messages it wants to send."""
    data = bytearray(protocol.take_output())
    found, start = [], 0
    while start < len(data):
        end, need, _ = measure(data, start)
        assert need == 0
        found.append(split(bytes(data[start:end])))
        start = end
    return found


def started(now: float = 0.0) -> MdpWorkerProtocol:
    protocol = MdpWorkerProtocol(b"echo", 2.0, 4)
    protocol.start(now)
    assert said(protocol) == [READY]
    return protocol


def given_a_job(
    protocol: MdpWorkerProtocol, now: float = 0.0, body: tuple[bytes, ...] = (b"x",)
) -> MdpRequest:
    request = protocol.receive(message(b"MDPW02", b"\x02", b"address", b"", *body), now)
    assert request is not None
    return request


@given(BODIES, st.binary(min_size=1, max_size=300))
@examples(100)
def test_a_job_is_read_and_answered_with_its_address(body: list[bytes], address: bytes):
    protocol = started()
    request = protocol.receive(message(b"MDPW02", b"\x02", address, b"", *body), 0.0)
    assert request is not None
    assert (request.service, request.address, split(request.body)) == (b"echo", address, body)
    protocol.partial(request, join([b"half"]), 0.0)
    protocol.final(request, request.body, 0.0)
    assert said(protocol) == [
        [b"MDPW02", b"\x03", address, b"", b"half"],
        [b"MDPW02", b"\x04", address, b"", *body],
    ]


def test_an_empty_answer_is_an_empty_frame():
    protocol = started()
    protocol.final(given_a_job(protocol), b"", 0.0)
    assert said(protocol) == [[b"MDPW02", b"\x04", b"address", b"", b""]]


def test_one_job_at_a_time():
    """§Overall Topology: a worker has one request in hand."""
    protocol = started()
    given_a_job(protocol)
    assert protocol.receive(message(b"MDPW02", b"\x02", b"other", b"", b"y"), 0.0) is None


def test_a_job_is_answered_once():
    """§Request and Reply Processing: "exactly one FINAL command"."""
    protocol = started()
    request = given_a_job(protocol)
    protocol.final(request, join([b"y"]), 0.0)
    protocol.final(request, join([b"z"]), 0.0)
    protocol.partial(request, join([b"z"]), 0.0)
    assert len(said(protocol)) == 1


def test_a_heartbeat_is_sent_each_interval():
    """§Heartbeating: both sides MUST beat, at an interval both know."""
    protocol = started(10.0)
    for beat in range(1, 4):
        assert protocol.due == 10.0 + 2.0 * beat
        protocol.receive(message(*HEARTBEAT), protocol.due)
        protocol.tick(protocol.due)
        assert said(protocol) == [HEARTBEAT]


def test_no_heartbeat_beside_other_commands():
    """§Heartbeating: SHOULD NOT beat beside other commands."""
    protocol = started()
    request = given_a_job(protocol, 0.5)
    protocol.partial(request, join([b"half"]), 1.5)
    said(protocol)
    protocol.tick(2.0)
    assert said(protocol) == []
    assert protocol.due == 3.5
    protocol.tick(3.5)
    assert said(protocol) == [HEARTBEAT]


def test_a_silent_broker_is_lost_after_liveness_intervals():
    """§Heartbeating: who is silent for several intervals MUST be taken for gone."""
    protocol = started()
    while not protocol.lost:
        assert protocol.due <= 8.0
        protocol.tick(protocol.due)
    assert protocol.due == 8.0


@pytest.mark.parametrize(
    "frames", [HEARTBEAT, [b"MDPW02", b"\x02", b"address", b"", b"x"]], ids=["heartbeat", "request"]
)
def test_any_command_is_a_sign_of_life(frames: list[bytes]):
    """§Heartbeating: whatever is received is a sign of life, DISCONNECT apart."""
    protocol = started()
    for now in (2.0, 4.0, 6.0):
        protocol.tick(now)
    protocol.receive(message(*frames), 7.9)
    for now in (8.0, 10.0, 12.0, 14.0):
        protocol.tick(now)
    assert not protocol.lost
    protocol.tick(15.9)
    assert protocol.lost


def test_rubbish_is_no_sign_of_life():
    protocol = started()
    assert protocol.receive(message(b"MDPC02", b"\x05"), 7.0) is None
    assert protocol.receive(message(b"MDPW02", b"\x09"), 7.0) is None
    assert protocol.receive(message(b""), 7.0) is None
    for now in (2.0, 4.0, 6.0, 8.0):
        protocol.tick(now)
    assert protocol.lost


def test_our_own_stall_is_not_the_brokers_silence():
    protocol = started()
    protocol.tick(100.0)  # due at 2
    assert not protocol.lost
    assert said(protocol) == [HEARTBEAT]
    for now in (102.0, 104.0, 106.0):
        protocol.tick(now)
    assert protocol.lost


def test_after_a_disconnect_nothing_is_sent():
    """§Opening and Closing a Connection: a worker that is sent DISCONNECT falls silent."""
    protocol = started()
    request = given_a_job(protocol)
    protocol.receive(message(*DISCONNECT), 1.0)
    assert protocol.closed
    protocol.partial(request, join([b"y"]), 1.0)
    protocol.final(request, join([b"y"]), 1.0)
    protocol.tick(50.0)
    protocol.disconnect()
    assert said(protocol) == []
    assert protocol.receive(message(b"MDPW02", b"\x02", b"address", b"", b"x"), 1.0) is None


def test_our_own_goodbye_is_the_last_word():
    """§Opening and Closing a Connection: a worker MAY leave whenever it likes."""
    protocol = started()
    request = given_a_job(protocol)
    protocol.disconnect()
    protocol.final(request, join([b"y"]), 1.0)
    protocol.tick(50.0)
    assert said(protocol) == [DISCONNECT]


@pytest.mark.parametrize(
    "frames",
    [
        [b"MDPW02", b"\x02"],
        [b"MDPW02", b"\x02", b"address"],
        [b"MDPW02", b"\x02", b"address", b""],
        [b"MDPW02", b"\x02", b"address", b"x", b"y"],
        [b"MDPW02", b"\x02", b"", b"address", b"y"],
    ],
)
def test_a_malformed_request_is_dropped(frames: list[bytes]):
    protocol = started()
    assert protocol.receive(message(*frames), 0.0) is None
    assert protocol.held is None


@given(
    st.lists(st.tuples(st.sampled_from(["tick", "beat", "job", "final"]), st.floats(0.0, 1.9)), max_size=60)
)
@examples(200)
def test_the_broker_hears_of_a_ticking_worker_in_every_interval(steps: list[tuple[str, float]]):
    """Whatever happens in between: if `tick` is called at `due`, no two commands are more than an interval apart."""
    protocol = started()
    now = last = 0.0
    request: MdpRequest | None = None
    for what, later in steps:
        target = now + later
        while protocol.due <= target:
            now = protocol.due
            protocol.tick(now)
            protocol.receive(message(*HEARTBEAT), now)
            if said(protocol):
                assert now - last <= protocol.interval + 1e-9
                last = now
        now = target
        if what == "job" and request is None:
            request = given_a_job(protocol, now)
        elif what == "final" and request is not None:
            protocol.final(request, join([b"y"]), now)
            request = None
        elif what == "beat":
            protocol.receive(message(*HEARTBEAT), now)
        if said(protocol):
            last = now
    assert not protocol.lost


@pytest.mark.parametrize(
    ("more", "farewell"), [([], ""), ([b"denied: x"], "denied: x"), ([b"\xff"], "\ufffd")]
)
def test_a_disconnect_of_our_own_broker_has_a_reason(more: list[bytes], farewell: str):
    protocol = started()
    assert protocol.receive(message(*DISCONNECT, *more), 0.0) is None
    assert protocol.closed
    assert protocol.farewell == farewell
