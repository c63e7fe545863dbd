"""The broker's side of memo01, without sockets: workers and their states."""

from __future__ import annotations

import pytest

from polydomo.core.policy import Policy
from tests.support import invariants
from tests.support.memo import DISCONNECT, HEARTBEAT, JOB, RESULT, Desk, heartbeat, job, ready, result


def test_a_ready_is_answered_with_a_waiting_job() -> None:
    desk = Desk()
    seat = desk.seat()
    seat.send(job("echo", b"x"))
    number = seat.send(ready("echo"))
    ((answered, said),) = seat.take()
    assert (answered, said.kind, said.payload) == (number, JOB, b"x")
    assert len(said.id) == 16
    invariants.check(desk.broker)


def test_a_heartbeat_after_a_while_and_another_after_its_answer() -> None:
    desk = Desk()
    seat = desk.seat()
    seat.send(ready("echo"))
    for _ in range(3):
        desk.wait(0.9)
        assert not seat.take()
        desk.wait(0.1)
        ((_, said),) = seat.take()
        assert said.kind == HEARTBEAT
        desk.wait(1.5)
        assert not seat.take()
        seat.send(heartbeat(said.id))
    assert len(desk.memo.workers.by_id) == 1
    invariants.check(desk.broker)


def test_who_does_not_answer_a_heartbeat_is_gone() -> None:
    desk = Desk()
    seat = desk.seat()
    seat.send(ready("echo"))
    desk.wait(1.0)
    ((_, said),) = seat.take()
    desk.wait(1.9)
    assert desk.memo.workers.by_id
    desk.wait(0.2)
    assert not desk.memo.workers.by_id
    assert not desk.broker.services.get(b"echo")
    assert seat.call(heartbeat(said.id)).kind == DISCONNECT


def test_while_a_heartbeat_is_unanswered_it_is_given_no_job() -> None:
    desk = Desk()
    seat = desk.seat()
    seat.send(ready("echo"))
    desk.wait(1.0)
    ((_, said),) = seat.take()
    seat.send(job("echo", b"x"))
    assert not seat.take()
    assert seat.call(heartbeat(said.id)).kind == JOB


def test_the_heartbeat_is_due_an_interval_after_the_result() -> None:
    desk = Desk()
    seat = desk.seat()
    id = seat.worker("echo")
    seat.send(job("echo", b"x"))
    seat.take()
    desk.wait(3.7)  # busy: no HEARTBEAT, and no sign of life is expected
    assert not seat.take()
    seat.send(result(id, b"y"))
    seat.take()
    desk.wait(0.9)
    assert not seat.take()
    desk.wait(0.2)
    assert [said.kind for _, said in seat.take()] == [HEARTBEAT]


def test_several_services_of_one_worker() -> None:
    desk = Desk()
    seat = desk.seat()
    id = seat.worker("a", "b", "a")
    for name in ("a", "b", "a"):
        seat.send(job(name, b"x"))
        ((_, said),) = seat.take()
        assert said.fields[0] == name
        seat.send(result(id, b"y"))
        ((_, said),) = seat.take()
        assert said.kind == RESULT
        invariants.check(desk.broker)


def test_a_repeated_ready_is_the_same_worker() -> None:
    desk = Desk()
    seat = desk.seat()
    number = seat.send(ready("echo"))
    seat.send(ready("echo"), number)
    assert len(desk.memo.workers.by_id) == 1
    seat.send(ready("echo"))
    assert len(desk.memo.workers.by_id) == 2


@pytest.mark.parametrize("names", [[], [""], ["mmi.service"], ["ok", "sid.service.broker"], ["x" * 256]])
def test_names_that_are_not_for_workers(names: list[str]) -> None:
    desk = Desk()
    seat = desk.seat()
    seat.send(ready(*names))
    desk.wait(1.0)
    assert not seat.take()
    assert len(seat.complaints) == 1
    assert not desk.memo.workers.by_id
    invariants.check(desk.broker)


def test_one_worker_too_many() -> None:
    desk = Desk()
    desk.memo.workers.limit = 2
    seat = desk.seat()
    for _ in range(3):
        seat.send(ready("echo"))
    assert len(desk.memo.workers.by_id) == 2
    assert len(seat.complaints) == 1


def test_the_last_result_is_answered_with_disconnect() -> None:
    desk = Desk()
    seat, client = desk.seat(), desk.seat()
    id = seat.worker("echo")
    client.send(job("echo", b"1"))
    client.send(job("echo", b"2"))
    seat.take()
    said = seat.call(result(id, b"done", True))
    assert (said.kind, said.id) == (DISCONNECT, id)
    assert [said.payload for _, said in client.take()] == [b"done"]
    assert not desk.memo.workers.by_id
    assert desk.broker.accounting.active == 1  # and goes to the next worker
    invariants.check(desk.broker)


