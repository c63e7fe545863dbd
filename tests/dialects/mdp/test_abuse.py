"""What the brokers before this one died or hung of, and worse. After each act the broker lives, others are served as
if nothing had happened, and the offender got what the specification says (or nothing)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import (
    Answer,
    Manager,
    Mdp01Worker,
    MdpClient,
    MdpWorker,
    Peer,
    Peers,
    Serving,
    TomoFormWorker,
    echo,
    peers_of,
)

DISCONNECT = [b"MDPW02", b"\x06"]
HEADERS = [b"MDPC02", b"MDPW02", b"MDPC01", b"MDPW01"]


@pytest.fixture(scope="module")
def bystander(calm: BrokerProcess) -> Iterator[Serving]:
    with echo(calm.endpoint, b"bystander") as serving:
        yield serving


@pytest.fixture(autouse=True)
def unharmed(calm: BrokerProcess, bystander: Serving) -> Iterator[None]:
    """Another pair is served before and after, by the same worker on the same connection."""
    with MdpClient(calm.endpoint) as client:
        assert client.call(b"bystander", [b"before"]) == Answer([], [b"before"])
        yield
        assert client.call(b"bystander", [b"after"]) == Answer([], [b"after"])
    assert bystander.registrations == 1
    assert calm.process.poll() is None
    assert "Traceback" not in calm.log()


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"", b""],
        [b"x"],
        [b"\0" * 300],
        *[[header] for header in HEADERS],
        *[[b"", header] for header in HEADERS],
        [b"", b"", b"MDPC02", b"\x01", b"svc", b"x"],
        [b"MDPC02", b""],
        [b"MDPC02", b"\x01"],
        [b"MDPC02", b"\x01", b""],
        [b"MDPC02", b"\x01", b"", b"body"],
        [b"MDPC02", b"\x01", b"svc"],
        [b"MDPC02", b"\x01", b"mmi.service"],
        [b"MDPC02", b"\x02", b"svc", b"x"],
        [b"MDPC02", b"\x03", b"svc", b"x"],
        [b"MDPC02", b"\xff", b"svc", b"x"],
        [b"MDPC02", b"REQUEST", b"svc", b"x"],
        [b"", b"MDPC02", b"\x02"],
        [b"", b"MDPC02", b"\x02", b"svc"],
        [b"", b"MDPC02", b"\x05", b"svc", b"x"],
        [b"MDPC01", b"svc", b"x"],
        [b"", b"MDPC01", b"svc"],
        [b"", b"MDPC01", b"mmi.service"],
        [b"", b"MDPC01", b"", b"x"],
        [b"MDPW01", b"\x01", b"svc"],
        [b"MDPW02", b""],
        [b"MDPW02", b"\x01"],
        [b"MDPW02", b"\x01", b""],
        [b"MDPW02", b"\x02", b"address", b"", b"body"],
        [b"MDPW02", b"\x03"],
        [b"MDPW02", b"\x04", b"address"],
        [b"MDPW02", b"\x04", b"address", b""],
        [b"MDPW02", b"\x09"],
        [b"", b"MDPW01", b"\x01"],
        [b"", b"MDPW01", b"\x03", b"address"],
        [b"", b"MDPW01", b"\x06"],
    ],
    ids=lambda frames: repr(frames)[:60],
)
def test_malformed_messages_are_dropped_without_a_word(peers: Peers, frames: list[bytes]):
    """RFC 18 §Opening and Closing: "dropping them". A request without a body and `mmi.service` without one killed or
    hung the reference broker and both of the guide's."""
    peer = peers(Peer)
    peer.send(*frames)
    assert peer.fence() == []


def test_a_flood_of_malformed_messages_ends_the_connection(peers: Peers, manager: Manager):
    """One bad peer costs one line of log and is cut after a hundred; it may connect again."""
    peer = peers(Peer)
    monitor = peer.socket.get_monitor_socket()
    for _ in range(200):
        peer.send(b"rubbish")
    events = set()
    while zmq.EVENT_DISCONNECTED not in events:
        assert monitor.poll(10_000)
        events.add(recv_monitor_message(monitor)["event"])
    peer.socket.disable_monitor()
    monitor.close()
    assert peers(Peer).fence() == []


def test_random_messages(peers: Peers):
    """Whatever is sent, in whatever order: no crash, and the connection after it works."""
    chance = random.Random(18)
    pieces = [
        *HEADERS,
        b"",
        b"\x01",
        b"\x02",
        b"\x03",
        b"\x04",
        b"\x05",
        b"\x06",
        b"junk",
        b"mmi.service",
        b"DGBX\x01",
    ]
    for _ in range(30):
        peer = Peer(peers.endpoint)
        for _ in range(40):
            peer.send(*chance.choices(pieces, k=chance.randint(1, 7)))
        peer.close()
    assert peers(Peer).fence() == []


def test_unknown_commands_of_a_worker_end_its_registration(peers: Peers, manager: Manager, service: bytes):
    """RFC 18: "treating that peer as invalid"."""
    for command in (b"\x00", b"\x07", b"\xff", b"", b"HEARTBEAT"):
        worker = peers(MdpWorker, service)
        worker.command(command)
        assert worker.fence() == [DISCONNECT]
        assert not manager.offered(service)


