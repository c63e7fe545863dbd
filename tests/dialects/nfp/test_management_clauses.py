"""NFP §BMMI, §WMMI, §SID, §FSS and the PUB sub-protocols, in the specification's own form with sockets that are not
ours."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support.broker import BrokerProcess, wait_for
from tests.support.nfp import (
    DISCONNECT,
    EVENT,
    GET,
    MMI,
    POST,
    RESPONSE,
    NfpClient,
    NfpReqClient,
    NfpWorker,
    new_uuid,
)
from tests.support.peers import Disconnected, Peer, Peers, Silence, peers_of

BROKER, WORKERS, SID, FSS = (
    b"mmi.service.broker",
    b"mmi.service.worker",
    b"sid.service.broker",
    b"fss.service.broker",
)
FORMS = pytest.mark.parametrize("command", [MMI, POST, GET], ids=["MMI", "POST", "GET"])


# §Broker Management Interface


@pytest.mark.clause("NFP-B-01")
@FORMS
@pytest.mark.parametrize("form", [NfpReqClient, NfpClient], ids=["REQ", "DEALER"])
def test_management_is_a_service_of_the_broker(peers: Peers, form: type, command: bytes):
    """§BMMI: `mmi.service.broker`, answered at once in the command it was asked with."""
    reply = peers(form).ask(command, BROKER, b"any", b"q1", b'{"task":"show_broker"}')
    assert (reply.command, reply.status) == (MMI if command == MMI else RESPONSE, b"200")
    assert reply.said["version"]


@pytest.mark.clause("NFP-B-01")
def test_management_is_there_for_clients_of_every_dialect(peers: Peers):
    """(ours) The same JSON from MDP and DCP."""
    peer = peers(Peer)
    peer.send(b"MDPC02", b"\x01", BROKER, b'{"task":"show_broker"}')
    assert json.loads(peer.recv()[3])["version"]
    peer.send(b"", b"DGBX\x01", b"\x04", BROKER, b"", b"", b'{"task":"show_broker"}')
    assert json.loads(peer.recv()[6])["version"]


@pytest.mark.clause("NFP-B-02")
def test_show_broker(peers: Peers):
    """§BMMI: status and statistics."""
    shown = peers(NfpReqClient).mmi("show_broker")
    assert {"name", "version", "uptime", "services", "workers", "clients", "active", "done", "failed"} <= set(
        shown
    )


@pytest.mark.clause("NFP-B-02")
def test_show_workers(peers: Peers, service: bytes):
    """§BMMI: workers' status and statistics."""
    peers(NfpWorker, service, opening={"name": "shown"}).fence()
    rows = peers(NfpReqClient).mmi("show_workers", service=service.decode())
    assert [(row["name"], row["dialect"]) for row in rows] == [("shown", "nfp/0.1")]


@pytest.mark.clause("NFP-B-02")
def test_show_clients(peers: Peers, service: bytes):
    """§BMMI: clients' statistics."""
    client = peers(NfpClient, identity=b"shown client")
    client.post(service, b"x")
    (row,) = [row for row in client.mmi("show_clients") if row["name"] == "shown client"]
    assert row["submitted"] == 1


@pytest.mark.clause("NFP-B-02")
def test_show_services(peers: Peers, service: bytes):
    """§BMMI: services' status and statistics."""
    client = peers(NfpReqClient)
    client.post(service, b"x")
    (row,) = [row for row in client.mmi("show_services") if row["name"] == service.decode()]
    assert (row["workers"], row["waiting"]) == (0, 1)


@pytest.mark.clause("NFP-B-02")
def test_disconnect(service: bytes):
    """§BMMI: all workers are sent away, and come back."""
    with BrokerProcess() as broker, peers_of(broker.endpoint) as peers:
        workers = [peers(NfpWorker, service, opening={"name": name}) for name in ("w1", "w2")]
        for worker in workers:
            worker.fence()
        client = peers(NfpReqClient)
        assert sorted(client.mmi("disconnect")["disconnected"]) == ["w1", "w2"]
        for worker in workers:
            assert worker.expect(DISCONNECT)[0] == service
        assert client.mmi("show_workers") == []
        again = peers(NfpWorker, service)
        client.post(service, b"x")
        assert again.take().body == [b"x"]


@pytest.mark.clause("NFP-B-02")
def test_restart(service: bytes):
    """§BMMI: the broker ends and begins anew on the same port; jobs that wait are kept."""
    with BrokerProcess() as broker, peers_of(broker.endpoint) as peers:
        client = peers(NfpClient)
        uuid = client.post(service, b"x")
        wait_for(lambda: client.mmi("show_broker")["uptime"] > 1)
        before = client.mmi("show_broker")["uptime"]
        assert client.mmi("restart")

        def restarted() -> bool:
            with NfpReqClient(broker.endpoint) as one:
                one.command(MMI, BROKER, b"any", b"q1", b'{"task":"show_broker"}')
                try:
                    return bool(one.reply(0.5).said["uptime"] < before)
                except Silence:
                    return False

        wait_for(restarted, 20)
        again, worker = peers(NfpReqClient), peers(NfpWorker, service)
        worker.reply(worker.take(), [b"kept"])
        assert again.result(service, uuid).body == [b"kept"]


