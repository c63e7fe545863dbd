"""The broker's side of NFP in norfab's form: four-character commands, and the way its peers talk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polydomo.wire.frames import join
from tests.dialects.nfp.desk import TASK, ClientTalker, WorkerTalker, nothing_left, said, status
from tests.support import invariants
from tests.support.core import FakeClient
from tests.support.dialects import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def client(desk: Desk) -> ClientTalker:
    return ClientTalker(desk, b"client", norfab=True)


class NorfabWorker(WorkerTalker):
    """Does a job as norfab's worker does it, step by step."""

    def __init__(self, desk: Desk, name: bytes, service: bytes = b"svc") -> None:
        super().__init__(desk, name, service, norfab=True)
        self.name = name.decode()

    def take(self, token: bytes, uuid: bytes) -> None:
        self.respond(token, uuid, b"201", json.dumps({"worker": self.name, "uuid": uuid.decode()}).encode())

    def event(self, token: bytes, uuid: bytes, kind: str, message: str) -> None:
        event = {"worker": self.name, "service": "svc", "uuid": uuid.decode()}
        event |= {"event_type": kind, "message": message}
        self.say("EVENT", token, b"", uuid, b"200", json.dumps(event, separators=(",", ":")).encode())

    def result(self, token: bytes, uuid: bytes, value: Any) -> None:
        result = {self.name: {"result": value, "failed": False, "juuid": uuid.decode()}}
        self.respond(token, uuid, b"200", json.dumps(result, separators=(",", ":")).encode())

    def do(self, value: Any = "done") -> None:
        token, uuid, _ = self.job()
        self.take(token, uuid)
        self.event(token, uuid, "progress", "starting")
        self.event(token, uuid, "result_ready", "completed")
        assert self.heard() == [("GET", token, b"", uuid, b"{}")]
        self.result(token, uuid, value)


def test_a_job_as_norfab_s_peers_do_it(desk: Desk, client: ClientTalker):
    worker = NorfabWorker(desk, b"w1")
    (posted,) = client.post(b"u1")
    assert status(posted) == ("RESPONSE", b"202")
    assert said(posted) == {
        "workers": ["w1"],
        "uuid": "u1",
        "target": "any",
        "status": "DISPATCHED",
        "service": "svc",
    }
    worker.do({"x": 1})
    created, started, ready, result = client.heard()
    assert status(created) == ("RESPONSE", b"201")
    assert said(created) == {"worker": "w1", "uuid": "u1", "status": "ACCEPTED", "service": "svc"}
    assert (started[0], said(started)["uuid"], said(started)["message"]) == ("EVENT", "u1", "starting")
    assert (ready[0], said(ready)["uuid"], said(ready)["event_type"]) == ("EVENT", "u1", "result_ready")
    assert status(result) == ("RESPONSE", b"200")
    assert said(result) == {"w1": {"result": {"x": 1}, "failed": False, "juuid": "u1"}}
    assert nothing_left(desk.broker)
    invariants.check(desk.broker)


def test_the_uuid_a_worker_sees_is_new_for_each_attempt(desk: Desk, client: ClientTalker):
    first = NorfabWorker(desk, b"w1")
    client.post(b"u1")
    token, uuid, _ = first.job()
    assert uuid == b"u1." + token
    first.seat.drop()
    again = NorfabWorker(desk, b"w1")
    new, other, _ = again.job()
    assert other == b"u1." + new
    assert other != uuid


def test_a_result_of_another_worker_than_the_202_named_is_shown_as_its(desk: Desk, client: ClientTalker):
    first = NorfabWorker(desk, b"w1")
    assert said(client.post(b"u1")[0])["workers"] == ["w1"]
    first.seat.drop()
    NorfabWorker(desk, b"w2").do(7)
    created, started, ready, result = client.heard()
    assert said(created)["worker"] == said(started)["worker"] == said(ready)["worker"] == "w1"
    assert said(result) == {"w1": {"result": 7, "failed": False, "juuid": "u1"}}


