"""Wrong, forged and endless DCP. After each act the broker lives and others are served as if nothing had happened."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import Answer, DcpPeer, DcpPeer4, Manager, Peer, Peers, Serving, echo, peers_of

HEAD = [b"", b"DGBX\x01"]


@pytest.fixture(scope="module")
def bystander(calm: BrokerProcess) -> Iterator[Serving]:
    with echo(calm.endpoint, b"bystander", DcpPeer) as serving:
        yield serving


@pytest.fixture(autouse=True)
def unharmed(calm: BrokerProcess, bystander: Serving) -> Iterator[None]:
    """Another pair is served before and after, by the same worker on the same connection."""
    with DcpPeer(calm.endpoint) as client:
        assert client.call(b"bystander", [b"before"]) == Answer([], [b"before"])
        yield
        assert client.call(b"bystander", [b"after"]) == Answer([], [b"after"])
    assert bystander.registrations == 1
    assert calm.process.poll() is None
    assert "Traceback" not in calm.log()


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\x00"],
        [b"\x03"],
        [b"\x06"],
        [b"\x07", b"svc"],
        [b"\xff"],
        [b"\xff\xff\xff\xff"],
        [b"\x01"],
        [b"\x01", b""],
        [b"\x01", b"svc", b""],
        [b"\x01", b"svc", b"svc2"],
        [b"\x01", b"mmi.service"],
        [b"\x01", b"mmi.mine"],
        [b"\x01", b"x" * 256],
        [b"\x02", b""],
        [b"\x04"],
        [b"\x04", b""],
        [b"\x04", b"svc"],
        [b"\x04", b"svc", b"", b"meta", b"meta"],
        [b"\x04", b"", b"", b"", b"data"],
        [b"\x04", b"x" * 256, b"", b"", b"data"],
        [b"\x04", b"svc", b"forged", b"", b"", b"data"],
        [b"\x04", b"svc", b"00000001", b"", b"", b"data"],
        [b"\x05"],
        [b"\x05", b""],
        [b"\x05", b"address"],
        [b"\x05", b"address", b""],
        [b"\x05", b"address", b"", b"meta"],
        [b"\x05", b"address", b"", b"", b"data"],
        [b"\x05", b"00000001", b"", b"", b"data"],
    ],
    ids=lambda frames: repr(frames)[:60],
)
def test_wrong_messages_are_dropped_without_a_word(peers: Peers, frames: list[bytes]):
    peer = peers(Peer)
    peer.send(*HEAD, *frames)
    assert peer.fence() == []


@pytest.mark.parametrize("form", [DcpPeer, DcpPeer4])
def test_a_worker_survives_its_own_wrong_messages(peers: Peers, service: bytes, form: type):
    """DCP has no word for "go away": what is wrong is dropped, what is right counts."""
    worker, client = peers(form, service), peers(DcpPeer)
    client.request(service, b"x", metadata=[b"id"])
    task = worker.take()
    worker.say(worker.REPLY)
    worker.say(worker.REPLY, b"forged", b"", b"", b"data")
    worker.say(worker.REGISTER)
    worker.say(9, b"?")
    worker.reply(task, [b"right"])
    assert client.answer().body == [b"right"]
    assert worker.fence() == []


def test_a_reply_to_another_s_job_reaches_nobody(peers: Peers, service: bytes):
    worker, forger, client = peers(DcpPeer, service), peers(DcpPeer, service + b" forger"), peers(DcpPeer)
    client.request(service, b"x")
    task = worker.take()
    forger.reply(task, [b"forged"])
    assert forger.fence() == []
    worker.reply(task, [b"true"])
    assert client.answer().body == [b"true"]
    assert client.fence() == []


def test_a_second_reply_reaches_nobody(peers: Peers, service: bytes):
    worker, client = peers(DcpPeer, service), peers(DcpPeer)
    client.request(service, b"x")
    task = worker.take()
    worker.reply(task, [b"first"])
    worker.reply(task, [b"second"])
    worker.pass_on(task, service, [b"third"])
    assert worker.fence() == []
    assert client.answer().body == [b"first"]
    assert client.fence() == []


def test_nobody_passes_on_another_s_job(peers: Peers, service: bytes):
    """A request with an address that is not the sender's own: neither answered nor queued."""
    worker, thief, client = peers(DcpPeer, service), peers(DcpPeer, service + b" thief"), peers(DcpPeer)
    client.request(service, b"x")
    task = worker.take()
    for peer in (thief, peers(DcpPeer)):
        peer.pass_on(task, service + b" thief", [b"mine now"])
        assert peer.fence() == []
    worker.reply(task, [b"true"])
    assert client.answer().body == [b"true"]


