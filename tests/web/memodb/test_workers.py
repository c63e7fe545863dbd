"""`/worker`: jobs of anybody's are done by a worker that speaks MemoDB's REST."""

from __future__ import annotations

import http.client
import json
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import cbor2
import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import DcpPeer, MdpClient
from tests.web.api.site import is_problem
from tests.web.memodb.rest import CBOR, JSON, OCTETS, Rest


def test_it_adds_for_an_mdp_client(rest: Rest) -> None:
    with MdpClient(rest.broker.endpoint) as client:
        client.request(b"memo.add", b"\x02", b"\x02")
        func, args = rest.work("memo.add")
        assert (func, args) == ("memo.add", ["uAXEAAQI", "uAXEAAQI"])
        total = sum(rest.get(f"/cid/{cid}").json() for cid in args)
        rest.record(func, args, rest.store(str(total).encode(), JSON))
        assert client.answer(b"memo.add").final == [b"\x04"]
    assert rest.get("/call/memo.add/uAXEAAQI,uAXEAAQI").json() == {"cid": "uAXEAAQQ"}


def test_client_and_worker_as_memodbs_own_program_is_both(rest: Rest) -> None:
    """CBOR and nothing else, a link to what it can do, no wait: it asks again instead."""

    def ask(method: str, path: str, value: Any = None) -> tuple[int, Any, str]:
        body = None if value is None else cbor2.dumps(value)
        answer = rest.ask(method, path, body, accept=CBOR, **({} if body is None else {"content_type": CBOR}))
        read = cbor2.loads(answer.body) if answer.headers.get("content-type") == CBOR else None
        return answer.status, read, answer.headers.get("location", "").removeprefix("/memodb/v1")

    def link(path: str) -> cbor2.CBORTag:
        text = path.removeprefix("/cid/u")
        return cbor2.CBORTag(42, b"\0" + urlsafe_b64decode(text + "=" * (-len(text) % 4)))

    status, _, info = ask("POST", "/cid", {"funcs": ["other.inc", "memo.inc"]})
    assert status == 201
    assert ask("POST", "/worker", link(info)) == (200, None, "")
    numbers = link(ask("POST", "/cid", list(range(100)))[2])
    path = f"/call/memo.inc/{_text(numbers)}"
    assert ask("GET", path)[0] == 404
    assert ask("POST", f"{path}/evaluate") == (202, None, "")
    status, call, _ = ask("POST", "/worker", link(info))
    assert (status, call) == (200, {"func": "memo.inc", "args": [numbers]})
    assert ask("POST", "/worker", link(info))[1] is None
    status, found, _ = ask("GET", f"/cid/{_text(call['args'][0])}")
    result = link(ask("POST", "/cid", [number + 1 for number in found])[2])
    assert ask("PUT", path, result) == (201, None, "")
    assert ask("POST", f"{path}/evaluate") == (200, result, "")
    assert ask("GET", path) == (200, result, "")
    assert ask("GET", f"/cid/{_text(result)}")[1] == list(range(1, 101))


def _text(link: cbor2.CBORTag) -> str:
    return "u" + urlsafe_b64encode(link.value[1:]).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ([b"hello"], [OCTETS]),
        ([b"x" * 1000, cbor2.dumps(["y" * 1000]), b""], [OCTETS, CBOR, OCTETS]),
        ([b"\x18\x01"], [OCTETS]),
    ],
)
def test_frames_become_values_and_values_frames(rest: Rest, body: list[bytes], kinds: list[str]) -> None:
    """It gives back what it got, one value at a time; the bytes are the same on both sides."""
    with DcpPeer(rest.broker.endpoint) as client:
        for number, kind in enumerate(kinds):
            client.request(b"memo.pick", *body, bytes((number,)))
            func, args = rest.work("memo.pick")
            assert len(args) == len(body) + 1
            assert [
                rest.get(f"/cid/{cid}", accept=form).body for cid, form in zip(args, kinds, strict=False)
            ] == body
            assert args[number].startswith("uAV" if kind == OCTETS else "uAX")
            rest.record(func, args, args[number])
            assert client.answer().body == [body[number]]


