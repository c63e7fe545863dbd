"""The broker's side of memo01, without sockets: connections that break while something is under way."""

from __future__ import annotations

import pytest

from polydomo.core.principals import ANONYMOUS
from tests.support import invariants
from tests.support.memo import DISCONNECT, HEARTBEAT, JOB, RESULT, Desk, Seat, heartbeat, job, ready, result


def busy(desk: Desk, host: str = "worker's") -> tuple[Seat, bytes, Seat, int]:
    """A worker with a job in hand and the client that waits for it, each on its own connection."""
    worker, client = desk.seat(host), desk.seat("client's")
    worker.send(ready("echo"))
    number = client.send(job("echo", b"x"))
    ((_, said),) = worker.take()
    assert said.kind == JOB
    return worker, said.id, client, number


def nothing_is_left(desk: Desk) -> None:
    for seat in list(desk.seats):
        seat.drop()
    for _ in range(12):
        desk.wait(1.0)
    invariants.check(desk.broker)
    assert desk.broker.accounting.active == 0
    assert not desk.broker.clients
    assert not desk.memo.workers.by_id
    assert not desk.memo.interrupted.requests
    assert not desk.memo.workers.by_ready
    assert desk.memo.interrupted.size == 0
    assert not desk.memo.reconnects.broken
    assert all(worker.internal for worker in desk.broker.workers)


@pytest.mark.parametrize("answered_meanwhile", [False, True])
def test_a_client_gets_its_answer_on_its_new_connection(answered_meanwhile: bool) -> None:
    desk = Desk()
    worker, id, client, number = busy(desk)
    client.drop()
    desk.wait(1.0)
    if answered_meanwhile:
        worker.send(result(id, b"y"))
    again = desk.seat("client's")
    again.send(job("echo", b"x"), number)
    if not answered_meanwhile:
        assert not again.take()
        worker.send(result(id, b"y"))
    ((answered, said),) = again.take()
    assert (answered, said.kind, said.payload) == (number, RESULT, b"y")
    again.send(job("echo", b"x"), number)
    assert not again.take()
    assert desk.broker.accounting.totals.done == 1
    nothing_is_left(desk)


def test_an_answer_that_was_lost_with_its_connection_is_given_again() -> None:
    desk = Desk()
    worker, id, client, number = busy(desk)
    worker.send(result(id, b"y"))
    client.drop()
    again = desk.seat()
    assert again.call(job("echo", b"x"), number).payload == b"y"
    assert desk.broker.accounting.totals.done == 1
    nothing_is_left(desk)


def test_only_the_same_request_is_the_same() -> None:
    desk = Desk()
    _, _, client, number = busy(desk)
    client.drop()
    for other in (job("echo", b"z"), job("other", b"x"), job("echo", b"x", 9999)):
        seat = desk.seat()
        seat.send(other, number)
    assert desk.broker.accounting.accepted == 4
    assert desk.memo.returned == 0
    nothing_is_left(desk)


def test_a_connection_may_break_more_than_once() -> None:
    desk = Desk()
    worker, id, client, number = busy(desk)
    for _ in range(3):
        client.drop()
        desk.wait(2.0)
        client = desk.seat()
        client.send(job("echo", b"x"), number)
    desk.wait(1.5)
    worker.send(result(id, b"y"))
    assert [said.payload for _, said in client.take()] == [b"y"]
    assert desk.broker.accounting.accepted == 1
    nothing_is_left(desk)


def test_a_client_that_does_not_come_back_has_its_job_cancelled() -> None:
    desk = Desk()
    client = desk.seat()
    client.send(job("echo", b"x"))
    client.drop()
    desk.wait(2.9)
    assert desk.broker.accounting.active == 1
    desk.wait(0.2)
    assert desk.broker.accounting.active == 0
    assert not desk.broker.clients
    nothing_is_left(desk)


