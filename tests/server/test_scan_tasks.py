"""The catalogue's tasks for those who read a whole store: pages, bounds and what a stream may rely on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from polydomo.core.model import Job
from polydomo.core.tracked_job import NO_OPTIONS, TrackedJob
from polydomo.deferred import Deferred
from polydomo.server import scan_tasks
from polydomo.server.job_tasks import refuse_tasks
from polydomo.server.scan_tasks import ScanTasks
from polydomo.services.authorizer import Authorizer
from polydomo.services.builtin import Raw, Tasks
from polydomo.store.records import DEAD, DONE, FAILED
from polydomo.wire.frames import frame, join
from tests.store.desk import NOW, PATIENCE, SECOND, Desk, job, name
from tests.support.access import perform
from tests.support.core import Bench, make_broker


class Scanner:
    """Asks, and turns the store's wheel until it is answered."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.broker = SimpleNamespace(
            accounting=SimpleNamespace(recent=[]), clock=SimpleNamespace(wall=lambda at: int(at * SECOND))
        )
        self.tasks = Tasks(Authorizer(make_broker()), "mmi.service.broker")
        management: Any = SimpleNamespace(tasks=self.tasks, broker=self.broker)
        ScanTasks(desk.store, management)

    def ask(self, task: str, **kwargs: Any) -> Any:
        async def ask() -> Any:
            return await self.settled(perform(self.tasks, task, **kwargs))

        answer = asyncio.run(ask())
        return msgspec.msgpack.decode(answer.frames[0]) if isinstance(answer, Raw) else answer

    async def settled(self, answer: Deferred[Any]) -> Any:
        async def value() -> Any:
            return await answer

        task = asyncio.create_task(value())
        async with asyncio.timeout(PATIENCE):
            while not task.done():
                await self.turn()
        return task.result()

    async def turn(self) -> None:
        await asyncio.sleep(0.001)
        while not self.desk.calls.empty():
            self.desk.calls.get()()

    def pages(self, task: str, **kwargs: Any) -> list[dict[str, list[Any]]]:
        after, found = 0, []
        while after is not None:
            said = self.ask(task, after=after, **kwargs)
            after = said["next"]
            found.append(said["columns"])
        return found

    def add(self, *numbers: int, **fields: Any) -> None:
        for number in numbers:
            fields.setdefault("body", frame(b"asked"))
            assert self.desk.do(self.desk.store.add, job(number, **fields)) is None

    def end(self, number: int, state: str = DONE, body: bytes = frame(b"answer")) -> None:
        assert self.desk.do(self.desk.store.finish, name(number), 0, state, body, NOW + SECOND) is None


@pytest.fixture(params=["memory:", "sqlite"])
def scanner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scanner]:
    desk = Desk("memory:" if request.param == "memory:" else f"sqlite:///{tmp_path}/jobs.db")
    yield Scanner(desk)
    desk.close()


def ids(pages: list[dict[str, list[Any]]]) -> list[list[str]]:
    return [page["id"] for page in pages]


def test_jobs_come_page_by_page_in_order_of_arrival(scanner):
    scanner.add(1, 2, 3, 4, 5)
    scanner.end(2)
    assert ids(scanner.pages("scan_jobs", limit=2)) == [[name(1), name(2)], [name(3), name(4)], [name(5)]]
    bounds = scanner.ask("scan_bounds")
    assert bounds["last"] - bounds["first"] == 4
    until = bounds["first"] + 2
    assert ids(scanner.pages("scan_jobs", limit=2, until=until)) == [[name(1), name(2)], [name(3)]]
    (page,) = scanner.pages("scan_jobs", state=DONE, request=True, result=True)
    assert (page["id"], page["request"], page["result"]) == ([name(2)], [b"asked"], [b"answer"])


def test_the_stores_own_filter_is_asked(scanner):
    scanner.add(1, service=b"a", client=b"x")
    scanner.add(2, service=b"b", client=b"x", key="k")
    scanner.add(3, service=b"a", client=b"\xff\x00", parent=name(1))
    for wanted, found in (
        ({"service": "a"}, [1, 3]),
        ({"service": "a", "client": "x"}, [1]),
        ({"key": "k"}, [2]),
        ({"parent": name(1)}, [3]),
        ({"since": NOW + 2}, [2, 3]),
        ({"before": NOW + 2}, [1]),
    ):
        assert ids(scanner.pages("scan_jobs", **wanted)) == [[name(number) for number in found]]
    assert scanner.pages("scan_jobs")[0]["client"] == ["x", "x", "0xff00"]


