"""The worker's side of DCP v1, pure: alone, and against a model of a broker that gives as many jobs as it is asked
for."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.dialects.dcp.worker import DcpRequest, DcpWorkerProtocol
from polydomo.wire.frames import Message, join, measure, split
from tests.support.effort import examples

HEAD = (b"", b"DGBX\x01")
PING = [*HEAD, b"\x02"]
PONG = [*HEAD, b"\x03"]
RECONNECT = [*HEAD, b"\x06"]


def message(*frames: bytes) -> Message:
    data = join(frames)
    return Message(data, 0, len(data))


def said(protocol: DcpWorkerProtocol) -> list[list[bytes]]:
    """The messages it wants to send."""
    data = bytearray(protocol.take_output())
    found, start = [], 0
    while start < len(data):
        end, need, _ = measure(data, start)
        assert need == 0
        found.append(split(bytes(data[start:end])))
        start = end
    return found


def register(service: bytes) -> list[bytes]:
    return [*HEAD, b"\x01", service]


def request(address: bytes, *parts: bytes, service: bytes = b"echo") -> Message:
    return message(*HEAD, b"\x04", service, address, b"", *parts)


def started(slots: int = 1, bounded: bool = False, now: float = 0.0) -> DcpWorkerProtocol:
    protocol = DcpWorkerProtocol([b"echo"], slots, 2.0, 4, bounded)
    protocol.start(now)
    said(protocol)
    protocol.receive(message(*register(b"echo")), now)
    assert protocol.confirmed
    return protocol


def given_a_job(protocol: DcpWorkerProtocol, address: bytes = b"a", now: float = 0.0) -> DcpRequest:
    job = protocol.receive(request(address, b"", b"x"), now)
    assert job is not None
    return job


def test_every_service_is_registered_and_confirmed_by_its_echo():
    """§Connection: a registration that counts is echoed."""
    protocol = DcpWorkerProtocol([b"one", b"two"])
    protocol.start(0.0)
    assert said(protocol) == [register(b"one"), register(b"two")]
    protocol.receive(message(*register(b"two")), 0.0)
    assert not protocol.confirmed
    assert list(protocol.unconfirmed) == [b"one"]
    protocol.receive(message(*register(b"one")), 0.0)
    assert protocol.confirmed


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=3), st.lists(st.binary(max_size=300), max_size=3)
)
@examples(100)
def test_a_reply_copies_address_and_metadata(metadata: list[bytes], data: list[bytes]):
    """§Requests & Replies: workers MUST give metadata back as it came."""
    protocol = started()
    job = protocol.receive(request(b"address", *metadata, b"", *data), 0.0)
    assert job is not None
    assert (job.service, split(job.body)) == (b"echo", data)
    protocol.final(job, join([b"answer"]), 0.0)
    assert said(protocol) == [[*HEAD, b"\x05", b"address", b"", *metadata, b"", b"answer"]]


def test_a_reply_may_have_no_data():
    protocol = started()
    protocol.final(given_a_job(protocol), b"", 0.0)
    assert said(protocol) == [[*HEAD, b"\x05", b"a", b"", b""]]


def test_a_job_passed_on_keeps_its_client():
    """§Requests & Replies: a worker may pass its job on to another service."""
    protocol = started()
    job = protocol.receive(request(b"address", b"meta", b"", b"x"), 0.0)
    assert job is not None
    protocol.forward(job, b"next", join([b"half done"]), 0.0)
    assert said(protocol) == [[*HEAD, b"\x04", b"next", b"address", b"", b"meta", b"", b"half done"]]
    protocol.final(job, join([b"y"]), 0.0)
    assert said(protocol) == []


def test_partials_are_not_sent():
    protocol = started()
    protocol.partial(given_a_job(protocol), join([b"half"]), 0.0)
    assert said(protocol) == []


def test_pings_come_each_interval_and_are_answered_with_pongs():
    """§Heartbeats: workers MUST beat."""
    protocol = started()
    for beat in range(1, 10):
        assert protocol.due == 2.0 * beat
        protocol.tick(protocol.due)
        assert said(protocol) == [PING]
        protocol.receive(message(*PONG), protocol.due)
    assert not protocol.lost


def test_a_reply_stands_for_a_ping():
    """§Heartbeats: any other message MAY stand in for a heartbeat."""
    protocol = started()
    job = given_a_job(protocol)
    protocol.final(job, b"", 1.5)
    said(protocol)
    protocol.tick(2.0)
    assert said(protocol) == []
    assert protocol.due == 3.5


def test_a_broker_that_answers_no_ping_is_lost():
    protocol = started()
    while not protocol.lost:
        protocol.tick(protocol.due)
    assert protocol.due == 2.0 + 8.0  # the first ping, and four intervals


def test_a_broker_that_never_echoes_is_lost():
    protocol = DcpWorkerProtocol([b"echo"], 1, 2.0, 4)
    protocol.start(0.0)
    while not protocol.lost:
        protocol.tick(protocol.due)
    assert protocol.due == 8.0


def test_our_own_stall_is_not_the_brokers_silence():
    protocol = started()
    protocol.tick(2.0)
    protocol.tick(100.0)
    assert not protocol.lost


def test_reconnect_is_answered_by_registering_again():
    """§Heartbeats: reconnect MUST make a worker register again."""
    protocol = started()
    job = given_a_job(protocol)
    said(protocol)
    protocol.receive(message(*RECONNECT), 5.0)
    assert said(protocol) == [register(b"echo")]
    assert not protocol.confirmed
    protocol.final(job, b"", 5.0)  # the broker gave it to another: an answer would be a stray
    assert said(protocol) == []


def test_room_is_asked_for_with_a_ping_when_a_job_comes():
    """§Requests & Replies: a busy worker's ping asks for more."""
    protocol = started(slots=3)
    given_a_job(protocol, b"a")
    assert said(protocol) == [PING]
    given_a_job(protocol, b"b")
    assert said(protocol) == [PING]
    given_a_job(protocol, b"c")
    assert said(protocol) == []


