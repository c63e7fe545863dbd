"""The broker's own services, asked by norfab's client as it comes from PyPI and by raw NFP peers in the spec's form."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from norfab.core.monitoring import BrokerMonitoringStats, WorkerMonitoringStats

from polydomo import __version__
from tests.support.broker import BrokerProcess, wait_for
from tests.support.nfp import MMI, NfpClient, new_uuid
from tests.support.norfab import SID, Client, Fabric

pytestmark = pytest.mark.peers

DATA = os.urandom(5_000_001)
FSS = "fss.service.broker"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    server = tmp_path_factory.mktemp("house")
    (server / "shared/sub").mkdir(parents=True)
    (server / "shared/data.bin").write_bytes(DATA)
    (server / "shared/empty").write_bytes(b"")
    (server / "shared/sub/words.txt").write_text("some words\n")
    (server / "shared/evil").symlink_to("/etc/passwd")
    (server / "common.yaml").write_text("service: greet\nuser: '{{ env.HOME }}'\n")
    (server / "inventory.yaml").write_text(
        "broker: {endpoint: 'tcp://127.0.0.1:5555', zmq_auth: False}\n"
        "logging: {handlers: {terminal: {level: CRITICAL}}}\n"
        "workers:\n  greet-*: [common.yaml]\n  greet-1:\n    - {extra: [1]}\n"
        "topology: {broker: True, workers: [greet-1]}\n"
    )
    return server


@pytest.fixture(scope="module")
def broker(server: Path) -> Iterator[BrokerProcess]:
    flags = ["--inventory", str(server / "inventory.yaml"), "--files", str(server / "shared")]
    with BrokerProcess(*flags) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = Client(broker.endpoint, tmp_path_factory.mktemp("client"))
    yield client
    client.close()


def test_fetch_file_with_no_worker_of_its_own(client: Client) -> None:
    fetched = client.norfab.fetch_file("nf://data.bin")
    assert (fetched["status"], fetched["error"]) == ("200", None)
    assert Path(fetched["content"]).read_bytes() == DATA
    assert client.norfab.fetch_file("nf://sub/words.txt", read=True)["content"] == "some words\n"


def test_fetch_file_in_small_chunks_one_at_a_time(client: Client, server: Path) -> None:
    (server / "shared/small.bin").write_bytes(DATA[:100_001])
    fetched = client.norfab.fetch_file("nf://small.bin", chunk_size=1000, pipeline=1)
    assert Path(fetched["content"]).read_bytes() == DATA[:100_001]


def test_fetch_several_files_and_what_is_not_there(client: Client) -> None:
    answers = client.norfab.fetch_file(["nf://empty", "nf://nobody", "nf://evil", "nf://sub/words.txt"])
    assert [answer["status"] for answer in answers] == ["200", "404", "404", "200"]
    assert Path(answers[0]["content"]).read_bytes() == b""


def test_a_changed_file_is_fetched_again(client: Client, server: Path) -> None:
    for text in ("one", "two"):
        (server / "shared/changing.txt").write_text(text)
        assert client.norfab.fetch_file("nf://changing.txt", read=True)["content"] == text


def test_the_other_file_tasks(client: Client) -> None:
    [(name, answer)] = client.run("filesharing", "list_files", url="nf://sub").items()
    assert (name, answer["result"], answer["failed"]) == ("filesharing-broker", ["words.txt"], False)
    assert "nf://sub/words.txt" in client.run("filesharing", "walk", url="nf://")[name]["result"]
    details = client.run("filesharing", "file_details", url="nf://data.bin")[name]["result"]
    assert details["md5hash"] == hashlib.md5(DATA).hexdigest()
    failed = client.run("filesharing", "list_files", url="nf://../x")[name]
    assert failed["failed"]
    assert "leads out" in failed["errors"][0]
    stats = client.run("filesharing", "get_stats")[name]["result"]
    assert WorkerMonitoringStats.model_validate_json(json.dumps(stats)).service == "filesharing"


def test_files_are_never_durable_jobs(client: Client) -> None:
    """The broker does them itself: nothing of them is on disk."""
    client.run("filesharing", "walk", url="nf://")
    stored = client.mmi("show_stored_jobs", service="filesharing")
    assert stored["jobs"] == []


def test_management_as_norfabs_client_asks_for_it(client: Client, broker: BrokerProcess) -> None:
    stats = BrokerMonitoringStats.model_validate_json(json.dumps(client.mmi("get_stats")))
    assert (stats.endpoint, stats.status) == (broker.endpoint, "active")
    assert client.mmi("get_status")["endpoint"] == broker.endpoint
    assert client.mmi("show_broker_version")["polydomo"] == __version__
    assert client.mmi("show_broker_inventory")["topology"] == {"broker": True, "workers": ["greet-1"]}
    assert client.mmi("get_logs", last=1, level="INFO")[0]["role"] == "broker"
    assert client.alive()["filesharing-broker"] == "filesharing"
    rows = client.mmi("show_workers", service="all", status="any")
    assert {"name", "service", "status", "holdtime", "keepalives tx/rx", "alive (s)"} <= rows[0].keys()


def test_inventory_as_norfabs_workers_ask_for_it(client: Client) -> None:
    home = os.environ["HOME"]
    assert client.mmi("get_inventory", SID, name="greet-1") == {
        "service": "greet",
        "user": home,
        "extra": [1],
    }
    assert client.mmi("get_inventory", SID, name="greet-2") == {"service": "greet", "user": home}
    assert client.mmi("get_inventory", SID, name="nobody") is None


def test_disconnected_workers_of_norfab_come_back(broker: BrokerProcess, tmp_path: Path) -> None:
    with Fabric(broker.endpoint, tmp_path) as fabric:
        fabric.start(greet=["greet-1"])
        told = time.monotonic()
        assert fabric.client.mmi("disconnect", service="greet") == {"disconnected": ["greet-1"]}
        wait_for(lambda: _registered(fabric.client, "greet-1") > told, 30)


def _registered(client: Client, name: str) -> float:
    """When; 0 if it is not."""
    rows = [row for row in client.mmi("show_workers") if row["name"] == name]
    return time.monotonic() - rows[0]["since"] if rows else 0.0


class Mmi:
    """A raw peer in the spec's form: one-byte commands, one answer for each."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.peer = NfpClient(broker.endpoint)
        self.peer.open()

    def ask(self, service: str, task: str, /, **kwargs: Any) -> tuple[bytes, list[bytes]]:
        body = json.dumps({"task": task, "kwargs": kwargs}).encode()
        reply = self.peer.ask(MMI, service.encode(), b"", new_uuid(), body)
        assert reply.command == MMI
        return reply.status, reply.body


