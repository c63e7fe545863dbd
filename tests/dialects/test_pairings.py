"""Any client calls any worker: every form of MDP and DCP that people run, with peers we did not write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.peers import (
    Answer,
    DcpPeer,
    DcpPeer4,
    Mdp01Client,
    Mdp01DealerClient,
    Mdp01Worker,
    MdpClient,
    MdpReqClient,
    MdpWorker,
    Peers,
    Serving,
    Task,
    TomoClient,
    TomoWorker,
)

CLIENTS = {
    "mdp02": MdpClient,
    "mdp02-req": MdpReqClient,
    "mdp01-req": Mdp01Client,
    "mdp01-dealer": Mdp01DealerClient,
    "majortomo": TomoClient,
    "dcp1": DcpPeer,
    "dcp4": DcpPeer4,
}
WORKERS = {
    "mdp02": MdpWorker,
    "mdp01": Mdp01Worker,
    "majortomo": TomoWorker,
    "dcp1": DcpPeer,
    "dcp4": DcpPeer4,
}
HUGE = 64 * 1024 * 1024

# Bodies that every dialect can say. Empty frames inside and at the end are frames like any other.
BODIES = {
    "one-empty-frame": [b""],
    "one-frame": [b"hello"],
    "twenty-frames": [b"%d" % n * 30 * n for n in range(19)] + [b""],
    "long-frame": [bytes(range(256)) * 40],
    "any-bytes": [b"\0\xff", b"MDPC02", b"\x01", b"", b"DGBX\x01"],
}

# 64 MiB, both ways: each form of client and each form of worker. A body passes untouched between any two of them, so
# what one of either does with it is what all do.
HEAVY = [
    *((client, "mdp02") for client in CLIENTS),
    *(("mdp02", worker) for worker in WORKERS if worker != "mdp02"),
]


def behave(worker: Any, task: Task) -> None:
    """Echo; for b"partials" three of them first, where the worker's protocol has them."""
    if task.body == [b"partials"] and not isinstance(worker, DcpPeer | Mdp01Worker):
        for n in range(3):
            worker.partial(task, [b"part %d" % n, b""])
    worker.reply(task, task.body)


@pytest.fixture(scope="module")
def workers(calm: Any) -> Iterator[dict[str, Serving]]:
    """One of each form, each at a service of its own name."""

    def serve(name: str, form: Any) -> Serving:
        return Serving(lambda context: form(calm.endpoint, name.encode(), context=context), behave)

    serving = {name: serve(name, form) for name, form in WORKERS.items()}
    yield serving
    for one in serving.values():
        one.stop()


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, peers: Peers, workers: dict[str, Serving]) -> Any:
    return peers(CLIENTS[request.param])


@pytest.mark.parametrize("worker", list(WORKERS))
def test_any_client_calls_any_worker(client: Any, worker: str):
    for body in BODIES.values():
        assert client.call(worker.encode(), body) == Answer([], body)


@pytest.mark.parametrize(("client_form", "worker"), HEAVY)
def test_64_mib_go_there_and_back(peers: Peers, workers: dict[str, Serving], client_form: str, worker: str):
    body = [bytes(range(256)) * (HUGE // 256)]
    answer = peers(CLIENTS[client_form]).call(worker.encode(), body, 60)
    assert answer.final == body


@pytest.mark.parametrize("worker", list(WORKERS))
def test_partials_reach_those_who_can_hear_them(request: Any, client: Any, worker: str):
    """README §One job model: partials reach an MDP/0.2 client as PARTIAL in order; others get only the final answer."""
    sends = worker in ("mdp02", "majortomo")
    hears = isinstance(client, MdpClient | TomoClient)
    partials = [[b"part %d" % n, b""] for n in range(3)] if sends and hears else []
    assert client.call(worker.encode(), [b"partials"]) == Answer(partials, [b"partials"])
    assert client.call(worker.encode(), [b"next"]) == Answer([], [b"next"])


@pytest.mark.parametrize("worker", ["dcp1", "dcp4"])
@pytest.mark.parametrize("client_form", ["dcp1", "dcp4"])
def test_no_body_frame_at_all_between_dcp_peers(
    peers: Peers, workers: dict[str, Serving], client_form: str, worker: str
):
    """DCP §Requests & Replies: data may have as many parts as one likes: none, too."""
    client = peers(CLIENTS[client_form])
    assert client.call(worker.encode(), []) == Answer([], [])


@pytest.mark.parametrize("worker", ["mdp02", "mdp01", "majortomo"])
def test_no_body_frame_becomes_an_empty_one_for_mdp_workers(
    peers: Peers, workers: dict[str, Serving], worker: str
):
    """RFC 18: a REQUEST has at least one body frame."""
    assert peers(DcpPeer).call(worker.encode(), []) == Answer([], [b""])


@pytest.mark.parametrize("client_form", ["mdp02", "mdp01-req", "majortomo"])
def test_a_reply_without_data_becomes_an_empty_frame_for_mdp_clients(
    peers: Peers, service: bytes, client_form: str
):
    """RFC 18: a FINAL has at least one body frame."""
    make = lambda context: DcpPeer(peers.endpoint, service, context=context)  # noqa: E731
    with Serving(make, lambda worker, task: worker.reply(task, [])):
        assert peers(CLIENTS[client_form]).call(service, [b"x"]) == Answer([], [b""])