def test_all_workers_one_result_each_as_they_come(desk: Desk, client: ClientTalker):
    workers = [NorfabWorker(desk, b"w%d" % number) for number in range(3)]
    (posted,) = client.post(b"u1", target=b"all")
    assert said(posted)["workers"] == ["w0", "w1", "w2"]
    for number, worker in enumerate(workers):
        worker.do(number)
        assert said(client.heard()[-1]) == {f"w{number}": {"result": number, "failed": False, "juuid": "u1"}}
    assert client.heard() == []
    got = client.get(b"u1", target=b'["w0","w1","w2"]')
    assert [status(one)[1] for one in got] == [b"202", b"200"]
    assert {name: part["result"] for name, part in said(got[1]).items()} == {"w0": 0, "w1": 1, "w2": 2}


@pytest.mark.parametrize("target", [b'["w0","w2"]', b"w0,w2"])
def test_lists_of_names(desk: Desk, client: ClientTalker, target: bytes):
    workers = [NorfabWorker(desk, b"w%d" % number) for number in range(3)]
    assert said(client.post(b"u1", target=target)[0])["workers"] == ["w0", "w2"]
    assert workers[1].heard() == []
    workers[0].do()
    workers[2].do()
    assert list(said(client.heard()[-1])) == ["w2"]
    assert nothing_left(desk.broker)


@pytest.mark.parametrize(
    ("target", "names"), [(b"all", ["w0", "w1"]), (b"any", ["w0", "w1"]), (b"w1", ["w1"])]
)
def test_the_service_all(desk: Desk, client: ClientTalker, target: bytes, names: list[str]):
    workers = [NorfabWorker(desk, b"w%d" % number, b"svc%d" % number) for number in range(2)]
    assert said(client.post(b"u1", service=b"all", target=target)[0])["workers"] == names
    for worker in workers:
        if worker.name in names:
            worker.do()
    assert nothing_left(desk.broker)


def test_the_202_waits_until_a_worker_is_known(desk: Desk, client: ClientTalker):
    assert client.post(b"u1") == []
    worker = NorfabWorker(desk, b"w1")
    assert said(client.heard()[0])["workers"] == ["w1"]
    worker.do()
    assert status(client.heard()[-1]) == ("RESPONSE", b"200")


def test_a_named_worker_that_is_not_there_yet(desk: Desk, client: ClientTalker):
    assert said(client.post(b"u1", target=b"w1")[0])["workers"] == ["w1"]
    NorfabWorker(desk, b"w1").do()
    assert status(client.heard()[-1]) == ("RESPONSE", b"200")


def test_408_when_nobody_came(desk: Desk, client: ClientTalker):
    client.post(b"u1", b'{"task":"x","timeout":2}')
    desk.wait(3)
    (answer,) = client.heard()
    assert status(answer) == ("RESPONSE", b"408")
    assert said(answer)["error"]


def test_get_while_it_runs_is_300(desk: Desk, client: ClientTalker):
    NorfabWorker(desk, b"w1")
    client.post(b"u1")
    got = client.get(b"u1", target=b'["w1"]')
    assert [status(one)[1] for one in got] == [b"202", b"300"]
    assert said(got[0])["workers"] == ["w1"]


def test_get_of_an_unknown_job_with_nobody_there_is_300(client: ClientTalker):
    assert [status(one)[1] for one in client.get(b"u1", target=b'["w1"]')] == [b"202", b"300"]


def test_get_of_an_unknown_job_asks_its_workers(desk: Desk, client: ClientTalker):
    worker = NorfabWorker(desk, b"w1")
    client.get(b"old", target=b'["w1"]')
    ((name, token, _, uuid, body),) = worker.heard()
    assert (name, uuid, body) == ("GET", b"old", b"{}")
    assert token.startswith(b"g")
    worker.result(token, uuid, "kept")
    assert said(client.heard()[-1]) == {"w1": {"result": "kept", "failed": False, "juuid": "old"}}
    client.get(b"older", target=b'["w1"]')
    ((_, token, _, uuid, _),) = worker.heard()
    worker.respond(token, uuid, b"404", b'{"status":"JOB NOT FOUND"}')
    assert status(client.heard()[-1]) == ("RESPONSE", b"404")
    client.get(b"oldest", target=b'["w1"]')
    desk.wait(1)
    worker.say("KEEPALIVE", b"svc")
    for _ in range(5):
        desk.wait(1)
        worker.say("KEEPALIVE", b"svc")
    assert status(client.heard()[-1]) == ("RESPONSE", b"300")


