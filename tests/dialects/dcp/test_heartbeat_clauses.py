"""DagBox DCP v1 §Heartbeats: ping, pong, reconnect, and what becomes of workers that fall silent."""

from __future__ import annotations

import time

import pytest

from tests.dialects.conftest import INTERVAL, LIVENESS
from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import DcpPeer, DcpPeer4, Manager, Peers, echo

EXPIRY = INTERVAL * LIVENESS
WIDTHS = [DcpPeer, DcpPeer4]


@pytest.mark.clause("DCP-H-01")
@pytest.mark.clause("DCP-H-06")
@pytest.mark.parametrize("form", WIDTHS)
def test_a_ping_from_someone_not_registered_is_answered_with_reconnect(peers: Peers, form: type):
    """§Heartbeats: a ping from somebody without a service MUST be answered with reconnect, a bare header; also from a
    client, which must not send one."""
    peer = peers(form)
    for _ in range(2):
        peer.ping()
        assert peer.heard() == (peer.RECONNECT, [])
    assert peer.call(b"mmi.service", [b"x"]).final == [b"404"]
    peer.ping()
    assert peer.heard() == (peer.RECONNECT, [])


@pytest.mark.clause("DCP-H-02")
def test_a_worker_that_falls_silent_is_given_up(brisk_peers: Peers, brisk_manager: Manager, service: bytes):
    """§Heartbeats: workers MUST beat: one that does not is gone, and told so when it pings again."""
    worker, client = brisk_peers(DcpPeer, service), brisk_peers(DcpPeer)
    assert brisk_manager.offered(service)
    wait_for(lambda: not brisk_manager.offered(service))
    client.request(service, b"x")
    client.fence()
    worker.ping()
    assert worker.heard() == (worker.RECONNECT, [])
    worker.register(service)
    assert worker.heard() == (worker.REGISTER, [service])
    assert worker.take().body == [b"x"]


@pytest.mark.clause("DCP-H-02")
def test_a_worker_that_pings_is_kept(brisk_peers: Peers, service: bytes):
    """§Heartbeats: however long it is idle."""
    workers = [brisk_peers(form, service) for form in WIDTHS]
    end = time.monotonic() + 2 * EXPIRY
    while time.monotonic() < end:
        for worker in workers:
            worker.ping()
            assert worker.heard() == (worker.PONG, [])
        time.sleep(INTERVAL)


@pytest.mark.clause("DCP-H-02")
def test_a_busy_worker_is_silent_until_its_job_s_time_is_up(brisk_peers: Peers, service: bytes):
    """§Heartbeats: DagBox's workers have one thread and ping only while they wait: a job's time-out counts instead."""
    worker, client = brisk_peers(DcpPeer, service), brisk_peers(DcpPeer)
    client.request(service, b"x")
    task = worker.take()
    time.sleep(1.5 * EXPIRY)
    worker.reply(task, [b"at last"])
    assert client.answer().body == [b"at last"]
    worker.ping()
    assert worker.heard() == (worker.PONG, [])


@pytest.mark.clause("DCP-H-02")
def test_a_worker_that_overruns_its_job_s_time_loses_it(brisk_peers: Peers, brisk_manager: Manager):
    """§Heartbeats: the job goes to another, the late reply is dropped, and then the worker works again."""
    service = b"slow.dcp"
    slow, client = brisk_peers(DcpPeer, service), brisk_peers(DcpPeer)
    client.request(service, b"x")
    task = slow.take()
    spare = brisk_peers.echo(service, DcpPeer, beat=INTERVAL)
    assert client.answer().body == [b"x"]
    wait_for(lambda: spare.done == 1)
    slow.reply(task, [b"late"])
    slow.ping()
    assert slow.heard() == (slow.PONG, [])
    assert client.fence() == []
    states = [row["state"] for row in brisk_manager.show("show_workers", service="slow.dcp")]
    assert states == ["idle", "idle"]


