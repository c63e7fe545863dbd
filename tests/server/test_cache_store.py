"""Memoised services on a real broker, with peers we did not write."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from polydomo.server.cache_store import service_of, space_of
from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import DcpPeer, Manager, MdpClient, MdpWorker, Serving, Task

TOML = """
[services.memo]
memo = true
[services."safe.*"]
memo = true
durable = true
[services.brief]
memo = true
memo_ttl = "1ms"
"""


class Counting(Serving):
    """Gives back what it got, and counts; the first answer waits until the test says so."""

    def __init__(self, endpoint: str, service: bytes, *, held: bool = False) -> None:
        self.seen: list[list[bytes]] = []
        self.go_on = threading.Event()
        if not held:
            self.go_on.set()
        super().__init__(lambda context: MdpWorker(endpoint, service, context=context), self.behave)

    def behave(self, worker: MdpWorker, task: Task) -> None:
        self.seen.append(task.body)
        assert self.go_on.wait(30)
        worker.reply(task, [b"answer %d to " % len(self.seen) + task.body[0]])


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml=TOML) as broker:
        yield broker


def memos(broker: BrokerProcess, service: str) -> dict[str, float]:
    with Manager(broker.endpoint) as manager:
        return next(row for row in manager.show("show_memos") if row["name"] == service)


@pytest.mark.parametrize("service", [b"memo", b"safe.one"])
def test_ten_thousand_identical_requests_at_once_run_once(broker: BrokerProcess, service: bytes) -> None:
    count, each = 20, 500
    clients = [MdpClient(broker.endpoint) for _ in range(count)]
    with Counting(broker.endpoint, service, held=True) as worker:
        for client in clients:
            for _ in range(each):
                client.request(service, b"same")
        waiting = count * each
        with Manager(broker.endpoint) as manager:
            wait_for(lambda: manager.show("show_broker")["active"] == waiting, 30)
        worker.go_on.set()
        for client in clients:
            for _ in range(each):
                assert client.answer(service, 30).final == [b"answer 1 to same"]
            client.close()
        assert worker.seen == [[b"same"]]
    shown = memos(broker, service.decode())
    assert (shown["misses"], shown["hits"] + shown["joined"]) == (1, waiting - 1)
    assert shown["saved_seconds"] > 0


@pytest.mark.parametrize("service", [b"memo", b"safe.one"])
def test_a_repeat_after_a_restart_runs_nothing(broker: BrokerProcess, service: bytes) -> None:
    with Counting(broker.endpoint, service), MdpClient(broker.endpoint) as client:
        first = client.call(service, [b"again"])
    broker.stop()
    broker.start_again()
    with MdpClient(broker.endpoint) as client, DcpPeer(broker.endpoint) as other:  # and no worker at all
        assert client.call(service, [b"again"]) == first
        assert other.call(service, [b"again"]) == first
    assert memos(broker, service.decode())["hits"] == 2


def test_forget_and_time(broker: BrokerProcess) -> None:
    with (
        Counting(broker.endpoint, b"memo") as worker,
        Counting(broker.endpoint, b"brief") as brief,
        MdpClient(broker.endpoint) as client,
        Manager(broker.endpoint) as manager,
    ):
        for expected in (1, 1):
            assert client.call(b"memo", [b"x"]).final == [b"answer %d to x" % expected]
        assert manager.show("forget_memos", name="memo", request="x") == {"name": "memo", "forgotten": 1}
        assert client.call(b"memo", [b"x"]).final == [b"answer 2 to x"]
        assert manager.show("forget_memos", name="memo")["forgotten"] == 1
        assert client.call(b"memo", [b"x"]).final == [b"answer 3 to x"]
        assert len(worker.seen) == 3
        client.call(b"brief", [b"x"])
        wait_for(lambda: client.call(b"brief", [b"x"]).final != [b"answer 1 to x"])
        assert len(brief.seen) > 1


def test_the_command_line(broker: BrokerProcess) -> None:
    def run(*words: str) -> str:
        url = broker.endpoint.replace("tcp:", "mdp:")
        command = [sys.executable, "-m", "polydomo", "memo", *words, "--url", url]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with Counting(broker.endpoint, b"memo"), MdpClient(broker.endpoint) as client:
        client.call(b"memo", [b"x"])
        client.call(b"memo", [b"x"])
    assert json.loads(run("show", "--json"))[0] | {"saved_seconds": 0} == {
        "name": "brief",
        "entries": 0,
        "bytes": 0,
        "hits": 0,
        "joined": 0,
        "misses": 0,
        "saved_seconds": 0,
    }
    assert "memo" in run("show", "--service", "memo")
    assert json.loads(run("forget", "memo", "x", "--json")) == {"name": "memo", "forgotten": 1}
    assert "0 results" in run("forget", "memo")


@pytest.mark.parametrize("name", [b"plain", b"any \0 \\0 \xff bytes"])
def test_each_service_has_a_space_of_its_own(name: bytes) -> None:
    assert service_of(space_of(name)) == name
