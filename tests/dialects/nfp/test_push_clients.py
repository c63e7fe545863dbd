"""The broker's side of NFP for clients with `"push": true` in OPEN."""

from __future__ import annotations

import pytest

from polydomo.core.pieces import unpack
from polydomo.wire.frames import join
from tests.dialects.nfp.desk import ClientTalker, WorkerTalker, nothing_left, said, status
from tests.support.dialects import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def client(desk: Desk) -> ClientTalker:
    client = ClientTalker(desk)
    client.open(push=True)
    return client


def test_the_end_comes_by_itself(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    assert status(client.post(b"u1")[0]) == ("RESPONSE", b"202")
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"200", b"a", b"b")
    assert client.heard() == [("RESPONSE", b"svc", b"u1", b"200", b"a", b"b")]
    assert nothing_left(desk.broker)


def test_events_and_pieces_in_order(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk, b"w1")
    client.post(b"u1")
    token, uuid, _ = worker.job()
    worker.say("EVENT", token, b"", uuid, b"200", b"step", b"one")
    worker.say("STREAM", token, b"", uuid, b"200", b"piece", b"of data")
    worker.say("EVENT", token, b"", uuid, b"200", b'{"event_type":"progress"}')
    worker.respond(token, uuid, b"202", b"still at it")
    worker.respond(token, uuid, b"200", b"done")
    assert client.heard() == [
        ("EVENT", b"svc", b"u1", b"200", b"w1", b"step", b"one"),
        ("STREAM", b"svc", b"u1", b"200", b"w1", b"piece", b"of data"),
        ("EVENT", b"svc", b"u1", b"200", b"w1", b"progress", b'{"event_type":"progress"}'),
        ("RESPONSE", b"svc", b"u1", b"200", b"done"),
    ]


def test_a_gather_tells_of_each_part_and_then_of_all(desk: Desk, client: ClientTalker):
    workers = [WorkerTalker(desk, b"w1"), WorkerTalker(desk, b"w2")]
    client.post(b"u1", target=b"w1,w2")
    token, uuid, _ = workers[0].job()
    workers[0].respond(token, uuid, b"200", b"one", b"more")
    ((name, service, job, code, worker, kind, packed),) = client.heard()
    assert (name, service, job, code, worker, kind) == ("EVENT", b"svc", b"u1", b"200", b"w1", b"gathered")
    (piece,) = unpack(packed)
    assert (piece.name, piece.body) == (b"w1", join([b"one", b"more"]))
    token, uuid, _ = workers[1].job()
    workers[1].respond(token, uuid, b"500", b"no")
    event, whole = client.heard()
    assert unpack(event[6])[0].reason == "worker-error"
    pieces = unpack(join(whole[4:]))
    assert [(piece.name, piece.reason) for piece in pieces] == [(b"w1", ""), (b"w2", "worker-error")]


def test_failures_come_by_themselves(desk: Desk, client: ClientTalker):
    client.post(b"u1", b'{"options":{"wait":1}}')
    desk.wait(2)
    (answer,) = client.heard()
    assert status(answer) == ("RESPONSE", b"408")
    assert (said(answer)["uuid"], said(answer)["reason"]) == ("u1", "expired")


def test_cancelled_is_told_to_who_asked_for_the_job_too(desk: Desk, client: ClientTalker):
    client.post(b"u1")
    other = ClientTalker(desk)
    assert status(other.ask("DELETE", b"svc", b"any", b"u1", b"")[0]) == ("RESPONSE", b"200")
    (answer,) = client.heard()
    assert said(answer)["reason"] == "cancelled"


def test_partials_of_an_mdp_worker_are_pieces(desk: Desk, client: ClientTalker):
    worker = desk.seat(b"mdp")
    worker.send(b"MDPW02", b"\1", b"svc")
    client.post(b"u1")
    (request,) = worker.take()
    worker.send(b"MDPW02", b"\3", request[2], b"", b"half")
    worker.send(b"MDPW02", b"\4", request[2], b"", b"whole")
    assert client.heard() == [
        ("STREAM", b"svc", b"u1", b"200", b"mdp", b"half"),
        ("RESPONSE", b"svc", b"u1", b"200", b"whole"),
    ]
    assert client.get(b"u1")[0][3:] == (b"200", b"whole")


def test_a_client_may_change_its_mind(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    client.open()
    client.post(b"u1")
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"200", b"done")
    assert client.heard() == []
    client.open(push=True)
    client.post(b"u2")
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"200", b"done")
    assert client.heard() == [("RESPONSE", b"svc", b"u2", b"200", b"done")]
