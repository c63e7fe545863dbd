"""Names of workers across dialects: a stranger takes neither a living worker's name nor the jobs that are targeted at
it; and an attempt over HTTP ends by its credential alone, also after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.attempts import guessed_paths, refuse_all
from tests.support.broker import BrokerProcess
from tests.support.nfp import DISCONNECT, READY, NfpClient, NfpWorker
from tests.support.peers import DcpPeer, MdpWorker, Peers, peers_of
from tests.support.wmp_peer import READY as WMP_READY
from tests.support.wmp_peer import frames
from tests.support.zmtp import Raw, greeting, ready
from tests.web.api.site import is_problem
from tests.web.desk import Desk, fresh

NAME = b"printer"


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    with BrokerProcess(http=True, toml="[zmq]\nprobe = 0.3") as broker:
        yield Desk(broker)


@pytest.fixture
def peers(desk: Desk) -> Iterator[Peers]:
    with peers_of(desk.broker.endpoint) as opened:
        yield opened


def refused_by_identity(desk: Desk, peers: Peers, service: bytes) -> None:
    """MDP, DCP, norfab's NFP and WMP: the name is the connection's identity."""
    with Raw(desk.broker.endpoint) as raw:
        raw.send(greeting() + ready(identity=NAME))
        assert "name-taken" in raw.refusal()


def refused_in_nfp(desk: Desk, peers: Peers, service: bytes) -> None:
    stranger = peers(NfpWorker)
    stranger.open(json.dumps({"name": NAME.decode()}).encode())
    stranger.command(READY, service)
    assert stranger.recv()[2:] == [DISCONNECT, service, b"name-taken: another worker has this name"]


def refused_over_http(desk: Desk, peers: Peers, service: bytes) -> None:
    answer = desk.ask_for(service.decode(), worker=NAME.decode())
    assert "name-taken" in is_problem(answer, 409, "conflict")["detail"]


def known_by_its_path_below_a_device(desk: Desk, peers: Peers, service: bytes) -> None:
    name = fresh("device")
    device = peers(MdpWorker, identity=name.encode())
    device.send(*frames(WMP_READY, {"roles": [service.decode()], "slots": 1}, source=(NAME,)))
    device.fence()
    assert f"{name}/printer" in desk.offered(service.decode())["worker_names"]


@pytest.mark.parametrize(
    "try_it", [refused_by_identity, refused_in_nfp, refused_over_http, known_by_its_path_below_a_device]
)
def test_nobody_takes_an_mdp_worker_s_name_or_its_targeted_jobs(
    desk: Desk, peers: Peers, try_it: Callable[..., None]
) -> None:
    service = fresh("print").encode()
    worker = peers(MdpWorker, service, identity=NAME)
    worker.fence()
    try_it(desk, peers, service)
    try_it(desk, peers, fresh("other").encode())  # not even at another service
    client = peers(NfpClient)
    uuid = client.post(service, b"secret", target=NAME)
    worker.reply(worker.take(), [b"printed"])
    assert client.result(service, uuid).body == [b"printed"]


def test_nobody_takes_an_http_worker_s_name(desk: Desk, peers: Peers) -> None:
    service = fresh("print")
    path = desk.job(service, b"first")
    attempt = desk.poll(service, worker="web printer")
    worker = peers(MdpWorker, service.encode(), identity=b"web printer")
    worker.expect(MdpWorker.DISCONNECT)
    worker.close()
    peer = peers(DcpPeer, identity=b"web printer")
    peer.register(service.encode())
    peer.ping()
    peer.expect(DcpPeer.RECONNECT)  # no echo: it is not registered
    attempt.answer(b"done")
    assert desk.result(path).body == b"done"


# Attempts over HTTP


def test_after_a_restart_an_attempt_is_still_its_worker_s_alone() -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(http=True, toml='[defaults]\ngrace = "60s"'))
        desk = Desk(broker)
        service = fresh()
        path = desk.job(service)
        attempt = desk.poll(service, worker="holder")
        desk.job(fresh())  # on disk after what was written before, as the attempt
        broker.kill()
        broker.start_again()
        desk = Desk(broker)
        refuse_all(desk, guessed_paths(attempt.path, 100))
        # The right token, from workers of another name in other dialects.
        token = attempt.path.rpartition("/")[2].partition(".")[0].encode()
        with peers_of(broker.endpoint) as peers:
            stranger = peers(MdpWorker, service.encode(), identity=b"stranger")
            stranger.command(MdpWorker.FINAL, token, b"", b"forged")
            stranger.expect(MdpWorker.DISCONNECT)
        assert desk.state(path) != "done"
        assert desk.site.ask("PUT", f"{attempt.path}/result", b"right").status == 204
        assert desk.result(path).body == b"right"
