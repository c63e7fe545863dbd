"""Clients' queries to workers: GET for jobs that the broker does not know, and workers' management."""

from __future__ import annotations

import pytest

from polydomo.dialects.nfp.broker_client import QUERIES_MAX
from polydomo.dialects.nfp.session import NfpSession
from tests.dialects.nfp.desk import ClientTalker, WorkerTalker, said, status
from tests.support import invariants
from tests.support.dialects import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def client(desk: Desk) -> ClientTalker:
    return ClientTalker(desk)


def opened(desk: Desk, name: str, service: bytes = b"svc") -> WorkerTalker:
    worker = WorkerTalker(desk, ready=False)
    worker.open(name=name)
    worker.say("READY", service)
    return worker


def patience(desk: Desk, *workers: WorkerTalker) -> None:
    for _ in range(6):
        for worker in workers:
            worker.say("KEEPALIVE", b"svc")
        desk.wait(1.0)


def test_get_for_a_job_that_only_its_worker_knows(desk: Desk, client: ClientTalker):
    worker = opened(desk, "w1")
    assert client.get(b"old", target=b"w1") == []
    ((name, token, delimiter, uuid, body),) = worker.heard()
    assert (name, delimiter, uuid, body) == ("GET", b"", b"old", b"{}")
    worker.respond(token, uuid, b"200", b"kept", b"well")
    assert client.heard() == [("RESPONSE", b"svc", b"old", b"200", b"kept", b"well")]
    invariants.check(desk.broker)


def test_several_workers_know_it(desk: Desk, client: ClientTalker):
    workers = [opened(desk, "w1"), opened(desk, "w2"), opened(desk, "w3")]
    client.get(b"old", target=b"all")
    for number, worker in enumerate(workers):
        ((_, token, _, uuid, _),) = worker.heard()
        worker.respond(token, uuid, b"404" if number == 1 else b"200", b"%d" % number)
    (answer,) = client.heard()
    assert said(answer) == {"w1": 0, "w3": 2}


@pytest.mark.parametrize(("code", "wanted"), [(b"400", b"400"), (b"404", b"400"), (b"300", b"300")])
def test_nobody_has_a_result(desk: Desk, client: ClientTalker, code: bytes, wanted: bytes):
    worker = opened(desk, "w1")
    client.get(b"old")
    ((_, token, _, uuid, _),) = worker.heard()
    worker.respond(token, uuid, code, b"{}")
    assert status(client.heard()[0]) == ("RESPONSE", wanted)


def test_a_worker_that_does_not_answer_is_not_waited_for(desk: Desk, client: ClientTalker):
    worker = opened(desk, "w1")
    client.get(b"old")
    patience(desk, worker)
    assert status(client.heard()[0]) == ("RESPONSE", b"400")
    ((_, token, _, uuid, _),) = [one for one in worker.heard() if one[0] == "GET"]
    worker.respond(token, uuid, b"200", b"too late")
    assert client.heard() == []
    assert worker.complaints == []


def test_a_worker_that_goes_is_not_waited_for(desk: Desk, client: ClientTalker):
    worker = opened(desk, "w1")
    client.get(b"old")
    worker.seat.drop()
    assert status(client.heard()[0]) == ("RESPONSE", b"400")


def test_a_client_that_goes_is_told_nothing(desk: Desk, client: ClientTalker):
    worker = opened(desk, "w1")
    client.get(b"old")
    client.seat.drop()
    ((_, token, _, uuid, _),) = worker.heard()
    worker.respond(token, uuid, b"200", b"x")
    assert client.heard() == []


def test_a_bare_worker_is_asked_nothing_but_to_do_jobs(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk, b"bare")
    assert status(client.get(b"old")[0]) == ("RESPONSE", b"400")
    assert worker.heard() == []


