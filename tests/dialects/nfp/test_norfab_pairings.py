"""norfab's own client with workers of other dialects, and norfab's own worker with their clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.broker import BrokerProcess
from tests.support.norfab import PATIENCE, Fabric, until
from tests.support.peers import (
    DcpPeer,
    DcpPeer4,
    Mdp01Client,
    Mdp01Worker,
    MdpClient,
    MdpWorker,
    Peers,
    peers_of,
)

pytestmark = pytest.mark.peers

TASK = json.dumps({"task": "whoami", "kwargs": {"word": "hi"}, "args": [], "timeout": PATIENCE}).encode()


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """One norfab worker, alone on `red`."""
    with BrokerProcess() as broker, Fabric(broker.endpoint, tmp_path_factory.mktemp("norfab")) as fabric:
        fabric.start(red=["red-1"])
        yield fabric


@pytest.fixture
def peers(fabric: Fabric) -> Iterator[Peers]:
    with peers_of(fabric.endpoint) as peers:
        yield peers


def body_of(result: dict[str, Any]) -> Any:
    """What a worker that is not norfab's answered, in the words of norfab's results."""
    assert result["failed"] is False, result
    assert {"result", "errors", "messages", "task", "juuid", "service", "status"} <= set(result)
    return result["result"]


@pytest.mark.parametrize("form", [MdpWorker, Mdp01Worker, DcpPeer, DcpPeer4])
def test_norfabs_client_calls_workers_of_other_dialects(fabric: Fabric, peers: Peers, form: Any) -> None:
    service = f"echo-{form.__name__}"
    peers.echo(service.encode(), form)
    ((_, result),) = fabric.client.run(service, "whoami", "any", word="hi").items()
    assert (body_of(result)["task"], body_of(result)["kwargs"]) == ("whoami", {"word": "hi"})


@pytest.mark.parametrize("form", [MdpClient, Mdp01Client, DcpPeer, DcpPeer4])
def test_clients_of_other_dialects_call_norfabs_worker(fabric: Fabric, peers: Peers, form: Any) -> None:
    """They send norfab's task, and get norfab's result."""
    answer = peers(form).call(b"red", [TASK], PATIENCE)
    (result,) = [json.loads(part) for part in answer.final]
    assert (result["red-1"]["result"]["name"], result["red-1"]["result"]["word"]) == ("red-1", "hi")


def test_all_gathers_from_workers_of_three_dialects(fabric: Fabric, peers: Peers) -> None:
    peers.echo(b"red", MdpWorker, identity=b"mdp-1")
    peers.echo(b"red", DcpPeer, identity=b"dcp-1")
    until(lambda: len(fabric.client.mmi("show_workers", service="red")) == 3)
    results = fabric.client.run("red", "whoami", "all", word="hi")
    assert len(results) == 3
    assert results.pop("red-1")["result"]["word"] == "hi"
    assert [body_of(result)["kwargs"] for result in results.values()] == [{"word": "hi"}, {"word": "hi"}]
