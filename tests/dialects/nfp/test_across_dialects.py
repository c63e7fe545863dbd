"""NFP clients call MDP and DCP workers and the other way round; a job for all reaches workers of every dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest
import zmq

from tests.support.broker import wait_for
from tests.support.nfp import NfpClient, NfpReqClient, NfpWorker
from tests.support.peers import (
    Answer,
    DcpPeer,
    DcpPeer4,
    Mdp01Client,
    Mdp01Worker,
    MdpClient,
    MdpReqClient,
    MdpWorker,
    Peer,
    Peers,
    Serving,
    Task,
    TomoClient,
    TomoWorker,
)

WORKERS = {
    "mdp02": MdpWorker,
    "mdp01": Mdp01Worker,
    "majortomo": TomoWorker,
    "dcp1": DcpPeer,
    "dcp4": DcpPeer4,
}
CLIENTS = {
    "mdp02": MdpClient,
    "mdp02-req": MdpReqClient,
    "mdp01": Mdp01Client,
    "majortomo": TomoClient,
    "dcp1": DcpPeer,
    "dcp4": DcpPeer4,
}
BODIES = [[b""], [b"hello"], [b"%d" % n * 30 * n for n in range(19)] + [b""], [b"\0\xff", b"NFPC01", b"\x04"]]
TASK = b'{"task":"echo","kwargs":{"text":"hi"},"args":[]}'


class NorfabFormWorker(Peer):
    """As norfab's worker: 201, an event, `result_ready`, and the result when it is asked for."""

    def __init__(
        self, endpoint: str, service: bytes, name: bytes, context: zmq.Context | None = None
    ) -> None:
        super().__init__(endpoint, identity=name, context=context)
        self.name = name.decode()
        self.service = service
        self.send(b"", b"NFPW01", b"0x01", service)

    def take(self, timeout: float) -> Task:
        while True:
            try:
                _, _, command, *frames = self.recv(1.0)
            except AssertionError:
                self.send(b"", b"NFPW01", b"0x02", self.service)
                continue
            if command in (b"0x04", b"0x06"):
                return Task(frames[0], frames[3:], command, (frames[2],))

    def reply(self, task: Task, body: list[bytes]) -> None:
        uuid = task.metadata[0]
        head = [b"", b"NFPW01", b"0x05", task.address, b"", uuid]
        if task.service == b"0x06":
            result = {self.name: {"result": "done", "failed": False, "juuid": uuid.decode()}}
            self.send(*head, b"200", json.dumps(result, separators=(",", ":")).encode())
            return
        self.send(*head, b"201", b'{"worker":"%b"}' % self.name.encode())
        event = {"worker": self.name, "uuid": uuid.decode(), "event_type": "result_ready"}
        self.send(b"", b"NFPW01", b"0x08", task.address, b"", uuid, b"200", json.dumps(event).encode())


def serve(peers: Peers, form: Any, service: bytes, *args: Any, **more: Any) -> Serving:
    serving = Serving(lambda context: form(peers.endpoint, service, *args, context=context, **more))
    peers.open.append(serving)
    return serving


def names_at(client: NfpClient, service: bytes) -> set[str]:
    return {row["name"] for row in client.mmi("show_workers", service=service.decode())}


@pytest.mark.parametrize("client", [NfpReqClient, NfpClient], ids=["REQ", "DEALER"])
@pytest.mark.parametrize("worker", WORKERS)
def test_an_nfp_client_calls_any_worker(peers: Peers, service: bytes, client: Any, worker: str):
    serve(peers, WORKERS[worker], service)
    caller = peers(client)
    for body in BODIES:
        assert caller.call(service, body) == Answer([], body)


@pytest.mark.parametrize("client", CLIENTS)
def test_any_client_calls_an_nfp_worker(peers: Peers, service: bytes, client: str):
    serve(peers, NfpWorker, service)
    caller = peers(CLIENTS[client])
    for body in BODIES:
        assert caller.call(service, body) == Answer([], body)


