"""norfab's own workers and client, unmodified, through our broker: jobs, events, input, files, management."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import BrokerProcess
from tests.support.norfab import MMI, OWN_BROKER, PATIENCE, SID, Fabric, OwnBroker, Raw, lines, until

pytestmark = pytest.mark.peers
ours_only = pytest.mark.skipif(OWN_BROKER, reason="beyond norfab's own broker")

INVENTORY = """
broker: {zmq_auth: false}
workers:
  "red-*":
    - colour: red
      tags: [warm]
  red-1:
    - tags: [first]
      place: {rack: 1}
  blue-1:
    - blue.yaml
"""

FILE = random.Random(3).randbytes(1_000_003)  # four chunks of 256,000 bytes: the last one is short


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Two workers of one service, one of another."""
    folder = tmp_path_factory.mktemp("norfab")
    inventory = folder / "inventory.yaml"
    inventory.write_text(INVENTORY)
    (folder / "blue.yaml").write_text("colour: blue\n")
    shared = folder / "shared"
    shared.mkdir()
    (shared / "data.bin").write_bytes(FILE)
    if OWN_BROKER:
        own = OwnBroker(folder, inventory)
        with Fabric(own.endpoint, folder) as fabric:
            fabric.start(red=["red-1", "red-2"], blue=["blue-1"])
            yield fabric
        own.kill()
        return
    flags = ["--inventory", str(inventory), "--files", str(shared)]
    with BrokerProcess(*flags) as broker, Fabric(broker.endpoint, folder) as fabric:
        fabric.start(red=["red-1", "red-2"], blue=["blue-1"])
        yield fabric


def names(results: dict[str, Any]) -> list[str]:
    """Who answered, by the key of each result and by what the worker said itself."""
    for name, result in results.items():
        assert result["failed"] is False, result
        assert result["result"]["name"] == name
    return sorted(results)


# -- targets


def test_target_all_reaches_every_worker_of_the_service(fabric: Fabric) -> None:
    assert names(fabric.client.run("red", "whoami", "all")) == ["red-1", "red-2"]


def test_target_any_reaches_one_worker_and_all_get_their_share(fabric: Fabric) -> None:
    futures = [fabric.client.submit("red", "whoami", "any") for _ in range(20)]
    answered = Counter(name for future in futures for name in names(future.result(PATIENCE)))
    assert answered.total() == 20
    assert set(answered) == {"red-1", "red-2"}


@pytest.mark.parametrize("name", ["red-1", "red-2"])
def test_target_by_name_reaches_that_worker(fabric: Fabric, name: str) -> None:
    assert names(fabric.client.run("red", "whoami", name)) == [name]


def test_target_by_json_list_reaches_those_workers(fabric: Fabric) -> None:
    assert names(fabric.client.run("red", "whoami", ["red-2", "red-1"])) == ["red-1", "red-2"]
    assert names(fabric.client.run("red", "whoami", ["red-2"])) == ["red-2"]


@ours_only
def test_target_by_comma_list_reaches_those_workers(fabric: Fabric) -> None:
    """The specification's form; norfab's client sends any text as it is."""
    assert names(fabric.client.run("red", "whoami", "red-1,red-2")) == ["red-1", "red-2"]


def test_service_all_is_every_worker_of_every_service(fabric: Fabric) -> None:
    assert names(fabric.client.run("all", "whoami", "all")) == ["blue-1", "red-1", "red-2"]
    assert names(fabric.client.run("all", "whoami", ["blue-1", "red-2"])) == ["blue-1", "red-2"]
    assert names(fabric.client.run("all", "whoami", "blue-1")) == ["blue-1"]


# -- a job's life


def test_a_result_is_what_the_worker_made_of_the_task(fabric: Fabric) -> None:
    future = fabric.client.submit("blue", "whoami", "any", word="grüß")
    result = future.result(PATIENCE)["blue-1"]
    assert result["result"]["word"] == "grüß"
    assert (result["status"], result["service"], result["task"]) == ("completed", "blue", "blue-1:whoami")
    job = fabric.client.job(future.uuid)
    assert job["status"] == "COMPLETED"
    assert job["workers_dispatched"] == job["workers_completed"] == ["blue-1"]


