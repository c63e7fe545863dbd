"""SIGTERM: no newcomers, the jobs that are here, goodbyes, and only then the end."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import (
    DcpPeer,
    Manager,
    Mdp01Worker,
    MdpClient,
    MdpWorker,
    Peers,
    Silence,
    TomoFormWorker,
    peers_of,
)
from tests.support.zmtp import Raw


@pytest.fixture
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess() as process:
        yield process


@pytest.fixture
def peers(server: BrokerProcess) -> Iterator[Peers]:
    with peers_of(server.endpoint) as opened:
        yield opened


def stopping(broker: BrokerProcess) -> bool:
    return '"stopping"' in broker.log() or "stopping" in broker.log()


def test_an_idle_broker_stops_at_once(server: BrokerProcess, peers: Peers):
    """Workers of every form hear DISCONNECT; those that cannot (DCP) hear nothing."""
    workers = [peers(form, b"svc") for form in (MdpWorker, TomoFormWorker, Mdp01Worker)]
    for worker in workers:
        worker.fence()
    peers(DcpPeer, b"svc")
    assert server.stop() == 0
    for worker in workers:
        assert worker.expect(worker.DISCONNECT) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_and_waiting_jobs_are_finished_first(
    server: BrokerProcess, peers: Peers, number: signal.Signals
):
    worker, client = peers(MdpWorker, b"svc"), peers(MdpClient)
    for n in range(3):
        client.request(b"svc", b"%d" % n)
    task = worker.take()
    client.fence()
    server.signal(number)
    wait_for(lambda: stopping(server))
    for n in range(3):
        if n:
            task = worker.take()
        worker.reply(task, task.body)
        assert client.answer(b"svc").final == [b"%d" % n]
    assert server.process.wait(15) == 0
    assert worker.expect(worker.DISCONNECT) == []


def test_new_requests_and_newcomers_are_refused_while_it_drains(server: BrokerProcess, peers: Peers):
    worker, client = peers(MdpWorker, b"svc"), peers(MdpClient)
    client.request(b"svc", b"old")
    task = worker.take()
    server.signal(signal.SIGTERM)
    wait_for(lambda: stopping(server))
    client.request(b"svc", b"new")
    with pytest.raises(ConnectionRefusedError), Raw(server.endpoint):
        pass
    worker.reply(task, [b"done"])
    assert client.answer(b"svc").final == [b"done"]
    assert server.process.wait(15) == 0
    with pytest.raises(Silence):
        client.recv(0.1)


def test_management_answers_while_it_drains(server: BrokerProcess, peers: Peers):
    """The log has the number of unfinished jobs."""
    worker, client, manager = peers(MdpWorker, b"svc"), peers(MdpClient), peers(Manager)
    client.request(b"svc", b"x")
    task = worker.take()
    assert manager.show("show_broker")["draining"] is False
    server.signal(signal.SIGTERM)
    wait_for(lambda: stopping(server))
    assert manager.show("show_broker")["draining"] is True
    worker.reply(task, [b"done"])
    assert server.process.wait(15) == 0


def test_jobs_nobody_can_do_do_not_hold_it_up(server: BrokerProcess, peers: Peers):
    client = peers(MdpClient)
    client.request(b"nobody offers this", b"x")
    client.fence()
    assert server.stop(5) == 0


def test_it_waits_no_longer_than_it_was_told():
    with (
        BrokerProcess(toml="[broker]\ndrain = 0.3") as broker,
        MdpWorker(broker.endpoint, b"svc") as worker,
        MdpClient(broker.endpoint) as client,
    ):
        client.request(b"svc", b"x")
        worker.take()
        assert broker.stop(5) == 0
        assert worker.expect(worker.DISCONNECT) == []


def test_a_second_signal_ends_the_waiting(server: BrokerProcess, peers: Peers):
    worker, client = peers(MdpWorker, b"svc"), peers(MdpClient)
    client.request(b"svc", b"x")
    worker.take()
    server.signal(signal.SIGTERM)
    wait_for(lambda: stopping(server))
    server.signal(signal.SIGTERM)
    assert server.process.wait(5) == 0


def test_a_peer_that_does_not_read_does_not_hold_it_up(server: BrokerProcess, peers: Peers):
    """Megabytes wait for it; it is given a second."""
    peers.echo(b"echo")
    with Raw(server.endpoint, receive_buffer=65536) as reading_paused:
        reading_paused.shake()
        body = bytes(8 * 1024 * 1024)
        reading_paused.send(
            b"\x01\x06MDPC02\x01\x01\x01\x01\x04echo\x02" + len(body).to_bytes(8, "big") + body
        )
        manager = peers(Manager)
        wait_for(lambda: any(row["done"] for row in manager.show("show_services")))
        assert server.stop(5) == 0


def test_an_ipc_socket_is_cleaned_up(tmp_path):
    path = tmp_path / "socket"
    with BrokerProcess(zmq=f"ipc://{path}") as broker:
        assert path.exists()
        assert broker.stop() == 0
    assert not path.exists()
