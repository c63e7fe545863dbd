"""RFC 18/MDP §Heartbeating: who is alive, who is not, and what becomes of their work."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from polydomo.core.policy import Heartbeat
from tests.dialects.conftest import INTERVAL, LIVENESS
from tests.support.broker import BrokerProcess, wait_for
from tests.support.dialects import Desk
from tests.support.peers import (
    Answer,
    Disconnected,
    Manager,
    Mdp01Worker,
    MdpClient,
    MdpWorker,
    Peers,
    TomoFormWorker,
    TomoWorker,
    peers_of,
)

EXPIRY = INTERVAL * LIVENESS
FORMS = [MdpWorker, TomoFormWorker, Mdp01Worker]


@pytest.mark.clause("MDP-H-01")
def test_heartbeats_are_valid_at_any_time_after_ready(brisk_peers: Peers, service: bytes):
    """§Heartbeating: never out of place after READY: idle or busy."""
    worker, client = brisk_peers(MdpWorker, service), brisk_peers(MdpClient)
    worker.command(worker.HEARTBEAT)
    client.request(service, b"x")
    task = worker.take()
    worker.command(worker.HEARTBEAT)
    worker.partial(task, [b"part"])
    worker.command(worker.HEARTBEAT)
    worker.reply(task, [b"end"])
    worker.command(worker.HEARTBEAT)
    assert worker.fence() == []
    assert client.answer(service) == Answer([[b"part"]], [b"end"])


@pytest.mark.parametrize("form", FORMS)
def test_a_strict_service_takes_a_job_from_a_worker_that_fell_silent(form: type[MdpWorker]):
    """§Heartbeating: a worker that is silent for three to five intervals is gone, also one that never showed that it
    beats while busy."""
    # Four seconds: the heir must not seem silent on a busy machine before it has answered.
    strict = "[heartbeat]\ninterval = 1\nliveness = 40\n[services.strict]\nliveness_busy = 4\n"
    with BrokerProcess(toml=strict) as broker, peers_of(broker.endpoint) as peers:
        frozen, client = peers(form, b"strict"), peers(MdpClient)
        frozen.command(frozen.HEARTBEAT)
        client.request(b"strict", b"x")
        frozen.take()
        heir = peers(form, b"strict")
        task = heir.take(30)  # half of the job's own time
        heir.reply(task, task.body)
        assert client.answer(b"strict").final == [b"x"]


@pytest.mark.clause("MDP-H-02")
def test_a_busy_worker_s_partials_are_signs_of_life(brisk_peers: Peers, service: bytes):
    """§Heartbeating: whatever is received is a sign of life, DISCONNECT apart."""
    worker, client = brisk_peers(MdpWorker, service), brisk_peers(MdpClient)
    client.request(service, b"x")
    task = worker.take()
    show_beating_while_busy(worker)
    end = time.monotonic() + 2 * EXPIRY
    count = 0
    while time.monotonic() < end:
        worker.partial(task, [b"%d" % count])
        count += 1
        hear_out(worker, INTERVAL)
    worker.reply(task, [b"end"])
    assert worker.fence() == []
    assert client.answer(service) == Answer([[b"%d" % n] for n in range(count)], [b"end"])


@pytest.mark.clause("MDP-H-03")
def test_the_broker_does_not_beat_while_it_sends_requests():
    """§Heartbeating: SHOULD NOT beat beside other commands."""
    desk = Desk(beat=Heartbeat(1.0, 3))
    worker, client = desk.seat(), desk.seat()
    worker.send(b"MDPW02", b"\x01", b"echo")
    for _ in range(40):
        client.send(b"MDPC02", b"\x01", b"echo", b"x")
        ((header, command, address, _, body),) = worker.take()  # one REQUEST, no HEARTBEAT
        assert (header, command, body) == (b"MDPW02", b"\x02", b"x")
        worker.send(b"MDPW02", b"\x04", address, b"", b"y")
        desk.wait(0.25)
    desk.wait(1.0)
    assert worker.take() == [[b"MDPW02", b"\x05"]]  # it does once there is nothing else to send


@pytest.mark.clause("MDP-H-04")
@pytest.mark.parametrize("form", FORMS)
def test_the_broker_sends_heartbeats_at_regular_intervals(brisk_peers: Peers, service: bytes, form: type):
    """§Heartbeating: both sides MUST beat: the broker to an idle worker and to a busy one, in its own form."""
    worker, client = brisk_peers(form, service), brisk_peers(MdpClient)
    for _ in range(3):
        assert worker.heard() == (worker.HEARTBEAT, [])
        worker.command(worker.HEARTBEAT)
    client.request(service, b"x")
    task = worker.take()
    for _ in range(3):
        assert worker.heard() == (worker.HEARTBEAT, [])
        worker.command(worker.HEARTBEAT)
    worker.reply(task, [b"end"])
    assert client.answer(service).final == [b"end"]


@pytest.mark.clause("MDP-H-05")
def test_an_idle_worker_that_falls_silent_is_given_up(
    brisk_peers: Peers, brisk_manager: Manager, service: bytes
):
    """§Heartbeating: who is silent for several intervals MUST be taken for gone."""
    ready_at = time.monotonic()
    workers = [brisk_peers(form, service) for form in FORMS]
    for worker in workers:
        assert worker.fence() == []
    assert brisk_manager.offered(service)
    wait_for(lambda: not brisk_manager.offered(service))
    assert time.monotonic() - ready_at >= EXPIRY
    for worker in workers:
        worker.expect(worker.DISCONNECT)


@pytest.mark.clause("MDP-H-05")
def test_an_idle_worker_that_beats_is_kept(brisk_peers: Peers, brisk_manager: Manager, service: bytes):
    """§Heartbeating: however long it is idle."""
    workers = [brisk_peers(form, service) for form in FORMS]
    beat_for(2 * EXPIRY, *workers)
    for worker in workers:
        assert worker.fence() == []
    assert len(brisk_manager.show("show_workers", service=service.decode())) == len(FORMS)


@pytest.mark.clause("MDP-H-05")
def test_a_busy_worker_that_beats_is_kept(brisk_peers: Peers, service: bytes):
    """§Heartbeating: it may take its time as long as it is heard from."""
    worker, client = brisk_peers(MdpWorker, service), brisk_peers(MdpClient)
    client.request(service, b"x")
    task = worker.take()
    beat_for(2 * EXPIRY, worker)
    worker.reply(task, [b"at last"])
    assert worker.fence() == []
    assert client.answer(service).final == [b"at last"]


@pytest.mark.clause("MDP-H-05")
@pytest.mark.clause("MDP-L-01")
def test_a_busy_worker_that_stops_beating_loses_its_job(brisk_peers: Peers, service: bytes):
    """§Heartbeating, §Reliability: it has shown that it beats while busy, so its silence means something."""
    worker, client = brisk_peers(MdpWorker, service), brisk_peers(MdpClient)
    client.request(service, b"x")
    task = worker.take()
    show_beating_while_busy(worker)
    spare = brisk_peers.echo(service, beat=INTERVAL)
    assert client.answer(service).final == [b"x"]
    wait_for(lambda: spare.done == 1)
    worker.reply(task, [b"too late"])
    assert worker.fence() == [[b"MDPW02", b"\x06"]]
    assert client.fence() == []


@pytest.mark.clause("MDP-H-05")
def test_a_worker_that_cannot_beat_while_busy_has_its_job_s_time(brisk_peers: Peers, service: bytes):
    """DECISIONS §Expiry of busy workers: one thread, so silent while it works; only the run time-out counts."""
    workers, client = [brisk_peers(form, service) for form in FORMS], brisk_peers(MdpClient)
    for _ in workers:
        client.request(service, b"x")
    tasks = [worker.take() for worker in workers]
    time.sleep(1.5 * EXPIRY)
    for worker, task in zip(workers, tasks, strict=True):
        worker.reply(task, [b"at last"])
        assert client.answer(service).final == [b"at last"]
        assert worker.fence() == []


@pytest.mark.clause("MDP-L-04")
def test_a_worker_that_runs_too_slowly_loses_its_job_and_its_late_answer_is_dropped(
    brisk_peers: Peers, brisk_manager: Manager
):
    """§Reliability: workers may be too slow: the attempt is fenced, the worker is not: with its late answer out of the
    way it works again."""
    service = b"slow.one"
    slow, client = brisk_peers(MdpWorker, service), brisk_peers(MdpClient)
    client.request(service, b"x")
    task = slow.take()
    fast = brisk_peers(MdpWorker, service)
    fast.fence()

    def overtaken() -> bool:
        slow.command(slow.HEARTBEAT)
        fast.command(fast.HEARTBEAT)
        return brisk_manager.show("show_services")[0]["retried"] == 1

    wait_for(overtaken)
    second = fast.take()
    assert second.body == [b"x"]
    assert second.address != task.address
    client.request(service, b"y")
    client.fence()
    assert slow.fence() == []  # nothing new for a worker that still owes an answer
    slow.partial(task, [b"late part"])
    slow.reply(task, [b"late"])
    assert slow.take().body == [b"y"]
    fast.reply(second, [b"in time"])
    assert client.answer(service) == Answer([], [b"in time"])


@pytest.mark.clause("MDP-L-04")
def test_a_job_that_no_worker_survives_is_given_up(brisk_peers: Peers, brisk_manager: Manager):
    """§Reliability: a request that kills its workers must not kill them all: retries are bounded, then it fails."""
    client = brisk_peers(MdpClient)
    client.request(b"once.poison", b"poison")
    worker = brisk_peers(MdpWorker, b"once.poison")
    worker.take()
    worker.close()
    wait_for(lambda: brisk_manager.show("show_jobs", service="once.poison", state="failed"))
    [job] = brisk_manager.show("show_jobs", service="once.poison")
    assert (job["reason"], job["attempts"]) == ("retries-exhausted", 1)
    assert brisk_peers(MdpWorker, b"once.poison").fence() == []
    assert client.fence() == []


@pytest.mark.clause("MDP-L-05")
def test_a_frozen_worker_loses_its_job_and_its_late_answer_is_refused(
    brisk_peers: Peers, brisk_manager: Manager
):
    """§Reliability: workers may crash, be too slow, freeze."""
    service = b"slow.frozen"
    client = brisk_peers(MdpClient)

    def workers() -> list[dict]:
        return brisk_manager.show("show_workers", service=service.decode())

    with frozen_worker(brisk_peers.endpoint, service) as pid:
        wait_for(workers)
        client.request(service, b"x")
        wait_for(lambda: workers()[0]["state"] == "busy")
        os.kill(pid, signal.SIGSTOP)
        spare = brisk_peers.echo(service, beat=INTERVAL)
        assert client.answer(service) == Answer([], [b"x"])
        wait_for(lambda: spare.done == 1)
        assert [row["state"] for row in workers()] == ["late", "idle"]
        os.kill(pid, signal.SIGUSR1)
        os.kill(pid, signal.SIGCONT)
        wait_for(lambda: [row["state"] for row in workers()] == ["idle", "idle"])
        assert client.fence() == []


@pytest.mark.clause("MDP-H-06")
def test_a_worker_that_lost_the_broker_starts_a_new_conversation(brisk_peers: Peers, brisk_manager: Manager):
    """§Heartbeating: a worker that lost its broker SHOULD start afresh: the old connection's end and the new
    one's READY leave one worker."""
    for _ in range(5):
        worker = brisk_peers(MdpWorker, b"restarted")
        worker.fence()
        worker.close()
    wait_for(lambda: len(brisk_manager.show("show_workers", service="restarted")) == 0)
    brisk_peers.echo(b"restarted", TomoWorker, beat=INTERVAL)
    assert brisk_peers(MdpClient).call(b"restarted", [b"x"]).final == [b"x"]
    assert len(brisk_manager.show("show_workers", service="restarted")) == 1