def test_more_frames_than_arguments_are_a_list(rest: Rest) -> None:
    with MdpClient(rest.broker.endpoint) as client:
        client.request(b"memo.many", *[b"%d" % number for number in range(65)])
        func, args = rest.work("memo.many")
        assert len(args) == 1
        assert cbor2.loads(rest.get(f"/cid/{args[0]}", accept=CBOR).body) == [b"%d" % n for n in range(65)]
        rest.record(func, args, "uAXEAAQQ")
        assert client.answer(b"memo.many").final == [b"\x04"]


def test_a_memodb_client_and_a_memodb_worker_keep_their_cids(rest: Rest) -> None:
    """Bytes that look like CBOR stay bytes, both ways."""
    arg = rest.store(b"\x02", OCTETS)
    assert rest.evaluate(f"memo.same/{arg}", "respond-async").status == 202
    func, args = rest.work("memo.same")
    assert args == [arg]
    result = rest.store(b"\x05", OCTETS)
    rest.record(func, args, result)
    assert rest.result(f"memo.same/{arg}") == result


def test_nothing_to_do_is_null_at_once_or_after_a_wait(rest: Rest) -> None:
    assert rest.work("memo.idle", prefer="") is None
    assert rest.work("memo.idle", prefer="wait=0.1") is None
    info = {"map": {"funcs": ["memo.idle"]}}
    assert rest.send("POST", "/worker", info, accept=CBOR).body == b"\xf6"


def test_a_waiting_worker_is_given_a_job_that_comes(rest: Rest) -> None:
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(rest.work("memo.wait")))
    asking.start()
    with MdpClient(rest.broker.endpoint) as client:
        client.request(b"memo.wait", b"now")
        asking.join(20)
        func, args = found[0]
        rest.record(func, args, args[0])
        assert client.answer(b"memo.wait").final == [b"now"]


def test_workers_that_can_do_different_things_are_different_workers(rest: Rest) -> None:
    names = [f"{letter}.of-a-name-that-is-common-to-both" for letter in "ab"]
    for name in names:
        assert rest.work(name, "memo.of-a-name-that-is-long", prefer="") is None
    rows = rest.site.get("/v1/workers").json()["workers"]
    assert len({row["name"] for row in rows for name in names if name in row["services"]}) == 2


def test_one_result_ends_all_jobs_that_are_the_call(rest: Rest) -> None:
    with MdpClient(rest.broker.endpoint) as one, MdpClient(rest.broker.endpoint) as other:
        one.request(b"memo.both", b"\x01")
        call = rest.work("memo.both")
        other.request(b"memo.both", b"\x01")
        assert rest.work("memo.both") == call
        rest.record(*call, "uAXEAAQI")
        assert one.answer(b"memo.both").final == other.answer(b"memo.both").final == [b"\x02"]
        rest.record(*call, "uAXEAAQI")  # the second worker comes, too


def test_a_worker_that_never_answers_loses_the_call(rest: Rest) -> None:
    """When the job's time is over; what it says later is recorded, but ends nothing any more."""
    assert rest.evaluate("quick.memo/uAXEAAQI", "respond-async").status == 202
    call = rest.work("quick.memo")
    is_problem(rest.evaluate("quick.memo/uAXEAAQI"), 502, "retries-exhausted")
    rest.record(*call, "uAXEAAQM")
    assert rest.result("quick.memo/uAXEAAQI") == "uAXEAAQM"


def test_a_worker_that_leaves_while_it_waits_takes_no_job_with_it(rest: Rest) -> None:
    def credit() -> int:
        rows = rest.site.get("/v1/workers").json()["workers"]
        return sum(row["credit"] for row in rows if row["services"] == ["memo.left"])

    connection = http.client.HTTPConnection(rest.broker.http)
    body = json.dumps({"map": {"funcs": ["memo.left"]}})
    connection.request("POST", "/memodb/v1/worker", body, {"content-type": JSON, "prefer": "wait=20"})
    wait_for(lambda: credit() == 1)
    connection.close()
    wait_for(lambda: credit() == 0)
    with MdpClient(rest.broker.endpoint) as client:
        client.request(b"memo.left", b"\x01")
        rest.record(*rest.work("memo.left"), "uAXEAAQI")
        assert client.answer(b"memo.left").final == [b"\x02"]


