"""`/call`: a MemoDB client is served by a worker of another protocol, once, and for good."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import cbor2
import pytest

from tests.support.broker import BrokerProcess
from tests.support.curl import need_curl
from tests.support.peers import MdpWorker, Serving, Task
from tests.web.api.site import Answer, is_problem
from tests.web.memodb.rest import CBOR, JSON, OCTETS, Adding, Rest


@pytest.fixture
def adding(rest: Rest) -> Iterator[Adding]:
    with Adding(rest.broker, b"test.add") as worker:
        yield worker
    assert rest.ask("DELETE", "/call/test.add").status == 204


def test_memodbs_own_example(rest: Rest, adding: Adding) -> None:
    """2 + 2 = 4, done by an MDP worker that knows nothing of MemoDB."""
    is_problem(rest.get("/call/test.add/uAXEAAQI,uAXEAAQI"), 404, "not-found")
    url = f"http://{rest.broker.http}/memodb/v1/call/test.add/uAXEAAQI,uAXEAAQI"
    need_curl()
    curl = ["curl", "-sSf", "-X", "POST", "-H", "Prefer: wait=20", f"{url}/evaluate"]
    said = subprocess.run(curl, check=True, capture_output=True, timeout=30).stdout
    assert json.loads(said) == {"cid": "uAXEAAQQ"}
    assert rest.get("/call/test.add/uAXEAAQI,uAXEAAQI").json() == {"cid": "uAXEAAQQ"}
    assert "/call/test.add" in rest.get("/call").json()
    assert rest.result("test.add/uAXEAAQI,uAXEAAQM") == "uAXEAAQU"
    assert rest.get("/call/test.add").json() == [
        "/call/test.add/uAXEAAQI,uAXEAAQI",
        "/call/test.add/uAXEAAQI,uAXEAAQM",
    ]
    assert rest.result("test.add/uAXEAAQI,uAXEAAQI") == "uAXEAAQQ"
    assert adding.sums == [[2, 2], [2, 3]]
    answer = rest.evaluate("test.add/uAXEAAQI,uAXEAAQI", accept=CBOR)
    assert answer.body == bytes.fromhex("d82a46000171000104")


def test_a_forgotten_result_is_found_out_again(rest: Rest, adding: Adding) -> None:
    call = "test.add/uAXEAAQI,uAXEAAQI"
    for number in (1, 2, 3):
        assert rest.result(call) == "uAXEAAQQ"
        assert len(adding.sums) == number
        assert rest.ask("DELETE", f"/call/{'test.add' if number == 2 else call}").status == 204
        is_problem(rest.get(f"/call/{call}"), 404, "not-found")
    is_problem(rest.ask("DELETE", f"/call/{call}"), 404, "not-found")
    assert rest.get("/call/test.add").json() == []


def test_identical_calls_run_once_however_they_are_written(rest: Rest) -> None:
    started = threading.Event()
    go_on = threading.Event()
    taken: list[Task] = []

    def slow(worker: Any, task: Task) -> None:
        taken.append(task)
        started.set()
        assert go_on.wait(20)
        worker.reply(task, [cbor2.dumps(9)])

    answers: list[Answer] = []
    forms = ["uAXEAAQI", "bafyqaaic", "f0171000102", "mAXEAAQI", "F0171000102", "zAS4S4h"]
    with Serving(lambda context: MdpWorker(rest.broker.endpoint, b"test.slow", context=context), slow):
        askers = [
            threading.Thread(target=lambda form=form: answers.append(rest.evaluate(f"test.slow/{form}")))
            for form in forms * 4
        ]
        for asker in askers:
            asker.start()
        assert started.wait(20)
        assert rest.evaluate("test.slow/uAXEAAQI", "respond-async").status == 202
        assert rest.evaluate("test.slow/uAXEAAQI", "").status == 202
        go_on.set()
        for asker in askers:
            asker.join(20)
    assert len(taken) == 1
    assert {(answer.status, answer.body) for answer in answers} == {(200, b'{"cid":"uAXEAAQk"}')}


def test_arguments_are_frames_and_an_answer_is_a_value(rest: Rest) -> None:
    """Each argument's bytes are one frame; what comes back is CBOR if it is one deterministic item, else bytes."""
    answers: list[list[bytes]] = []
    bodies: list[list[bytes]] = []

    def play(worker: Any, task: Task) -> None:
        bodies.append(task.body)
        worker.reply(task, answers.pop())

    text = rest.store(b"two", OCTETS)
    long = rest.store(b"l" * 100, OCTETS)
    node = rest.store(b'{"map":{"x":[1,2]}}', JSON)
    with Serving(lambda context: MdpWorker(rest.broker.endpoint, b"play", context=context), play):
        for number, (answer, kind, read) in enumerate(
            [
                ([b"\xa1\x61x\x01"], "uAXE", {"map": {"x": 1}}),
                ([b"hello"], "uAVU", {"base64": "aGVsbG8="}),
                ([b"\x18\x01"], "uAVU", {"base64": "GAE="}),  # 1, but longer than it must be: bytes
                ([b""], "uAVU", {"base64": ""}),
                ([b"a", b"b"], "uAXE", [{"base64": "YQ=="}, {"base64": "Yg=="}]),
                ([b"z" * 50], "uAVW", None),
                ([cbor2.dumps("y" * 50)], "uAXG", "y" * 50),
                ([b"\xfb\x7f\xf0" + bytes(6)], "uAfEC", {"float": "Infinity"}),
            ]
        ):
            answers.append(answer)
            arg = rest.store(str(number).encode(), JSON)
            cid = rest.result(f"play/{arg},{text},{long},{node}")
            assert bodies[-1] == [cbor2.dumps(number), b"two", b"l" * 100, b"\xa1\x61x\x82\x01\x02"]
            assert cid.startswith(kind)
            assert read is None or rest.get(f"/cid/{cid}").json() == read