def test_input_for_a_running_job(desk: Desk, client: ClientTalker):
    worker = NorfabWorker(desk, b"w1")
    client.post(b"u1")
    token, uuid, _ = worker.job()
    assert client.ask("PUT", b"svc", b'["w1"]', b"u1", b'{"yes":true}') == []
    assert worker.heard() == [("PUT", token, b"", uuid, b'{"yes":true}')]
    assert client.ask("PUT", b"svc", b'["w1"]', b"u2", b"{}") == []


def test_input_for_a_job_that_has_moved(desk: Desk, client: ClientTalker):
    first = NorfabWorker(desk, b"w1")
    client.post(b"u1")
    first.seat.drop()
    second = NorfabWorker(desk, b"w2")
    token, uuid, _ = second.job()
    client.ask("PUT", b"svc", b'["w1"]', b"u1", b"{}")
    assert second.heard() == [("PUT", token, b"", uuid, b"{}")]


def test_streams_pass_through(desk: Desk, client: ClientTalker):
    worker = NorfabWorker(desk, b"w1")
    client.post(b"u1")
    token, uuid, _ = worker.job()
    client.heard()
    worker.say("STREAM", token, b"", uuid, b"200", b"\0chunk\xff")
    assert client.heard() == [("STREAM", b"svc", b"u1", b"200", b"\0chunk\xff")]


@pytest.mark.parametrize("body", [[b"no json"], [b"[]"], [b"{}", b"{}"], [b""], [b'{"a":NaN}']])
def test_what_would_kill_a_norfab_worker_never_reaches_it(
    desk: Desk, client: ClientTalker, body: list[bytes]
):
    worker = NorfabWorker(desk, b"w1")
    told = client.post(b"u1", *body)
    assert status(told[-1]) == ("RESPONSE", b"400")
    assert "JSON object" in said(told[-1])["error"]
    assert worker.heard() == []
    client.post(b"u2")
    worker.do()


def test_very_many_of_them_in_a_row(desk: Desk, client: ClientTalker):
    for number in range(1000):
        client.post(b"u%d" % number, b"no json")
    NorfabWorker(desk, b"w1")
    assert [status(one)[1] for one in client.heard()].count(b"400") == 1000
    assert nothing_left(desk.broker)
    invariants.check(desk.broker)


def test_thirty_two_jobs_at_once(desk: Desk, client: ClientTalker):
    worker = NorfabWorker(desk, b"w1")
    for number in range(34):
        client.post(b"u%d" % number)
    assert len(worker.heard()) == 32


def test_keepalives_also_under_load(desk: Desk, client: ClientTalker):
    worker = NorfabWorker(desk, b"w1")
    beats = 0
    for number in range(12):
        client.post(b"u%d" % number)
        for one in worker.heard():
            if one[0] == "POST":
                worker.result(one[1], one[3], "x")
        desk.wait(0.5)
        beats += sum(one[0] == "KEEPALIVE" for one in worker.heard())
        worker.say("KEEPALIVE", b"svc")
    assert beats >= 5


def test_a_worker_nobody_knows_is_told_in_the_specification_s_order(desk: Desk):
    worker = WorkerTalker(desk, b"w1", ready=False, norfab=True)
    ((name, service, reason),) = worker.ask("KEEPALIVE", b"svc")
    assert (name, service) == ("DISCONNECT", b"svc")
    assert reason


def test_something_old_of_a_worker_that_came_back_is_no_reason_to_send_it_away(desk: Desk):
    worker = NorfabWorker(desk, b"w1")
    worker.take(b"0000aaaa", b"u9.0000aaaa")
    worker.event(b"0000aaaa", b"u9.0000aaaa", "progress", "x")
    worker.event(b"0000aaaa", b"u9.0000aaaa", "result_ready", "x")
    worker.result(b"0000aaaa", b"u9.0000aaaa", "x")
    assert worker.heard() == []
    assert worker.complaints == []