@pytest.mark.clause("NFP-B-02")
def test_shutdown(service: bytes):
    """§BMMI: the broker ends; its workers are told."""
    with BrokerProcess() as broker, peers_of(broker.endpoint) as peers:
        worker = peers(NfpWorker, service)
        worker.fence()
        assert peers(NfpReqClient).mmi("shutdown")
        with pytest.raises(Disconnected):
            worker.take()
        assert broker.process.wait(15) == 0


@pytest.mark.clause("NFP-B-03")
@pytest.mark.parametrize(
    "task", ["get_stats", "get_status", "show_broker_version", "show_broker_inventory", "get_logs"]
)
def test_what_norfab_s_clients_ask(peers: Peers, task: str):
    """(ours) Tasks of norfab's own broker."""
    assert isinstance(peers(NfpReqClient).mmi(task), dict | list)


@pytest.mark.clause("NFP-B-03")
def test_an_unknown_task_is_answered(peers: Peers):
    """(ours) With its name."""
    reply = peers(NfpReqClient).ask(MMI, BROKER, b"any", b"q", b'{"task":"dance"}')
    assert reply.status == b"500"
    assert "dance" in reply.said["error"]


# §Worker Management Interface


@pytest.mark.clause("NFP-W-01")
@FORMS
def test_management_of_workers_is_a_service_endpoint(peers: Peers, service: bytes, command: bytes):
    """§WMMI: `mmi.service.worker` leads to the workers the target names, of whatever service."""
    one = peers(NfpWorker, service, opening={"name": "managed 1"})
    two = peers(NfpWorker, service + b" 2", opening={"name": "managed 2"})
    for worker in (one, two):
        worker.fence()
    client = peers(NfpReqClient)
    client.command(command, WORKERS, b"managed 1,managed 2", b"q1", b'{"task":"show_broker"}')
    for worker in (one, two):
        token, delimiter, uuid, body = worker.expect(MMI)
        assert (delimiter, uuid, body) == (b"", b"q1", b'{"task":"show_broker"}')
        worker.command(RESPONSE, token, b"", uuid, b"200", b'{"name":"broker"}')
    reply = client.reply()
    assert (reply.command, reply.status) == (MMI if command == MMI else RESPONSE, b"200")
    assert reply.said == {"managed 1": {"name": "broker"}, "managed 2": {"name": "broker"}}


@pytest.mark.clause("NFP-W-02")
@pytest.mark.parametrize(
    "task", ["show_broker", "show_workers", "show_clients", "restart", "shutdown", "disconnect"]
)
def test_its_functions_reach_a_worker_and_its_answer_the_client(peers: Peers, service: bytes, task: str):
    """§WMMI: each of the six."""
    worker, client = peers(NfpWorker, service, opening={"name": task}), peers(NfpReqClient)
    worker.fence()
    question = json.dumps({"task": task, "kwargs": {}, "args": []}).encode()
    client.command(MMI, WORKERS, task.encode(), b"q1", question)
    token, _, uuid, body = worker.expect(MMI)
    assert body == question
    worker.command(MMI, token, b"", uuid, b"200", json.dumps({"did": task}).encode())
    assert client.reply().said == {task: {"did": task}}


@pytest.mark.clause("NFP-W-03")
def test_a_worker_that_does_not_answer_is_named(peers: Peers, service: bytes):
    """(ours) After five seconds; one that never said OPEN is not asked at all."""
    silent, bare = peers(NfpWorker, service, opening={"name": "silent"}), peers(NfpWorker, identity=b"bare")
    silent.fence()
    bare.command(b"\x01", service)
    bare.fence()
    client = peers(NfpReqClient)
    client.command(MMI, WORKERS, b"silent,bare", b"q1", b'{"task":"show_broker"}')
    assert client.reply().said == {
        "silent": {"error": "does not answer"},
        "bare": {"error": "does not answer"},
    }
    assert bare.fence() == []


@pytest.mark.clause("NFP-W-03")
def test_a_worker_that_is_not_there_is_400(peers: Peers):
    """(ours) Nobody to ask."""
    assert peers(NfpReqClient).ask(MMI, WORKERS, b"nobody at all", b"q1", b"{}").status == b"400"


# §Broker Simple Inventory Datastore, §Broker File Sharing Service

