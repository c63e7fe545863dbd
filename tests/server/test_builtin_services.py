"""The broker's own services over real sockets, asked by an MDP client on pyzmq: inventory, files, administration."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from polydomo import __version__
from tests.support.broker import BrokerProcess, wait_for

DATA = os.urandom(700_000)
MMI, SID, FSS, SHARING = b"mmi.service.broker", b"sid.service.broker", b"fss.service.broker", b"filesharing"


class Context:
    """Context that closes all sockets at the end."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.sockets: list[zmq.Socket[bytes]] = []

    def dealer(self, endpoint: str) -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.DEALER)
        self.sockets.append(socket)
        socket.linger = 0
        socket.connect(endpoint)
        return socket

    def close(self) -> None:
        for socket in self.sockets:
            socket.close()
        self.context.term()


class Peer:
    """An MDP/0.2 peer."""

    def __init__(self, context: Context, endpoint: str) -> None:
        self.socket = context.dealer(endpoint)

    def send(self, service: bytes, task: str, /, **kwargs: Any) -> None:
        body = json.dumps({"task": task, "kwargs": kwargs}).encode()
        self.socket.send_multipart([b"MDPC02", b"\x01", service, body])

    def receive(self) -> tuple[bytes, list[bytes]]:
        """PARTIAL or FINAL, and the body."""
        assert self.socket.poll(10_000)
        frames = self.socket.recv_multipart()
        return frames[1], frames[3:]

    def ask(self, service: bytes, task: str, /, **kwargs: Any) -> Any:
        self.send(service, task, **kwargs)
        command, body = self.receive()
        assert command == b"\x03"
        return json.loads(body[0])

    def work(self, service: bytes) -> None:
        self.socket.send_multipart([b"MDPW02", b"\x01", service])


@pytest.fixture
def context() -> Iterator[Context]:
    context = Context()
    yield context
    context.close()


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Return the folder with the broker's configuration and files."""
    (tmp_path / "shared/sub").mkdir(parents=True)
    (tmp_path / "shared/data.bin").write_bytes(DATA)
    (tmp_path / "shared/evil").symlink_to("/etc/passwd")
    (tmp_path / "common.yaml").write_text('service: greet\nuser: "{{ env.USER_NAME }}"\n')
    (tmp_path / "inventory.yaml").write_text(
        "workers:\n  greet-*: [common.yaml]\n  greet-1:\n    - {port: '${PORT:-22}'}\n"
        "services:\n  greet: {resources: [r1, r2, r3]}\n"
    )
    return tmp_path


