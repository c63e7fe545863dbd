"""Jobs over HTTP: submit, wait, look, list, cancel."""

from __future__ import annotations

import json
from email.parser import BytesParser

import pytest

from polydomo import SyncClient
from tests.support.broker import BrokerProcess, wait_for
from tests.web.api.site import is_problem
from tests.web.desk import Desk, fresh, read_answer, until


@pytest.mark.parametrize("query", ["", "durable=false"])
def test_prefer_wait_brings_the_answer_of_a_worker_of_another_protocol(desk: Desk, query: str) -> None:
    service = fresh()
    worker = desk.echo(service)
    try:
        answer = desk.wait(service, b"hello", query)
        assert (answer.status, answer.body) == (200, b"hello")
        assert answer.headers["preference-applied"] == "wait=15"
        assert answer.headers["content-type"] == "application/octet-stream"
    finally:
        worker.stop()


def test_several_frames_go_through_as_parts_and_come_back_so(desk: Desk) -> None:
    service = fresh()
    worker = desk.echo(service)
    try:
        body = b"--b\r\n\r\none\r\n--b\r\n\r\n\r\n--b\r\n\r\nthree\x00\r\n--b--\r\n"
        answer = desk.wait(service, body, content_type="multipart/mixed; boundary=b")
        kind = answer.headers["content-type"]
        assert kind.startswith("multipart/mixed; boundary=")
        parsed = BytesParser().parsebytes(b"content-type: " + kind.encode() + b"\r\n\r\n" + answer.body)
        assert [part.get_payload(decode=True) for part in parsed.get_payload()] == [b"one", b"", b"three\x00"]
    finally:
        worker.stop()


