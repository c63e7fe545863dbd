"""NFP §Keepaliving: who is alive, who is not, and what becomes of their work. Both forms."""

from __future__ import annotations

import time

import pytest

from polydomo.core.policy import Heartbeat
from tests.dialects.conftest import INTERVAL, LIVENESS
from tests.dialects.nfp.desk import ClientTalker, WorkerTalker
from tests.support.dialects import Desk
from tests.support.nfp import DISCONNECT, EVENT, KEEPALIVE, READY, NfpReqClient, NfpWorker
from tests.support.peers import Disconnected, Manager, Peer, Peers, Silence

EXPIRY = INTERVAL * LIVENESS


def gone(worker: NfpWorker) -> None:
    """Says nothing until it is sent away."""
    worker.heartbeat = 0
    with pytest.raises(Disconnected):
        worker.expect(b"never", 10 * EXPIRY)


@pytest.mark.clause("NFP-K-01")
def test_keepalives_are_valid_at_any_time_after_ready(brisk_peers: Peers, service: bytes):
    """§Keepaliving: idle or busy."""
    worker, client = brisk_peers(NfpWorker, service), brisk_peers(NfpReqClient)
    worker.keepalive()
    uuid = client.post(service, b"x")
    task = worker.take()
    worker.keepalive()
    worker.command(EVENT, task.address, b"", uuid, b"200", b"kind", b"x")
    worker.keepalive()
    worker.reply(task, [b"end"])
    worker.keepalive()
    assert worker.fence() == []
    assert client.result(service, uuid).body == [b"end"]


@pytest.mark.clause("NFP-K-02")
def test_any_command_acts_as_a_keepalive(brisk_peers: Peers, service: bytes):
    """§Keepaliving: events of a job keep its worker alive, too."""
    worker, client = brisk_peers(NfpWorker, service, beat=0), brisk_peers(NfpReqClient)
    uuid = client.post(service, b"x")
    task = worker.take()
    end = time.monotonic() + 2 * EXPIRY
    while time.monotonic() < end:
        worker.command(EVENT, task.address, b"", uuid, b"200", b"kind", b"x")
        time.sleep(INTERVAL)
    worker.reply(task, [b"end"])
    assert worker.fence() == []
    assert client.result(service, uuid).body == [b"end"]


@pytest.mark.clause("NFP-K-03")
def test_the_broker_does_not_beat_while_it_sends_jobs():
    """§Keepaliving: SHOULD NOT beside other commands."""
    desk = Desk(beat=Heartbeat(1.0, 3))
    worker, client = WorkerTalker(desk), ClientTalker(desk)
    for number in range(40):
        client.post(b"uuid-%d" % number)
        token, uuid, _ = worker.job()  # and nothing else
        worker.respond(token, uuid, b"200", b"y")
        desk.wait(0.25)
    desk.wait(1.0)
    assert [name for name, *_ in worker.heard()] == ["KEEPALIVE"]  # once there is nothing else to send


@pytest.mark.clause("NFP-K-04")
def test_the_broker_beats_at_regular_intervals(brisk_peers: Peers, service: bytes):
    """§Keepaliving: MUST, at the interval that OPEN agreed upon."""
    worker = brisk_peers(NfpWorker)
    hello = worker.open()
    assert (hello["keepalive_ms"], hello["liveness"]) == (round(INTERVAL * 1000), LIVENESS)
    worker.command(READY, service)
    began = time.monotonic()
    for _ in range(5):
        assert worker.recv() == [b"", b"NFPB01", KEEPALIVE, service]
        worker.command(KEEPALIVE, service)
    assert time.monotonic() - began >= 4 * INTERVAL


