"""The broker's side of NFP towards the specification's workers."""

from __future__ import annotations

import json

import pytest

from polydomo.core.policy import Policy
from polydomo.core.workers import NAME_TAKEN
from tests.dialects.nfp.desk import ClientTalker, WorkerTalker, nothing_left, said, status
from tests.support import invariants
from tests.support.dialects import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def client(desk: Desk) -> ClientTalker:
    client = ClientTalker(desk)
    client.open(push=True)
    return client


def names(desk: Desk) -> list[bytes]:
    return [worker.name for worker in desk.broker.workers if not worker.internal]


def test_open_is_answered_and_its_values_count(desk: Desk):
    worker = WorkerTalker(desk, ready=False)
    hello = worker.open(name="w1", credit=3, resources=["r1", "r2"])
    assert (hello["keepalive_ms"], hello["liveness"]) == (1000, 3)
    worker.say("READY", b"svc")
    (core,) = [one for one in desk.broker.workers if not one.internal]
    assert (core.name, core.credit, core.anonymous) == (b"w1", 3, False)
    assert desk.broker.control.resources_of(core) == [b"r1", b"r2"]
    assert worker.heard() == []


def test_credit_is_bounded(desk: Desk):
    worker = WorkerTalker(desk, ready=False)
    worker.open(credit=1000)
    worker.say("READY", b"svc")
    (core,) = [one for one in desk.broker.workers if not one.internal]
    assert core.credit == desk.context.credit_max


@pytest.mark.parametrize(
    "body",
    [
        b'{"name":""}',
        b'{"name":1}',
        b'{"name":"all"}',
        b'{"name":"a,b"}',
        b'{"name":"resource:x"}',
        b'{"credit":0}',
        b'{"credit":true}',
        b'{"resources":"r"}',
        b'{"resources":[1]}',
        b'{"resources":["a,b"]}',
    ],
)
def test_an_open_that_cannot_be_meant_is_dropped(desk: Desk, body: bytes):
    worker = WorkerTalker(desk, ready=False)
    assert worker.ask("OPEN", body) == []
    assert len(worker.complaints) == 1


@pytest.mark.parametrize("body", [b"", b"opaque", b"{}", b'{"else":1}', b"[]"])
def test_any_other_body_is_fine(desk: Desk, body: bytes):
    worker = WorkerTalker(desk, ready=False)
    assert worker.ask("OPEN", body)[0][0] == "OPEN"


def test_a_worker_is_called_by_its_identity_or_by_something_made_up(desk: Desk):
    WorkerTalker(desk, b"identity")
    WorkerTalker(desk)
    named, made_up = [one for one in desk.broker.workers if not one.internal]
    assert (named.name, named.anonymous) == (b"identity", False)
    assert made_up.anonymous
    assert made_up.name.startswith(b"nfp-")


@pytest.mark.parametrize(
    ("newer", "alive", "taken"),
    [
        (b"one", True, True),  # the same worker is back
        (b"two", True, False),
        (b"two", False, True),
        (b"", True, False),  # it does not say which one it is
        (b"", False, True),
    ],
)
def test_a_second_worker_of_our_own_with_a_name_is_refused_while_the_first_is_there(
    desk: Desk, newer: bytes, alive: bool, taken: bool
):
    first, second = (WorkerTalker(desk, ready=False, instance=one) for one in (b"one", newer))
    for worker in (first, second):
        worker.open(name="w1")
    first.say("READY", b"svc")
    first.seat.alive = alive
    told = second.ask("READY", b"svc")
    assert names(desk) == [b"w1"]
    if taken:
        assert told == []
        assert [one[0] for one in first.heard()] == ["DISCONNECT"]
    else:
        assert told == [("DISCONNECT", b"svc", NAME_TAKEN.encode())]
        assert first.heard() == []
        assert NAME_TAKEN in second.seat.complaints[0]