def test_without_a_wish_it_is_accepted_and_its_result_is_fetched_later(desk: Desk) -> None:
    service = fresh()
    path = desk.job(service, b"later")
    shown = desk.see(path)
    assert (shown["state"], shown["service"], shown["durable"], shown["dialect"]) == (
        "waiting",
        service,
        True,
        "http",
    )
    early = desk.site.get(f"{path}/result")
    assert (early.status, early.json()["state"]) == (202, "waiting")
    assert early.headers["retry-after"]
    desk.poll(service).answer(b"found")
    answer = desk.result(path)
    assert (answer.status, answer.body) == (200, b"found")
    again = desk.site.get(f"{path}/result", if_none_match=answer.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert not answer.headers["etag"].startswith("W/")
    assert desk.state(path) == "done"


def test_a_long_poll_hears_of_the_end_when_it_comes(desk: Desk) -> None:
    service = fresh()
    path = desk.job(service)
    attempt = desk.poll(service)
    with desk.raw(desk.request("GET", f"{path}/result", prefer="wait=15")) as waiting:
        attempt.answer(b"now")
        assert read_answer(waiting) == (200, b"now")


def test_a_wait_that_is_over_is_answered_with_where_the_job_is(desk: Desk) -> None:
    service = fresh()
    answer = desk.wait(service, b"slow", "durable=false", seconds=0.05)
    assert (answer.status, answer.headers["preference-applied"]) == (202, "wait=0.05")
    desk.poll(service).answer(b"at last")
    assert desk.result(answer.headers["location"]).body == b"at last"


def test_a_durable_job_is_on_disk_when_it_is_accepted() -> None:
    with BrokerProcess(http=True) as broker:
        desk = Desk(broker)
        path = desk.job("later", b"kept")
        broker.kill()
        broker.start_again()
        desk = Desk(broker)
        assert desk.state(path) == "waiting"
        attempt = desk.poll("later")
        assert attempt.body == b"kept"
        until(lambda: desk.site.get("/v1/jobs?state=running").json()["jobs"])  # that, too, is on disk
        # Its worker is busy while the broker is started anew, and brings the answer to the new one.
        broker.kill()
        broker.start_again()
        attempt.desk = desk = Desk(broker)
        attempt.answer(b"done")
        assert desk.result(path).body == b"done"
        assert desk.see(path)["attempts"] == 1


def test_one_key_is_one_execution_and_every_request_gets_its_answer(desk: Desk) -> None:
    service = fresh()
    with desk.serving(service, lambda body: body + b"!") as worker:
        first = desk.wait(service, b"a", idempotency_key="k1")
        second = desk.wait(service, b"a", idempotency_key="k1")
        third = desk.job(service, b"a", idempotency_key="k1")
        assert first.body == second.body == desk.result(third).body == b"a!"
        assert worker.done == 1


def test_jobs_are_listed_by_what_one_asks_for_and_page_by_page(desk: Desk) -> None:
    service = fresh()
    paths = [desk.job(service, bytes(number), polydomo_client="lister") for number in range(5)]
    keyed = desk.job(service, b"k", idempotency_key="listed", polydomo_client="other")
    names = [path.rpartition("/")[2] for path in paths]

    def ids(query: str) -> list[str]:
        return [job["id"] for job in desk.site.get(f"/v1/jobs?{query}").json()["jobs"]]

    assert ids(f"service={service}&client=lister") == names[::-1]
    assert ids(f"service={service}&key=listed") == [keyed.rpartition("/")[2]]
    assert ids(f"service={service}&state=done") == []
    since = desk.see(paths[3])["submitted"]
    assert ids(f"service={service}&client=lister&since={since}") == [names[4], names[3]]
    assert ids(f"service={service}&client=lister&before=2001-01-01T00:00:00Z") == []
    found, path = [], f"/v1/jobs?service={service}&limit=4"
    while path:
        page = desk.site.get(path)
        found += [job["id"] for job in page.json()["jobs"]]
        link = page.headers.get("link", "")
        assert bool(link) == (page.json()["next"] is not None)
        path = link.partition(">")[0].lstrip("<")
    assert found == [keyed.rpartition("/")[2], *names[::-1]]


@pytest.mark.parametrize(
    "query",
    [
        "since=nan",
        "since=1e300",
        "before=yesterday",
        "page=x",
        "limit=0",
        "limit=1001",
        "state=odd",
        "key=%00",
    ],
)
def test_lists_that_cannot_be_are_refused(desk: Desk, query: str) -> None:
    is_problem(desk.site.get(f"/v1/jobs?{query}"), 400, "malformed")
    if not query.startswith("key"):
        is_problem(desk.site.get(f"/v1/jobs?where=memory&{query}"), 400, "malformed")


def test_what_lives_in_memory_only_is_listed_apart(desk: Desk) -> None:
    service = fresh()
    paths = [desk.job(service, b"m", "durable=false") for _ in range(3)]
    names = [path.rpartition("/")[2] for path in paths]
    assert desk.site.get(f"/v1/jobs?service={service}").json()["jobs"] == []
    page = desk.site.get(f"/v1/jobs?where=memory&service={service}&limit=2").json()
    assert [job["id"] for job in page["jobs"]] == [names[2], names[1]]
    rest = desk.site.get(f"/v1/jobs?where=memory&service={service}&limit=2&page={page['next']}").json()
    assert ([job["id"] for job in rest["jobs"]], rest["next"]) == ([names[0]], None)
    for path in paths:
        desk.site.delete(path)


@pytest.mark.parametrize("query", ["", "durable=false"])
def test_a_job_that_waits_is_cancelled(desk: Desk, query: str) -> None:
    service = fresh()
    path = desk.job(service, b"no", query)
    assert desk.site.delete(path).status == 204
    assert desk.state(path) == "cancelled"
    is_problem(desk.site.get(f"{path}/result"), 410, "cancelled")
    is_problem(desk.site.delete(path), 409, "conflict")
    assert desk.ask_for(service).status == 204


def test_a_job_that_runs_is_taken_from_its_worker(desk: Desk) -> None:
    service = fresh()
    path = desk.job(service)
    attempt = desk.poll(service)
    assert attempt.say("heartbeat").status == 204
    assert desk.site.delete(path).status == 204
    is_problem(attempt.say("heartbeat"), 410, "superseded")
    is_problem(attempt.say("result", b"late"), 410, "superseded")
    assert desk.state(path) == "cancelled"


@pytest.mark.parametrize("what", ["", "/result", "/events"])
def test_nobody_knows_a_job_that_never_was(desk: Desk, what: str) -> None:
    is_problem(desk.site.get(f"/v1/jobs/nothing{what}"), 404, "not-found")
    is_problem(desk.site.delete("/v1/jobs/nothing"), 404, "not-found")


def test_all_workers_answer_together(desk: Desk) -> None:
    service = fresh()
    workers = [desk.serving(service, lambda body, n=n: b'{"n": %d}' % n) for n in range(2)]
    try:
        answer = desk.wait(service, b"who", "target=all")
        found = {one["worker"]: one for one in answer.json()}
        assert found == {
            worker.name: {"worker": worker.name, "ok": True, "body": {"n": n}}
            for n, worker in enumerate(workers)
        }
        parts = desk.wait(service, b"who", "target=all", accept="multipart/mixed")
        parsed = BytesParser().parsebytes(
            b"content-type: " + parts.headers["content-type"].encode() + b"\r\n\r\n" + parts.body
        )
        names = [part["polydomo-worker"] for part in parsed.get_payload()]
        assert sorted(names) == sorted(worker.name for worker in workers)
        one = desk.wait(service, b"who", f"target={workers[1].name}")
        assert (one.body, one.headers["polydomo-worker"]) == (b'{"n": 1}', workers[1].name)
        path = desk.job(service, b"who", "target=all")
        assert {one["worker"] for one in desk.result(path).json()} == set(found)
    finally:
        for worker in workers:
            worker.__exit__()


def test_a_worker_s_failure_is_a_problem_with_its_words(desk: Desk) -> None:
    service = fresh()
    path = desk.job(service)
    said = json.dumps({"message": "no such customer", "kind": "LookupError"}).encode()
    assert desk.poll(service).say("failure", said).status == 204
    found = is_problem(desk.result(path), 502, "worker-error")
    assert found["detail"] == "no such customer"
    assert found["body"] == {"message": "no such customer", "kind": "LookupError"}


def test_nobody_in_time_is_a_problem(desk: Desk) -> None:
    is_problem(desk.wait(fresh("brief"), b"x", "durable=false"), 504, "expired")
    is_problem(desk.wait(fresh(), b"x", "durable=false&deadline=0.1"), 504, "deadline")


@pytest.mark.parametrize(
    "query",
    [
        "priority=10",
        "priority=x",
        "timeout=0",
        "timeout=nan",
        "delay=-1",
        "durable=maybe",
        "durabel=1",
        "target=,",
    ],
)
def test_options_that_cannot_be_are_refused(desk: Desk, query: str) -> None:
    is_problem(desk.submit(fresh(), b"x", query), 400, "malformed")


def test_a_delayed_job_is_not_given_before_its_time(desk: Desk) -> None:
    path = desk.job(fresh(), b"x", "delay=3600")
    assert desk.state(path) == "delayed"
    desk.site.delete(path)


@pytest.mark.parametrize(("query", "ended"), [("durable=false", "nothing"), ("durable=true", "waiting")])
def test_who_hangs_up_while_waiting_takes_a_job_in_memory_along(desk: Desk, query: str, ended: str) -> None:
    service = fresh()
    with desk.raw(desk.request("POST", f"/v1/services/{service}/jobs?{query}", b"x", prefer="wait=15")):
        until(lambda: desk.offered(service)["waiting"])
    until(lambda: desk.offered(service)["waiting"] == (ended == "waiting"))
    if ended == "waiting":
        desk.poll(service).answer()


def test_a_client_with_too_much_under_way_is_told_so_and_others_are_not(desk: Desk) -> None:
    service = fresh()
    paths = [desk.job(service, b"x", "durable=false", polydomo_client="greedy") for _ in range(51)]
    full = is_problem(
        desk.submit(service, b"x", "durable=false", polydomo_client="greedy"), 429, "too-many-jobs"
    )
    assert "unfinished jobs" in full["detail"]
    paths.append(desk.job(service, b"x", "durable=false", polydomo_client="modest"))
    for path in paths:
        desk.site.delete(path)
    desk.site.delete(desk.job(service, b"x", "durable=false", polydomo_client="greedy"))


def test_jobs_of_another_protocol_are_seen_too(desk: Desk) -> None:
    service = fresh()
    with SyncClient(f"nfp://{desk.broker.endpoint.removeprefix('tcp://')}") as client:
        handle = client.submit(service, "hi")
        path = f"/v1/jobs/{handle.id}"
        until(lambda: desk.site.get(path).status == 200)
        shown = desk.see(path)
        assert shown["dialect"].startswith("nfp")
        assert desk.site.delete(path).status == 204


def test_the_broker_s_own_services_answer_over_http(desk: Desk) -> None:
    answer = desk.wait("mmi.service", b"nobody-offers-this")
    assert (answer.status, answer.body) == (200, b"404")


def test_a_client_goes_by_its_name_or_by_its_host(desk: Desk) -> None:
    service = fresh()
    named = desk.job(service, b"x", polydomo_client="billing")
    nameless = desk.job(service)
    assert (desk.see(named)["client"], desk.see(nameless)["client"]) == ("billing", "127.0.0.1")
    is_problem(desk.submit(service, polydomo_client="n" * 256), 400, "malformed")


def test_a_stopping_broker_keeps_nobody_waiting() -> None:
    with BrokerProcess(http=True, toml="[broker]\ndrain = 0.2\n") as broker:
        desk = Desk(broker)
        asked = {
            "durable": desk.raw(desk.request("POST", "/v1/services/a/jobs", b"x", prefer="wait=15")),
            "memory": desk.raw(
                desk.request("POST", "/v1/services/a/jobs?durable=false", b"x", prefer="wait=15")
            ),
            "poll": desk.raw(desk.request("POST", "/v1/workers/poll", b'{"services": ["b"]}')),
        }
        path = desk.job("c")
        asked["result"] = desk.raw(desk.request("GET", f"{path}/result", prefer="wait=15"))
        wait_for(lambda: desk.offered("a")["waiting"] == 2 and desk.offered("b")["workers"])
        assert broker.stop() == 0
        found = {name: read_answer(sock)[0] for name, sock in asked.items()}
        assert found == {"durable": 202, "memory": 503, "poll": 204, "result": 202}
        for sock in asked.values():
            sock.close()
        assert "Traceback" not in broker.log()