def test_events_come_in_order_and_the_last_says_that_the_result_is_ready(fabric: Fabric) -> None:
    future = fabric.client.submit("red", "count", "all", steps=50)
    events = list(future.events(PATIENCE))
    for name in ("red-1", "red-2"):
        mine = [event for event in events if event["worker"] == name]
        assert [event["message"] for event in mine] == [
            "starting",
            *(f"step {step}" for step in range(50)),
            "completed",
        ]
        assert mine[-1]["event_type"] == "result_ready"
        assert {event["service"] for event in mine} == {"red"}
    assert {event["uuid"] for event in events} == {future.uuid}
    assert {name: result["result"] for name, result in future.result(PATIENCE).items()} == {
        "red-1": 50,
        "red-2": 50,
    }


def test_a_running_job_asks_and_is_answered_by_put(fabric: Fabric) -> None:
    future = fabric.client.submit("red", "question", "any", text="how many?")
    for event in future.events(PATIENCE):
        if event["event_type"] == "input_request":
            asked = event
            break
    assert asked["message"] == "how many?"
    future.send_response(asked["extras"]["input_request"]["id"], {"many": 42}, worker=asked["worker"])
    assert future.result(PATIENCE)[asked["worker"]]["result"] == {"many": 42}


def test_put_reaches_every_worker_that_has_the_job(fabric: Fabric) -> None:
    future = fabric.client.submit("red", "listen", "all", pieces=3)
    waiting = set()
    for event in future.events(PATIENCE):
        if event["message"] == "listening":
            waiting.add(event["worker"])
        if waiting == {"red-1", "red-2"}:
            break
    for number in range(3):
        client = fabric.client.norfab
        body = json.dumps({"piece": number}).encode()
        client.send_to_broker(b"0x10", b"red", b'["red-1","red-2"]', future.uuid.encode(), body)
    results = future.result(PATIENCE)
    pieces = [{"piece": number} for number in range(3)]
    assert {name: result["result"] for name, result in results.items()} == {"red-1": pieces, "red-2": pieces}


def test_a_tasks_error_is_its_result(fabric: Fabric) -> None:
    results = fabric.client.run("red", "fail", "all", text="no such luck")
    assert sorted(results) == ["red-1", "red-2"]
    for result in results.values():
        assert result["failed"] is True
        assert result["result"] is None
        assert "no such luck" in result["messages"][0]
        assert "RuntimeError: no such luck" in result["errors"][0]


def test_an_unknown_task_is_an_error_too(fabric: Fabric) -> None:
    assert fabric.client.run("blue", "dance", "any")["blue-1"]["failed"] is True


def test_results_of_5_mb(fabric: Fabric) -> None:
    results = fabric.client.run("red", "big", "all", size=5_000_000)
    assert {name: len(result["result"]) for name, result in results.items()} == {
        "red-1": 5_000_000,
        "red-2": 5_000_000,
    }


def test_200_jobs_at_once_run_once_each(fabric: Fabric) -> None:
    log = fabric.file("log")
    futures = [
        fabric.client.submit("red", "hold", "any", line=f"job{number}", log=str(log)) for number in range(200)
    ]
    for number, future in enumerate(futures):
        ((name, result),) = (future.result(PATIENCE) or {}).items()
        assert (result["result"]["line"], result["result"]["name"]) == (f"job{number}", name)
    ran = Counter(line.split()[0] for line in lines(log))
    assert ran == Counter({f"job{number}": 1 for number in range(200)})


# -- what is not there


def test_an_unknown_service_fails_when_its_time_is_up(fabric: Fabric) -> None:
    future = fabric.client.submit("nobody", "whoami", "any", timeout=1)
    results = future.result(PATIENCE) or {}
    assert all(result["failed"] for result in results.values())
    assert fabric.client.job(future.uuid)["status"] in ("FAILED", "STALE")  # STALE: its own clock was first


@ours_only
def test_an_unknown_service_is_408_on_the_wire(fabric: Fabric) -> None:
    with Raw(fabric.endpoint, b"by hand") as client:
        body = json.dumps({"task": "whoami", "kwargs": {}, "args": [], "timeout": 0.5}).encode()
        client.post(b"nobody", b"all", b"uuid-408", body)
        status, answer = client.status(b"uuid-408")
        assert (status, answer["status"], answer["service"]) == ("408", "FAILED", "nobody")


# -- management