def test_a_result_that_says_false_is_followed_by_more() -> None:
    desk = Desk()
    seat = desk.seat()
    id = seat.worker("echo")
    seat.send(job("echo", b"x"))
    seat.take()
    seat.send(result(id, b"done", False))
    assert [said.kind for _, said in seat.take()] == [RESULT]
    assert desk.memo.workers.by_id


@pytest.mark.parametrize("leaving", [(), (True,), (False,)])
@pytest.mark.parametrize("id", [b"", b"\1\2\3\4", b"x" * 300])
def test_an_unknown_id_is_echoed(id: bytes, leaving: tuple[bool, ...]) -> None:
    said = Desk().seat().call(result(id, b"y", *leaving))
    assert (said.kind, said.id, said.fields, said.payload) == (DISCONNECT, id, [], b"")


def test_a_result_without_a_job() -> None:
    desk = Desk()
    seat = desk.seat()
    id = seat.worker("echo")
    said = seat.call(result(id, b"y"))
    assert (said.kind, said.id) == (DISCONNECT, id)
    assert not desk.memo.workers.by_id


def test_a_heartbeat_with_a_job_in_hand() -> None:
    desk = Desk()
    seat, client = desk.seat(), desk.seat()
    id = seat.worker("echo")
    client.send(job("echo", b"x"))
    seat.take()
    assert seat.call(heartbeat(id)).kind == DISCONNECT
    assert desk.broker.accounting.totals.failed == 1
    assert not client.take()


def test_a_worker_that_asks_anew_waits_under_its_new_request() -> None:
    """Its context gave the first up; an answer to that would be discarded."""
    desk = Desk()
    seat = desk.seat()
    id = seat.worker("echo")
    number = seat.send(heartbeat(id))
    seat.send(job("echo", b"x"))
    ((answered, said),) = seat.take()
    assert (answered, said.kind) == (number, JOB)
    assert not seat.session.connection.waiting


def test_who_takes_too_long_is_taken_for_disconnected() -> None:
    desk = Desk()
    seat, client = desk.seat(), desk.seat()
    id = seat.worker("echo")
    client.send(job("echo", b"x", 2000))
    seat.take()
    desk.wait(2.1)
    assert desk.broker.accounting.totals.failed == 1
    client.send(job("echo", b"next"))
    assert not seat.take()
    said = seat.call(result(id, b"late"))
    assert (said.kind, said.id) == (DISCONNECT, id)
    assert not client.take()
    assert not desk.memo.workers.by_id


def test_what_is_cancelled_is_dropped_when_it_comes() -> None:
    desk = Desk()
    seat, client = desk.seat(), desk.seat()
    id = seat.worker("echo")
    client.send(job("echo", b"x"))
    seat.take()
    (worker,) = desk.memo.workers.by_id.values()
    (running,) = worker.core.running.values()
    assert desk.broker.cancel(running)
    for _ in range(9):  # as long as the job had
        desk.wait(1.0)
    client.send(job("echo", b"next"))
    assert not seat.take()
    said = seat.call(result(id, b"late"))
    assert (said.kind, said.payload) == (JOB, b"next")
    assert not client.take()
    invariants.check(desk.broker)


def test_the_broker_s_end_is_a_disconnect() -> None:
    desk = Desk()
    seat = desk.seat()
    numbers = {seat.send(ready("echo")), seat.send(ready("echo"))}
    ids = set(desk.memo.workers.by_id)
    desk.broker.close()
    desk.settle()
    said = seat.take()
    assert {number for number, _ in said} == numbers
    assert {(each.kind, each.id) for _, each in said} == {(DISCONNECT, id) for id in ids}
    assert not desk.memo.workers.by_id


def test_many_workers_and_clients_on_one_connection() -> None:
    desk = Desk()
    seat = desk.seat()
    for _ in range(200):
        seat.send(ready("echo"))
    for number in range(500):
        seat.send(job("echo", b"%d" % number))
    answers = set()
    while len(answers) < 500:
        for _, said in seat.take():
            if said.kind == JOB:
                seat.send(result(said.id, said.payload))
            elif said.kind == RESULT:
                answers.add(said.payload)
    assert answers == {b"%d" % number for number in range(500)}
    assert len(desk.memo.workers.by_id) == 200
    invariants.check(desk.broker)


def test_a_busy_worker_is_not_asked_for_signs_of_life_that_it_cannot_give() -> None:
    """MemoDB §Worker: between a JOB and its RESULT there is nothing to say, however strict the service is."""
    desk = Desk(policy=Policy(liveness_busy=1))
    worker, client = desk.seat(), desk.seat()
    worker.send(ready("echo"))
    client.send(job("echo", b"x"))
    ((_, given),) = worker.take()
    for _ in range(8):
        desk.wait(1.0)
    worker.send(result(given.id, b"y"))
    assert [said.payload for _, said in client.take()] == [b"y"]