def test_a_broker_that_knows_our_bound_need_not_be_asked():
    protocol = started(slots=3, bounded=True)
    given_a_job(protocol, b"a")
    assert said(protocol) == []


def test_credit_that_was_asked_for_is_not_asked_for_again():
    protocol = started(slots=3)
    jobs = [given_a_job(protocol, address) for address in (b"a", b"b", b"c")]
    said(protocol)
    protocol.final(jobs[0], b"", 0.0)
    given_a_job(protocol, b"d")
    assert PING not in said(protocol)


def test_a_full_worker_is_silent_unless_the_broker_knows_its_bound():
    """A ping of a full worker would ask for a job it cannot take."""
    for bounded, beats in ((False, []), (True, [PING])):
        protocol = started(slots=1, bounded=bounded)
        given_a_job(protocol)
        protocol.tick(2.0)
        assert said(protocol) == beats
        assert protocol.due == 4.0


def test_a_silent_full_worker_does_not_wait_for_signs_of_life():
    protocol = started(slots=1)
    given_a_job(protocol)
    for _ in range(20):
        protocol.tick(protocol.due)
    assert not protocol.lost


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [*HEAD],
        [*HEAD, b"\x05", b"a", b"", b"", b"x"],
        [*HEAD, b"\x04", b"echo"],
        [*HEAD, b"\x04", b"echo", b"a", b"not empty", b"", b"x"],
        [*HEAD, b"\x04", b"echo", b"a", b"", b"never ends"],
        [*HEAD, b"\x04", b"", b"a", b"", b"", b"x"],
        [b"", b"DGBX\x02", b"\x03"],
    ],
)
def test_what_no_broker_should_say_is_dropped(frames: list[bytes]):
    protocol = started()
    assert protocol.receive(message(*frames), 0.0) is None
    assert protocol.held == {}


class Model:
    """A broker as `core` is: gives `credit` jobs at once, one more per ping of a busy worker whose credit is used up,
    and forgets that when it has nothing for an idle worker. A worker that told its bound has that credit from the
    start and no more. Messages are on the way for a while, in order."""

    def __init__(self, protocol: DcpWorkerProtocol) -> None:
        self.protocol = protocol
        self.to_worker: deque[Message] = deque()
        self.to_broker: deque[list[bytes]] = deque()
        self.base = self.credit = protocol.slots if protocol.bounded else 1
        self.running: set[bytes] = set()
        self.waiting = 0
        self.number = 0

    def offer(self) -> None:
        while self.waiting and len(self.running) < self.credit:
            self.waiting -= 1
            self.number += 1
            address = b"%d" % self.number
            self.running.add(address)
            self.to_worker.append(request(address, b"", b"x"))
        if not self.running:
            self.credit = self.base

    def take(self) -> None:
        """The broker reads one message."""
        _, _, kind, *rest = self.to_broker.popleft()
        if kind == b"\x05":
            self.running.remove(rest[0])
        elif kind == b"\x02":
            self.to_worker.append(message(*PONG))
            bound = self.protocol.slots if self.protocol.bounded else 1 << 30
            if self.running and self.credit == len(self.running) and self.credit < bound:
                self.credit += 1
        self.offer()

    def give(self) -> None:
        """The worker reads one message."""
        self.protocol.receive(self.to_worker.popleft(), 0.0)
        self.carry()

    def carry(self) -> None:
        self.to_broker.extend(said(self.protocol))


@given(
    st.integers(1, 4),
    st.booleans(),
    st.lists(st.sampled_from(["submit", "take", "give", "finish", "tick"]), max_size=120),
)
@examples(300)
def test_a_worker_gets_as_many_jobs_as_it_has_room_for_and_no_more(
    slots: int, bounded: bool, steps: list[str]
):
    protocol = started(slots, bounded)
    model = Model(protocol)
    now = 0.0
    for step in steps:
        if step == "submit":
            model.waiting += 1
            model.offer()
        elif step == "take" and model.to_broker:
            model.take()
        elif step == "give" and model.to_worker:
            model.give()
        elif step == "finish" and protocol.held:
            protocol.final(next(iter(protocol.held.values())), b"", now)
            model.carry()
        elif step == "tick":
            protocol.receive(message(*PONG), now)
            now = protocol.due
            protocol.tick(now)
            model.carry()
        assert len(model.running) <= slots or not bounded
    # With enough to do and everything delivered, every slot is used.
    model.waiting += slots
    model.offer()
    while model.to_broker or model.to_worker:
        (model.take if model.to_broker else model.give)()
    assert len(protocol.held) >= slots


def test_an_echo_with_a_reason_refuses_the_registration():
    """Of our own broker: DCP has no message for it."""
    protocol = DcpWorkerProtocol([b"one", b"two"])
    protocol.start(0.0)
    protocol.receive(message(*register(b"one")), 0.0)
    assert not protocol.closed
    protocol.receive(message(*register(b"two"), b"denied: x"), 0.0)
    assert protocol.closed
    assert protocol.farewell == "denied: x"