@pytest.mark.clause("MDP-H-07")
def test_a_worker_that_was_given_up_is_sent_nothing_more(
    brisk_peers: Peers, brisk_manager: Manager, service: bytes
):
    """§Heartbeating: a worker given up SHOULD be sent nothing: the DISCONNECT is the last."""
    worker, client = brisk_peers(MdpWorker, service), brisk_peers(MdpClient)
    worker.expect(worker.DISCONNECT)
    client.request(service, b"x")
    client.fence()
    with pytest.raises(AssertionError):
        worker.recv(4 * INTERVAL)
    worker.command(worker.HEARTBEAT)
    assert worker.fence() == []
    assert not brisk_manager.offered(service)


@pytest.mark.clause("MDP-H-08")
def test_a_broker_that_stalls_does_not_blame_its_workers():
    """§Heartbeating: the silence of a stopped broker is its own."""
    with (
        BrokerProcess(toml=f"[heartbeat]\ninterval = {INTERVAL}\nliveness = {LIVENESS}") as broker,
        Manager(broker.endpoint) as manager,
    ):
        workers = [MdpWorker(broker.endpoint, b"patient") for _ in range(10)]
        try:
            for stall in (EXPIRY * 1.5, EXPIRY * 3):
                for worker in workers:
                    worker.command(worker.HEARTBEAT)
                    assert worker.fence() == []
                broker.signal(signal.SIGSTOP)
                time.sleep(stall)
                broker.signal(signal.SIGCONT)
                for worker in workers:
                    worker.command(worker.HEARTBEAT)
                for worker in workers:
                    assert worker.fence() == []
                assert len(manager.show("show_workers")) == len(workers)
        finally:
            for worker in workers:
                worker.close()