DATA = os.urandom(600_000)


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an inventory, files and an events socket."""
    server: Path = tmp_path_factory.mktemp("house")
    (server / "shared").mkdir()
    (server / "shared/data.bin").write_bytes(DATA)
    (server / "common.yaml").write_text("service: greet\n")
    (server / "inventory.yaml").write_text(
        "workers:\n  greet-*: [common.yaml]\n  greet-1:\n    - {port: 22}\n"
        "services:\n  shared-out: {resources: [r1, r2, r3, r4, r5, r6, r7, r8]}\n"
    )
    flags = ["--inventory", str(server / "inventory.yaml"), "--files", str(server / "shared")]
    with BrokerProcess(*flags, "--events", "tcp://127.0.0.1:*") as process:
        yield process


@pytest.fixture
def furnished_peers(furnished: BrokerProcess) -> Iterator[Peers]:
    with peers_of(furnished.endpoint) as opened:
        yield opened


@pytest.mark.clause("NFP-I-01")
def test_get_inventory(furnished_peers: Peers):
    """§SID: a worker's inventory, by its name."""
    client = furnished_peers(NfpReqClient)
    assert client.mmi("get_inventory", at=SID, name="greet-1") == {"service": "greet", "port": 22}
    assert client.mmi("get_inventory", at=SID, name="greet-2") == {"service": "greet"}
    assert client.mmi("get_inventory", at=SID, name="nobody") is None


@pytest.mark.clause("NFP-I-02")
def test_resources_of_the_inventory_are_shared_out(furnished_peers: Peers):
    """(ours) `services: {name: {resources: […]}}`: each has one worker, which is told."""
    held: dict[str, list[str]] = {}
    workers = [furnished_peers(NfpWorker, b"shared-out", opening={"name": name}) for name in ("one", "two")]

    def told() -> bool:
        for name, worker in zip(("one", "two"), workers, strict=True):
            for _, _, command, *frames in worker.fence():
                assert command == MMI
                held[name] = json.loads(frames[3])["kwargs"]["resources"]
        shared = sorted(resource for some in held.values() for resource in some)
        return len(held) == 2 and shared == [f"r{n}" for n in range(1, 9)]

    wait_for(told)
    client = furnished_peers(NfpReqClient)
    for name, worker in zip(("one", "two"), workers, strict=True):
        for resource in held.get(name, []):
            uuid = client.post(b"shared-out", b"x", target=b"resource:" + resource.encode())
            worker.reply(worker.take(), [name.encode()])
            assert client.result(b"shared-out", uuid).body == [name.encode()]


def fetch(client: NfpReqClient, **kwargs: Any) -> list[bytes]:
    question = json.dumps({"task": "fetch_file", "kwargs": kwargs}).encode()
    reply = client.ask(GET, FSS, b"any", new_uuid(), question)
    assert reply.status == b"200", reply
    return reply.body


@pytest.mark.clause("NFP-X-01")
def test_files_in_chunks(furnished_peers: Peers):
    """§FSS: `nf://` URLs: listed, described, fetched piece by piece."""
    client = furnished_peers(NfpReqClient)
    assert client.mmi("list_files", at=FSS, url="nf://") == ["data.bin"]
    details = client.mmi("file_details", at=FSS, url="nf://data.bin")
    assert details["size_bytes"] == len(DATA)
    assert hashlib.sha256(DATA).hexdigest() in details.values()
    assert hashlib.md5(DATA).hexdigest() in details.values()
    received = b""
    while len(received) < len(DATA):
        received += fetch(client, url="nf://data.bin", offset=len(received))[1]
    assert received == DATA


# §NFP/Worker-PUB, §NFP/Broker-PUB


@pytest.mark.clause("NFP-E-01")
def test_workers_events_reach_subscribers(furnished: BrokerProcess, furnished_peers: Peers):
    """(ours) EVENT on the worker's DEALER, PUB at the broker: by topic `service.worker.event`."""
    endpoint = json.loads((furnished.data / "broker.json").read_text())["events"][0]
    subscriber = zmq.Context.instance().socket(zmq.SUB)
    try:
        subscriber.linger = 0
        subscriber.subscribe(b"talk.w1.")
        subscriber.connect(endpoint)
        worker, client = (
            furnished_peers(NfpWorker, b"talk", opening={"name": "w1"}),
            furnished_peers(NfpReqClient),
        )
        other = furnished_peers(NfpWorker, b"talk", opening={"name": "w2"})

        def heard() -> bool:
            other.command(EVENT, b"", b"", b"", b"200", b"hello", b"not for you")
            worker.command(EVENT, b"", b"", b"", b"200", b"hello", b"anybody?")
            return bool(subscriber.poll(50))

        wait_for(heard)
        uuid = client.post(b"talk", b"x", target=b"w1")
        task = worker.take()
        worker.command(EVENT, task.address, b"", uuid, b"200", b"step", b"1")
        topics = set()
        while b"talk.w1.step" not in topics:
            assert subscriber.poll(10_000)
            topics.add(subscriber.recv_multipart()[0])
        assert topics <= {b"talk.w1.hello", b"talk.w1.step"}
    finally:
        subscriber.close()
