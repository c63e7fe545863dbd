"""services/administration: the tasks that look after the broker itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from norfab.core.monitoring import BrokerMonitoringStats, WorkerMonitoringStats

from polydomo import __version__
from polydomo.services.administration import Administration
from polydomo.services.files import Files
from polydomo.services.filesharing import FileSharing
from polydomo.services.folder import Folder
from polydomo.services.inventory import Inventory
from polydomo.services.management import ManagementService
from tests.services.support import Asker, ByHand
from tests.support import invariants
from tests.support.core import Bench

NAME = b"mmi.service.broker"


class FakeProcess:
    """`done` lists the calls of `stop` and `restart`."""

    def __init__(self, own_process: bool) -> None:
        self.own_process = own_process
        self.done: list[str] = []
        self.lines: list[dict[str, Any]] = []

    def endpoints(self) -> list[str]:
        return ["tcp://127.0.0.1:5555", "ipc:///x"]

    def folders(self) -> dict[str, str | None]:
        return {"base_dir": "/here"}

    def dropped(self) -> int:
        return 0

    def connections(self) -> int:
        return 3

    def inventory(self) -> Inventory | None:
        return None

    def logs(self) -> list[dict[str, Any]]:
        return self.lines

    def stop(self) -> None:
        self.done.append("stop")

    def restart(self) -> None:
        self.done.append("restart")


class Set:
    def __init__(self, own_process: bool = True) -> None:
        self.bench = Bench()
        self.bench.broker.advance(100.0)
        self.management = ManagementService(self.bench.broker, "house")
        self.process = FakeProcess(own_process)
        self.administration = Administration(self.management, self.process)
        self.hand = ByHand()
        self.asker = Asker(self.bench.broker)

    def ask(self, task: str, **kwargs: Any) -> Any:
        return self.asker.ask(self.hand, NAME, task, **kwargs)

    def refused(self, task: str, **kwargs: Any) -> str:
        return self.asker.refused(self.hand, NAME, task, **kwargs)


@pytest.fixture
def stage() -> Set:
    return Set()


def test_restart_and_shutdown(stage: Set) -> None:
    assert stage.ask("restart") == {"name": "house", "restarting": True}
    assert stage.ask("shutdown") == {"name": "house", "stopping": True}
    assert stage.process.done == ["restart", "stop"]


def test_a_broker_in_another_program_does_neither() -> None:
    stage = Set(own_process=False)
    assert "another program" in stage.refused("restart")
    assert "another program" in stage.refused("shutdown")


def test_disconnect_all(stage: Set) -> None:
    """Their jobs wait until a worker returns: none of the leaving workers gets them."""
    workers = [stage.bench.worker(b"echo") for _ in range(3)]
    client = stage.bench.client()
    for _ in range(2):
        client.ask(b"echo")
    held = [worker for worker in workers if worker.holds]
    gone = stage.ask("disconnect")["disconnected"]
    assert sorted(gone) == ["worker-1", "worker-2", "worker-3"]
    assert [len(worker.dismissals) for worker in workers] == [1, 1, 1]
    assert sum(len(worker.given) for worker in workers) == len(held) == 2
    assert stage.ask("show_workers") == []
    back = stage.bench.worker(b"echo")
    back.answer()
    back.answer()
    assert len(client.finals()) == 2
    assert stage.ask("show_broker")["workers"] == 1, "and the broker's own services are still there"
    invariants.check(stage.bench.broker)


def test_disconnect_some(stage: Set) -> None:
    one, other, third = stage.bench.worker(b"a"), stage.bench.worker(b"b"), stage.bench.worker(b"b")
    assert stage.ask("disconnect", name="worker-1") == {"disconnected": ["worker-1"]}
    assert (len(one.dismissals), len(other.dismissals)) == (1, 0)
    assert stage.ask("disconnect", service="b") == {"disconnected": ["worker-2", "worker-3"]}
    assert third.dismissals
    assert "no worker" in stage.refused("disconnect", name="worker-1")
    assert stage.ask("disconnect", service="b") == {"disconnected": []}


def test_get_stats_is_what_norfab_reads(stage: Set) -> None:
    stage.bench.worker(b"echo").seen()
    stats = BrokerMonitoringStats.model_validate_json(json.dumps(stage.ask("get_stats")))
    assert (stats.name, stats.status, stats.worker_count, stats.service_count) == ("house", "active", 1, 1)
    assert stats.endpoint == "tcp://127.0.0.1:5555, ipc:///x"
    assert stats.process.memory_rss_mbyte > 1
    assert stats.process.threads >= 1
    assert (stats.workers[0].service, stats.workers[0].keepalives_received) == ("echo", 1)
    assert stats.workers[0].holdtime_seconds == 3.0
    assert (stats.keepalive_interval_ms, stats.keepalive_multiplier) == (1000, 3)


def test_the_file_worker_has_stats_too(stage: Set) -> None:
    files = Files(Folder("/nowhere"), stage.hand)
    sharing = FileSharing(stage.management.authorizer, files, 30.0, stage.administration.basic_stats)
    stats = WorkerMonitoringStats.model_validate_json(json.dumps(sharing.get_stats()))
    assert (stats.name, stats.service) == ("filesharing-broker", "filesharing")


def test_get_status_and_version(stage: Set) -> None:
    status = stage.ask("get_status")
    assert (status["name"], status["role"], status["status"]) == ("house", "broker", "active")
    assert status["directories"] == {"base_dir": "/here"}
    assert status["security"]["zmq_auth"] is False
    stage.bench.broker.control.drain()
    assert stage.ask("get_status")["status"] == "stopping"
    version = stage.ask("show_broker_version")
    assert version["polydomo"] == __version__
    assert version["python"]


def test_show_broker_inventory(stage: Set, tmp_path: Any) -> None:
    assert stage.ask("show_broker_inventory") == {}
    inventory = Inventory(tmp_path, {"broker": {"a": 1}}, {}, {})
    stage.process.inventory = lambda: inventory  # type: ignore[method-assign]
    shown = stage.ask("show_broker_inventory")
    assert (shown["broker"], shown["workers"]) == ({"a": 1}, {})


def test_get_logs(stage: Set) -> None:
    stage.process.lines = [
        {"ts": f"2026-01-31T12:00:{n:02}+00:00", "level": level, "logger": "polydomo", "message": str(n)}
        for n, level in enumerate(["INFO", "ERROR", "WARNING", "INFO"])
    ]

    def messages(**kwargs: Any) -> str:
        return "".join(line["message"] for line in stage.ask("get_logs", **kwargs))

    assert messages() == "0123"
    assert messages(last=2) == "23"
    assert messages(last=0) == messages(last=None) == "0123"
    assert messages(level="warning") == "12"
    assert messages(level="ERROR") == "1"
    assert messages(since="2026-01-31T12:00:01+00:00") == "123"
    assert messages(until="2026-01-31T12:00:01Z") == "01"
    assert messages(logger="asyncio") == ""
    assert stage.ask("get_logs", last=1)[0]["role"] == "broker"
    assert "no level" in stage.refused("get_logs", level="loud")
    assert "since is a time" in stage.refused("get_logs", since="yesterday")


def test_resources(stage: Set) -> None:
    one = stage.bench.worker(b"echo")
    stage.bench.worker(b"other")
    assert stage.ask("set_resources", worker="worker-1", resources=["r1", "r2"]) == {
        "worker": "worker-1",
        "resources": ["r1", "r2"],
    }
    assert stage.ask("show_resources", service="echo") == [
        {"worker": "worker-1", "services": ["echo"], "resources": ["r1", "r2"]}
    ]
    assert len(stage.ask("show_resources")) == 2
    assert stage.bench.broker._resources.holders(b"echo", b"r1") == [one.core]
    assert stage.ask("share_out", service="other", resources=["x"]) == {"service": "other", "resources": 1}
    stage.bench.at(100.5)
    assert stage.ask("show_resources", service="other")[0]["resources"] == ["x"]
    assert "no worker" in stage.refused("set_resources", worker="nobody", resources=[])
    assert "list of names" in stage.refused("set_resources", worker="worker-1", resources="r1")
    assert "list of names" in stage.refused("share_out", service="echo", resources=[1])
    assert "no service" in stage.refused("share_out", service="mmi.service", resources=["a"])


def test_show_workers_has_norfabs_names_too(stage: Set) -> None:
    worker = stage.bench.worker(b"echo")
    stage.bench.worker(b"other")
    stage.bench.at(101.5, worker)
    [row] = stage.ask("show_workers", service="echo", status="alive")
    assert {name: row[name] for name in ("name", "service", "status", "holdtime", "alive (s)")} == {
        "name": "worker-1",
        "service": "echo",
        "status": "alive",
        "holdtime": "3.0",
        "alive (s)": "1",
    }
    assert row["keepalives tx/rx"] == "1 / 2"
    assert len(stage.ask("show_workers", service="all", status="any")) == 2
    assert stage.ask("show_workers", status="dead") == []
    assert "no status" in stage.refused("show_workers", status="tired")
