"""The broker's side of NFP for plain clients: the specification's strict dialog."""

from __future__ import annotations

import pytest

from polydomo.core.policy import BrokerLimits, Policy
from tests.dialects.nfp.desk import TASK, ClientTalker, WorkerTalker, nothing_left, said, status
from tests.support import invariants
from tests.support.access import manage
from tests.support.dialects import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def client(desk: Desk) -> ClientTalker:
    return ClientTalker(desk)


def test_open_is_answered_with_what_the_broker_agrees_to(desk: Desk, client: ClientTalker):
    hello = client.open(name="me", version="1")
    assert (hello["broker"], hello["keepalive_ms"], hello["liveness"]) == ("polydomo", 1000, 3)
    assert hello["limits"]["credit"] == 4
    assert hello["version"]
    assert client.ask("OPEN", b"") == client.ask("OPEN", b"anything at all")
    assert client.complaints == []


def test_a_client_may_say_its_name_for_people(desk: Desk, client: ClientTalker):
    client.open(name="anna")
    client.open(name=["no name"])
    client.post(b"u1")
    ClientTalker(desk, b"identity").open(name="other")
    assert [row["name"] for row in manage(desk.management, "show_clients")] == ["anna"]
    assert {one.name for one in desk.broker.clients} == {b"anna", b"identity"}


@pytest.mark.parametrize("frames", [[], [b"{}", b"{}"]])
def test_an_open_has_one_body(client: ClientTalker, frames: list[bytes]):
    assert client.ask("OPEN", *frames) == []
    assert len(client.complaints) == 1


def test_each_command_has_one_response(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    (posted,) = client.post(b"u1", b"one", b"", b"two")
    assert posted[:4] == ("RESPONSE", b"svc", b"u1", b"202")
    assert said(posted) == {
        "uuid": "u1",
        "service": "svc",
        "target": "any",
        "status": "QUEUED",
        "workers": None,
    }
    token, uuid, body = worker.job()
    assert (uuid, body) == (b"u1", [b"one", b"", b"two"])
    (pending,) = client.get(b"u1")
    assert status(pending) == ("RESPONSE", b"300")
    assert said(pending)["status"] == "RUNNING"
    worker.respond(token, uuid, b"200", b"three", b"four")
    assert client.heard() == []
    assert client.get(b"u1") == [("RESPONSE", b"svc", b"u1", b"200", b"three", b"four")]
    assert client.get(b"u1") == [("RESPONSE", b"svc", b"u1", b"200", b"three", b"four")]
    assert nothing_left(desk.broker)
    invariants.check(desk.broker)


def test_any_client_may_get_a_result(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    client.post(b"u1")
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"200", b"done")
    client.seat.drop()
    assert ClientTalker(desk).get(b"u1") == [("RESPONSE", b"svc", b"u1", b"200", b"done")]


def test_an_unknown_uuid_is_400(client: ClientTalker):
    (answer,) = client.get(b"nobody's")
    assert status(answer) == ("RESPONSE", b"400")
    assert said(answer)["reason"] == "unknown"


def test_a_job_that_found_no_worker_is_408(desk: Desk, client: ClientTalker):
    client.post(b"u1", b'{"options":{"wait":5}}')
    assert status(client.get(b"u1")[0]) == ("RESPONSE", b"300")
    desk.wait(6)
    assert client.heard() == []
    (answer,) = client.get(b"u1")
    assert status(answer) == ("RESPONSE", b"408")
    assert said(answer)["reason"] == "expired"


def test_the_body_s_timeout_is_also_the_wait(desk: Desk, client: ClientTalker):
    client.post(b"u1", b'{"timeout":3}')
    desk.wait(4)
    assert status(client.get(b"u1")[0]) == ("RESPONSE", b"408")


@pytest.mark.parametrize("code", [b"400", b"408", b"417", b"500", b"500 sorry"])
def test_a_worker_s_failure_keeps_its_status(desk: Desk, client: ClientTalker, code: bytes):
    worker = WorkerTalker(desk)
    client.post(b"u1")
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, code, b"did not work")
    (answer,) = client.get(b"u1")
    assert status(answer) == ("RESPONSE", code[:3])
    assert said(answer)["reason"] == "worker-error"
    assert "did not work" in said(answer)["error"]


def test_a_native_worker_s_account_reaches_the_client(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk, native=True)
    client.post(b"u1")
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"500", b'{"message":"boom","kind":"ValueError","traceback":"tb"}')
    (answer,) = client.get(b"u1")
    assert status(answer) == ("RESPONSE", b"500")
    assert (said(answer)["message"], said(answer)["kind"], said(answer)["traceback"]) == (
        "boom",
        "ValueError",
        "tb",
    )