def test_the_newest_connection_of_a_worker_counts(desk: Desk, client: ClientTalker):
    workers = []
    for _ in range(2):
        worker = WorkerTalker(desk, ready=False, instance=b"one")
        worker.open(name="w1")
        worker.say("READY", b"svc")
        if not workers:
            client.post(b"u1")
            worker.job()
        workers.append(worker)
    assert [one[0] for one in workers[0].heard()] == ["DISCONNECT"]
    assert names(desk) == [b"w1"]
    assert workers[1].job()[1] == b"u1"
    elsewhere = WorkerTalker(desk, ready=False, instance=b"one")
    elsewhere.open(name="w1")
    elsewhere.say("READY", b"another service")
    assert names(desk) == [b"w1", b"w1"]
    stranger = WorkerTalker(desk, ready=False)
    stranger.open(name="w1")
    assert stranger.ask("READY", b"a third service")[0][0] == "DISCONNECT"


def test_a_further_ready_is_answered_with_disconnect(desk: Desk):
    worker = WorkerTalker(desk)
    ((name, service, reason),) = worker.ask("READY", b"svc")
    assert (name, service, reason) == ("DISCONNECT", b"svc", b"NFP READY from a registered worker")
    assert names(desk) == []
    assert worker.ask("KEEPALIVE", b"svc") == []  # nothing after DISCONNECT
    worker.say("READY", b"svc")
    assert len(names(desk)) == 1


@pytest.mark.parametrize(
    "message",
    [
        ("KEEPALIVE", b"svc"),
        ("RESPONSE", b"00000001", b"", b"u", b"200", b"x"),
        ("EVENT", b"00000001", b"", b"u", b"200", b"x"),
        ("STREAM", b"00000001", b"", b"u", b"200", b"x"),
    ],
    ids=lambda message: message[0],
)
def test_commands_before_ready_are_answered_with_disconnect(desk: Desk, message: tuple[str, bytes]):
    worker = WorkerTalker(desk, ready=False)
    ((name, *_),) = worker.ask(*message)
    assert name == "DISCONNECT"
    assert worker.ask(*message) == []


@pytest.mark.parametrize("frames", [[], [b""], [b"svc", b"more"]])
def test_a_ready_without_a_service_registers_nobody(desk: Desk, frames: list[bytes]):
    worker = WorkerTalker(desk, ready=False)
    assert worker.ask("READY", *frames) == []
    assert names(desk) == []
    assert len(worker.complaints) == 1


@pytest.mark.parametrize("service", [b"mmi.mine", b"sid.x", b"fss.x", b"all", b"x" * 256])
def test_names_that_are_not_for_workers(desk: Desk, service: bytes):
    worker = WorkerTalker(desk, ready=False)
    assert worker.ask("READY", service)[0][0] == "DISCONNECT"
    assert names(desk) == []


def test_nothing_is_sent_to_a_worker_that_said_goodbye(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    client.post(b"u1")
    worker.job()
    worker.say("DISCONNECT", b"svc")
    client.post(b"u2")
    desk.wait(1.5)
    assert worker.heard() == []
    other = WorkerTalker(desk)
    assert other.job()[1] == b"u1"


def test_keepalives_go_out_when_nothing_else_does(desk: Desk):
    worker = WorkerTalker(desk)
    desk.wait(1.0)
    assert worker.heard() == [("KEEPALIVE", b"svc")]


def test_a_silent_worker_is_given_up(desk: Desk):
    worker = WorkerTalker(desk)
    for _ in range(3):
        desk.wait(1.0)
    assert worker.heard()[-1][0] == "DISCONNECT"
    assert names(desk) == []


def test_any_command_is_a_sign_of_life(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    for number in range(6):
        client.post(b"u%d" % number)
        ((_, token, _, uuid, _),) = [one for one in worker.heard() if one[0] == "POST"]
        worker.respond(token, uuid, b"200", b"x")
        desk.wait(1.0)
    assert len(names(desk)) == 1


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"TOKEN"],
        [b"TOKEN", b""],
        [b"TOKEN", b"", b"u1"],
        [b"TOKEN", b"not empty", b"u1", b"200", b"x"],
        [b"TOKEN", b"", b"u1", b"fine", b"x"],
        [b"TOKEN", b"", b"u1", b"700", b"x"],
        [b"TOKEN", b"", b"u1", b"100", b"x"],
    ],
)
def test_a_malformed_response_is_dropped_and_its_sender_invalid(
    desk: Desk, client: ClientTalker, frames: list[bytes]
):
    worker = WorkerTalker(desk)
    client.post(b"u1")
    token, _, _ = worker.job()
    ((name, *_),) = worker.ask("RESPONSE", *[token if one == b"TOKEN" else one for one in frames])
    assert name == "DISCONNECT"
    assert len(worker.complaints) == 1
    other = WorkerTalker(desk)
    token, uuid, _ = other.job()
    other.respond(token, uuid, b"200", b"done")
    assert client.heard()[-1][3:] == (b"200", b"done")