def test_a_waiting_job_goes_on_waiting() -> None:
    desk = Desk()
    client = desk.seat()
    number = client.send(job("echo", b"x"))
    client.drop()
    desk.wait(1.0)
    client = desk.seat()
    client.send(job("echo", b"x"), number)
    worker = desk.seat()
    worker.send(ready("echo"))
    ((_, said),) = worker.take()
    worker.send(result(said.id, b"y"))
    assert [said.payload for _, said in client.take()] == [b"y"]


def test_a_job_that_fails_meanwhile_is_new_when_it_comes_again() -> None:
    desk = Desk()
    desk.memo.wait = 1.0
    client = desk.seat()
    number = client.send(job("echo", b"x"))
    client.drop()
    desk.wait(1.1)
    assert desk.broker.accounting.totals.failed == 1
    again = desk.seat()
    again.send(job("echo", b"x"), number)
    assert desk.broker.accounting.accepted == 2
    nothing_is_left(desk)


def test_no_grace_at_all() -> None:
    desk = Desk()
    desk.memo.grace = 0.0
    worker, id, client, number = busy(desk)
    client.drop()
    desk.wait(0.0)
    assert desk.broker.accounting.active == 0
    worker.send(result(id, b"y"))
    assert not worker.take()
    assert number
    nothing_is_left(desk)


def test_answers_that_are_kept_are_bounded() -> None:
    desk = Desk()
    desk.memo.interrupted.room = 1000
    for _ in range(50):
        client = desk.seat()
        client.send(job("mmi.service", bytes(100)))
        client.drop()
    assert 0 < desk.memo.interrupted.size <= 1000
    nothing_is_left(desk)


# Workers


@pytest.mark.parametrize("first", ["READY", "HEARTBEAT", "RESULT"])
def test_a_parked_worker_keeps_its_place_and_its_id(first: str) -> None:
    desk = Desk()
    seat, client = desk.seat(), desk.seat()
    if first == "READY":
        request = ready("echo")
        number = seat.send(request)
        (id,) = desk.memo.workers.by_id
    else:
        id = seat.worker("echo")
        request = heartbeat(id)
        number = seat.send(request)
        if first == "RESULT":
            client.send(job("echo", b"1"))
            seat.take()
            request = result(id, b"y")
            number = seat.send(request)
            client.take()
    seat.drop()
    client.send(job("echo", b"x"))
    again = desk.seat()
    again.send(request, number)
    ((answered, said),) = again.take()
    assert (answered, said.kind, said.id, said.payload) == (number, JOB, id, b"x")
    assert len(desk.memo.workers.by_id) == 1
    invariants.check(desk.broker)
    nothing_is_left(desk)


def test_a_ready_for_other_services_is_another_worker() -> None:
    desk = Desk()
    seat = desk.seat()
    number = seat.send(ready("echo"))
    seat.drop()
    desk.seat().send(ready("other"), number)
    assert len(desk.memo.workers.by_id) == 2
    nothing_is_left(desk)


def test_a_job_that_was_lost_with_its_connection_is_given_again() -> None:
    desk = Desk()
    worker, id, client, _ = busy(desk)
    stack = next(iter(desk.memo.workers.by_id.values())).stack
    number = int.from_bytes(stack, "big") & 0x7FFFFFFF
    worker.drop()
    again = desk.seat("worker's")
    said = again.call(ready("echo"), number)
    assert (said.kind, said.id, said.payload) == (JOB, id, b"x")
    again.send(result(id, b"y"))
    assert [said.payload for _, said in client.take()] == [b"y"]
    assert desk.broker.accounting.totals.done == 1
    nothing_is_left(desk)


def test_a_heartbeat_that_was_lost_with_its_connection_is_given_again() -> None:
    desk = Desk()
    seat = desk.seat()
    number = seat.send(ready("echo"))
    desk.wait(1.0)
    ((_, first),) = seat.take()
    seat.drop()
    again = desk.seat()
    said = again.call(ready("echo"), number)
    assert (said.kind, said.id) == (HEARTBEAT, first.id)
    again.send(heartbeat(said.id))
    assert again.session.connection.waiting
    nothing_is_left(desk)


