"""DagBox DCP v1, what it asks of a broker: architecture, message format, connection. Requests and replies are in
test_request_clauses.py, heartbeats in test_heartbeat_clauses.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import DcpPeer, DcpPeer4, Manager, Peer, Peers
from tests.support.zmtp import Raw, greeting, message, ready

HEAD = [b"", b"DGBX\x01"]
WIDTHS = [DcpPeer, DcpPeer4]


@pytest.mark.clause("DCP-A-01")
def test_there_is_only_one_broker_at_a_place(calm: BrokerProcess):
    """§Architecture: there MUST be one broker: a second one does not start there."""
    command = [sys.executable, "-m", "polydomo", "broker", "--zmq", calm.endpoint]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert second.returncode != 0
    assert "cannot listen" in second.stderr + second.stdout


@pytest.mark.clause("DCP-A-02")
@pytest.mark.clause("DCP-A-03")
def test_components_speak_over_zeromq_and_a_client_may_become_a_worker(peers: Peers, service: bytes):
    """§Architecture: everybody SHALL speak over ØMQ; a client MAY register, and is a worker then."""
    peer, other = peers(DcpPeer), peers(DcpPeer)
    assert peer.call(b"mmi.service", [service]).final == [b"404"]
    peer.register(service)
    assert peer.expect(peer.REGISTER) == [service]
    assert peer.call(b"mmi.service", [service]).final == [b"200"]
    other.request(service, b"x")
    peer.reply(peer.take(), [b"y"])
    assert other.answer().body == [b"y"]


@pytest.mark.clause("DCP-A-04")
def test_workers_send_requests_of_their_own_while_they_hold_one(peers: Peers, service: bytes):
    """§Architecture: a worker has requests of its own, too."""
    peers.echo(service + b" helper", DcpPeer)
    worker, client = peers(DcpPeer, service), peers(DcpPeer)
    client.request(service, b"x", metadata=[b"from the client"])
    task = worker.take()
    assert worker.call(service + b" helper", [b"help"]).final == [b"help"]
    worker.reply(task, [b"with help"])
    answer = client.answer()
    assert (answer.body, answer.metadata) == ([b"with help"], (b"from the client",))


@pytest.mark.clause("DCP-A-05")
def test_requests_are_queued_and_served_as_workers_become_available(peers: Peers, service: bytes):
    """§Architecture: requests SHOULD wait until a worker is free; also those of a service never registered, which
    DagBox drops."""
    client = peers(DcpPeer)
    for n in range(10):
        client.request(service, b"%d" % n)
    client.fence()
    peers.echo(service, DcpPeer)
    assert [client.answer().body for _ in range(10)] == [[b"%d" % n] for n in range(10)]


@pytest.mark.clause("DCP-A-06")
def test_queued_requests_expire_after_a_configurable_time(brisk_peers: Peers, brisk_manager: Manager):
    """§Architecture: nobody is REQUIRED to keep requests for ever."""
    client = brisk_peers(DcpPeer)
    client.request(b"hasty.dcp", b"x")
    client.fence()
    wait_for(lambda: brisk_manager.show("show_jobs", service="hasty.dcp", state="failed"))
    worker = brisk_peers(DcpPeer, b"hasty.dcp")
    assert worker.fence() == []
    assert client.fence() == []


@pytest.mark.clause("DCP-M-01")
def test_messages_reach_the_component_they_are_for(peers: Peers, service: bytes):
    """§Message Format: the broker MUST address each message to its receiver."""
    clients, workers = [peers(DcpPeer) for _ in range(5)], [peers(DcpPeer, service) for _ in range(5)]
    for n, client in enumerate(clients):
        client.request(service, b"%d" % n)
    for worker in reversed(workers):
        task = worker.take()
        worker.reply(task, task.body)
    assert [client.answer().body for client in clients] == [[b"%d" % n] for n in range(5)]


@pytest.mark.clause("DCP-M-02")
@pytest.mark.parametrize(
    "head",
    [
        [b"DGBX\x01"],
        [b"x", b"DGBX\x01"],
        [b"", b"", b"DGBX\x01"],
        [b"", b"DGBX"],
        [b"", b"DGBX\x00"],
        [b"", b"DGBX\x02"],
        [b"", b"dgbx\x01"],
        [b"", b"DGBX\x01\x00"],
    ],
    ids=lambda head: repr(head),
)
def test_the_header_is_a_delimiter_and_the_protocol(
    peers: Peers, manager: Manager, service: bytes, head: list[bytes]
):
    """§Message Format: an empty part, then `DGBX` and the version in one byte. Anything else is dropped."""
    peer = peers(Peer)
    peer.send(*head, b"\x01", service)
    assert peer.fence() == []
    assert not manager.offered(service)


@pytest.mark.clause("DCP-M-03")
@pytest.mark.parametrize(
    "kind", [b"", b"\x01\x00", b"\x01\x00\x00", b"\x01" + bytes(4), b"\x01" + bytes(7)], ids=repr
)
def test_the_type_is_one_byte(peers: Peers, manager: Manager, service: bytes, kind: bytes):
    """§Message Format: the type is one byte. DagBox's own four are understood too, no other width is."""
    peer = peers(Peer)
    peer.send(*HEAD, kind, service)
    assert peer.fence() == []
    assert not manager.offered(service)