def test_show_workers(fabric: Fabric) -> None:
    rows = fabric.client.mmi("show_workers")
    ours = {row["name"]: row for row in rows if row["name"] in ("red-1", "red-2", "blue-1")}
    assert {name: (row["service"], row["status"]) for name, row in ours.items()} == {
        "red-1": ("red", "alive"),
        "red-2": ("red", "alive"),
        "blue-1": ("blue", "alive"),
    }
    assert all(float(row["holdtime"]) > 0 for row in ours.values())
    assert all({"keepalives tx/rx", "alive (s)"} <= set(row) for row in ours.values())
    assert {row["name"] for row in fabric.client.mmi("show_workers", service="blue")} == {"blue-1"}
    dead = fabric.client.mmi("show_workers", status="dead")
    assert {row["name"] for row in dead}.isdisjoint(ours)


def test_get_stats_and_get_status(fabric: Fabric) -> None:
    stats = fabric.client.mmi("get_stats")
    assert stats["worker_count"] >= 3
    assert stats["service_count"] >= 2
    assert {"red-1", "red-2", "blue-1"} <= {row["name"] for row in stats["workers"]}
    status = fabric.client.mmi("get_status")
    assert (status["role"], status["status"]) == ("broker", "active")


def test_show_broker_version(fabric: Fabric) -> None:
    versions = fabric.client.mmi("show_broker_version")
    assert {"python", "platform"} <= set(versions)


def test_show_broker_inventory(fabric: Fabric) -> None:
    inventory = fabric.client.mmi("show_broker_inventory")
    assert set(inventory["workers"]) == {"red-*", "red-1", "blue-1"}


def test_get_logs(fabric: Fabric) -> None:
    assert isinstance(fabric.client.mmi("get_logs", last=5), list)
    assert len(fabric.client.mmi("get_logs", last=1)) <= 1


def test_an_unknown_management_task_is_answered(fabric: Fabric) -> None:
    assert fabric.client.norfab.mmi(MMI, "make_coffee", timeout=PATIENCE)["status"] != "408"


# -- inventory


def test_workers_start_with_the_inventory_that_matches_their_name(fabric: Fabric) -> None:
    found = {
        name: result["result"]
        for service in ("red", "blue")
        for name, result in fabric.client.run(service, "get_inventory", "all").items()
    }
    assert found == {
        "red-1": {"colour": "red", "tags": ["warm", "first"], "place": {"rack": 1}},
        "red-2": {"colour": "red", "tags": ["warm"]},
        "blue-1": {"colour": "blue"},
    }


def test_the_inventory_of_an_unknown_name_is_null(fabric: Fabric) -> None:
    assert fabric.client.mmi("get_inventory", SID, name="green-1") is None


# -- files


@ours_only
def test_fetch_file_brings_the_file_with_its_hash(fabric: Fabric) -> None:
    """Chunks by STREAM, credit by PUT, and no worker for it: the broker serves its folder in norfab's form."""
    answer = fabric.client.norfab.fetch_file("nf://data.bin", timeout=PATIENCE)
    assert answer["status"] == "200", answer
    fetched = Path(answer["content"])
    assert hashlib.md5(fetched.read_bytes()).hexdigest() == hashlib.md5(FILE).hexdigest()


@ours_only
def test_a_file_that_is_not_there_is_404(fabric: Fabric) -> None:
    assert fabric.client.norfab.fetch_file("nf://nothing.bin", timeout=PATIENCE)["status"] == "404"
    assert fabric.client.norfab.fetch_file("nf://../inventory.yaml", timeout=PATIENCE)["status"] != "200"


@ours_only
def test_listing_files_is_a_job_of_the_service_filesharing(fabric: Fabric) -> None:
    (listed,) = fabric.client.run("filesharing", "list_files", "any", url="nf://").values()
    assert listed["result"] == ["data.bin"]
    (walked,) = fabric.client.run("filesharing", "walk", "any", url="nf://").values()
    assert walked["result"] == ["nf://data.bin"]


# -- what must harm nobody


def test_keepalives_go_both_ways(fabric: Fabric) -> None:
    """Every norfab worker hears one each 2.5 s; it counts nothing else as a sign of life."""

    def heard() -> bool:
        stats = fabric.client.run("red", "get_stats", "all")
        return all(result["result"]["keepalives_received"] >= 1 for result in stats.values())

    until(heard)
