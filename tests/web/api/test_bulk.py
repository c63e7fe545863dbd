"""Bulk: a line of JSON for each job, a line for each answer, and no more at once than there is room for."""

from __future__ import annotations

import json
import select
from typing import Any

import pytest

from polydomo.web.api.body_json import body_from_json, body_to_json
from polydomo.web.api.bulk import LineSplitter
from polydomo.wire.frames import frame, join
from tests.web.api.site import is_problem
from tests.web.desk import Desk, fresh, until


class Lane:
    """A bulk request by hand: what is sent and what is read are two things."""

    def __init__(self, desk: Desk, service: str, query: str = "durable=false") -> None:
        line = f"POST /v1/services/{service}/bulk?{query} HTTP/1.1\r\n"
        self.sock = desk.raw(line.encode() + b"host: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n")
        self.file = self.sock.makefile("rb")
        self._began = False

    def send(self, *lines: Any) -> None:
        data = b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
        )
        self.sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def fill(self, text: bytes) -> int:
        """Until nobody takes it any more, in the end not even the kernel. How many lines were sent."""
        self.sock.settimeout(1)
        for sent in range(100_000):
            try:
                self.send(b'{"text": "%s"}\n' % text)
            except TimeoutError:
                return sent
        raise AssertionError("everything was read")

    def is_over(self) -> bool:
        """Has the other side closed it?"""
        self.sock.settimeout(0.01)
        try:
            while self.sock.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionResetError:
            pass
        return True

    def finish(self) -> None:
        self.sock.sendall(b"0\r\n\r\n")

    def read(self) -> list[dict[str, Any]]:
        """The lines of the next chunk; none: the end."""
        if not self._began:
            assert b" 200 " in self.file.readline()
            while self.file.readline().strip():
                pass
            self._began = True
        size = int(self.file.readline(), 16)
        data = self.file.read(size)
        self.file.readline()
        return [json.loads(line) for line in data.splitlines()]

    def all(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while lines := self.read():
            found += lines
        return found

    def close(self) -> None:
        self.file.close()
        self.sock.close()


def test_answers_come_in_the_order_in_which_jobs_end(desk: Desk) -> None:
    service = fresh()
    lane = Lane(desk, service)
    lane.send({"id": "a", "body": {"n": 1}}, {"id": "b", "text": "two"})
    first, second = desk.poll(service, worker="b"), desk.poll(service, worker="b")
    assert (first.body, second.body) == (b'{"n": 1}', b"two")
    second.answer(b'{"second":\n2}')
    assert lane.read() == [{"line": 2, "id": "b", "ok": True, "body": {"second": 2}}]
    lane.send({"id": "c", "base64": "/w=="})
    third = desk.poll(service, worker="b")
    assert third.body == b"\xff"
    third.answer(b"\xfe")
    assert lane.read() == [{"line": 3, "id": "c", "ok": True, "base64": "/g=="}]
    lane.finish()
    first.say("failure", b'{"message": "no"}')
    [last] = lane.all()
    assert (last["line"], last["ok"], last["problem"]["detail"]) == (1, False, "no")
    lane.close()


def test_a_bad_line_is_answered_and_the_next_one_is_read(desk: Desk) -> None:
    service = fresh()
    bad = ["nonsense", "[]", "{}", '{"body": 1, "text": "2"}', '{"base64": "!"}', '{"body": 1, "nice": 2}']
    bad += ['{"id": [1], "body": 1}', '{"body": 1, "priority": 99}', '{"frames": []}', '{"text": 1}', "\xff"]
    with desk.serving(service):
        data = "\n".join([*bad, "", '{"body": "good"}']).encode("latin-1")
        answer = desk.site.post(f"/v1/services/{service}/bulk", data)
        lines = [json.loads(line) for line in answer.body.splitlines()]
        failed = sorted(line["line"] for line in lines if not line["ok"])
        assert failed == list(range(1, len(bad) + 1))
        assert all(line["problem"]["reason"] == "malformed" for line in lines if not line["ok"])
        assert [line for line in lines if line["ok"]] == [{"line": len(bad) + 2, "ok": True, "body": "good"}]


def test_no_more_than_the_window_is_under_way_and_the_rest_is_not_read(desk: Desk) -> None:
    service = fresh()
    lane = Lane(desk, service, "durable=false&window=2")
    lane.fill(b"x" * 50_000)
    assert desk.offered(service)["waiting"] == 2
    lane.close()


def test_who_hangs_up_takes_jobs_in_memory_along(desk: Desk) -> None:
    service = fresh()
    lane = Lane(desk, service)
    lane.send({"body": 1}, {"body": 2})
    until(lambda: desk.offered(service)["waiting"] == 2)
    lane.close()
    until(lambda: desk.offered(service)["waiting"] == 0)


def test_who_does_not_read_answers_is_not_given_more(desk: Desk) -> None:
    service = fresh()
    with desk.serving(service, lambda body: body * 20) as worker:
        lane = Lane(desk, service, "durable=false&window=2")
        assert worker.done < lane.fill(b"x" * 50_000)
        lane.close()


def test_lines_without_an_end_have_room_together_or_none(strict: Desk) -> None:
    lanes: list[Lane] = []

    def cut() -> bool:
        lanes.append(Lane(strict, "s"))
        lanes[-1].send(b"x" * 190_000)
        return bool(select.select([lane.sock for lane in lanes], [], [], 0.05)[0]) and any(
            lane.is_over() for lane in lanes
        )

    until(cut)
    assert len(lanes) >= 5
    for lane in lanes:
        lane.close()
    assert strict.site.get("/healthz").status == 200


def test_many_lines_run_through_a_small_window(desk: Desk) -> None:
    service = fresh()
    worker = desk.echo(service)
    try:
        count = 3000
        data = b"".join(b'{"id": %d, "body": %d}\n' % (number, number) for number in range(count))
        query = "durable=false&window=40"
        done = desk.curl("--data-binary", "@-", desk.url(f"/v1/services/{service}/bulk?{query}"), data=data)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert {(line["id"], line["body"]) for line in lines} == {(number, number) for number in range(count)}
        assert sorted(line["line"] for line in lines) == list(range(1, count + 1))
    finally:
        worker.stop()


def test_a_key_is_a_key_here_too(desk: Desk) -> None:
    service = fresh()
    with desk.serving(service) as worker:
        data = b'{"body": 1, "key": "k"}\n' * 3
        answer = desk.site.post(f"/v1/services/{service}/bulk", data)
        assert [json.loads(line)["ok"] for line in answer.body.splitlines()] == [True] * 3
        assert worker.done == 1


@pytest.mark.parametrize("query", ["window=0", "window=x", "window=10001", "nice=1"])
def test_options_that_cannot_be_are_refused(desk: Desk, query: str) -> None:
    is_problem(desk.site.post(f"/v1/services/{fresh()}/bulk?{query}", b""), 400, "malformed")


def test_lines_are_found_however_they_are_cut() -> None:
    data = b"one\ntwo\n\nthree"
    for size in range(1, len(data) + 1):
        lines = LineSplitter(100)
        found: list[bytes | None] = []
        for start in range(0, len(data), size):
            found += lines.feed(data[start : start + size], start + size >= len(data))
        assert found == [b"one", b"two", b"", b"three"]


def test_a_line_that_is_too_long_is_passed_over() -> None:
    data = b"short\n" + b"x" * 50 + b"\nnext\n" + b"y" * 50
    for size in (1, 7, 30, 200):
        lines = LineSplitter(10)
        found: list[bytes | None] = []
        for start in range(0, len(data), size):
            found += lines.feed(data[start : start + size], start + size >= len(data))
        assert found == [b"short", None, b"next", None]


@pytest.mark.parametrize(
    "body", [frame(b"text"), frame(b'{"a": 1}'), frame(b"\xff\x00"), join([b"a", b"\xff"]), frame(b"")]
)
def test_bodies_come_out_of_json_as_they_went_in(body: bytes) -> None:
    assert body_from_json(body_to_json(body)) == body
