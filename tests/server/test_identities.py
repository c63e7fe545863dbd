"""Identities: chosen by peers, made up by the broker, and used by two peers at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import Answer, DcpPeer, Manager, MdpClient, MdpWorker, Peer, Peers, peers_of
from tests.support.zmtp import Raw, command, greeting, message, ready

GRACE = 0.5
PROBE = 0.3  # seconds that a living peer has to answer


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml=f"[limits]\nclient_grace = {GRACE}\n[zmq]\nprobe = {PROBE}") as process:
        yield process


@pytest.fixture
def peers(server: BrokerProcess) -> Iterator[Peers]:
    with peers_of(server.endpoint) as opened:
        yield opened


def address_of(peer: DcpPeer) -> bytes:
    """DCP shows a client its address in the reply."""
    peer.request(b"mmi.service", b"x")
    return peer.answer().address


def test_made_up_identities_are_different_and_begin_with_zero(peers: Peers):
    """RFC 37: what a peer chooses does not begin with a zero byte, what a router makes up does."""
    found = [address_of(peers(DcpPeer)) for _ in range(20)]
    assert len(set(found)) == 20
    assert all(address[0] == 0 and len(address) == 5 for address in found)


@pytest.mark.parametrize("identity", [b"a", b"name", b"\xff\0", b"x" * 255], ids=len)
def test_a_chosen_identity_is_kept(peers: Peers, identity: bytes):
    assert address_of(peers(DcpPeer, identity=identity)) == identity


@pytest.mark.parametrize("identity", [b"\0name", b"x" * 256], ids=["zero-first", "too-long"])
def test_an_impossible_identity_is_refused(server: BrokerProcess, identity: bytes):
    with Raw(server.endpoint) as raw:
        raw.send(greeting() + ready(identity=identity))
        assert "identity" in raw.refusal()
        raw.wait_closed()


def test_a_peer_takes_over_from_its_connection_that_does_not_answer_and_gets_the_answers(peers: Peers):
    """The older connection is one whose end was not noticed."""
    worker = peers(MdpWorker, b"takeover")
    old = Raw(peers.endpoint).shake(identity=b"twin")
    old.send(message(b"MDPC02", b"\x01", b"takeover", b"asked by the old one"))
    task = worker.take()
    new = peers(MdpClient, identity=b"twin")
    assert new.fence() == []
    assert old.wait_closed() == command(b"PING", bytes(2))
    old.close()
    worker.reply(task, [b"for whoever is there"])
    assert new.answer(b"takeover") == Answer([], [b"for whoever is there"])


@pytest.mark.parametrize("sent_before", [b"", message(b"MDPC02", b"\x01", b"mmi.service", b"x")], ids=len)
def test_a_second_peer_with_a_living_peer_s_identity_is_refused_and_gets_nothing(
    peers: Peers, sent_before: bytes
):
    """The stranger may even send requests before it knows that it is refused."""
    worker = peers(MdpWorker, b"private")
    victim = peers(MdpClient, identity=b"victim")
    victim.request(b"private", b"question")
    task = worker.take()  # so the victim is connected
    with Raw(peers.endpoint) as stranger:
        stranger.send(greeting() + ready(identity=b"victim") + sent_before)
        assert "name-taken" in stranger.refusal()
        assert stranger.wait_closed() == b""
    worker.reply(task, [b"secret"])
    assert victim.answer(b"private").final == [b"secret"]


def test_a_second_worker_with_a_living_worker_s_identity_is_refused_and_gets_no_job(peers: Peers):
    worker = peers(MdpWorker, b"guarded", identity=b"guard")
    assert worker.fence() == []
    with Raw(peers.endpoint) as stranger:
        stranger.send(greeting() + ready(identity=b"guard") + message(b"MDPW02", b"\x01", b"guarded"))
        assert "name-taken" in stranger.refusal()
        stranger.wait_closed()
    client = peers(MdpClient)
    client.request(b"guarded", b"x")
    worker.reply(worker.take(), [b"y"])
    assert client.answer(b"guarded").final == [b"y"]


def test_what_a_peer_sends_while_it_waits_for_its_identity_is_not_lost(peers: Peers):
    """Its requests follow its READY at once; they are served after the older connection turned out to be dead."""
    peers.echo(b"patient")
    with Raw(peers.endpoint) as old, Raw(peers.endpoint) as new:
        old.shake(identity=b"patient one")
        requests = [message(b"MDPC02", b"\x01", b"patient", b"%d" % n) for n in range(3)]
        new.send(greeting() + ready(identity=b"patient one") + b"".join(requests))
        new.read(64)
        assert new.command()[0] == b"READY"
        assert [new.message()[3] for _ in range(3)] == [b"0", b"1", b"2"]


def test_of_many_that_claim_a_dead_peer_s_identity_one_gets_it(peers: Peers):
    with Raw(peers.endpoint) as old, ExitStack() as stack:
        old.shake(identity=b"wanted")
        claims = [stack.enter_context(Raw(peers.endpoint)) for _ in range(10)]
        for raw in claims:
            raw.send(greeting() + ready(identity=b"wanted"))
        for raw in claims:
            raw.read(64)
        assert sorted(raw.command()[0] for raw in claims) == [b"ERROR"] * 9 + [b"READY"]


def test_the_newer_one_stays_a_client_after_the_older_s_grace_time(peers: Peers):
    """The end of the old connection is not the end of the client."""
    manager, worker = peers(Manager), peers(MdpWorker, b"stays")
    with Raw(peers.endpoint) as old:
        old.shake(identity=b"stays")
        old.send(message(b"MDPC02", b"\x01", b"stays", b"1"))
        task = worker.take()
        new = peers(MdpClient, identity=b"stays")
        new.fence()
        old.wait_closed()
    started = manager.show("show_broker")["uptime"]
    wait_for(lambda: manager.show("show_broker")["uptime"] > started + 2 * GRACE)
    worker.reply(task, [b"1"])
    assert new.answer(b"stays").final == [b"1"]
    new.request(b"stays", b"2")
    worker.reply(worker.take(), [b"2"])
    assert new.answer(b"stays").final == [b"2"]


def test_a_worker_s_newer_self_takes_over_and_its_old_job_is_done_again(peers: Peers):
    client = peers(MdpClient)
    with Raw(peers.endpoint) as old:
        old.shake(identity=b"worker twin")
        old.send(message(b"MDPW02", b"\x01", b"twin-worker"))
        client.request(b"twin-worker", b"x")
        lost = old.message()[2]
        new = peers(MdpWorker, b"twin-worker", identity=b"worker twin")
        task = new.take()
        assert (task.body, task.address != lost) == ([b"x"], True)
        new.reply(task, [b"y"])
        assert client.answer(b"twin-worker").final == [b"y"]


def claim(endpoint: str, instance: bytes) -> str:
    """Connect as the worker called `ours`; why it was refused, empty: it was not."""
    with Raw(endpoint) as raw:
        raw.send(greeting() + ready(identity=b"ours", **{"X-Polydomo-Instance": instance}))
        raw.read(64)
        name, data = raw.command()
        return data[1:].decode() if name == b"ERROR" else ""


def test_a_second_worker_of_our_own_is_refused_until_the_first_is_gone(server: BrokerProcess):
    """Which one it is says a property of the handshake."""
    with Raw(server.endpoint) as first, ThreadPoolExecutor(1) as other:
        first.shake(identity=b"ours", **{"X-Polydomo-Instance": b"1"})
        for _ in range(3):
            claimed = other.submit(claim, server.endpoint, b"2")
            name, data = first.command()
            assert name == b"PING"
            first.send(command(b"PONG", data[2:]))
            assert "name-taken" in claimed.result()
        assert claim(server.endpoint, b"2") == ""  # the first does not answer any more
        first.wait_closed()


@pytest.mark.parametrize("rule", ["probe", "refuse"])
def test_a_worker_of_our_own_that_is_back_takes_over_from_its_own_old_connection_at_once(rule: str):
    """An hour to answer the PING would be too long to wait."""
    toml = f'[zmq]\nduplicate_identity = "{rule}"\nprobe = "1h"'
    with BrokerProcess(toml=toml) as broker, Raw(broker.endpoint) as old:
        old.shake(identity=b"ours", **{"X-Polydomo-Instance": b"1"})
        assert claim(broker.endpoint, b"1") == ""
        old.wait_closed()


def test_the_newer_of_two_may_be_refused_instead():
    """zmq.duplicate_identity = "refuse"."""
    with (
        BrokerProcess(toml='[zmq]\nduplicate_identity = "refuse"') as broker,
        peers_of(broker.endpoint) as peers,
    ):
        old = peers(MdpClient, identity=b"twin")
        assert old.fence() == []
        with Raw(broker.endpoint) as raw:
            raw.send(greeting() + ready(identity=b"twin"))
            assert "taken" in raw.refusal()
            raw.wait_closed()
        assert old.fence() == []
        old.close()

        def free() -> bool:
            with Raw(broker.endpoint) as raw:
                raw.send(greeting() + ready(identity=b"twin"))
                raw.read(64)
                return raw.command()[0] == b"READY"

        wait_for(free)


def test_a_client_within_its_grace_time_misses_nothing(peers: Peers):
    """Answers given while it was away wait for it, in order, partials too, each time."""
    worker = peers(MdpWorker, b"grace")
    for round_ in range(20):
        with Raw(peers.endpoint) as client:
            client.shake(identity=b"traveller")
            for n in range(3):
                client.send(message(b"MDPC02", b"\x01", b"grace", b"%d.%d" % (round_, n)))
            task = worker.take()
        for _ in range(3):  # turns of the broker's loop: it has seen the end of that connection
            worker.fence()
        worker.partial(task, [b"part"])
        worker.reply(task, task.body)
        for _ in range(2):
            task = worker.take()
            worker.reply(task, task.body)
        worker.fence()
        back = peers(MdpClient, identity=b"traveller")
        assert back.answer(b"grace") == Answer([[b"part"]], [b"%d.0" % round_])
        assert [back.answer(b"grace").final for _ in range(2)] == [[b"%d.%d" % (round_, n)] for n in (1, 2)]
        back.close()


def test_within_its_grace_time_a_client_s_identity_belongs_to_its_address(peers: Peers):
    """Nothing else is known of a client without keys. Another peer is disconnected without ERROR: it may try again."""
    worker = peers(MdpWorker, b"homesick")
    with Raw(peers.endpoint) as client:
        client.shake(identity=b"homesick one")
        client.send(message(b"MDPC02", b"\x01", b"homesick", b"x"))
        task = worker.take()
    for _ in range(3):  # turns of the broker's loop: it has seen the end of that connection
        worker.fence()
    worker.reply(task, [b"secret"])
    worker.fence()
    with Raw(peers.endpoint, source="127.0.0.2") as stranger:
        stranger.send(greeting() + ready(identity=b"homesick one"))
        stranger.read(64)
        assert stranger.wait_closed() == b""
    back = peers(MdpClient, identity=b"homesick one")
    assert back.answer(b"homesick").final == [b"secret"]
    back.close()
    wait_for(lambda: not claim_as(peers.endpoint, b"homesick one"))  # nothing waits for it any more


def claim_as(endpoint: str, identity: bytes) -> str:
    """Why a peer at another address may not have an identity; empty: it may."""
    with Raw(endpoint, source="127.0.0.2") as raw:
        raw.send(greeting() + ready(identity=identity))
        raw.read(64)
        try:
            name, data = raw.command()
        except ConnectionError:
            return "closed"
        return data[1:].decode() if name == b"ERROR" else ""


def test_a_named_peer_that_is_client_and_worker_comes_back_as_both(peers: Peers):
    """Earlier requests are answered, and new jobs reach the new connection."""
    peers.echo(b"helper")
    manager, client, slow = peers(Manager), peers(MdpClient), peers(MdpWorker, b"slow helper")
    both = peers(MdpWorker, b"both", identity=b"both")
    both.send(b"MDPC02", b"\x01", b"slow helper", b"question")
    task = slow.take()
    both.close()
    wait_for(lambda: not manager.offered(b"both"))
    both = peers(MdpWorker, b"both", identity=b"both")
    client.request(b"both", b"x")
    job = both.take()
    slow.reply(task, [b"answer"])
    assert both.recv() == [b"MDPC02", b"\x03", b"slow helper", b"answer"]
    both.reply(job, [b"y"])
    assert client.answer(b"both").final == [b"y"]


def test_an_ipc_endpoint_belongs_to_one_broker(tmp_path):
    """A second broker does not push a living one out; the file of a dead one is replaced."""
    endpoint = f"ipc://{tmp_path}/socket"
    with BrokerProcess(zmq=endpoint) as first:
        with pytest.raises(RuntimeError, match="cannot listen"), BrokerProcess(zmq=endpoint):
            pass
        with Peer(endpoint) as peer:
            assert peer.fence() == []
        first.kill()
    assert os.path.exists(tmp_path / "socket")
    with BrokerProcess(zmq=endpoint), Peer(endpoint) as peer:
        assert peer.fence() == []


def test_a_file_that_is_no_socket_is_not_touched(tmp_path):
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(RuntimeError, match="cannot listen"), BrokerProcess(zmq=f"ipc://{path}"):
        pass
    assert path.read_text() == "data"


def test_ipv6(server: BrokerProcess):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    with BrokerProcess(zmq="tcp://[::1]:*") as broker, Peer(broker.endpoint, ipv6=True) as peer:
        assert peer.fence() == []
