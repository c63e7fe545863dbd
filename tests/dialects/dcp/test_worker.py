"""The worker's side of DCP v1, pure: alone, and against a model of a broker that gives as many jobs as it is asked
for."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.dialects.dcp.messages import FOUR_BYTES, ONE_BYTE, Width
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


def said(side: DcpWorkerProtocol) -> list[list[bytes]]:
    """The messages it wants to send."""
    data = bytearray(side.take_output())
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
    side = DcpWorkerProtocol([b"echo"], slots, 2.0, 4, bounded)
    side.start(now)
    said(side)
    side.receive(message(*register(b"echo")), now)
    assert side.confirmed
    return side


def given_a_job(side: DcpWorkerProtocol, address: bytes = b"a", now: float = 0.0) -> DcpRequest:
    job = side.receive(request(address, b"", b"x"), now)
    assert job is not None
    return job


def test_every_service_is_registered_and_confirmed_by_its_echo():
    """§Connection: a registration that counts is echoed."""
    side = DcpWorkerProtocol([b"one", b"two"])
    side.start(0.0)
    assert said(side) == [register(b"one"), register(b"two")]
    side.receive(message(*register(b"two")), 0.0)
    assert not side.confirmed
    assert list(side.unconfirmed) == [b"one"]
    side.receive(message(*register(b"one")), 0.0)
    assert side.confirmed


@pytest.mark.parametrize(
    ("width", "kinds"), [(ONE_BYTE, (b"\x01", b"\x05")), (FOUR_BYTES, (b"\1\0\0\0", b"\5\0\0\0"))]
)
def test_the_type_frame_has_the_width_it_was_told(width: Width, kinds: tuple[bytes, bytes]):
    side = DcpWorkerProtocol([b"echo"], width=width)
    side.start(0.0)
    side.final(given_a_job(side), join([b"y"]), 0.0)
    assert tuple(frames[2] for frames in said(side)) == kinds


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=3), st.lists(st.binary(max_size=300), max_size=3)
)
@examples(100)
def test_a_reply_copies_address_and_metadata(metadata: list[bytes], data: list[bytes]):
    """§Requests & Replies: workers MUST give metadata back as it came."""
    side = started()
    job = side.receive(request(b"address", *metadata, b"", *data), 0.0)
    assert job is not None
    assert (job.service, split(job.body)) == (b"echo", data)
    side.final(job, join([b"answer"]), 0.0)
    assert said(side) == [[*HEAD, b"\x05", b"address", b"", *metadata, b"", b"answer"]]


def test_a_reply_may_have_no_data():
    side = started()
    side.final(given_a_job(side), b"", 0.0)
    assert said(side) == [[*HEAD, b"\x05", b"a", b"", b""]]


def test_a_job_passed_on_keeps_its_client():
    """§Requests & Replies: a worker may pass its job on to another service."""
    side = started()
    job = side.receive(request(b"address", b"meta", b"", b"x"), 0.0)
    assert job is not None
    side.forward(job, b"next", join([b"half done"]), 0.0)
    assert said(side) == [[*HEAD, b"\x04", b"next", b"address", b"", b"meta", b"", b"half done"]]
    side.final(job, join([b"y"]), 0.0)
    assert said(side) == []


def test_partials_are_not_sent():
    side = started()
    side.partial(given_a_job(side), join([b"half"]), 0.0)
    assert said(side) == []


def test_pings_come_each_interval_and_are_answered_with_pongs():
    """§Heartbeats: workers MUST beat."""
    side = started()
    for beat in range(1, 10):
        assert side.due == 2.0 * beat
        side.tick(side.due)
        assert said(side) == [PING]
        side.receive(message(*PONG), side.due)
    assert not side.lost


def test_a_reply_stands_for_a_ping():
    """§Heartbeats: any other message MAY stand in for a heartbeat."""
    side = started()
    job = given_a_job(side)
    side.final(job, b"", 1.5)
    said(side)
    side.tick(2.0)
    assert said(side) == []
    assert side.due == 3.5


def test_a_broker_that_answers_no_ping_is_lost():
    side = started()
    while not side.lost:
        side.tick(side.due)
    assert side.due == 2.0 + 8.0  # the first ping, and four intervals


def test_a_broker_that_never_echoes_is_lost():
    side = DcpWorkerProtocol([b"echo"], 1, 2.0, 4)
    side.start(0.0)
    while not side.lost:
        side.tick(side.due)
    assert side.due == 8.0


def test_our_own_stall_is_not_the_brokers_silence():
    side = started()
    side.tick(2.0)
    side.tick(100.0)
    assert not side.lost


def test_reconnect_is_answered_by_registering_again():
    """§Heartbeats: reconnect MUST make a worker register again."""
    side = started()
    job = given_a_job(side)
    said(side)
    side.receive(message(*RECONNECT), 5.0)
    assert said(side) == [register(b"echo")]
    assert not side.confirmed
    side.final(job, b"", 5.0)  # the broker gave it to another: an answer would be a stray
    assert said(side) == []


def test_room_is_asked_for_with_a_ping_when_a_job_comes():
    """§Requests & Replies: a busy worker's ping asks for more."""
    side = started(slots=3)
    given_a_job(side, b"a")
    assert said(side) == [PING]
    given_a_job(side, b"b")
    assert said(side) == [PING]
    given_a_job(side, b"c")
    assert said(side) == []


