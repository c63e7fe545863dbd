"""NNG's own sockets against a real broker: many contexts, bursts, resends, broken connections, large payloads."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pynng
import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.memo import HEARTBEAT, JOB, Context, Contexts, heartbeat, job
from tests.support.proxy import Proxy
from tests.support.sp import Raw, request

MIB = 1024 * 1024
WORKERS = 1000
CLIENTS = 100

TOML = """
[memodb]
heartbeat = 1.0
reply = 20.0
grace = 5.0
[limits]
client_jobs = 2000
"""


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(nng=True, toml=TOML) as process:
        yield process


def shown(context: Context) -> dict[str, int]:
    """Return the broker's description of its NNG peers."""
    context.job("mmi.service.broker", b"show_broker")
    found = json.loads(context.receive().payload)["nng"]
    assert isinstance(found, dict)
    return found


@pytest.mark.clause("MEMO-O-03")
@pytest.mark.clause("MEMO-O-06")
def test_a_thousand_workers_parked_on_one_connection_and_a_hundred_clients(server: BrokerProcess) -> None:
    with Contexts(server.nng) as working, Contexts(server.nng) as asking:
        workers = [working() for _ in range(WORKERS)]
        clients = [asking() for _ in range(CLIENTS)]
        for worker in workers:
            worker.ready("crowd")
        ids = []
        for worker in workers:
            said = worker.receive()
            assert said.kind == HEARTBEAT
            ids.append(said.id)
            worker.id = said.id
            worker.send(heartbeat(said.id))
        assert len(set(ids)) == WORKERS
        for round in range(3):
            for number, client in enumerate(clients):
                client.job("crowd", b"%d:%d" % (round, number))
            jobs = 0
            while jobs < CLIENTS:
                for worker in workers:  # every one hears of a job or is asked whether it is there
                    said = worker.receive()
                    assert said.id == worker.id
                    if said.kind == JOB:
                        jobs += 1
                        worker.result(said.payload)
                    else:
                        assert said.kind == HEARTBEAT
                        worker.send(heartbeat(said.id))
            answers = [client.receive().payload for client in clients]
            assert answers == [b"%d:%d" % (round, number) for number in range(CLIENTS)]
        assert shown(clients[0])["workers"] == WORKERS


@pytest.mark.clause("MEMO-O-06")
def test_a_burst_of_a_thousand_answers_down_one_connection_arrives_whole(server: BrokerProcess) -> None:
    with Contexts(server.nng) as working, Contexts(server.nng) as asking:
        workers, clients = [working() for _ in range(1000)], [asking() for _ in range(1000)]
        for number, client in enumerate(clients):
            client.job("burst", b"%d" % number)
        for worker in workers:
            worker.ready("burst")
        payloads = [worker.next().payload for worker in workers]
        for worker, payload in zip(workers, payloads, strict=True):
            worker.result(payload * 100, True)
        assert [client.receive().payload for client in clients] == [b"%d" % n * 100 for n in range(1000)]


@pytest.mark.clause("MEMO-C-06")
@pytest.mark.slow
def test_a_client_that_sends_again_every_second_has_its_job_run_once(server: BrokerProcess) -> None:
    with Contexts(server.nng, resend_time=1000) as asking, Contexts(server.nng) as working:
        client, worker, spare = asking(), working(), working()
        before = shown(spare)["repeated"]
        worker.ready("five.seconds")
        client.job("five.seconds", b"x", 20_000)
        assert worker.next().kind == JOB
        end = time.monotonic() + 5.0  # the job
        spare.ready("five.seconds")
        while time.monotonic() < end:
            said = spare.receive()
            assert said.kind == HEARTBEAT, "it was given to a second worker"
            spare.send(heartbeat(said.id))
        worker.result(b"y")
        assert client.receive().payload == b"y"
        assert shown(client)["repeated"] - before >= 3