def test_a_final_for_another_s_job_reaches_nobody(peers: Peers, service: bytes):
    """A forged address: the forger is disconnected, the client gets the one true answer."""
    worker, forger, client = peers(MdpWorker, service), peers(MdpWorker, b"forger"), peers(MdpClient)
    client.request(service, b"x")
    task = worker.take()
    forger.reply(task, [b"forged"])
    assert forger.fence() == [DISCONNECT]
    worker.reply(task, [b"true"])
    assert client.answer(service) == Answer([], [b"true"])
    assert client.fence() == []


def test_guessing_addresses_is_in_vain(peers: Peers, service: bytes):
    """A worker with a job of its own tries the neighbours of its address: the first wrong one ends it."""
    victim, worker = peers(MdpClient), peers(MdpWorker, service)
    worker.fence()
    forger = peers(MdpWorker, service)
    forger.fence()
    for _ in range(2):
        victim.request(service, b"x")
    task, own = worker.take(), forger.take()
    for n in [*range(-20, 0), *range(1, 20)]:
        guess = int.from_bytes(own.address, "big") + n
        forger.command(forger.PARTIAL, guess.to_bytes(len(own.address), "big"), b"", b"forged")
    assert forger.fence() == [DISCONNECT]
    worker.reply(task, [b"true"])
    worker.reply(worker.take(), [b"true"])
    assert [victim.answer(service) for _ in range(2)] == [Answer([], [b"true"])] * 2


def test_a_partial_after_the_final_reaches_nobody(peers: Peers, service: bytes):
    """RFC 18 §MDP/Client: after FINAL, nothing."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    client.request(service, b"x")
    task = worker.take()
    worker.reply(task, [b"end"])
    worker.partial(task, [b"afterthought"])
    assert worker.fence() == [DISCONNECT]
    assert client.answer(service) == Answer([], [b"end"])
    assert client.fence() == []


@pytest.mark.parametrize("form", [MdpWorker, TomoFormWorker, Mdp01Worker])
def test_ready_a_hundred_times(peers: Peers, manager: Manager, service: bytes, form: type):
    """Each second one is unexpected; what is left is one worker or none, never more."""
    worker = peers(form)
    for _ in range(100):
        worker.ready(service)
    worker.fence()
    assert len(manager.show("show_workers", service=service.decode())) <= 1


def test_a_worker_that_speaks_another_form_in_mid_job_loses_it(
    peers: Peers, manager: Manager, service: bytes
):
    """Two registrations on one connection are never alive at once."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    client.request(service, b"x")
    worker.take()
    worker.send(b"", b"MDPW01", b"\x01", service)
    worker.fence()
    assert [row["dialect"] for row in manager.show("show_workers", service=service.decode())] == ["mdp/0.1"]


def test_names_that_are_too_long_are_refused(peers: Peers, manager: Manager):
    """A bound the specification leaves open: 255 bytes. Others hear DISCONNECT, or nothing."""
    long = b"x" * 256
    worker, client = peers(MdpWorker, long), peers(MdpClient)
    assert worker.fence() == [DISCONNECT]
    client.request(long, b"x")
    assert client.fence() == []
    assert manager.show("show_jobs", limit=1)[0]["reason"] == "bad-service"


def test_ten_thousand_made_up_services_disappear_again():
    """The C reference keeps each name for ever."""
    with BrokerProcess(toml="[defaults]\nwait = 0.2") as broker, peers_of(broker.endpoint) as peers:
        manager, client = peers(Manager), peers(MdpClient)
        peers.echo(b"bystander")
        before = manager.show("show_broker")
        for n in range(10_000):
            client.request(b"made up %d" % n, b"x")
        assert peers(MdpClient).call(b"bystander", [b"x"]).final == [b"x"]
        assert client.fence() == []
        wait_for(lambda: manager.show("show_broker")["active"] == before["active"])
        after = manager.show("show_broker")
        assert after["failed"] - before["failed"] == 10_000
        assert (after["services"], after["memory"]) == (1, before["memory"])


def test_more_services_than_allowed_are_refused():
    """limits.services: the names that are here stay, newcomers wait outside."""
    with BrokerProcess(toml="[limits]\nservices = 10") as broker, peers_of(broker.endpoint) as peers:
        client, manager = peers(MdpClient), peers(Manager)
        for n in range(50):
            client.request(b"%d" % n, b"x")
        client.fence()
        assert manager.show("show_broker")["services"] <= 10
        assert manager.show("show_jobs", limit=1)[0]["reason"] == "too-many-services"
        worker = peers(MdpWorker, b"0")
        assert worker.take().body == [b"x"]


def test_a_full_queue_refuses_and_stays_in_order():
    """services.NAME.queue: those that wait keep their place, the rest is refused at once."""
    with BrokerProcess(toml="[services.small]\nqueue = 5") as broker, peers_of(broker.endpoint) as peers:
        client, manager = peers(MdpClient), peers(Manager)
        for n in range(20):
            client.request(b"small", b"%d" % n)
        client.fence()
        assert manager.show("show_broker")["refused"] == 15
        peers.echo(b"small")
        assert [client.answer(b"small").final for _ in range(5)] == [[b"%d" % n] for n in range(5)]
        assert client.fence() == []