def test_a_broker_that_knows_our_bound_need_not_be_asked():
    side = started(slots=3, bounded=True)
    given_a_job(side, b"a")
    assert said(side) == []


def test_credit_that_was_asked_for_is_not_asked_for_again():
    side = started(slots=3)
    jobs = [given_a_job(side, address) for address in (b"a", b"b", b"c")]
    said(side)
    side.final(jobs[0], b"", 0.0)
    given_a_job(side, b"d")
    assert PING not in said(side)


def test_a_full_worker_is_silent_unless_the_broker_knows_its_bound():
    """A ping of a full worker would ask for a job it cannot take."""
    for bounded, beats in ((False, []), (True, [PING])):
        side = started(slots=1, bounded=bounded)
        given_a_job(side)
        side.tick(2.0)
        assert said(side) == beats
        assert side.due == 4.0


def test_a_silent_full_worker_does_not_wait_for_signs_of_life():
    side = started(slots=1)
    given_a_job(side)
    for _ in range(20):
        side.tick(side.due)
    assert not side.lost


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
def test_what_no_broker_should_say_is_counted_and_dropped(frames: list[bytes]):
    side = started()
    assert side.receive(message(*frames), 0.0) is None
    assert (side.invalid, side.held) == (1, {})


class Model:
    """A broker as `core` is: gives `credit` jobs at once, one more per ping of a busy worker whose credit is used up,
    and forgets that when it has nothing for an idle worker. A worker that told its bound has that credit from the
    start and no more. Messages are on the way for a while, in order."""

    def __init__(self, side: DcpWorkerProtocol) -> None:
        self.side = side
        self.to_worker: deque[Message] = deque()
        self.to_broker: deque[list[bytes]] = deque()
        self.base = self.credit = side.slots if side.bounded else 1
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
            bound = self.side.slots if self.side.bounded else 1 << 30
            if self.running and self.credit == len(self.running) and self.credit < bound:
                self.credit += 1
        self.offer()

    def give(self) -> None:
        """The worker reads one message."""
        self.side.receive(self.to_worker.popleft(), 0.0)
        self.carry()

    def carry(self) -> None:
        self.to_broker.extend(said(self.side))


@given(
    st.integers(1, 4),
    st.booleans(),
    st.lists(st.sampled_from(["submit", "take", "give", "finish", "tick"]), max_size=120),
)
@examples(300)
def test_a_worker_gets_as_many_jobs_as_it_has_room_for_and_no_more(
    slots: int, bounded: bool, steps: list[str]
):
    side = started(slots, bounded)
    model = Model(side)
    now = 0.0
    for step in steps:
        if step == "submit":
            model.waiting += 1
            model.offer()
        elif step == "take" and model.to_broker:
            model.take()
        elif step == "give" and model.to_worker:
            model.give()
        elif step == "finish" and side.held:
            side.final(next(iter(side.held.values())), b"", now)
            model.carry()
        elif step == "tick":
            side.receive(message(*PONG), now)
            now = side.due
            side.tick(now)
            model.carry()
        assert len(model.running) <= slots or not bounded
    # With enough to do and everything delivered, every slot is used.
    model.waiting += slots
    model.offer()
    while model.to_broker or model.to_worker:
        (model.take if model.to_broker else model.give)()
    assert len(side.held) >= slots