def test_a_response_without_a_body_is_an_empty_result(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    client.post(b"u1")
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"200")
    assert client.heard() == [("RESPONSE", b"svc", b"u1", b"200", b"")]


def test_a_status_may_have_a_text(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    client.post(b"u1")
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"200 all went well", b"x")
    assert client.heard() == [("RESPONSE", b"svc", b"u1", b"200", b"x")]


def test_an_answer_to_a_job_it_was_not_given(desk: Desk, client: ClientTalker):
    worker, forger = WorkerTalker(desk, b"w1"), WorkerTalker(desk, b"w2", b"other")
    client.post(b"u1")
    token, uuid, _ = worker.job()
    assert forger.ask("RESPONSE", token, b"", uuid, b"200", b"forged")[0][0] == "DISCONNECT"
    worker.respond(token, uuid, b"200", b"true")
    assert client.heard() == [("RESPONSE", b"svc", b"u1", b"200", b"true")]


def test_events_and_pieces_of_a_job_it_was_not_given_are_dropped(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    worker.say("EVENT", b"0000aaaa", b"", b"u1", b"200", b"kind", b"x")
    worker.say("STREAM", b"0000aaaa", b"", b"u1", b"200", b"x")
    assert worker.heard() == client.heard() == []
    assert len(names(desk)) == 1


def test_a_lost_worker_s_job_goes_to_another_and_its_late_answer_is_refused(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk, b"w1")
    client.post(b"u1")
    token, uuid, _ = worker.job()
    worker.seat.drop()
    other = WorkerTalker(desk, b"w2")
    new, same, _ = other.job()
    assert same == uuid == b"u1"
    assert new != token
    back = WorkerTalker(desk, b"w1")
    assert back.ask("RESPONSE", token, b"", uuid, b"200", b"late")[0][0] == "DISCONNECT"
    other.respond(new, same, b"200", b"in time")
    assert client.heard() == [("RESPONSE", b"svc", b"u1", b"200", b"in time")]


def test_our_own_worker_is_not_sent_away_for_something_old(desk: Desk):
    worker = WorkerTalker(desk, native=True)
    assert worker.ask("RESPONSE", b"0000aaaa", b"", b"u1", b"200", b"old") == []
    assert len(names(desk)) == 1


def test_signs_that_it_is_at_work(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    client.post(b"u1")
    token, uuid, _ = worker.job()
    for code in (b"202", b"300", b"201", b"102"):
        worker.respond(token, uuid, code, b"{}")
    assert worker.heard() == client.heard() == []
    worker.respond(token, uuid, b"200", b"x")
    assert client.heard()[0][3] == b"200"


def test_several_jobs_at_once_for_a_worker_with_credit(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk, ready=False)
    worker.open(credit=3)
    worker.say("READY", b"svc")
    for number in range(4):
        client.post(b"u%d" % number)
    jobs = worker.heard()
    assert [job[3] for job in jobs] == [b"u0", b"u1", b"u2"]
    for _, token, _, uuid, *_ in reversed(jobs):
        worker.respond(token, uuid, b"200", uuid)
    assert [one[4] for one in client.heard()] == [b"u2", b"u1", b"u0"]
    assert worker.job()[1] == b"u3"
    invariants.check(desk.broker)


def test_a_job_for_a_resource_reaches_its_holder(desk: Desk, client: ClientTalker):
    holders = []
    for number in range(2):
        worker = WorkerTalker(desk, ready=False)
        worker.open(name=f"w{number}", resources=[f"r{number}"])
        worker.say("READY", b"svc")
        holders.append(worker)
    client.post(b"u1", target=b"resource:r1")
    assert holders[0].heard() == []
    token, uuid, _ = holders[1].job()
    holders[1].respond(token, uuid, b"200", b"r1's")
    assert client.heard() == [("RESPONSE", b"svc", b"u1", b"200", b"r1's")]


def test_a_worker_may_declare_other_resources_later(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk, b"w1")
    task = json.dumps({"task": "set_resources", "kwargs": {"resources": ["r9"]}}).encode()
    ((name, token, delimiter, uuid, code, body),) = worker.ask("MMI", b"", b"", b"q1", b"200", task)
    assert (name, token, delimiter, uuid, code) == ("MMI", b"", b"", b"q1", b"200")
    assert json.loads(body) == {"resources": ["r9"]}
    client.post(b"u1", target=b"resource:r9")
    assert worker.job()[1] == b"u1"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{}", b'{"task":"dance"}', b'{"task":"set_resources","kwargs":{"resources":1}}']
)
def test_other_tasks_of_a_worker_are_dropped(desk: Desk, body: bytes):
    worker = WorkerTalker(desk)
    assert worker.ask("MMI", b"", b"", b"q1", b"200", body) == []
    assert len(worker.complaints) == 1


def test_shared_out_resources_are_told_to_workers_that_can_be_asked(desk: Desk):
    worker = WorkerTalker(desk, ready=False)
    worker.open(name="w1")
    worker.say("READY", b"svc")
    bare = WorkerTalker(desk, b"bare")
    desk.broker.control.share_out(b"svc", [b"r%d" % number for number in range(20)])
    desk.wait(0.01)
    told = worker.heard()
    task = json.loads(told[-1][4])
    assert (told[-1][0], task["task"]) == ("MMI", "set_resources")
    assert 0 < len(task["kwargs"]["resources"]) < 20
    assert bare.heard() == []
    worker.say("RESPONSE", told[-1][1], b"", told[-1][3], b"200", b"{}")
    assert worker.heard() == []


def test_a_job_of_another_dialect_has_a_uuid_too(desk: Desk):
    worker = WorkerTalker(desk)
    mdp = desk.seat()
    mdp.send(b"MDPC02", b"\1", b"svc", b"a", b"b")
    token, uuid, body = worker.job()
    assert uuid
    assert body == [b"a", b"b"]
    worker.respond(token, uuid, b"200", b"c", b"d")
    assert mdp.take() == [[b"MDPC02", b"\3", b"svc", b"c", b"d"]]


def test_a_failure_for_an_mdp_client_is_the_worker_s_body(desk: Desk):
    worker = WorkerTalker(desk)
    mdp = desk.seat()
    mdp.send(b"MDPC02", b"\1", b"svc", b"x")
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"500", b'{"message":"boom"}', b"plain words")
    assert mdp.take() == [[b"MDPC02", b"\3", b"svc", b"plain words"]]
    mdp.send(b"MDPC02", b"\1", b"svc", b"x")
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"500", b"boom")
    assert mdp.take() == [[b"MDPC02", b"\3", b"svc", b"boom"]]