def test_ends_come_in_their_order_and_a_stream_may_remember_the_last(scanner):
    scanner.add(1, 2, 3, 4, service=b"a")
    scanner.add(5, service=b"b")
    for number in (3, 5, 1):
        scanner.end(number)
    scanner.end(2, FAILED)
    assert ids(scanner.pages("scan_endings", limit=3)) == [[name(3), name(5), name(1)], [name(2)]]
    assert ids(scanner.pages("scan_endings", limit=1, service="a", state=DONE))[:3] == [
        [name(3)],
        [],
        [name(1)],
    ]
    latest = scanner.ask("scan_bounds")["ending"]
    two = scanner.ask("scan_bounds", after=0, rows=2)["ending"]
    assert ids(scanner.pages("scan_endings", until=two)) == [[name(3), name(5)]]
    assert scanner.ask("scan_bounds", after=two, rows=100)["ending"] == latest
    assert scanner.ask("scan_bounds", after=latest, rows=100)["ending"] == latest
    scanner.end(4, DEAD)
    assert ids([scanner.ask("scan_endings", after=latest)["columns"]]) == [[name(4)]]


def test_a_bound_is_told_when_all_before_it_is_on_disk(tmp_path):
    desk = Desk(f"sqlite:///{tmp_path}/jobs.db")
    scanner = Scanner(desk)
    scanner.add(1)
    gate = desk.hold()
    desk.store.finish(name(1), 0, DONE, frame(b"answer"), NOW)

    async def bounds() -> Any:
        answer = asyncio.create_task(scanner.settled(perform(scanner.tasks, "scan_bounds")))
        for _ in range(20):
            await scanner.turn()
        assert not answer.done()
        gate.opened.set()
        return await answer

    assert ids(scanner.pages("scan_endings", until=asyncio.run(bounds())["ending"])) == [[name(1)]]
    desk.close()


def test_large_bodies_make_small_pages(scanner, monkeypatch):
    monkeypatch.setattr(scan_tasks, "BYTES", 100)
    scanner.add(1, 2, 3, body=frame(b"x" * 60))
    for number in (1, 2, 3):
        scanner.end(number)
    assert ids(scanner.pages("scan_jobs", request=True)) == [[name(1)], [name(2)], [name(3)]]
    assert ids(scanner.pages("scan_endings", request=True)) == [[name(1)], [name(2)], [name(3)]]
    assert ids(scanner.pages("scan_jobs")) == [[name(1), name(2), name(3)]]


def test_frames_are_one_and_a_failure_has_no_result(scanner):
    scanner.add(1, 2)
    scanner.end(1, DONE, join([b"a", b"b"]))
    scanner.end(2, FAILED)
    assert scanner.pages("scan_jobs", result=True)[0]["result"] == [b"ab", None]


def test_events_of_jobs(scanner):
    scanner.add(1, 2, 3)
    for number, kind in ((1, "begun"), (3, "begun"), (1, "ended")):
        assert scanner.desk.do(scanner.desk.store.event, name(number), kind, b"said", NOW, b"anna") is None
    (first, second) = scanner.pages("scan_events", limit=2)
    assert first["job_id"] == [name(1), name(1)]
    assert (first["kind"], first["worker"], first["body"]) == (
        ["begun", "ended"],
        ["anna"] * 2,
        [b"said"] * 2,
    )
    assert second["job_id"] == [name(3)]
    assert scanner.pages("scan_events", job=name(3))[0]["kind"] == ["begun"]
    assert scanner.pages("scan_events", job="none")[0]["kind"] == []


def test_jobs_are_traced_among_the_latest_of_their_client_and_then_one_by_one(scanner):
    scanner.add(1, 2, client=b"before")
    scanner.add(3, 4, 5, client=b"me")
    scanner.end(3)
    found = [
        [name(3), 0, NOW + 3, NOW + SECOND],
        [name(4), 0, NOW + 4, None],
    ]
    assert sorted(scanner.ask("trace_jobs", client="me", ids=[name(3), name(4)])) == found
    assert sorted(scanner.ask("trace_jobs", client="me", ids=[name(3), name(4)], limit=1)) == found
    more = scanner.ask("trace_jobs", client="me", ids=[name(5), name(1), "none"])
    assert sorted(row[0] for row in more) == [name(1), name(5)]


def test_what_has_just_ended_is_traced_in_memory(scanner):
    bench = Bench()
    client, service = bench.client().core, bench.broker.services.find(b"echo")

    def ended(uid: str, durable: bool = True, number: int = 2) -> TrackedJob:
        job = TrackedJob(1, client, service, b"", b"", 0.0, NO_OPTIONS, uid, NOW)
        job.durable, job.number, job.finished = durable, number, 7.0
        return job

    scanner.add(1)
    asked_again = ended(name(1), durable=False, number=0)  # it got the answer of the first
    plain = Job(2, client, service, b"", b"", 0.0)
    scanner.broker.accounting.recent = [plain, ended("known"), asked_again]
    found = scanner.ask("trace_jobs", client="me", ids=["known", name(1)])
    assert found == [["known", 2, NOW, 7 * SECOND], [name(1), 0, NOW + 1, None]]


def test_where_nothing_is_kept_they_say_so():
    tasks = Tasks(Authorizer(make_broker()), "mmi.service.broker")
    management: Any = SimpleNamespace(tasks=tasks)
    refuse_tasks(management, scan_tasks.TASKS)
    for task in scan_tasks.TASKS:
        with pytest.raises(ValueError, match="keeps no durable jobs: give it a folder"):
            perform(tasks, task, after=1)
