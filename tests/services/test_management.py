"""services/management: what the broker itself answers (RFC 8/MMI and the catalogue `mmi.service.broker`)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polydomo.core.counts import MEANINGS
from polydomo.core.failure import Failure
from polydomo.core.model import JOB_COST, ClientPort, Job
from polydomo.core.policy import BrokerLimits, Policy
from polydomo.services.management import ManagementService
from polydomo.wire.frames import join, split
from tests.support import invariants
from tests.support.core import Bench, FakeWorker


class Asker(ClientPort):
    """A client that keeps the last answer and the last failure."""

    def __init__(self, bench: Bench) -> None:
        self.broker = bench.broker
        self.answers: list[list[bytes]] = []
        self.failures: list[tuple[str, str, bytes, bytes]] = []
        self.core = bench.broker.join_client(b"asker", "fake", self)

    def partial(self, job: Job, body: bytes) -> None:
        raise AssertionError("the broker's services answer once")

    def final(self, job: Job, body: bytes) -> None:
        self.answers.append(split(body))

    def failed(self, job: Job, failure: Failure) -> None:
        self.failures.append((failure.reason, failure.message, failure.body or b"", failure.detail))

    def ask(self, service: bytes, *frames: bytes) -> list[bytes]:
        """The answer, which is there at once."""
        before = len(self.answers)
        self.broker.submit(self.core, service, join(frames), b"")
        assert len(self.answers) == before + 1, self.failures
        return self.answers[-1]

    def task(self, name: str, **kwargs: Any) -> Any:
        body = json.dumps({"task": name, "kwargs": kwargs}).encode()
        (answer,) = self.ask(b"mmi.service.broker", body)
        return json.loads(answer)

    def refused(self, *frames: bytes) -> tuple[str, str, bytes, bytes]:
        """The failure that this gives."""
        before = len(self.failures)
        self.broker.submit(self.core, b"mmi.service.broker", join(frames), b"")
        assert len(self.failures) == before + 1, self.answers
        return self.failures[-1]


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.broker.advance(100.0)
    ManagementService(bench.broker, "house")
    return bench


@pytest.fixture
def asker(bench: Bench) -> Asker:
    return Asker(bench)


def test_mmi_service_200_and_404(bench: Bench, asker: Asker) -> None:
    """RFC 8/MMI: "200" if the service has workers, "404" if not."""
    worker = bench.worker(b"echo")
    assert asker.ask(b"mmi.service", b"echo") == [b"200"]
    assert asker.ask(b"mmi.service", b"nobody") == [b"404"]
    assert asker.ask(b"mmi.service", b"mmi.service") == [b"200"]
    assert asker.ask(b"mmi.service", b"mmi.nonsense") == [b"404"]
    worker.leave()
    assert asker.ask(b"mmi.service", b"echo") == [b"404"]


def test_mmi_service_takes_a_name_in_the_quotes_of_json(bench: Bench, asker: Asker) -> None:
    bench.worker("käse".encode())
    bench.worker(b'"literally"')
    assert asker.ask(b"mmi.service", '"käse"'.encode()) == [b"200"]
    assert asker.ask(b"mmi.service", b'"k\\u00e4se"') == [b"200"]
    assert asker.ask(b"mmi.service", b'"literally"') == [b"200"]
    for name in (b'"nobody"', b'"', b'"\xff"', b'"\\ud800"', b'"a" "b"'):
        assert asker.ask(b"mmi.service", name) == [b"404"]


def test_a_service_with_waiting_jobs_and_no_worker_is_404(bench: Bench, asker: Asker) -> None:
    bench.client().ask(b"echo")
    assert asker.ask(b"mmi.service", b"echo") == [b"404"]


def test_asking_about_a_service_does_not_create_it(bench: Bench, asker: Asker) -> None:
    known = list(bench.broker.services)
    asker.ask(b"mmi.service", b"echo")
    asker.ask(b"mmi.nonsense", b"echo")
    assert list(bench.broker.services) == known


@pytest.mark.parametrize(
    "name", [b"mmi.", b"mmi.echo", b"mmi.service.", b"mmi.service.brokers", b"sid.x", b"fss.y"]
)
def test_other_reserved_names_are_501(asker: Asker, name: bytes) -> None:
    assert asker.ask(name, b"echo") == [b"501"]
    assert asker.ask(name) == [b"501"]


@pytest.mark.parametrize("frames", [[], [b""], [b"", b""], [b"\0\xff"], [b"x" * 1000, b"y"]])
def test_strange_bodies_do_not_hurt(bench: Bench, asker: Asker, frames: list[bytes]) -> None:
    assert asker.ask(b"mmi.service", *frames) == [b"404"]
    asker.refused(*frames)
    invariants.check(bench.broker)
    assert bench.broker.accounting.active == 0


def test_a_task_by_its_bare_name_or_as_json(asker: Asker) -> None:
    for body in (
        b"show_broker",
        b"  show_broker\n",
        b'{"task": "show_broker"}',
        b' {"task": "show_broker", "args": [], "kwargs": {}}',
        b'{"task": "show_broker", "something": "else"}',
        b'"show_broker"',
        b' "show_broker"\n',
    ):
        (answer,) = asker.ask(b"mmi.service.broker", body)
        assert json.loads(answer)["name"] == "house"


def test_show_broker_counts(bench: Bench, asker: Asker) -> None:
    worker, client = bench.worker(b"echo"), bench.client()
    client.ask(b"echo", bytes(10))
    client.ask(b"echo", bytes(5))
    bench.broker.advance(103.5)
    shown = asker.task("show_broker")
    assert shown["uptime"] == 3.5
    assert (shown["services"], shown["workers"], shown["clients"]) == (1, 1, 1)
    assert (shown["active"], shown["done"]) == (2, 0)
    assert shown["memory"] == bench.broker.accounting.memory >= 15
    worker.answer()
    worker.fail()
    shown = asker.task("show_broker")
    assert (shown["active"], shown["memory"], shown["done"], shown["failed"]) == (0, 0, 1, 1)
    assert not shown["draining"]


def test_what_the_broker_is_asked_itself_is_not_counted(bench: Bench, asker: Asker) -> None:
    worker = bench.worker(b"echo")
    before = asker.task("show_broker")
    asker.ask(b"mmi.service", b"echo")
    asker.ask(b"mmi.nonsense", b"echo")
    asker.refused(b"no task")
    assert asker.task("show_broker") == before
    assert asker.task("show_clients") == []
    asker.broker.submit(asker.core, b"echo", join([b"12345"]), b"")
    [row] = asker.task("show_clients")
    assert (row["unanswered"], row["submitted"], row["bytes"]) == (
        1,
        1,
        asker.broker.accounting.memory - JOB_COST,
    )
    worker.answer()
    shown = asker.task("show_broker")
    assert (shown["active"], shown["clients"], shown["done"], shown["failed"]) == (0, 1, 1, 0)


def test_show_services_leaves_out_the_brokers_own(bench: Bench, asker: Asker) -> None:
    bench.worker(b"b")
    bench.client().ask(b"a")
    bench.client().ask(b"\xff\0")
    rows = asker.task("show_services")
    assert [row["name"] for row in rows] == ["0xff00", "a", "b"]
    assert rows[1] == {
        "name": "a",
        "workers": 0,
        "idle": 0,
        "waiting": 1,
        "paused": False,
        "running": 0,
        **dict.fromkeys(MEANINGS, 0),
    }
    assert (rows[2]["workers"], rows[2]["idle"]) == (1, 1)


def test_show_workers_says_how_they_are(bench: Bench, asker: Asker) -> None:
    idle, busy, late = (FakeWorker(bench.broker, name, bench.beat) for name in (b"idle", b"busy", b"late"))
    late.register(b"once")
    client = bench.client()
    client.ask(b"once")
    busy.register(b"echo")
    client.ask(b"echo")
    bench.broker.advance(159.5)
    idle.register(b"echo")
    busy.core.running[busy.holds[0]].attempt_deadline = 1000.0
    bench.broker.advance(160.0)
    bench.broker.tick()
    rows = {row["name"]: row for row in asker.task("show_workers")}
    assert {name: row["state"] for name, row in rows.items()} == {
        "idle": "idle",
        "busy": "busy",
        "late": "late",
    }
    assert (rows["busy"]["holds"], rows["busy"]["credit"]) == (1, 1)
    assert [row["name"] for row in asker.task("show_workers", service="echo")] == ["busy", "idle"]
    assert asker.task("show_workers", service="nobody") == []


def test_show_clients_says_what_they_wait_for(bench: Bench, asker: Asker) -> None:
    bench.broker.services.limits = BrokerLimits(client_jobs=1)
    client = bench.client(b"anna")
    for _ in range(2):
        client.ask(b"echo", bytes(7))
    rows = {row["name"]: row for row in asker.task("show_clients")}
    assert (rows["anna"]["unanswered"], rows["anna"]["submitted"], rows["anna"]["held"]) == (2, 2, True)
    assert rows["anna"]["bytes"] == 14


def test_show_jobs_newest_first_and_filtered(bench: Bench, asker: Asker) -> None:
    worker, client = bench.worker(b"echo"), bench.client()
    ids = [job.id for job in (client.ask(b"echo") for _ in range(3)) if job is not None]
    waiting = client.ask(b"other")
    assert waiting is not None
    worker.answer()
    worker.fail()
    rows = asker.task("show_jobs")
    assert [row["id"] for row in rows] == [waiting.id, *reversed(ids)]
    states = {row["id"]: (row["state"], row["reason"]) for row in rows}
    assert states == {
        ids[0]: ("done", ""),
        ids[1]: ("failed", "worker-error"),
        ids[2]: ("running", ""),
        waiting.id: ("waiting", ""),
    }
    assert [row["id"] for row in asker.task("show_jobs", service="other")] == [waiting.id]
    assert [row["id"] for row in asker.task("show_jobs", state="running")] == [ids[2]]
    assert [row["id"] for row in asker.task("show_jobs", limit=2)] == [waiting.id, ids[2]]
    assert asker.task("show_jobs", limit=0) == asker.task("show_jobs", limit=-5) == []
    assert len(asker.task("show_jobs", limit=10**30)) == 4


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"show_nonsense", "no task"),
        (b"", "no task"),
        (b"\xff\xfe", "no task"),
        (b"{", "not a task"),
        (b"{}", "not a task"),
        (b'{"task": 7}', "not a task"),
        (b'{"task": "show_broker", "kwargs": []}', "not a task"),
        (b'{"task": "show_broker", "kwargs": {"x": 1}}', "wrong arguments"),
        (b'{"task": "show_broker", "args": [1]}', "wrong arguments"),
        (b'{"task": "show_jobs", "kwargs": {"state": "asleep"}}', "no state"),
        (b'{"task": "show_jobs", "kwargs": {"state": []}}', "no state"),
        (b'{"task": "show_jobs", "kwargs": {"limit": "many"}}', "wrong arguments"),
        (b'{"task": "show_jobs", "kwargs": {"limit": null}}', "wrong arguments"),
        (b'{"task": "show_jobs", "kwargs": {"limit": 1.5}}', "wrong arguments"),
        (b'{"task": "__init__"}', "no task"),
        (b'{"task": "\xff"}', ""),
    ],
)
def test_a_wrong_task_is_a_failure_that_says_why(bench: Bench, asker: Asker, body: bytes, words: str) -> None:
    """DECISIONS: a failure is never dressed up as a normal answer; who can be told is told."""
    reason, message, plain, account = asker.refused(body)
    assert reason == "worker-error"
    assert words in message
    assert json.loads(split(plain)[0])["error"] == message
    assert json.loads(account)["message"] == message
    assert bench.broker.accounting.active == 0
    assert asker.ask(b"mmi.service", b"mmi.service") == [b"200"]
    invariants.check(bench.broker)


def test_a_deeply_nested_task_is_a_failure_too(bench: Bench, asker: Asker) -> None:
    body = b'{"task": "show_broker", "args": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    asker.refused(body)
    assert bench.broker.accounting.active == 0


def test_the_brokers_own_services_need_no_queue(bench: Bench, asker: Asker) -> None:
    bench.broker.control.configure(BrokerLimits(), Policy(queue=0), {})
    for _ in range(2000):
        assert asker.ask(b"mmi.service", b"x") == [b"404"]
        assert asker.ask(b"mmi.nonsense", b"x") == [b"501"]
    assert bench.broker.accounting.active == 0
    assert bench.broker.accounting.totals.refused == 0