def test_a_gathered_result_is_one_json_object(desk: Desk, client: ClientTalker):
    first, second = WorkerTalker(desk, b"w1"), WorkerTalker(desk, b"w2")
    (posted,) = client.post(b"u1", target=b"all")
    assert said(posted)["target"] == "all"
    for worker, answer in ((first, b'{"a":1}'), (second, b"\xff")):
        token, uuid, _ = worker.job()
        assert uuid == b"u1"
        worker.respond(token, uuid, b"200", answer)
    (answer,) = client.get(b"u1")
    assert said(answer) == {"w1": {"a": 1}, "w2": {"base64": "/w=="}}


def test_a_named_worker_s_result_is_its_own_body(desk: Desk, client: ClientTalker):
    WorkerTalker(desk, b"w1")
    second = WorkerTalker(desk, b"w2")
    (posted,) = client.post(b"u1", target=b"w2")
    assert said(posted)["status"] == "QUEUED"
    token, uuid, _ = second.job()
    second.respond(token, uuid, b"200", b"mine", b"only")
    assert client.get(b"u1") == [("RESPONSE", b"svc", b"u1", b"200", b"mine", b"only")]


def test_delete_drops_a_queued_job(desk: Desk, client: ClientTalker):
    client.post(b"u1")
    (answer,) = client.ask("DELETE", b"svc", b"any", b"u1", b"")
    assert status(answer) == ("RESPONSE", b"200")
    assert said(answer)["status"] == "CANCELLED"
    assert nothing_left(desk.broker)
    (answer,) = client.get(b"u1")
    assert status(answer) == ("RESPONSE", b"500")
    assert said(answer)["reason"] == "cancelled"
    assert status(client.ask("DELETE", b"svc", b"any", b"u1", b"")[0]) == ("RESPONSE", b"400")


def test_delete_tells_the_worker_of_a_running_job(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    client.post(b"u1")
    token, uuid, _ = worker.job()
    assert status(client.ask("DELETE", b"svc", b"any", b"u1", b"")[0]) == ("RESPONSE", b"200")
    assert worker.heard() == [("DELETE", token, b"", uuid, b"")]
    client.post(b"u2")
    assert worker.heard() == []  # it may still answer
    worker.respond(token, uuid, b"400", b"cancelled")
    assert worker.job()[1] == b"u2"
    assert worker.complaints == []


def test_put_reaches_the_worker_that_has_the_job(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk, b"w1")
    client.post(b"u1")
    token, uuid, _ = worker.job()
    (answer,) = client.ask("PUT", b"svc", b"w1", b"u1", b"more", b"still more")
    assert status(answer) == ("RESPONSE", b"202")
    assert worker.heard() == [("PUT", token, b"", uuid, b"more", b"still more")]
    assert status(client.ask("PUT", b"svc", b"w2", b"u1", b"more")[0]) == ("RESPONSE", b"400")
    assert status(client.ask("PUT", b"svc", b"any", b"u2", b"more")[0]) == ("RESPONSE", b"400")


@pytest.mark.parametrize("command", ["POST", "GET", "MMI"])
def test_the_broker_s_own_services_answer_at_once_in_the_command_asked(client: ClientTalker, command: str):
    (answer,) = client.ask(command, b"mmi.service.broker", b"any", b"u1", b'{"task":"show_broker"}')
    assert answer[:4] == (
        "MMI" if command == "MMI" else "RESPONSE",
        b"mmi.service.broker",
        b"u1",
        b"200",
    )
    assert said(answer)["name"] == "desk"


def test_a_task_the_broker_does_not_have(client: ClientTalker):
    (answer,) = client.ask("MMI", b"mmi.service.broker", b"any", b"u1", b'{"task":"dance"}')
    assert status(answer) == ("MMI", b"500")
    assert "dance" in said(answer)["error"]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"svc"],
        [b"svc", b"any"],
        [b"svc", b"any", b""],
        [b"svc", b"any", b"", b"body"],
        [b"svc", b"any", b"x" * 201, b"body"],
        [b"svc", b"any", b"\xff", b"body"],
    ],
)
@pytest.mark.parametrize("command", ["POST", "GET", "DELETE", "PUT", "MMI"])
def test_a_message_without_a_readable_uuid_is_dropped(
    client: ClientTalker, command: str, frames: list[bytes]
):
    assert client.ask(command, *frames) == []
    assert len(client.complaints) == 1


@pytest.mark.parametrize("frames", [[b"", b"any", b"u1", b"body"], [b"svc", b"any", b"u1"]])
@pytest.mark.parametrize("command", ["POST", "GET", "DELETE", "PUT", "MMI"])
def test_a_malformed_message_with_a_uuid_is_400(client: ClientTalker, command: str, frames: list[bytes]):
    (answer,) = client.ask(command, *frames)
    assert status(answer) == ("MMI" if command == "MMI" else "RESPONSE", b"400")
    assert answer[2] == b"u1"
    assert len(client.complaints) == 1