@pytest.fixture
def broker(server: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    monkeypatch.setenv("USER_NAME", "ann")
    flags = ["--inventory", str(server / "inventory.yaml"), "--files", str(server / "shared")]
    with BrokerProcess(*flags, "--set", "inventory.watch=200ms", "--heartbeat", "0.5") as broker:
        yield broker


@pytest.fixture
def peer(broker: BrokerProcess, context: Context) -> Peer:
    return Peer(context, broker.endpoint)


def test_inventory(peer: Peer, server: Path, broker: BrokerProcess) -> None:
    assert peer.ask(SID, "get_inventory", name="greet-1") == {"service": "greet", "user": "ann", "port": "22"}
    assert peer.ask(SID, "get_inventory", name="greet-2") == {"service": "greet", "user": "ann"}
    assert peer.ask(SID, "get_inventory", name="nobody") is None
    assert peer.ask(MMI, "show_broker_inventory")["services"] == {"greet": {"resources": ["r1", "r2", "r3"]}}
    (server / "common.yaml").write_text("service: farewell\n")
    wait_for(lambda: peer.ask(SID, "get_inventory", name="greet-2") == {"service": "farewell"})
    (server / "common.yaml").write_text("service: [\n")
    wait_for(lambda: "is not YAML" in broker.log())
    assert peer.ask(SID, "get_inventory", name="greet-2") == {"service": "farewell"}


def test_subscribers_hear_of_a_change(
    server: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker-PUB: topic `service.worker.event`."""
    monkeypatch.setenv("USER_NAME", "ann")
    flags = ["--inventory", str(server / "inventory.yaml"), "--events", "tcp://127.0.0.1:*"]
    with BrokerProcess(*flags) as broker:
        peer = Peer(context, broker.endpoint)
        subscriber = context.context.socket(zmq.SUB)
        context.sockets.append(subscriber)
        subscriber.linger = 0
        subscriber.subscribe(b"sid.service.broker.")
        subscriber.connect(json.loads((broker.data / "broker.json").read_text())["events"][0])
        wait_for(lambda: peer.ask(MMI, "show_broker")["events"]["subscribers"] == 1)
        (server / "common.yaml").write_text("service: farewell\n")
        peer.ask(SID, "reload")
        assert subscriber.poll(5000)
        topic, body = subscriber.recv_multipart()
        assert topic == b"sid.service.broker.*.inventory_changed"
        assert json.loads(body) == {"workers": []}


def test_sighup_reads_the_inventory_again(
    server: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER_NAME", "ann")
    flags = ["--inventory", str(server / "inventory.yaml"), "--set", "inventory.watch=0"]
    with BrokerProcess(*flags) as broker:
        peer = Peer(context, broker.endpoint)
        (server / "common.yaml").write_text("service: farewell\n")
        time.sleep(0.5)
        assert peer.ask(SID, "get_inventory", name="greet-2") == {"service": "greet", "user": "ann"}
        broker.signal(signal.SIGHUP)
        wait_for(lambda: peer.ask(SID, "get_inventory", name="greet-2") == {"service": "farewell"})


def test_a_broken_inventory_is_no_start(server: Path) -> None:
    with pytest.raises(RuntimeError, match="USER_NAME is not set"):
        BrokerProcess("--inventory", str(server / "inventory.yaml"))
    with pytest.raises(RuntimeError, match="it is no folder"):
        BrokerProcess("--files", str(server / "nothing"))


def test_files(peer: Peer) -> None:
    assert peer.ask(FSS, "list_files", url="nf://") == ["data.bin", "sub"]
    details = peer.ask(FSS, "file_details", url="nf://data.bin")
    assert details["sha256"] == hashlib.sha256(DATA).hexdigest()
    got = b""
    while len(got) < details["size_bytes"]:
        peer.send(FSS, "fetch_file", url="nf://data.bin", offset=len(got), etag=details["etag"])
        command, [head, data] = peer.receive()
        assert command == b"\x03"
        assert json.loads(head)["offset"] == len(got)
        got += data
    assert got == DATA
    for url in ("nf://evil", "nf://../inventory.yaml", "nf://sub/../../inventory.yaml"):
        assert "leads out" in peer.ask(FSS, "fetch_file", url=url)["error"]


def test_files_in_pieces(peer: Peer) -> None:
    peer.send(FSS, "fetch_file", url="nf://data.bin", credit=10)
    got = b""
    while True:
        command, body = peer.receive()
        if command == b"\x03":
            break
        got += body[0]
    assert got == DATA
    assert json.loads(body[0])["done"]


def test_many_chunks_at_once(peer: Peer) -> None:
    """The client's credit is how many requests it has under way; the answers may overtake each other."""
    offsets = list(range(0, len(DATA), 10_000))
    for offset in offsets:
        peer.send(FSS, "fetch_file", url="nf://data.bin", offset=offset, chunk_size=10_000)
    parts = {}
    for _ in offsets:
        _, [head, data] = peer.receive()
        parts[json.loads(head)["offset"]] = data
    assert b"".join(parts[offset] for offset in offsets) == DATA


def test_filesharing_answers_other_dialects_too(peer: Peer) -> None:
    details = peer.ask(SHARING, "file_details", url=["nf://data.bin"])
    assert details["nf://data.bin"]["result"]["md5hash"] == hashlib.md5(DATA).hexdigest()
    peer.send(SHARING, "fetch_file", url="nf://data.bin", chunk_size=1_000_000)
    command, body = peer.receive()
    assert (command, body) == (b"\x02", [DATA])
    assert peer.receive() == (b"\x03", [b"true"])
    [row] = peer.ask(MMI, "show_workers", service="filesharing")
    assert row["name"] == "filesharing-broker"


def test_administration(peer: Peer, broker: BrokerProcess, context: Context) -> None:
    assert peer.ask(MMI, "show_broker_version")["polydomo"] == __version__
    assert peer.ask(MMI, "get_stats")["process"]["uptime_seconds"] >= 0
    assert peer.ask(MMI, "get_status")["endpoints"] == [broker.endpoint]
    lines = peer.ask(MMI, "get_logs")
    assert any(line["message"] == "listening" for line in lines)
    worker = Peer(context, broker.endpoint)
    worker.work(b"greet")
    wait_for(lambda: len(peer.ask(MMI, "show_workers", service="greet")) == 1)
    wait_for(lambda: len(peer.ask(MMI, "show_resources", service="greet")[0]["resources"]) == 3)
    name = peer.ask(MMI, "show_workers", service="greet")[0]["name"]
    assert peer.ask(MMI, "disconnect", service="greet") == {"disconnected": [name]}
    while True:
        assert worker.socket.poll(5000)
        if worker.socket.recv_multipart()[1] == b"\x06":  # MDP DISCONNECT
            break
    assert peer.ask(MMI, "show_workers", service="greet") == []


def test_shutdown_answers_first(peer: Peer, broker: BrokerProcess) -> None:
    assert peer.ask(MMI, "shutdown") == {"name": "polydomo", "stopping": True}
    assert broker.process.wait(10) == 0
    assert "stop requested" in broker.log()


def test_restart_keeps_the_process_the_ports_and_the_folder(
    peer: Peer, broker: BrokerProcess, context: Context
) -> None:
    """And jobs that were running are finished first; peers come back by themselves."""
    worker = Peer(context, broker.endpoint)
    worker.work(b"slow")
    wait_for(lambda: peer.ask(MMI, "show_workers", service="slow"))
    client = Peer(context, broker.endpoint)
    client.send(b"slow", "anything")
    assert worker.socket.poll(5000)
    request = worker.socket.recv_multipart()
    while request[1] != b"\x02":
        request = worker.socket.recv_multipart()
    assert peer.ask(MMI, "restart") == {"name": "polydomo", "restarting": True}
    assert "stopping already" in peer.ask(MMI, "restart")["error"]
    time.sleep(0.2)
    worker.socket.send_multipart([b"MDPW02", b"\x04", request[2], b"", b"done"])
    assert client.receive() == (b"\x03", [b"done"])
    wait_for(lambda: broker.log().count('"listening"') == 2, 20)
    announced = json.loads((broker.data / "broker.json").read_text())
    assert (announced["pid"], announced["zmq"]) == (broker.pid, [broker.endpoint])
    again = Peer(context, broker.endpoint)
    assert again.ask(MMI, "show_broker")["done"] == 0
    assert again.ask(SID, "get_inventory", name="greet-2") == {"service": "greet", "user": "ann"}
    assert broker.stop() == 0