def test_a_result_must_be_there_before_a_client_can_have_it(rest: Rest) -> None:
    missing = "uAXGg5AIg6aa9gvagXHAJtTCI5l_QXWbIMNnQN6905en1kSnHNPo"
    with MdpClient(rest.broker.endpoint) as client:
        client.request(b"memo.early", b"\x01")
        func, args = rest.work("memo.early")
        is_problem(rest.send("PUT", f"/call/{func}/{args[0]}", {"cid": missing}), 404, "unknown-cid")
        rest.record(func, args, "uAXEAAQI")
        assert client.answer(b"memo.early").final == [b"\x02"]


@pytest.mark.parametrize(
    ("info", "status", "reason"),
    [
        ({"cid": "uAXGg5AIg6aa9gvagXHAJtTCI5l_QXWbIMNnQN6905en1kSnHNPo"}, 404, "unknown-cid"),
        ({"cid": "uAXEAAQI"}, 400, "invalid-worker-info"),
        ({"cid": "uAXEAAf8"}, 400, "invalid-worker-info"),
        (2, 400, "invalid-worker-info"),
        ({"map": {}}, 400, "invalid-worker-info"),
        ({"map": {"funcs": []}}, 400, "invalid-worker-info"),
        ({"map": {"funcs": [1]}}, 400, "invalid-worker-info"),
        ({"map": {"funcs": ["x" * 256]}}, 400, "invalid-worker-info"),
        ({"map": {"funcs": ["mmi.service"]}}, 400, "invalid-worker-info"),
    ],
)
def test_what_a_worker_can_do_must_be_said(rest: Rest, info: Any, status: int, reason: str) -> None:
    is_problem(rest.send("POST", "/worker", info), status, reason)


def test_the_store_is_bounded_and_a_restart_is_survived() -> None:
    toml = '[memodb]\nbytes = "16 KiB"\n[services."memo.*"]\ndurable = true\n'
    with BrokerProcess(toml=toml, http=True) as broker:
        rest = Rest(broker)
        cid = rest.store(b"a" * 8000, OCTETS)
        assert rest.store(b"a" * 8000, OCTETS) == cid  # it is there: it needs no more room
        full = rest.ask("POST", "/cid", b"b" * 9000, content_type=OCTETS)
        assert "memodb.bytes" in is_problem(full, 507, "memodb-full")["detail"]
        rest.store(b"small", OCTETS)  # inside its CID
        with MdpClient(broker.endpoint) as client:
            client.request(b"memo.large", b"c" * 9000)
            asked = rest.send("POST", "/worker", {"map": {"funcs": ["memo.large"]}}, prefer="wait=20")
            is_problem(asked, 507, "memodb-full")
        with MdpClient(broker.endpoint) as client:
            client.request(b"memo.durable", b"\x01")
            call = rest.work("memo.durable")
        rest.store(b"behind that it has it" * 2, OCTETS)  # so that is on disk, too
        broker.kill()
        broker.start_again()
        rest = Rest(broker)
        assert rest.bytes_of(cid) == b"a" * 8000
        is_problem(rest.ask("POST", "/cid", b"b" * 9000, content_type=OCTETS), 507, "memodb-full")
        # The worker was at it all the time, and brings the result.
        rest.record(*call, "uAXEAAQI")
        wait_for(lambda: b'"done":1' in rest.site.get("/v1/services/memo.durable").body.replace(b" ", b""))


def test_a_call_is_ended_by_its_worker_s_host_alone() -> None:
    """MemoDB's workers have no credentials. Another host may neither answer for one nor record its result."""
    toml = '[http]\ntrusted_proxies = ["127.0.0.1"]'
    with BrokerProcess(http=True, toml=toml) as broker, MdpClient(broker.endpoint) as client:
        rest = Rest(broker)
        here, there = {"x_forwarded_for": "10.0.0.1"}, {"x_forwarded_for": "10.0.0.2"}
        client.request(b"memo.add", b"\x02", b"\x02")
        info = {"map": {"funcs": ["memo.add"]}}
        answer = rest.send("POST", "/worker", info, prefer="wait=20", **here)
        call = answer.json()["map"]
        path = f"/call/memo.add/{','.join(arg['cid'] for arg in call['args'])}"
        forged, right = rest.store(b"5", JSON), rest.store(b"4", JSON)
        refused = rest.send("PUT", path, {"cid": forged}, **there)
        assert "another worker" in is_problem(refused, 409, "conflict")["detail"]
        assert rest.get(path).status == 404
        assert rest.send("PUT", path, {"cid": right}, **here).status == 201
        assert client.answer(b"memo.add").final == [b"\x04"]