def test_a_job_passed_round_in_a_circle_ends(peers: Peers, manager: Manager, service: bytes):
    """limits.hops: two workers that each pass to the other would do so for ever."""
    other = service + b" 2"
    with (
        Serving(
            lambda context: DcpPeer(peers.endpoint, service, context=context),
            lambda worker, task: worker.pass_on(task, other, task.body),
        ) as one,
        Serving(
            lambda context: DcpPeer(peers.endpoint, other, context=context),
            lambda worker, task: worker.pass_on(task, service, task.body),
        ) as two,
    ):
        client = peers(DcpPeer)
        client.request(service, b"x")
        client.fence()
        wait_for(
            lambda: "too-many-hops" in [row["reason"] for row in manager.show("show_jobs", state="failed")]
        )
        wait_for(lambda: one.done + two.done == 33)
        assert client.fence() == []


def test_a_job_passed_on_to_an_impossible_service_ends(peers: Peers, manager: Manager, service: bytes):
    worker, client = peers(DcpPeer, service), peers(DcpPeer)
    for name in (b"x" * 256, b"mmi.nothing"):
        client.request(service, b"x")
        worker.pass_on(worker.take(), name, [b"y"])
        assert worker.fence() == []
    assert client.answer().body == [b"501"]
    assert client.fence() == []


def test_ten_thousand_requests_at_once_are_all_answered(peers: Peers, service: bytes):
    """More than limits.client_jobs: the broker stops reading until it has caught up; nothing is lost or refused."""
    client = peers(DcpPeer)
    client.socket.sndhwm = 0
    for n in range(10_000):
        client.request(service, b"%d" % n, metadata=[b"id%d" % n])
    workers = [peers.echo(service, DcpPeer) for _ in range(2)]
    found = {client.answer().metadata[0] for _ in range(10_000)}
    assert found == {b"id%d" % n for n in range(10_000)}
    wait_for(lambda: sum(worker.done for worker in workers) == 10_000)


def test_a_worker_with_too_many_requests_of_its_own_still_works():
    """It asks itself more than it may ask at once: its replies must get through, or nobody ever gets on."""
    with BrokerProcess(toml="[limits]\nclient_jobs = 10") as broker, peers_of(broker.endpoint) as peers:
        worker = peers(DcpPeer, b"self")
        for n in range(50):
            worker.request(b"self", b"%d" % n)
        answered = 0
        while answered < 50:
            kind, frames = worker.heard()
            if kind == worker.REQUEST:
                worker.say(worker.REPLY, *frames[1:])
            elif kind == worker.REPLY:
                answered += 1


def test_a_flood_of_pings_is_a_flood_of_pongs(peers: Peers, service: bytes):
    worker = peers(DcpPeer, service)
    for _ in range(10_000):
        worker.ping()
    assert all(worker.heard() == (worker.PONG, []) for _ in range(10_000))


def test_a_peer_that_changes_its_width_is_answered_in_the_new_one(peers: Peers, service: bytes):
    worker = peers(DcpPeer, service)
    for width in (4, 1, 4):
        worker.width = width
        worker.ping()
        assert worker.heard() == (worker.PONG, [])


def test_random_messages(peers: Peers):
    """Whatever is sent, in whatever order: no crash, and the connection after it works."""
    chance = random.Random(1)
    pieces = [
        b"",
        b"DGBX\x01",
        b"\x01",
        b"\x02",
        b"\x04",
        b"\x05",
        b"\x04\0\0\0",
        b"svc",
        b"mmi.service",
        b"00000001",
    ]
    for _ in range(30):
        peer = Peer(peers.endpoint)
        for _ in range(40):
            peer.send(*HEAD, *chance.choices(pieces, k=chance.randint(0, 8)))
        peer.close()
    assert peers(Peer).fence() == []