@pytest.mark.clause("DCP-M-03")
@pytest.mark.parametrize(("width", "other"), [(1, 4), (4, 1)])
def test_each_peer_is_answered_in_the_width_it_used(peers: Peers, service: bytes, width: int, other: int):
    """§Message Format: "Message Type"; DagBox's worker aborts on the other width."""
    worker, client = peers(Peer), peers(Peer)

    def kind(number: int, size: int) -> bytes:
        return number.to_bytes(size, "little")

    worker.send(*HEAD, kind(1, width), service)
    assert worker.recv() == [*HEAD, kind(1, width), service]
    client.send(*HEAD, kind(4, other), service, b"", b"meta", b"", b"data")
    [*head, name, address, delimiter, meta, end, data] = worker.recv()
    assert head == [*HEAD, kind(4, width)]
    assert (name, delimiter, meta, end, data) == (service, b"", b"meta", b"", b"data")
    worker.send(*HEAD, kind(5, width), address, b"", meta, b"", b"result")
    [*head, _, delimiter, meta, end, data] = client.recv()
    assert head == [*HEAD, kind(5, other)]
    assert (delimiter, meta, end, data) == (b"", b"meta", b"", b"result")


@pytest.mark.clause("DCP-C-01")
def test_connections_are_accepted_on_a_router(calm: BrokerProcess):
    """§Connection: the broker MUST have a ROUTER, all others a DEALER."""
    with Raw(calm.endpoint) as raw:
        raw.send(greeting() + ready(b"DEALER"))
        raw.read(64)
        assert b"\x0bSocket-Type\0\0\0\x06ROUTER" in raw.command()[1]
        raw.send(message(b"", b"DGBX\x01", b"\x02"))
        assert raw.message() == [b"", b"DGBX\x01", b"\x06"]


@pytest.mark.clause("DCP-C-02")
def test_several_sockets_and_transports(tmp_path):
    """§Connection: it MAY have several sockets, of any transport."""
    with BrokerProcess("--zmq", f"ipc://{tmp_path}/dcp") as broker:
        front, back = broker.endpoints
        with DcpPeer(back, b"echo") as worker, DcpPeer(front) as client:
            client.request(b"echo", b"x")
            task = worker.take()
            worker.reply(task, task.body)
            assert client.answer().body == [b"x"]


@pytest.mark.clause("DCP-C-03")
def test_who_has_not_registered_is_given_no_work(peers: Peers, service: bytes):
    """§Connection: workers MUST register their service."""
    peer, client = peers(DcpPeer), peers(DcpPeer)
    peer.fence()
    client.request(service, b"x")
    client.fence()
    assert peer.fence() == []


@pytest.mark.clause("DCP-C-04")
@pytest.mark.parametrize(
    "name", [b"a", b"with space", b"\0", b"\0\x01\xff\n", "π".encode(), b"x" * 255, b"DGBX\x01"]
)
def test_a_service_name_may_contain_any_character(peers: Peers, name: bytes):
    """§Connection: a name is bytes, any of them. (Bounded here: 1 to 255 bytes.)"""
    worker, client = peers(DcpPeer, name), peers(DcpPeer)
    client.request(name, b"x")
    task = worker.take()
    assert task.service == name
    worker.reply(task, [b"y"])
    assert client.answer().body == [b"y"]


@pytest.mark.clause("DCP-C-05")
@pytest.mark.parametrize("form", WIDTHS)
def test_a_registration_is_confirmed_with_the_same_message(
    peers: Peers, manager: Manager, service: bytes, form: type
):
    """§Connection: a registration that counts is echoed; each time."""
    worker = peers(form)
    for _ in range(2):
        worker.register(service)
        assert worker.heard() == (worker.REGISTER, [service])
    assert len(manager.show("show_workers", service=service.decode())) == 1


@pytest.mark.clause("DCP-C-06")
def test_one_worker_may_register_several_services(peers: Peers, service: bytes):
    """§Connection: each registration adds a service; one job at a time for all of them."""
    worker, client = peers(DcpPeer), peers(DcpPeer)
    names = [service + b" %d" % n for n in range(3)]
    for name in names:
        worker.register(name)
        assert worker.heard() == (worker.REGISTER, [name])
    for name in names:
        client.request(name, name)
    client.fence()
    for _ in names:
        task = worker.take()
        assert task.body == [task.service]
        assert worker.fence() == []
        worker.reply(task, task.body)
    assert sorted(client.answer().body[0] for _ in names) == names
