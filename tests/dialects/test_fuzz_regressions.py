"""Broker sides of the dialects: what fuzzing and reading with bad intent brought to light."""

from __future__ import annotations

import pytest

from tests.support import invariants
from tests.support.dialects import Desk, Seat

DCP = [b"", b"DGBX\x01"]


def mdp_worker(desk: Desk, service: bytes = b"echo", identity: bytes = b"") -> Seat:
    seat = desk.seat(identity)
    seat.send(b"MDPW02", b"\1", service)
    return seat


def test_a_worker_that_is_also_a_client_keeps_its_job_while_it_asks() -> None:
    """Its second REQUEST must not be taken for the answer that is expected of it."""
    desk = Desk()
    both, client, other = mdp_worker(desk, b"outer"), desk.seat(), mdp_worker(desk, b"inner")
    client.send(b"MDPC02", b"\1", b"outer", b"question")
    token = both.take()[0][2]
    for part in (b"one", b"two", b"three"):
        both.send(b"MDPC02", b"\1", b"inner", part)
        request = other.take()[0]
        other.send(b"MDPW02", b"\4", request[2], b"", b"done " + part)
        assert both.take() == [[b"MDPC02", b"\3", b"inner", b"done " + part]]
        assert client.take() == []
    both.send(b"MDPW02", b"\4", token, b"", b"answer")
    assert client.take() == [[b"MDPC02", b"\3", b"outer", b"answer"]]
    invariants.check(desk.broker)


def test_an_mdp_client_gets_the_service_name_it_asked_for_though_the_job_was_passed_on() -> None:
    """The guide's client asserts that the name in the reply is the one it asked for."""
    desk = Desk()
    client, first, second = desk.seat(), desk.seat(), mdp_worker(desk, b"store")
    first.call(*DCP, b"\1", b"resize")
    client.send(b"MDPC02", b"\1", b"resize", b"picture")
    token = first.take()[0][4]
    first.send(*DCP, b"\4", b"store", token, b"", b"", b"small picture")
    request = second.take()[0]
    second.send(b"MDPW02", b"\3", request[2], b"", b"half")
    second.send(b"MDPW02", b"\4", request[2], b"", b"stored")
    assert client.take() == [[b"MDPC02", b"\2", b"resize", b"half"], [b"MDPC02", b"\3", b"resize", b"stored"]]


def test_a_peer_that_came_back_as_a_client_can_be_a_worker_on_its_new_connection() -> None:
    """Its jobs must be sent there and not to the connection that is gone."""
    for header in (b"MDPW02", b"DGBX\x01"):
        desk = Desk()
        both = desk.seat(b"anna")
        if header == b"MDPW02":
            both.send(header, b"\1", b"mine")
        else:
            both.send(b"", header, b"\1", b"mine")
        both.send(b"MDPC02", b"\1", b"slow", b"x")
        both.drop()
        back = desk.seat(b"anna")
        if header == b"MDPW02":
            back.send(header, b"\1", b"mine")
        else:
            back.send(b"", header, b"\1", b"mine")
        back.take()
        desk.seat().send(b"MDPC02", b"\1", b"mine", b"hello")
        assert back.take()[0][-1] == b"hello"
        slow = mdp_worker(desk, b"slow")
        slow.send(b"MDPW02", b"\4", slow.take()[0][2], b"", b"at last")
        assert back.take() == [[b"MDPC02", b"\3", b"slow", b"at last"]]
        invariants.check(desk.broker)


def test_a_client_that_changes_its_form_is_not_mistaken_for_its_former_self() -> None:
    desk = Desk()
    worker, client = mdp_worker(desk), desk.seat()
    client.send(b"MDPC02", b"\1", b"echo", b"1")
    client.send(b"", b"MDPC02", b"\2", b"x" * 300, b"another form, and an impossible name")
    client.send(b"MDPC02", b"\1", b"echo", b"2")
    worker.send(b"MDPW02", b"\4", worker.take()[0][2], b"", b"dropped")
    assert worker.take()[0][-1] == b"2"
    assert set(desk.broker.services) >= {b"echo"}


@pytest.mark.parametrize("frames", [[], [b""], [b"", b""], [b"MDPW02"], [b"MDPC02"], [b"", b"MDPW01"], DCP])
def test_a_message_that_ends_early_is_dropped_and_counted(frames: list[bytes]) -> None:
    desk = Desk()
    seat = desk.seat()
    seat.send(*(frames or [b"x"]))
    assert len(seat.complaints) == 1
    assert seat.take() == []
    mdp_worker(desk)
    assert seat.call(b"MDPC02", b"\1", b"mmi.service", b"echo") == [
        [b"MDPC02", b"\3", b"mmi.service", b"200"]
    ]


def test_a_dcp_workers_own_name_may_look_like_a_token() -> None:
    """A peer may call itself what tokens are called; passing its job on must still be passing on."""
    desk = Desk()
    client = desk.seat()
    worker = desk.seat(b"00000001")
    worker.call(*DCP, b"\1", b"first")
    client.send(*DCP, b"\4", b"first", b"", b"meta", b"", b"data")
    token = worker.take()[0][4]
    assert token == b"00000001"
    second = desk.seat()
    second.call(*DCP, b"\1", b"second")
    worker.send(*DCP, b"\4", b"second", token, b"", b"meta", b"", b"more data")
    request = second.take()[0]
    second.send(*DCP, b"\5", request[4], b"", b"meta", b"", b"done")
    assert client.take()[0][-1] == b"done"
    assert desk.broker.accounting.active == 0


def test_dcp_metadata_is_returned_though_the_worker_left_it_out() -> None:
    desk = Desk()
    client, worker = desk.seat(), desk.seat()
    worker.call(*DCP, b"\1", b"echo")
    client.send(*DCP, b"\4", b"echo", b"", b"meta", b"data", b"", b"body", b"")
    request = worker.take()[0]
    assert request[3:] == [b"echo", request[4], b"", b"meta", b"data", b"", b"body", b""]
    worker.send(*DCP, b"\5", request[4], b"", b"", b"answer")
    assert client.take()[0][4:] == [b"", b"meta", b"data", b"", b"answer"]


def test_huge_dcp_metadata_counts_against_the_memory_of_the_broker() -> None:
    desk = Desk()
    client = desk.seat()
    client.send(*DCP, b"\4", b"nobody", b"", bytes(1) * 50_000, b"", b"tiny")
    assert desk.broker.accounting.memory > 50_000
    client.drop()
    assert desk.broker.accounting.memory == 0
    assert all(not job.envelope for job in desk.broker.accounting.recent)


@pytest.mark.parametrize(
    "frames",
    [
        [b"MDPC02", bytes(100_000), b"echo", b"x"],
        [b"MDPW02", bytes(100_000)],
        [b"MDPW02", b"\1", bytes(100_000)],
        [*DCP, b"\1", bytes(100_000)],
    ],
)
def test_a_complaint_about_something_long_is_short(frames: list[bytes]) -> None:
    seat = Desk().seat()
    seat.send(*frames)
    assert len(seat.complaints) == 1
    assert len(seat.complaints[0]) < 250


def test_a_client_cannot_make_us_keep_a_long_service_name() -> None:
    desk = Desk()
    client = desk.seat(native=True)
    client.send(b"MDPC02", b"\1", bytes(100_000), b"x")
    assert len(client.link.expected) == 0
    assert b"bad-service" in client.take()[0][-1]
    client.send(b"MDPC02", b"\1", b"echo", b"x")
    assert desk.broker.services[b"echo"].queue.waiting == 1