@pytest.mark.parametrize("command", ["MMI", "POST", "GET"])
def test_workers_management(desk: Desk, client: ClientTalker, command: str):
    first, second = opened(desk, "w1"), opened(desk, "w2", b"another service")
    client.ask(command, b"mmi.service.worker", b"all", b"q1", b'{"task":"show_broker"}')
    for worker, answering in ((first, "RESPONSE"), (second, "MMI")):
        ((name, token, delimiter, uuid, body),) = worker.heard()
        assert (name, delimiter, uuid, body) == ("MMI", b"", b"q1", b'{"task":"show_broker"}')
        worker.say(answering, token, b"", uuid, b"200", b'{"is":"fine"}')
    (answer,) = client.heard()
    assert answer[:4] == (
        "MMI" if command == "MMI" else "RESPONSE",
        b"mmi.service.worker",
        b"q1",
        b"200",
    )
    assert said(answer) == {"w1": {"is": "fine"}, "w2": {"is": "fine"}}


def test_workers_that_do_not_answer_are_named(desk: Desk, client: ClientTalker):
    worker, silent = opened(desk, "w1"), opened(desk, "w2")
    norfab = WorkerTalker(desk, b"w3", norfab=True)
    WorkerTalker(desk, b"bare")
    client.ask("MMI", b"mmi.service.worker", b"w1,w2,w3,bare", b"q1", b"{}")
    ((_, token, _, uuid, _),) = worker.heard()
    worker.say("MMI", token, b"", uuid, b"200", b"1")
    assert client.heard() == []
    patience(desk, worker, silent, norfab)
    silence = {"error": "does not answer"}
    (answer,) = client.heard()
    assert said(answer) == {"w1": 1, "w2": silence, "w3": silence, "bare": silence}


def test_a_worker_s_refusal_is_its_answer(desk: Desk, client: ClientTalker):
    worker = opened(desk, "w1")
    client.ask("MMI", b"mmi.service.worker", b"w1", b"q1", b"{}")
    ((_, token, _, uuid, _),) = worker.heard()
    worker.say("MMI", token, b"", uuid, b"500", b'{"error":"no such task"}')
    assert said(client.heard()[0]) == {"w1": {"error": "no such task"}}


@pytest.mark.parametrize("target", [b"nobody", b"["])
def test_no_such_worker(client: ClientTalker, target: bytes):
    (answer,) = client.ask("MMI", b"mmi.service.worker", target, b"q1", b"{}")
    assert status(answer) == ("MMI", b"400")


def test_any_is_one_of_them(desk: Desk, client: ClientTalker):
    workers = [opened(desk, "w1"), opened(desk, "w2")]
    client.ask("MMI", b"mmi.service.worker", b"any", b"q1", b"{}")
    assert sorted(len(worker.heard()) for worker in workers) == [0, 1]


def test_mmi_to_a_service_asks_its_workers(desk: Desk, client: ClientTalker):
    worker, other = opened(desk, "w1"), opened(desk, "w2", b"another service")
    client.ask("MMI", b"svc", b"all", b"q1", b"{}")
    assert other.heard() == []
    ((_, token, _, uuid, _),) = worker.heard()
    worker.say("MMI", token, b"", uuid, b"200", b"1")
    assert said(client.heard()[0]) == {"w1": 1}


def test_a_client_may_not_ask_without_end(desk: Desk, client: ClientTalker):
    worker = opened(desk, "w1")
    for number in range(QUERIES_MAX):
        assert client.ask("MMI", b"mmi.service.worker", b"all", b"q%d" % number, b"{}") == []
    (answer,) = client.ask("MMI", b"mmi.service.worker", b"all", b"one more", b"{}")
    assert status(answer) == ("MMI", b"500")
    patience(desk, worker)
    assert len(client.heard()) == QUERIES_MAX
    assert client.ask("MMI", b"mmi.service.worker", b"all", b"again", b"{}") == []
    assert len([one for one in worker.heard() if one[0] == "MMI"]) == QUERIES_MAX + 1


def test_nothing_is_kept_of_questions_that_were_not_answered(desk: Desk, client: ClientTalker):
    norfab = WorkerTalker(desk, b"w1", norfab=True)
    client.ask("MMI", b"mmi.service.worker", b"all", b"q1", b"{}")
    patience(desk, norfab)
    assert status(client.heard()[0]) == ("MMI", b"200")
    session = norfab.seat.link.session
    assert isinstance(session, NfpSession)
    assert session.worker is not None
    assert session.worker._queries == {}