def test_a_job_that_runs_too_long_is_taken_away(client: ClientTalker, desk: Desk):
    worker = WorkerTalker(desk, b"w1")
    client.post(b"u1", b'{"timeout":2}')
    worker.job()
    for _ in range(5):
        worker.say("KEEPALIVE", b"svc")
        desk.wait(0.5)
    other = WorkerTalker(desk, b"w2")
    token, uuid, _ = other.job()
    other.respond(token, uuid, b"200", b"quick")
    assert client.heard()[-1][3:] == (b"200", b"quick")


def test_no_retries_left_is_500():
    desk = Desk(policy=Policy(retries=0))
    client, worker = ClientTalker(desk), WorkerTalker(desk)
    client.post(b"u1")
    worker.seat.drop()
    (answer,) = client.get(b"u1")
    assert status(answer) == ("RESPONSE", b"500")
    assert said(answer)["reason"] == "retries-exhausted"
    assert nothing_left(desk.broker)


def test_a_peer_may_be_client_and_worker_on_one_connection(desk: Desk):
    both = WorkerTalker(desk, b"both")
    both.seat.send(b"", b"NFPC01", b"\4", b"svc", b"any", b"u1", b"to myself")
    posted, job = sorted(both.heard(), key=lambda one: one[0] == "POST")
    assert status(posted) == ("RESPONSE", b"202")
    both.respond(job[1], job[3], b"200", b"from myself")
    both.seat.send(b"", b"NFPC01", b"\6", b"svc", b"any", b"u1", b"")
    assert both.heard()[0][3:] == (b"200", b"from myself")
