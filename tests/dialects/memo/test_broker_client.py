"""The broker's side of memo01, without sockets: clients, repeats, back-pressure."""

from __future__ import annotations

import pytest

from polydomo.core.policy import BrokerLimits, Policy
from tests.support import invariants, sp
from tests.support.memo import DISCONNECT, JOB, RESULT, Desk, heartbeat, job, pack, ready, result

HOUR = 3_600_000


def test_a_job_goes_to_a_worker_and_its_result_back() -> None:
    desk = Desk()
    worker, client = desk.seat(), desk.seat()
    id = worker.worker("echo")
    asked = client.send(job("echo", b"hello", 7000))
    ((_, said),) = worker.take()
    assert (said.kind, said.id, said.fields, said.payload) == (JOB, id, ["echo", 7000], b"hello")
    worker.send(result(id, b"world"))
    ((answered, said),) = client.take()
    assert answered == asked
    assert (said.kind, said.id, said.fields, said.payload) == (RESULT, b"", [], b"world")
    invariants.check(desk.broker)


def test_over_ipc_too() -> None:
    desk = Desk()
    seat = desk.seat(ipc=True)
    id = seat.worker("echo")
    seat.send(job("echo", b"x"))
    seat.take()
    seat.send(result(id, b"y"))
    ((_, said),) = seat.take()
    assert said.payload == b"y"


def test_the_reply_goes_back_through_the_devices_it_came_by() -> None:
    desk = Desk()
    worker, client = desk.seat(), desk.seat()
    id = worker.worker("echo")
    client.feed(sp.request(1, job("echo"), 5, 6))
    worker.take()
    worker.send(result(id, b"x"))
    assert client.raw[8:20] == bytes.fromhex("00000005 00000006 80000001")


def test_a_repeat_of_an_open_request_is_ignored() -> None:
    desk = Desk()
    worker, client = desk.seat(), desk.seat()
    id = worker.worker("echo")
    number = client.send(job("echo", b"x"))
    for _ in range(5):
        client.send(job("echo", b"x"), number)
    assert len(worker.take()) == 1
    worker.send(result(id, b"y"))
    assert len(client.take()) == 1
    assert desk.broker.accounting.totals.done == 1


def test_a_repeat_that_crossed_the_answer_is_ignored() -> None:
    desk = Desk()
    worker, client = desk.seat(), desk.seat()
    id = worker.worker("echo")
    number = client.send(job("echo", b"x"))
    worker.send(result(id, b"y"))
    worker.take()
    client.take()
    client.send(job("echo", b"x"), number)
    client.session.connection.forget_older()
    client.send(job("echo", b"x"), number)
    assert not worker.take()
    assert not client.take()


def test_what_was_answered_is_remembered_in_bounds() -> None:
    desk = Desk()
    client = desk.seat()
    for _ in range(20_000):
        client.send(job("mmi.service", b"x"))
    client.raw = b""
    for _ in range(50):
        client.send(job("mmi.service", bytes(10_000)))
    connection = client.session.connection
    remembered = [*connection._recent.values(), *connection._older.values()]
    assert len(remembered) <= 2 * 4096
    assert sum(len(answer.content) for answer in remembered if answer is not None) <= 2 * 65536
    connection.forget_older()
    connection.forget_older()
    assert not connection._recent
    assert not connection._older


def test_a_failure_is_silence_and_the_resend_counts_as_new() -> None:
    desk = Desk()
    client = desk.seat()
    number = client.send(job("echo", b"x"))
    desk.wait(5.1)
    assert desk.broker.accounting.totals.failed == 1
    assert not client.take()
    client.send(job("echo", b"x"), number)
    worker = desk.seat()
    worker.send(ready("echo"))
    ((_, said),) = worker.take()
    assert said.kind == JOB
    worker.send(result(said.id, b"y"))
    assert len(client.take()) == 1


def test_a_refused_job_may_be_sent_again() -> None:
    desk = Desk(policy=Policy(queue=0))
    client = desk.seat()
    number = client.send(job("echo"))
    assert desk.broker.accounting.totals.refused == 1
    worker = desk.seat()
    id = worker.worker("echo")
    client.send(job("echo"), number)
    worker.take()
    worker.send(result(id, b"y"))
    assert len(client.take()) == 1


def test_no_second_attempt_unless_it_is_configured() -> None:
    for retries in (0, 1):
        desk = Desk()
        desk.memo.retries = retries
        client, first, second = desk.seat(), desk.seat("a"), desk.seat("b")
        first.worker("echo")
        client.send(job("echo"))
        assert first.take()
        first.drop()
        desk.wait(2.5)
        second.send(ready("echo"))
        desk.wait(0.6)
        assert len(second.take()) == retries
        assert desk.broker.accounting.totals.failed == 1 - retries