@pytest.fixture
def spec(broker: BrokerProcess) -> Iterator[Mmi]:
    mmi = Mmi(broker)
    yield mmi
    mmi.peer.close()


@pytest.mark.parametrize(
    "task",
    [
        "show_broker",
        "show_workers",
        "show_clients",
        "show_services",
        "show_jobs",
        "show_resources",
        "disconnect",
        "get_stats",
        "get_status",
        "get_logs",
        "show_broker_version",
        "show_broker_inventory",
    ],
)
def test_management_in_the_specs_form(spec: Mmi, task: str) -> None:
    status, body = spec.ask("mmi.service.broker", task)
    assert status == b"200"
    assert json.loads(body[0]) is not None


def test_inventory_and_files_in_the_specs_form(spec: Mmi) -> None:
    status, body = spec.ask(SID, "get_inventory", name="greet-1")
    assert (status, json.loads(body[0])["extra"]) == (b"200", [1])
    status, body = spec.ask(SID, "get_inventory", name="nobody")
    assert (status, body) == (b"200", [b"null"])
    status, body = spec.ask(FSS, "file_details", url="nf://data.bin")
    details = json.loads(body[0])
    assert details["sha256"] == hashlib.sha256(DATA).hexdigest()
    got = b""
    while len(got) < len(DATA):
        status, [head, data] = spec.ask(
            FSS, "fetch_file", url="nf://data.bin", offset=len(got), chunk_size=1 << 20, etag=details["etag"]
        )
        assert (status, json.loads(head)["offset"]) == (b"200", len(got))
        got += data
    assert got == DATA
    status, body = spec.ask(FSS, "fetch_file", url="nf://evil")
    assert status != b"200"
    assert "leads out" in body[0].decode()


@pytest.mark.parametrize("task", ["restart", "shutdown"])
def test_restart_and_shutdown_in_the_specs_form(task: str) -> None:
    with BrokerProcess() as broker:
        mmi = Mmi(broker)
        status, body = mmi.ask("mmi.service.broker", task)
        assert status == b"200"
        assert json.loads(body[0])["name"] == "polydomo"
        mmi.peer.close()
        if task == "shutdown":
            assert broker.process.wait(10) == 0
        else:
            wait_for(lambda: broker.log().count('"listening"') == 2, 20)
            again = Mmi(broker)
            assert again.ask("mmi.service.broker", "show_broker")[0] == b"200"
            again.peer.close()
