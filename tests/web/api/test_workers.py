"""Workers over HTTP: polls, attempts, and what becomes of both when somebody is lost."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.curl import need_curl
from tests.support.peers import MdpClient
from tests.web.api.site import is_problem
from tests.web.desk import Desk, fresh, read_answer, until


def test_a_poll_without_a_job_says_so(desk: Desk) -> None:
    answer = desk.ask_for(fresh(), worker="idle-1", wait=0.05)
    assert (answer.status, answer.body, answer.headers["polydomo-worker"]) == (204, b"", "idle-1")


def test_a_worker_gets_a_job_of_any_protocol_and_its_client_the_answer(desk: Desk) -> None:
    service = fresh()
    with MdpClient(desk.broker.endpoint) as client:
        client.request(service.encode(), b"hello")
        attempt = desk.poll(service, worker="w-1")
        assert attempt.body == b"hello"
        assert attempt.headers["polydomo-service"] == service
        assert attempt.headers["polydomo-worker"] == "w-1"
        assert attempt.headers["polydomo-timeout"] == "60"
        assert attempt.say("partials", b"half").status == 204
        attempt.answer(b"whole")
        assert client.answer(service.encode()) == ([[b"half"]], [b"whole"])


def test_a_worker_without_a_name_is_given_one(desk: Desk) -> None:
    service = fresh()
    names = {desk.ask_for(service).headers["polydomo-worker"] for _ in range(3)}
    assert len(names) == 3


def test_a_worker_offers_several_services(desk: Desk) -> None:
    one, two = fresh(), fresh()
    with desk.raw(
        desk.request("POST", "/v1/workers/poll", json.dumps({"services": [one, two]}).encode())
    ) as polling:
        until(lambda: desk.offered(one)["idle"] and desk.offered(two)["idle"])
        path = desk.job(two)
        assert read_answer(polling)[0] == 200
        assert desk.state(path) == "running"
        assert desk.offered(one)["idle"] == 0


def test_it_holds_as_many_jobs_as_it_has_asked_for(desk: Desk) -> None:
    service = fresh()
    paths = [desk.job(service, b"%d" % number) for number in range(3)]
    first, second = desk.poll(service, worker="two"), desk.poll(service, worker="two")
    assert (first.body, second.body) == (b"0", b"1")
    first.answer(b"a")
    assert desk.state(paths[2]) == "waiting"  # an answer does not ask for more
    assert desk.result(paths[0]).body == b"a"
    third = desk.poll(service, worker="two")
    third.answer(b"c")
    second.answer(b"b")
    assert [desk.result(path).body for path in paths] == [b"a", b"b", b"c"]


def test_an_answer_may_ask_for_the_next_job(desk: Desk) -> None:
    service = fresh()
    paths = [desk.job(service, b"%d" % number) for number in range(2)]
    attempt = desk.poll(service)
    answer = attempt.say("result", b"a", "?next=5")
    assert (answer.status, answer.body) == (200, b"1")
    last = desk.site.ask("PUT", f"{answer.headers['location']}/result?next=0", b"b")
    assert last.status == 204
    assert [desk.result(path).body for path in paths] == [b"a", b"b"]


def test_a_poll_whose_connection_is_lost_gets_nothing_more(desk: Desk) -> None:
    service = fresh()
    polling = desk.raw(desk.request("POST", "/v1/workers/poll", json.dumps({"services": [service]}).encode()))
    until(lambda: desk.offered(service)["idle"])
    polling.close()
    until(lambda: not desk.offered(service)["idle"])
    path = desk.job(service)
    assert desk.state(path) == "waiting"
    desk.poll(service).answer(b"of another")
    assert (desk.result(path).body, desk.see(path)["attempts"]) == (b"of another", 1)


def test_an_attempt_that_took_too_long_is_superseded(desk: Desk) -> None:
    service = fresh()
    path = desk.job(service, b"x", "timeout=2")  # for the second attempt, too, which six requests precede
    slow = desk.poll(service, worker="slow")
    fast = desk.poll(service, worker="fast")
    for what in ("partials", "events", "heartbeat", "result", "failure"):
        is_problem(slow.say(what, b"{}"), 410, "superseded")
    fast.answer(b"in time")
    assert desk.result(path).body == b"in time"
    is_problem(fast.say("result", b"twice"), 410, "superseded")
    # Being late is no shame: it may ask again.
    again = desk.job(service)
    desk.poll(service, worker="slow").answer(b"now")
    assert desk.result(again).body == b"now"


def test_one_that_beat_while_busy_and_fell_silent_is_given_up(desk: Desk) -> None:
    service = fresh()
    path = desk.job(service)
    lost = desk.poll(service, worker="mortal")
    assert lost.say("heartbeat").status == 204
    other = desk.poll(service, worker="heir")
    assert other.headers["polydomo-job"] == lost.headers["polydomo-job"]
    is_problem(lost.say("result"), 410, "superseded")
    other.answer(b"inherited")
    assert desk.result(path).body == b"inherited"


def test_one_that_never_beat_has_its_job_s_time(desk: Desk) -> None:
    service = fresh()
    path = desk.job(service)
    quiet = desk.poll(service, worker="quiet")
    assert desk.ask_for(service, worker="bystander", wait=1.2).status == 204  # longer than `worker_idle`
    quiet.answer(b"took a while")
    assert desk.result(path).body == b"took a while"


def test_one_that_polls_no_more_is_forgotten(desk: Desk) -> None:
    service = fresh()
    assert desk.ask_for(service, wait=0.05).status == 204
    assert desk.offered(service)["workers"] == 1
    until(lambda: desk.offered(service)["workers"] == 0)


def test_one_that_leaves_gives_its_job_to_another(desk: Desk) -> None:
    service = fresh()
    path = desk.job(service)
    desk.poll(service, worker="leaver")
    assert desk.site.delete("/v1/workers/leaver").status == 204
    is_problem(desk.site.delete("/v1/workers/leaver"), 404, "not-found")
    desk.poll(service).answer(b"of another")
    assert desk.result(path).body == b"of another"


def test_services_change_while_it_has_nothing(desk: Desk) -> None:
    one, two = fresh(), fresh()
    assert desk.ask_for(one, worker="changing").status == 204
    assert desk.ask_for(two, worker="changing").status == 204
    assert (desk.offered(one)["workers"], desk.offered(two)["workers"]) == (0, 1)
    desk.job(two)
    attempt = desk.poll(two, worker="changing")
    is_problem(desk.ask_for(one, worker="changing"), 403, "not-allowed")
    assert desk.ask_for(one, two, worker="changing").status == 204
    attempt.answer()


@pytest.mark.parametrize(
    "said", [b"", b"[]", b"{}", b'{"services": "echo"}', b'{"services": ["a"], "wait": -1}', b"\xff"]
)
def test_a_poll_that_makes_no_sense_is_refused(desk: Desk, said: bytes) -> None:
    is_problem(desk.site.post("/v1/workers/poll", said), 400, "malformed")


@pytest.mark.parametrize("services", [[], [""], ["mmi.service"], ["n" * 300]])
def test_services_that_are_not_for_workers_are_refused(desk: Desk, services: list[str]) -> None:
    is_problem(desk.ask_for(*services), 403, "not-allowed")


def test_a_failure_of_plain_text_is_told_as_it_is(desk: Desk) -> None:
    service = fresh()
    with MdpClient(desk.broker.endpoint) as client:
        client.request(service.encode(), b"x")
        assert desk.poll(service).say("failure", b"out of paper").status == 204
        assert client.answer(service.encode()).final == [b"out of paper"]


def test_as_many_polls_as_may_be(desk: Desk) -> None:
    service = fresh()
    said = json.dumps({"services": [service], "worker": "crowd", "wait": 15}).encode()
    polls = [desk.raw(desk.request("POST", "/v1/workers/poll", said)) for _ in range(64)]
    try:
        row = until(lambda: [one for one in _workers(desk) if one["name"] == "crowd" and one["credit"] == 64])
        assert row
        is_problem(desk.ask_for(service, worker="crowd"), 429, "too-many-requests")
    finally:
        for poll in polls:
            poll.close()


def test_curl_alone_is_a_worker(desk: Desk, tmp_path: object) -> None:
    need_curl()
    service = fresh()
    path = desk.job(service, b"from curl to curl")
    script = f"""
        set -e
        head=$(mktemp)
        body=$(curl -sSf -D "$head" -d '{{"services": ["{service}"]}}' {desk.url("/v1/workers/poll")})
        attempt=$(tr -d '\\r' <"$head" | sed -n 's/^location: //p')
        curl -sSf -d "half" {desk.url("")}$attempt/partials
        curl -sSf -X POST {desk.url("")}$attempt/heartbeat
        curl -sSf -X PUT --data-binary "$(echo "$body" | tr a-z A-Z)" {desk.url("")}$attempt/result
        rm "$head"
    """
    subprocess.run(["bash", "-c", script], check=True, timeout=30)
    assert desk.curl(desk.url(f"{path}/result")).stdout == b"FROM CURL TO CURL"


def _workers(desk: Desk) -> list[dict[str, object]]:
    found: list[dict[str, object]] = desk.site.get("/v1/workers?limit=1000").json()["workers"]
    return found