def test_a_cancelled_job_is_not_given_again() -> None:
    desk = Desk()
    worker, _, _, _ = busy(desk)
    (port,) = desk.memo.workers.by_id.values()
    number = int.from_bytes(port.stack, "big") & 0x7FFFFFFF
    worker.drop()
    (running,) = port.core.running.values()
    desk.broker.cancel(running)
    again = desk.seat()
    again.send(ready("echo"), number)
    assert not again.take()
    assert again.session.connection.waiting
    invariants.check(desk.broker)
    nothing_is_left(desk)


def test_a_result_may_come_over_any_connection() -> None:
    desk = Desk()
    worker, id, client, _ = busy(desk)
    other = desk.seat("elsewhere")
    other.send(result(id, b"y"))
    assert [said.payload for _, said in client.take()] == [b"y"]
    client.send(job("echo", b"next"))
    assert not worker.take()
    assert [said.payload for _, said in other.take()] == [b"next"]
    worker.drop()
    desk.wait(5.0)
    assert desk.memo.workers.by_id  # it left with the connection it spoke over last, which is another
    nothing_is_left(desk)


def test_another_request_may_have_the_id_of_the_last() -> None:
    """Each connection counts its requests by itself, and some always begin with the same number."""
    desk = Desk()
    seats = [desk.seat() for _ in range(4)]
    client = desk.seat("client's")
    client.send(job("echo", b"1"))
    seats[0].send(ready("echo"), 7)
    ((_, said),) = seats[0].take()
    for number, seat in enumerate(seats[1:], 1):
        seats[number - 1].drop()
        seat.send(result(said.id, b"y%d" % number), 7)
        assert [answer.payload for _, answer in client.take()] == [b"y%d" % number]
        client.send(job("echo", b"next"))
        ((answered, given),) = seat.take()
        assert (answered, given.kind, given.payload) == (7, JOB, b"next")
    again = desk.seat()
    assert again.call(result(said.id, b"y3"), 7).payload == b"next"  # now it is the last one again
    empty = desk.seat()
    empty.send(result(said.id, b""), 7)
    assert [answer.payload for _, answer in client.take()] == [b""]
    desk.wait(1.0)
    assert [given.kind for _, given in empty.take()] == [HEARTBEAT]
    last = desk.seat()
    last.send(heartbeat(said.id), 7)  # not the empty RESULT before it
    assert not last.take()
    client.send(job("echo", b"more"))
    assert [given.payload for _, given in last.take()] == [b"more"]
    assert desk.broker.accounting.totals.done == 4
    nothing_is_left(desk)


def test_the_same_request_over_a_second_connection_moves_the_worker() -> None:
    """The first may be dead without anybody having noticed."""
    desk = Desk()
    seat = desk.seat()
    id = seat.worker("echo")
    number = seat.send(heartbeat(id))
    other = desk.seat()
    other.send(heartbeat(id), number)
    desk.seat().send(job("echo", b"x"))
    assert not seat.take()
    assert [said.kind for _, said in other.take()] == [JOB]
    assert not seat.session.connection.waiting
    assert not seat.session.connection.workers
    nothing_is_left(desk)


def test_a_busy_worker_nobody_comes_for_is_given_up() -> None:
    desk = Desk()
    worker, id, client, _ = busy(desk)
    desk.wait(2.0)
    worker.drop()
    desk.seat("elsewhere")
    desk.wait(2.9)
    assert desk.broker.accounting.active == 1
    desk.wait(0.2)
    assert desk.broker.accounting.active == 0
    assert not desk.memo.workers.by_id
    assert not client.take()
    assert desk.seat().call(result(id, b"y")).kind == DISCONNECT
    nothing_is_left(desk)