@pytest.mark.parametrize("hours", [1, 24, 700])
def test_a_job_may_take_hours(hours: int) -> None:
    desk = Desk()
    seat = desk.seat()
    id = seat.worker("slow")
    seat.send(job("slow", b"x", hours * HOUR))
    ((_, said),) = seat.take()
    assert said.fields == ["slow", hours * HOUR]
    for _ in range(100):
        desk.wait(hours * 36 - 0.1)
    seat.send(result(id, b"y"))
    ((_, said),) = seat.take()
    assert said.payload == b"y"


def test_a_time_out_of_zero_is_the_service_s_and_a_huge_one_is_cut() -> None:
    desk = Desk(policy=Policy(timeout=60))
    seat = desk.seat()
    id = seat.worker("echo")
    seat.send(job("echo", b"x", 0))
    ((_, said),) = seat.take()
    assert said.fields == ["echo", 60_000]
    seat.send(result(id))
    seat.take()
    seat.send(job("echo", b"x", 2**64 - 1))
    ((_, said),) = seat.take()
    assert said.fields == ["echo", 30 * 24 * HOUR]


def test_a_worker_s_own_failure_reaches_its_client_as_a_result() -> None:
    from polydomo.core.failure import WORKER_ERROR, Failure
    from polydomo.wire.frames import frame

    desk = Desk()
    seat = desk.seat()
    id = seat.worker("echo")
    seat.send(job("echo"))
    (worker,) = desk.memo.workers.by_id.values()
    (token,) = worker.core.running
    desk.broker.fail(worker.core, token, Failure(WORKER_ERROR, "no", frame(b"sorry")))
    desk.settle()
    assert [said.payload for _, said in seat.take() if said.kind == RESULT] == [b"sorry"]
    assert id


def test_malformed_messages_are_not_answered_and_counted_once() -> None:
    desk = Desk()
    seat = desk.seat()
    number = seat.send(b"garbage")
    seat.send(b"garbage", number)
    seat.send(pack(DISCONNECT, b"x"))
    seat.send(b"")
    assert not seat.take()
    assert len(seat.complaints) == 3
    assert seat.session.connection.invalid == 3
    seat.worker("echo")  # and goes on


def test_the_broker_s_own_services_answer() -> None:
    desk = Desk()
    assert desk.seat().call(job("mmi.service", b"echo")).payload == b"404"


def test_too_much_unanswered_is_not_read() -> None:
    desk = Desk(bounds=BrokerLimits(client_jobs=4))
    client, worker = desk.seat(), desk.seat()
    for _ in range(10):
        client.send(job("echo", b"x"))
    assert client.held
    assert desk.broker.accounting.active == 5
    worker.send(ready("echo"))
    while said := [each for _, each in worker.take() if each.kind == JOB]:
        worker.send(result(said[0].id, b"y"))
    assert len(client.take()) == 10
    assert not client.held


def test_where_workers_are_it_is_read_all_the_same() -> None:
    """What the clients wait for may be the RESULT behind their requests."""
    desk = Desk(bounds=BrokerLimits(client_jobs=4))
    seat = desk.seat()
    id = seat.worker("echo")
    for _ in range(10):
        seat.send(job("echo", b"x"))
    assert seat.held
    done = 0
    while done < 10:
        for _, said in seat.take():
            if said.kind == JOB:
                seat.send(result(id, b"y"))
            elif said.kind == RESULT:
                done += 1
    assert desk.broker.accounting.active == 0


def test_services_with_several_frames_are_packed() -> None:
    from polydomo.dialects.memo.messages import FRAMES

    desk = Desk()
    seat = desk.seat()
    id = seat.worker("echo")
    packed = FRAMES + b"\x01\x01a\x00\x01b"
    seat.send(job("echo", packed))
    (worker,) = desk.memo.workers.by_id.values()
    (running,) = worker.core.running.values()
    assert running.body == b"\x01\x01a\x00\x01b"
    ((_, said),) = seat.take()
    assert said.payload == packed
    seat.send(result(id, packed))
    assert seat.take()[0][1].payload == packed


def test_an_unsolicited_heartbeat_of_nobody_is_answered_with_disconnect() -> None:
    said = Desk().seat().call(heartbeat(b"any byte string"))
    assert (said.kind, said.id) == (DISCONNECT, b"any byte string")