@pytest.mark.clause("DCP-H-02")
def test_a_busy_worker_that_had_pinged_and_stops_loses_its_job(brisk_peers: Peers, service: bytes):
    """§Heartbeats: it has shown that it pings while busy, so its silence means something."""
    worker, client = brisk_peers(DcpPeer, service), brisk_peers(DcpPeer)
    client.request(service, b"x")
    task = worker.take()
    for _ in range(4):
        time.sleep(INTERVAL / 2)
        worker.ping()
        assert worker.heard() == (worker.PONG, [])
    brisk_peers.echo(service, DcpPeer, beat=INTERVAL)
    assert client.answer().body == [b"x"]
    worker.reply(task, [b"late"])
    worker.fence()
    assert client.fence() == []


@pytest.mark.clause("DCP-H-03")
def test_any_other_message_is_a_sign_of_life(brisk_peers: Peers, service: bytes):
    """§Heartbeats: any other message MAY stand in for a heartbeat: a registration, a request of its own, a reply."""
    registers, asks, replies = [brisk_peers(DcpPeer, service + b" %d" % n) for n in range(3)]
    client = brisk_peers(DcpPeer)
    end = time.monotonic() + 2 * EXPIRY
    while time.monotonic() < end:
        registers.register(service + b" 0")
        assert registers.heard() == (registers.REGISTER, [service + b" 0"])
        assert asks.call(b"mmi.service", [service + b" 1"]).final == [b"200"]
        client.request(service + b" 2", b"x")
        replies.reply(replies.take(), [b"y"])
        assert client.answer().body == [b"y"]
        time.sleep(INTERVAL / 2)
    for worker in (registers, asks, replies):
        worker.ping()
        assert worker.heard() == (worker.PONG, [])


@pytest.mark.clause("DCP-H-04")
@pytest.mark.parametrize("form", WIDTHS)
def test_every_ping_gets_a_pong(peers: Peers, service: bytes, form: type):
    """§Heartbeats: each ping MUST get its pong; idle or busy."""
    worker, client = peers(form, service), peers(DcpPeer)
    for _ in range(100):
        worker.ping()
    assert [worker.heard() for _ in range(100)] == [(worker.PONG, [])] * 100
    client.request(service, b"x")
    task = worker.take()
    worker.ping()
    assert worker.heard() == (worker.PONG, [])
    worker.reply(task, [b"y"])
    assert client.answer().body == [b"y"]


@pytest.mark.clause("DCP-H-05")
@pytest.mark.parametrize("registered", [True, False])
def test_a_heartbeat_with_more_than_a_header_is_dropped(peers: Peers, service: bytes, registered: bool):
    """§Heartbeats: a header and nothing else; further parts MUST NOT be."""
    worker = peers(DcpPeer, service if registered else None)
    worker.say(worker.PING, b"")
    worker.say(worker.PING, b"how are you?")
    assert worker.fence() == []


@pytest.mark.clause("DCP-H-07")
def test_workers_register_again_with_a_restarted_broker():
    """§Heartbeats: reconnect MUST make a worker register again."""
    with BrokerProcess() as first:
        endpoint = first.endpoint
        with echo(endpoint, b"echo", DcpPeer, beat=0.1) as serving:
            with DcpPeer(endpoint) as client:
                assert client.call(b"echo", [b"before"]).final == [b"before"]
            first.kill()
            with BrokerProcess(zmq=endpoint), DcpPeer(endpoint) as client:
                assert client.call(b"echo", [b"after"]).final == [b"after"]
                assert serving.registrations == 2


@pytest.mark.clause("DCP-H-08")
def test_a_worker_that_dies_with_a_job_loses_it_to_another(peers: Peers, service: bytes):
    """§Goals: a lost peer is noticed."""
    worker, client = peers(DcpPeer, service), peers(DcpPeer)
    client.request(service, b"x", metadata=[b"id"])
    worker.take()
    worker.close()
    peers.echo(service, DcpPeer)
    answer = client.answer()
    assert (answer.body, answer.metadata) == ([b"x"], (b"id",))