def test_a_result_can_be_put_by_anybody(rest: Rest) -> None:
    """Before it is asked for, or while it waits for a worker."""
    rest.record("known", ["uAXEAAQI"], "uAXEAAQM")
    assert rest.result("known/uAXEAAQI") == "uAXEAAQM"
    assert rest.evaluate("unknown/uAXEAAQI", "respond-async").status == 202
    rest.record("unknown", ["uAXEAAQI"], "uAXEAAQM")
    assert rest.result("unknown/uAXEAAQI") == "uAXEAAQM"
    with Serving(lambda context: MdpWorker(rest.broker.endpoint, b"unknown", context=context)) as worker:
        assert rest.result("unknown/uAXEAAQQ") == "uAXEAAQQ"
        assert worker.done <= 1  # the job that was not needed any more did not come


def test_a_function_may_have_a_slash_in_its_name(rest: Rest) -> None:
    rest.record("math%2Fadd", ["uAXEAAQI"], "uAXEAAQM")
    assert "/call/math%2Fadd" in rest.get("/call").json()
    assert rest.get("/call/math%2Fadd").json() == ["/call/math%2Fadd/uAXEAAQI"]
    assert rest.ask("DELETE", "/call/math%2Fadd").status == 204


def test_failures_are_told_once_and_then_it_is_tried_again(rest: Rest) -> None:
    """Nobody offers it; somebody offers it, but never answers."""
    is_problem(rest.evaluate("quick.none/uAXEAAQI"), 504, "expired")
    assert rest.evaluate("quick.none/uAXEAAQI", "respond-async").status == 202
    with MdpWorker(rest.broker.endpoint, b"quick.lost") as worker:
        worker.fence()
        is_problem(rest.evaluate("quick.lost/uAXEAAQI"), 502, "retries-exhausted")


def test_a_failure_waits_for_whoever_comes_next(rest: Rest) -> None:
    assert rest.evaluate("quick.later/uAXEAAQI", "respond-async").status == 202
    answer = rest.evaluate("quick.later/uAXEAAQI")
    is_problem(answer, 504, "expired")


def test_what_cannot_be_evaluated(rest: Rest) -> None:
    missing = "uAXGg5AIg6aa9gvagXHAJtTCI5l_QXWbIMNnQN6905en1kSnHNPo"
    is_problem(rest.evaluate(f"test.add/{missing}", "respond-async"), 404, "unknown-cid")
    is_problem(rest.evaluate("test.add/uAXEAAQI,", "respond-async"), 400, "invalid-or-unsupported-cid")
    is_problem(rest.evaluate("test.add/2", "respond-async"), 400, "invalid-or-unsupported-cid")
    is_problem(rest.evaluate(f"{'x' * 256}/uAXEAAQI", "respond-async"), 400, "invalid-string")
    is_problem(rest.evaluate("%FF/uAXEAAQI", "respond-async"), 400, "invalid-string")
    is_problem(rest.evaluate("a%00b/uAXEAAQI", "respond-async"), 400, "invalid-string")
    is_problem(rest.send("POST", "/call/f/uAXEAAQI/evaluate", [1]), 400, "malformed")
    is_problem(rest.send("POST", "/call/f/uAXEAAQI/evaluate", {"map": {"timeout": -1}}), 400, "malformed")
    is_problem(rest.send("PUT", "/call/f/uAXEAAQI", 2), 400, "expected-cid")
    is_problem(rest.ask("POST", "/call/f/uAXEAAQI"), 405, "method-not-allowed")


def test_the_client_says_how_long_an_attempt_may_take(rest: Rest) -> None:
    with MdpWorker(rest.broker.endpoint, b"quick.patient") as worker:
        worker.fence()
        path = "/call/quick.patient/uAXEAAQI/evaluate"
        assert rest.send("POST", path, {"map": {"timeout": 20}}, prefer="respond-async").status == 202
        task = worker.take()
        assert (
            rest.evaluate("quick.patient/uAXEAAQI", "wait=0.5").status == 202
        )  # beyond the service's own time
        worker.reply(task, [b"\x07"])
        assert rest.result("quick.patient/uAXEAAQI") == "uAXEAAQc"


def test_after_a_restart_a_repeat_needs_no_worker() -> None:
    with BrokerProcess(http=True) as broker:
        rest = Rest(broker)
        with Adding(broker) as adding:
            assert rest.result("test.add/uAXEAAQI,uAXEAAQI") == "uAXEAAQQ"
            long = rest.store(b"l" * 100, OCTETS)
            assert len(adding.sums) == 1
        assert rest.evaluate("other/uAXEAAQI", "respond-async").status == 202
        broker.kill()
        broker.start_again()
        rest = Rest(broker)
        assert rest.result("test.add/uAXEAAQI,uAXEAAQI") == "uAXEAAQQ"
        assert rest.bytes_of(long) == b"l" * 100
        # What was under way goes on, and whoever asks again joins it.
        seen: list[list[bytes]] = []

        def other(worker: Any, task: Task) -> None:
            seen.append(task.body)
            worker.reply(task, [b"\x08"])

        with Serving(lambda context: MdpWorker(broker.endpoint, b"other", context=context), other):
            assert rest.result("other/uAXEAAQI") == "uAXEAAQg"
        assert seen == [[b"\x02"]]