def test_a_cancelled_job_s_worker_is_free_when_it_has_ended(desk: Desk, client: ClientTalker):
    desk.context.nfp_credit = 1
    worker = NorfabWorker(desk, b"w1")
    client.post(b"u1")
    token, uuid, _ = worker.job()
    client.ask("DELETE", b"svc", b"any", b"u1", b"{}")
    client.post(b"u2")
    assert [one[0] for one in worker.heard()] == ["DELETE"]
    worker.event(token, uuid, "result_ready", "completed")
    assert worker.job()[1].startswith(b"u2.")


def test_a_result_nobody_asked_for_counts_too(desk: Desk, client: ClientTalker):
    worker = NorfabWorker(desk, b"w1")
    client.post(b"u1")
    token, uuid, _ = worker.job()
    worker.result(token, uuid, 1)
    assert status(client.heard()[-1]) == ("RESPONSE", b"200")


def test_results_of_other_workers_look_like_norfab_s(desk: Desk, client: ClientTalker):
    mdp = desk.seat(b"mdp")
    mdp.send(b"MDPW02", b"\1", b"svc")
    client.post(b"u1")
    (request,) = mdp.take()
    assert request[4] == TASK
    mdp.send(b"MDPW02", b"\3", request[2], b"", b"half")
    mdp.send(b"MDPW02", b"\4", request[2], b"", b"whole")
    event, result = client.heard()
    assert (said(event)["worker"], said(event)["message"]) == ("mdp", "half")
    assert said(result)["mdp"]["result"] == "whole"
    assert said(result)["mdp"]["task"] == "echo"


def test_a_failed_part_is_a_failed_result(desk: Desk, client: ClientTalker):
    good, bad = NorfabWorker(desk, b"good"), WorkerTalker(desk, b"bad")
    client.post(b"u1", target=b"all")
    token, uuid, _ = bad.job()
    bad.respond(token, uuid, b"500", b"boom")
    (answer,) = client.heard()
    assert status(answer) == ("RESPONSE", b"200")
    assert said(answer)["bad"]["failed"] is True
    assert "boom" in said(answer)["bad"]["errors"][0]
    good.do()
    assert said(client.heard()[-1])["good"]["failed"] is False


def test_the_same_job_again_gets_the_answer_that_is_known(desk: Desk, client: ClientTalker):
    workers = [NorfabWorker(desk, b"w%d" % number) for number in range(2)]
    client.post(b"u1", target=b"all")
    for worker in workers:
        worker.do(1)
    client.heard()
    told = client.post(b"u1", target=b"all")
    assert [status(one)[1] for one in told] == [b"202", b"200", b"200"]
    assert said(told[0])["workers"] == ["w0", "w1"]


@pytest.mark.parametrize("command", ["MMI", "GET", "POST"])
def test_management_and_inventory(client: ClientTalker, command: str):
    (answer,) = client.ask(command, b"mmi.service.broker", b"all", b"u1", b'{"task":"show_broker"}')
    assert status(answer) == ("MMI" if command == "MMI" else "RESPONSE", b"200")
    assert len(answer) == 5


def test_an_mdp_client_calls_a_norfab_worker(desk: Desk):
    worker = NorfabWorker(desk, b"w1")
    mdp = desk.seat()
    mdp.send(b"MDPC02", b"\1", b"svc", TASK)
    worker.do("for mdp")
    ((_, _, _, body),) = mdp.take()
    assert json.loads(body)["w1"]["result"] == "for mdp"
    mdp.send(b"MDPC02", b"\1", b"svc", b"no json")
    assert worker.heard() == []


def test_a_job_of_a_client_without_uuids_is_cancelled_under_the_name_it_was_given(desk: Desk):
    worker = desk.seat(b"w1")
    worker.send(b"", b"NFPW01", b"0x01", b"net")
    asker = FakeClient(desk.broker, b"client")
    job = asker.ask(b"net", join([b'{"task":"echo","args":[],"kwargs":{}}']))
    desk.settle()
    given = worker.take()[-1]
    desk.broker.clock.epoch += 0.5  # the wall clock goes on, and is set
    assert job is not None
    assert desk.broker.cancel(job)
    desk.settle()
    told = worker.take()[-1]
    assert (given[2], told[2]) == (b"0x04", b"0x07")
    assert given[5] == told[5]