@pytest.mark.clause("NFP-K-04")
def test_norfab_s_workers_are_beaten_to_also_while_they_work(brisk_peers: Peers, service: bytes):
    """(ours) norfab's worker counts nothing but KEEPALIVE, so it gets one each interval."""
    worker, client = brisk_peers(Peer, identity=b"w1"), brisk_peers(NfpReqClient)
    worker.send(b"", b"NFPW01", b"0x01", service)
    end, beats = time.monotonic() + 5 * INTERVAL, 0
    while time.monotonic() < end:
        client.post(service, b'{"task":"x"}')
        worker.send(b"", b"NFPW01", b"0x02", service)
        message = worker.recv()
        while message[2] == b"0x02":
            beats += 1
            message = worker.recv()
        worker.send(b"", b"NFPW01", b"0x05", message[3], b"", message[5], b"200", b"{}")
    assert beats >= 3


@pytest.mark.clause("NFP-K-05")
def test_an_idle_worker_that_falls_silent_is_given_up(
    brisk_peers: Peers, brisk_manager: Manager, service: bytes
):
    """§Keepaliving: MUST be, after some multiple of the interval."""
    worker = brisk_peers(NfpWorker, service)
    worker.fence()
    began = time.monotonic()
    gone(worker)
    assert time.monotonic() - began > EXPIRY - 2 * INTERVAL
    assert not brisk_manager.offered(service)


@pytest.mark.clause("NFP-K-05")
def test_an_idle_worker_that_beats_is_kept(brisk_peers: Peers, brisk_manager: Manager, service: bytes):
    """§Keepaliving: three times as long as silence would have been allowed."""
    worker = brisk_peers(NfpWorker, service, beat=INTERVAL / 2)
    end = time.monotonic() + 3 * EXPIRY
    while time.monotonic() < end:
        worker.keepalive()
        time.sleep(INTERVAL)
    assert worker.fence() == []
    assert brisk_manager.offered(service)


@pytest.mark.clause("NFP-K-05")
def test_a_busy_worker_that_stops_beating_loses_its_job(brisk_peers: Peers, service: bytes):
    """§Keepaliving: it had shown that it beats while busy."""
    worker, client = brisk_peers(NfpWorker, service), brisk_peers(NfpReqClient)
    uuid = client.post(service, b"x")
    worker.take()
    for _ in range(4):
        worker.keepalive()
        time.sleep(INTERVAL)
    gone(worker)
    other = brisk_peers(NfpWorker, service, beat=INTERVAL / 2)
    other.reply(other.take(), [b"done"])
    assert client.result(service, uuid).body == [b"done"]


@pytest.mark.clause("NFP-K-06")
def test_a_worker_that_lost_the_broker_may_start_a_new_conversation(brisk_peers: Peers, service: bytes):
    """§Keepaliving: SHOULD; the broker takes it as a new one."""
    worker = brisk_peers(NfpWorker, service, identity=b"w1")
    worker.fence()
    worker.close()
    again, client = brisk_peers(NfpWorker, service, identity=b"w1", beat=0.1), brisk_peers(NfpReqClient)
    uuid = client.post(service, b"x")
    again.reply(again.take(), [b"done"])
    assert client.result(service, uuid).body == [b"done"]


@pytest.mark.clause("NFP-K-07")
def test_a_worker_that_was_given_up_is_sent_nothing_more(brisk_peers: Peers, service: bytes):
    """§Keepaliving: SHOULD be sent nothing of any type."""
    worker, client = brisk_peers(NfpWorker, service), brisk_peers(NfpReqClient)
    gone(worker)
    client.post(service, b"x")
    worker.keepalive()
    with pytest.raises(Silence):
        worker.recv(3 * INTERVAL)


@pytest.mark.clause("NFP-K-07")
def test_disconnect_is_the_last_word_to_it(brisk_peers: Peers, service: bytes):
    """§Opening and Closing: it is told once."""
    worker = brisk_peers(NfpWorker, service)
    command = KEEPALIVE
    while command == KEEPALIVE:
        command, _ = worker.heard()
    assert command == DISCONNECT
    with pytest.raises(Silence):
        worker.recv(3 * INTERVAL)