@pytest.mark.clause("MEMO-O-07")
@pytest.mark.parametrize("cut", ["client", "worker", "both"])
def test_a_connection_cut_in_the_middle_of_a_job(server: BrokerProcess, cut: str) -> None:
    """The job ends once, and the client gets the answer."""
    service = f"cut.{cut}"
    through_proxy = {"reconnect_time_min": 20, "reconnect_time_max": 50}
    with Proxy(server.nng) as proxy:
        client_to = proxy.endpoint if cut != "worker" else server.nng
        worker_to = proxy.endpoint if cut != "client" else server.nng
        with (
            Contexts(client_to, **through_proxy) as asking,
            Contexts(worker_to, **through_proxy) as working,
        ):
            client, worker, other = asking(), working(), working(3000)
            worker.ready(service)
            client.job(service, b"x", 20_000)
            worker.next()
            connected = proxy.accepted
            proxy.cut()
            wait_for(lambda: proxy.accepted == connected + (2 if cut == "both" else 1))
            other.ready(service)
            assert other.receive().kind == HEARTBEAT, "the job was given to a second worker"
            worker.result(b"y")
            said = client.receive()
            assert said.payload == b"y"
            assert worker.receive().kind == HEARTBEAT  # and it is known under its ID


@pytest.mark.clause("MEMO-O-07")
@pytest.mark.clause("MEMO-W-07")
def test_parked_workers_keep_their_ids_over_a_cut(server: BrokerProcess) -> None:
    with (
        Proxy(server.nng) as proxy,
        Contexts(proxy.endpoint, reconnect_time_min=20, reconnect_time_max=50) as working,
        Contexts(server.nng) as asking,
    ):
        workers, clients = [working() for _ in range(50)], [asking() for _ in range(50)]
        for worker in workers:
            worker.ready("parked")
        for worker in workers:
            said = worker.receive()
            assert said.kind == HEARTBEAT
            worker.id = said.id
            worker.send(heartbeat(said.id))
        ids = [worker.id for worker in workers]
        connected = proxy.accepted
        proxy.cut()
        wait_for(lambda: proxy.accepted > connected)
        for client in clients:
            client.job("parked", b"x")
        for worker in workers:
            assert worker.next().payload == b"x"
            worker.result(b"y")
        assert [worker.id for worker in workers] == ids
        assert [client.receive().payload for client in clients] == [b"y"] * 50


@pytest.mark.clause("MEMO-O-04")
def test_64_mib_there_and_back(server: BrokerProcess) -> None:
    size = 64 * MIB
    with Contexts(server.nng, recv_max_size=0) as contexts:
        worker, client, other = contexts(), contexts(), contexts()
        there, back = os.urandom(size), os.urandom(size)
        worker.ready("large")
        client.job("large", there, 60_000)
        assert worker.next().payload == there
        worker.result(back)
        assert client.receive().payload == back
        other.job("mmi.service", b"large")
        assert other.receive().payload == b"200"


def test_a_connection_costs_little_memory(server: BrokerProcess) -> None:
    """A buffer of 64 KiB each would be seen."""
    before = psutil.Process(server.pid).memory_info().rss
    with ExitStack() as stack:
        for _ in range(500):
            raw = stack.enter_context(Raw(server.nng))
            raw.receive(8)
            raw.send(request(1, job("mmi.service", b"x" * 2000)))
            raw.receive_message()
        assert psutil.Process(server.pid).memory_info().rss - before < 500 * 32 * 1024


def test_settings_are_taken_over_by_a_reload() -> None:
    with BrokerProcess(nng=True, toml="[memodb]\nheartbeat = 60\n[limits]\nstalled = 0.2\n") as server:
        config = next(server.data.parent.glob("*.toml"))
        config.write_text("[memodb]\nheartbeat = 0.2\n[limits]\nstalled = 0.2\n")
        server.signal(signal.SIGHUP)
        wait_for(lambda: "settings reloaded" in server.log())
        with Contexts(server.nng) as contexts:

            def brisk() -> bool:
                worker = contexts(1000)
                worker.ready("brisk")
                try:
                    return worker.receive().kind == HEARTBEAT
                except pynng.Timeout:
                    return False

            wait_for(brisk)
