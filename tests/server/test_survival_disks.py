"""The disk under the store fills up, or turns read-only: new durable jobs are refused with the reason, jobs in memory
go on, results wait for better times, and nothing needs a restart."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.store.disks import FragileDisk, small_disk
from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import Answer, Manager, MdpClient, Peers, peers_of
from tests.support.survivors import Alone, Client, Sockets, Worker, alone, until

TOML = """
[heartbeat]
interval = 0.5
[services.safe]
timeout = 60
"""


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


class Scene:
    """A broker whose store is on a disk that fails, with one job in a worker's hands."""

    def __init__(self, broker: BrokerProcess, sockets: Sockets, holder: Alone, peers: Peers) -> None:
        self.broker = broker
        self.client = Client(sockets, broker.endpoint, b"client", 1)
        self.holder = holder
        self.peers = peers
        peers.echo(b"volatile")
        self.client.post(b"early")
        assert holder.heard() == "early"
        assert until([], [self.client], lambda: b"early" in self.client.acknowledged, 10)

    def submit(self, name: bytes, size: int = 0) -> bool:
        """Was it acknowledged, or refused?"""
        client = self.client
        client.posted[name] = float("inf")
        client.send(b"\x04", b"any", name, b'{"body":"%b"}' % (b"x" * size))
        assert until([], [client], lambda: name in client.acknowledged or name in client.refused, 20), (
            self.broker.log()
        )
        return name in client.acknowledged

    def refusal(self, name: bytes) -> dict[str, str]:
        status, _, text = self.client.refused[name].partition(b" ")
        assert status == b"500"
        told: dict[str, str] = json.loads(text)
        return told

    def memory_goes_on(self) -> None:
        assert self.peers(MdpClient).call(b"volatile", [b"x"]) == Answer([], [b"x"])

    def trouble(self) -> str:
        with Manager(self.broker.endpoint) as manager:
            told: str = manager.show("show_broker")["store"]["trouble"]
            return told


def play(
    broker: BrokerProcess,
    sockets: Sockets,
    peers: Peers,
    fail: Callable[[Scene], None],
    words: str,
    repair: Callable[[], None],
) -> None:
    with alone("worker", broker.endpoint, "holder") as holder:
        scene = Scene(broker, sockets, holder, peers)
        client = scene.client
        fail(scene)
        # Refused with the reason, and at once.
        assert not scene.submit(b"refused", 50_000)
        told = scene.refusal(b"refused")
        assert told["reason"] == "store"
        assert words in told["error"]
        assert words in scene.trouble()
        assert broker.log().count("store in trouble") == 1
        scene.memory_goes_on()
        # The running job ends now: its result cannot be recorded, so its client gets no answer yet.
        holder.go_on()
        assert holder.heard() == "answered"
        assert not until([], [client], lambda: b"early" in client.results, 1.5)
        scene.memory_goes_on()
        repair()
        assert until([], [client], lambda: b"early" in client.results, 20), broker.log()
        assert client.results[b"early"] == b"early by holder"
        wait_for(lambda: not scene.trouble(), 20)
        assert "store recovered" in broker.log()
        assert scene.submit(b"later")
        holder.close()
    worker = Worker(sockets, broker.endpoint, b"worker")
    assert until([worker], [client], lambda: b"later" in client.results, 20)
    # What was refused is really not there.
    assert set(worker.ran) == client.acknowledged - {b"early"}


def test_a_full_disk(tmp_path: Path, sockets: Sockets) -> None:
    with (
        small_disk(tmp_path / "small", "4m") as disk,
        BrokerProcess("--set", f"store.url=sqlite:///{disk}/jobs.db", toml=TOML) as broker,
        peers_of(broker.endpoint) as peers,
    ):
        filler = disk / "filler"

        def fill(scene: Scene) -> None:
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass

        def make_space() -> None:
            subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)

        play(broker, sockets, peers, fill, "full", make_space)


def test_a_disk_that_turns_read_only(tmp_path: Path, sockets: Sockets) -> None:
    disk = FragileDisk(tmp_path)
    try:
        with (
            BrokerProcess("--set", f"store.url=sqlite:///{disk.folder}/jobs.db", toml=TOML) as broker,
            peers_of(broker.endpoint) as peers,
        ):
            play(broker, sockets, peers, lambda scene: disk.fail(), "read-only", disk.repair)
    finally:
        disk.unmount()