@pytest.mark.parametrize(
    ("target", "body"),
    [
        (b"[", TASK),
        (b"resource:a,b", TASK),
        (b"any", b'{"options":{"priority":99}}'),
        (b"any", b'{"options":[]}'),
    ],
)
def test_what_cannot_be_meant_is_400_with_a_text(client: ClientTalker, target: bytes, body: bytes):
    (answer,) = client.post(b"u1", body, target=target)
    assert status(answer) == ("RESPONSE", b"400")
    assert said(answer)["error"]


@pytest.mark.parametrize("command", ["READY", "KEEPALIVE", "RESPONSE", "EVENT", "STREAM"])
def test_commands_that_are_not_a_client_s(client: ClientTalker, command: str):
    assert client.ask(command, b"svc") == []
    assert len(client.complaints) == 1


def test_a_second_post_like_the_first_goes_the_short_way(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    for number in range(3):
        uuid = b"u%d" % number
        assert status(client.post(uuid, b"body %d" % number)[0]) == ("RESPONSE", b"202")
        token, given, body = worker.job()
        assert (given, body) == (uuid, [b"body %d" % number])
        worker.respond(token, given, b"200", b"ok")
    assert status(client.ask("POST", b"svc", b"any", b"u9")[0]) == ("RESPONSE", b"400")
    assert client.ask("POST", b"svc", b"any", b"", b"x") == []
    assert len(client.complaints) == 2


def test_the_same_uuid_again_is_the_same_job(desk: Desk, client: ClientTalker):
    worker = WorkerTalker(desk)
    other = ClientTalker(desk)
    assert status(client.post(b"u1", b"same")[0]) == ("RESPONSE", b"202")
    assert status(other.post(b"u1", b"same")[0]) == ("RESPONSE", b"202")
    (answer,) = other.post(b"u1", b"different")
    assert status(answer) == ("RESPONSE", b"400")
    assert said(answer)["reason"] == "duplicate-id"
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"200", b"once")
    assert worker.heard() == []
    assert client.heard() == other.heard() == []
    assert other.get(b"u1")[0][4] == b"once"
    assert nothing_left(desk.broker)


def test_too_many_jobs_of_one_client_are_refused_not_left_unanswered():
    desk = Desk(bounds=BrokerLimits(client_jobs=2))
    client = ClientTalker(desk)
    for number in range(3):
        assert status(client.post(b"u%d" % number)[0]) == ("RESPONSE", b"202")
    (answer,) = client.post(b"u3")
    assert status(answer) == ("RESPONSE", b"500")
    assert said(answer)["reason"] == "queue-full"
    assert status(client.get(b"u0")[0]) == ("RESPONSE", b"300")
    for number in range(2):
        client.ask("DELETE", b"svc", b"any", b"u%d" % number, b"")
    assert status(client.post(b"u3")[0]) == ("RESPONSE", b"202")


def test_a_full_queue_is_500():
    desk = Desk(policy=Policy(queue=1))
    client = ClientTalker(desk)
    client.post(b"u1")
    (answer,) = client.post(b"u2")
    assert status(answer) == ("RESPONSE", b"500")
    assert (said(answer)["reason"], said(answer)["uuid"]) == ("queue-full", "u2")


def test_a_service_name_that_is_too_long_is_400(client: ClientTalker):
    (answer,) = client.post(b"u1", service=b"x" * 256)
    assert status(answer) == ("RESPONSE", b"400")
    assert answer[2] == b"u1"


def test_a_client_that_is_gone_gets_nothing_and_its_queued_jobs_go_on(desk: Desk):
    client = ClientTalker(desk, b"anna")
    client.post(b"u1")
    client.seat.drop()
    back = ClientTalker(desk, b"anna")
    worker = WorkerTalker(desk)
    token, uuid, _ = worker.job()
    worker.respond(token, uuid, b"200", b"kept")
    assert back.heard() == []
    assert back.get(b"u1")[0][4] == b"kept"


def test_the_empty_frame_before_the_header_must_be(desk: Desk):
    seat = desk.seat()
    assert seat.call(b"NFPC01", b"\0", b"") == []
    assert seat.call(b"NFPW01", b"\1", b"svc") == []
    assert len(seat.complaints) == 2


def test_unknown_commands_are_dropped(desk: Desk):
    seat = desk.seat()
    for word in (b"", b"\x0a", b"POST", b"0x99"):
        assert seat.call(b"", b"NFPC01", word, b"svc", b"any", b"u1", b"body") == []
    assert seat.call(b"", b"NFPC01") == []
    assert len(seat.complaints) == 5