def hear_out(worker: MdpWorker, seconds: float) -> None:
    """Reads heartbeats for so long; nothing else may come."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if worker.socket.poll(left * 1000):
            assert worker.heard() == (worker.HEARTBEAT, [])


def beat_for(seconds: float, *workers: MdpWorker) -> None:
    """What good workers do that have nothing to say."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for worker in workers:
            worker.command(worker.HEARTBEAT)
            hear_out(worker, INTERVAL / len(workers))


def show_beating_while_busy(worker: MdpWorker) -> None:
    """A heartbeat more than an interval into the job."""
    beat_for(2 * INTERVAL, worker)
    worker.command(worker.HEARTBEAT)


def _hold_and_answer(endpoint: str, service: bytes) -> None:
    """A worker process: it holds its first job until it gets SIGUSR1, then answers it."""
    told = []
    signal.signal(signal.SIGUSR1, lambda number, frame: told.append(number))
    worker = MdpWorker(endpoint, service, beat=INTERVAL)
    task = worker.take()
    while not told:
        time.sleep(0.01)
    worker.reply(task, [b"late"])
    while True:
        try:
            task = worker.take()
            worker.reply(task, task.body)
        except Disconnected:
            worker.close()
            worker = MdpWorker(endpoint, service, beat=INTERVAL)


@contextmanager
def frozen_worker(endpoint: str, service: bytes) -> Iterator[int]:
    process = multiprocessing.get_context("spawn").Process(target=_hold_and_answer, args=(endpoint, service))
    process.start()
    try:
        yield process.pid or 0
    finally:
        process.kill()
        process.join()
        process.close()