@pytest.mark.parametrize("client", CLIENTS)
def test_any_client_calls_a_norfab_worker_with_its_own_json(peers: Peers, service: bytes, client: str):
    """And what is not norfab's JSON never reaches the worker."""
    serve(peers, NorfabFormWorker, service, b"norfab for " + client.encode())
    caller = peers(CLIENTS[client])
    result = json.loads(caller.call(service, [TASK]).final[0])
    assert result[f"norfab for {client}"]["result"] == "done"
    refusal = json.loads(caller.call(service, [b"not json"]).final[0])
    assert "JSON object" in refusal["message"]


def test_partials_of_an_mdp_worker_are_pieces_for_those_who_asked(peers: Peers, service: bytes):
    def behave(worker: MdpWorker, task: Task) -> None:
        worker.partial(task, [b"half", b""])
        worker.reply(task, [b"whole"])

    serving = Serving(lambda context: MdpWorker(peers.endpoint, service, context=context), behave)
    peers.open.append(serving)
    client = peers(NfpClient)
    client.open(b'{"push":true}')
    client.post(service, b"x")
    piece, end = client.reply(), client.reply()
    assert (piece.command, piece.body[1:]) == (b"\x09", [b"half", b""])
    assert end.body == [b"whole"]


def test_pieces_of_an_nfp_worker_are_partials_for_mdp(peers: Peers, service: bytes):
    def behave(worker: NfpWorker, task: Task) -> None:
        worker.partial(task, [b"half", b""])
        worker.reply(task, [b"whole"])

    serving = Serving(lambda context: NfpWorker(peers.endpoint, service, context=context), behave)
    peers.open.append(serving)
    assert peers(MdpClient).call(service, [b"x"]) == Answer([[b"half", b""]], [b"whole"])


def test_all_gathers_from_workers_of_three_dialects(peers: Peers, service: bytes):
    """One job, five workers that never heard of each other's protocol."""
    serve(peers, MdpWorker, service, identity=b"of mdp")
    serve(peers, Mdp01Worker, service, identity=b"of mdp 0.1")
    serve(peers, DcpPeer, service, identity=b"of dcp")
    serve(peers, NfpWorker, service, identity=b"of nfp")
    serve(peers, NorfabFormWorker, service, b"of norfab")
    client = peers(NfpReqClient)
    names = {"of mdp", "of mdp 0.1", "of dcp", "of nfp", "of norfab"}
    wait_for(lambda: names_at(client, service) == names)
    uuid = client.post(service, TASK, target=b"all")
    result = client.result(service, uuid).said
    assert result.pop("of norfab")["result"] == "done"
    assert result == dict.fromkeys(names - {"of norfab"}, json.loads(TASK))


def test_all_for_norfab_s_clients(peers: Peers, service: bytes):
    """The same seen by norfab: a 202 that names them all, then a result of its own shape from each."""
    serve(peers, MdpWorker, service, identity=b"of mdp")
    serve(peers, DcpPeer, service, identity=b"of dcp")
    serve(peers, NorfabFormWorker, service, b"of norfab")
    asker = peers(NfpReqClient)
    wait_for(lambda: len(names_at(asker, service)) == 3)
    client = peers(Peer)
    client.send(b"", b"NFPC01", b"0x04", service, b"all", b"u1", TASK)
    first = client.recv()
    assert (first[2], first[5]) == (b"0x05", b"202")
    assert sorted(json.loads(first[6])["workers"]) == ["of dcp", "of mdp", "of norfab"]
    results: dict[str, Any] = {}
    while len(results) < 3:
        message = client.recv()
        if message[2] == b"0x05" and message[5] == b"200":
            results |= json.loads(message[6])
    assert [results[name]["failed"] for name in sorted(results)] == [False] * 3
    assert results["of mdp"]["result"] == json.loads(TASK)


def test_a_named_worker_of_another_dialect(peers: Peers, service: bytes):
    serve(peers, MdpWorker, service, identity=b"wanted")
    serve(peers, DcpPeer, service, identity=b"unwanted")
    client = peers(NfpReqClient)
    uuid = client.post(service, b"x", target=b"wanted")
    assert client.result(service, uuid).body == [b"x"]


def test_64_mib_go_there_and_back(peers: Peers, service: bytes):
    serve(peers, NfpWorker, service)
    body = [bytes(range(256)) * (64 * 1024 * 1024 // 256)]
    assert peers(MdpClient).call(service, body, 60).final == body
    assert peers(NfpReqClient).call(service, body, 60).final == body