@pytest.mark.parametrize("before", [False, True])
def test_a_busy_worker_somebody_came_for_has_its_job_s_time(before: bool) -> None:
    desk = Desk()
    worker, id, client, _ = busy(desk)
    desk.wait(2.0)
    if before:  # the newcomer was noticed first
        desk.seat("worker's")
        worker.drop()
    else:
        worker.drop()
        desk.wait(1.0)
        desk.seat("worker's")
    for _ in range(6):
        desk.wait(1.0)
    desk.seat("elsewhere").send(result(id, b"y"))
    assert [said.payload for _, said in client.take()] == [b"y"]
    nothing_is_left(desk)


def test_each_newcomer_stands_for_one_broken_connection() -> None:
    desk = Desk()
    first, second = busy(desk), busy(desk)
    desk.wait(2.0)
    first[0].drop()
    desk.wait(0.1)
    second[0].drop()
    desk.seat("worker's")
    desk.wait(3.5)
    assert set(desk.memo.workers.by_id) == {first[1]}
    nothing_is_left(desk)


def test_after_its_time_it_is_over_all_the_same() -> None:
    desk = Desk()
    worker, _, _, _ = busy(desk)
    desk.wait(2.0)
    worker.drop()
    desk.seat("worker's")
    for _ in range(20):
        desk.wait(1.0)
    assert desk.broker.accounting.active == 0
    assert not desk.memo.workers.by_id


def test_a_parked_worker_that_does_not_come_back_is_gone() -> None:
    desk = Desk()
    desk.memo.workers.set_heartbeat(10.0, 10.0)
    seat = desk.seat()
    seat.send(ready("echo"))
    seat.drop()
    desk.seat().send(job("echo", b"x"))
    desk.wait(3.1)
    assert not desk.memo.workers.by_id
    invariants.check(desk.broker)
    nothing_is_left(desk)


def test_whoever_closes_with_nothing_open_leaves_nothing() -> None:
    desk = Desk()
    seat = desk.seat()
    seat.drop()
    assert not desk.broker.clients
    assert len(desk.broker.timers) == 0


def test_a_worker_s_id_is_of_no_use_to_another_principal() -> None:
    desk = Desk()
    worker, id, client, _ = busy(desk)
    stranger = desk.seat("worker's")
    stranger.session.connection.principal = "somebody else"
    assert stranger.call(result(id, b"forged")).kind == DISCONNECT
    assert stranger.call(heartbeat(id)).kind == DISCONNECT
    assert not client.take()
    worker.send(result(id, b"right"))
    assert [said.payload for _, said in client.take()] == [b"right"]
    stranger.drop()
    nothing_is_left(desk)


@pytest.mark.parametrize(("host", "principal"), [("elsewhere", ANONYMOUS), ("worker's", "somebody else")])
def test_a_ready_of_a_broken_connection_is_not_continued_by_somebody_else(host: str, principal: str) -> None:
    """The ID of a request is chosen by its sender; that of a READY is all that identifies a worker without an ID."""
    desk = Desk()
    worker, id, _, _ = busy(desk)
    (known,) = desk.memo.workers.by_id.values()
    number = int.from_bytes(known.stack, "big") & 0x7FFFFFFF
    worker.drop()
    stranger = desk.seat(host)
    stranger.session.connection.principal = principal
    stranger.send(ready("echo"), number)
    assert not stranger.take()  # a new worker, for which there is no job
    assert known.id == id
    assert known.connection is worker.session.connection


def test_a_request_of_a_broken_connection_is_not_continued_by_another_principal() -> None:
    desk = Desk()
    worker, id, client, number = busy(desk)
    client.drop()
    worker.send(result(id, b"secret"))
    stranger = desk.seat("client's")
    stranger.session.connection.principal = "somebody else"
    stranger.send(job("echo", b"x"), number)
    assert not [said for _, said in stranger.take() if said.payload == b"secret"]
    back = desk.seat("client's")
    assert back.call(job("echo", b"x"), number).payload == b"secret"


def test_a_worker_s_name_does_not_tell_its_id() -> None:
    desk = Desk()
    desk.seat().worker("echo")
    (worker,) = desk.memo.workers.by_id.values()
    assert worker.id.hex().encode() not in worker.core.name
