"""Brokers joined into one: a client of one is served by workers of another, and hardly notices."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from polydomo.sdk import Client, Worker
from polydomo.sdk.context import Context
from polydomo.security.key_files import create_key_pair
from polydomo.security.keys import ACCEPTED, KeyFolder
from polydomo.wire.curve.keys import encode_key
from tests.support.broker import BrokerProcess, free_port, wait_for
from tests.support.norfab import Worker as NorfabWorker
from tests.support.peers import MdpClient, MdpWorker, Serving, Silence
from tests.support.wmp_peer import WmpWorker
from tests.web.api.site import Site


def wmp(broker: BrokerProcess) -> str:
    return broker.endpoint.replace("tcp://", "wmp://")


def nfp(broker: BrokerProcess) -> str:
    return broker.endpoint.replace("tcp://", "nfp://")


def serve(broker: BrokerProcess, service: bytes) -> Serving:
    return Serving(lambda context: MdpWorker(broker.endpoint, service, context=context))


def joins(broker: BrokerProcess) -> dict[str, float]:
    """What it says of its joins in /metrics."""
    text = Site(broker.http).get("/metrics").body.decode()
    lines = [line.split() for line in text.splitlines() if line.startswith("polydomo_join_")]
    return {name.removeprefix("polydomo_join_"): float(value) for name, value in lines}


async def until(condition, timeout: float = 15.0) -> None:
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.01)


def test_an_mdp_client_here_and_an_mdp_worker_there():
    with BrokerProcess() as a, BrokerProcess("--join", wmp(a), http=True) as b:
        worker = serve(b, b"there")
        with MdpClient(a.endpoint) as client:
            for number in range(50):
                body = [b"%d" % number, b"", b"more"]
                assert client.call(b"there", body).final == body
        assert joins(b) == {"above": 1.0, "running": 0.0, "taken_total": 50.0, "returned_total": 50.0}
        worker.stop()


ROLES = """\
[security]
curve = "on"

[roles.there]
call = ["there"]
serve = ["there"]

[principals]
lender = ["there"]
"""


async def test_a_broker_joins_one_that_requires_keys_and_lends_what_its_roles_grant(tmp_path: Path):
    pair = create_key_pair(tmp_path / "lender.key")
    with BrokerProcess(toml=ROLES) as a:
        folder = KeyFolder(a.data / "keys")
        folder.move(folder.resolve(encode_key(pair.public)), ACCEPTED, "lender")
        query = f"?server_key={encode_key(folder.open().public)}&key={tmp_path / 'lender.key'}"
        with BrokerProcess("--join", wmp(a) + query) as b:
            worker, other = serve(b, b"there"), serve(b, b"secret")
            wait_for(lambda: "uplink refuses a service" in b.log())
            assert "lender may not serve secret" in b.log()
            async with Client(nfp(a) + query) as client:
                assert await client.call("there", b"body", codec="raw") == b"body"
            worker.stop()
            other.stop()
            assert b.log().count("uplink refuses a service") == 1


def test_what_can_be_done_here_is_not_sent_away():
    with BrokerProcess() as a, BrokerProcess("--join", wmp(a), http=True) as b:
        here = serve(a, b"both")
        with MdpClient(a.endpoint) as client:
            client.call(b"both", [b"x"])  # it is there
            away = serve(b, b"both")
            for _ in range(30):
                client.call(b"both", [b"x"])
            assert joins(b)["taken_total"] == 0
            here.stop()
            assert client.call(b"both", [b"x"]).final == [b"x"]
        assert joins(b)["taken_total"] == 1
        away.stop()


def test_jobs_overflow_to_where_there_is_room():
    """One slow worker here, three there: four jobs take the time of one."""
    with BrokerProcess() as a, BrokerProcess("--join", wmp(a), http=True) as b, ExitStack() as stack:
        workers = [stack.enter_context(MdpWorker(a.endpoint, b"slow"))]
        workers += [stack.enter_context(MdpWorker(b.endpoint, b"slow")) for _ in range(3)]
        wait_for(lambda: joins(b)["above"] == 1)
        client = stack.enter_context(MdpClient(a.endpoint))
        for number in range(4):
            client.request(b"slow", b"%d" % number)
        tasks = [worker.take() for worker in workers]  # all have one at the same time
        assert joins(b)["running"] == 3
        for worker, task in zip(workers, tasks, strict=True):
            worker.reply(task, task.body)
        assert sorted(client.answer(b"slow").final[0] for _ in range(4)) == [b"0", b"1", b"2", b"3"]


async def test_an_http_client_here_and_our_nfp_worker_there_with_partials_cancel_and_deadline():
    with BrokerProcess(http=True) as a, BrokerProcess("--join", wmp(a)) as b:
        site = Site(a.http)
        begun: list[str] = []
        stopped: list[str] = []
        worker = Worker(nfp(b), concurrency=4)

        @worker.service
        async def work(body: str, ctx: Context) -> str:
            ctx.progress("half")
            begun.append(body)
            if body != "quick":
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    stopped.append(body)
                    raise
            return body.upper()

        def post(body: str, query: str = "", **headers: str):
            return site.post(
                f"/v1/services/work/jobs?{query}",
                json.dumps(body).encode(),
                content_type="application/json",
                **headers,
            )

        async with worker:
            answer = await asyncio.to_thread(post, "quick", prefer="wait=20")
            assert (answer.status, answer.json()) == (200, "QUICK")
            job = (await asyncio.to_thread(post, "quick")).headers["location"]
            events = (await asyncio.to_thread(site.get, f"{job}/events", accept="text/event-stream")).body
            assert b"half" in events
            # Cancelled by its client
            job = (await asyncio.to_thread(post, "cancel me")).headers["location"]
            await until(lambda: "cancel me" in begun)
            assert site.get(job).json()["state"] == "running"
            assert (await asyncio.to_thread(site.delete, job)).status == 204
            await until(lambda: stopped == ["cancel me"])
            # By its deadline
            late = await asyncio.to_thread(post, "too long", "deadline=2", prefer="wait=20")
            assert late.status == 504
            assert late.json()["reason"] == "deadline"
            if "too long" in begun:  # on a busy machine it may not have got so far
                await until(lambda: stopped == ["cancel me", "too long"])


@pytest.mark.slow
def test_an_mdp_client_here_and_a_norfab_worker_there(tmp_path: Path):
    with BrokerProcess() as a, BrokerProcess("--join", wmp(a)) as b:
        worker = NorfabWorker(b.endpoint, "netbox", "norfab-1", tmp_path)
        try:
            with MdpClient(a.endpoint) as client:
                task = {"task": "echo", "kwargs": {"text": "hello"}, "args": []}
                (answer,) = client.call(b"netbox", [json.dumps(task).encode()], 60).final
                assert b"hello" in answer
        finally:
            worker.kill()


def test_a_failure_there_is_a_failure_here():
    with (
        BrokerProcess(http=True) as a,
        BrokerProcess("--join", wmp(a)) as b,
        WmpWorker(b.endpoint, b"failing") as worker,
    ):
        site = Site(a.http)
        job = site.post("/v1/services/failing/jobs", b"x").headers["location"]
        worker.fail(worker.take(), "it cannot be done")
        wait_for(lambda: site.get(job).json()["state"] == "failed")
        assert site.get(job).json()["message"] == "it cannot be done"


def test_the_other_broker_killed_mid_job_the_job_finishes_elsewhere():
    with (
        BrokerProcess() as a,
        BrokerProcess("--join", wmp(a)) as b,
        BrokerProcess("--join", wmp(a)) as c,
        MdpWorker(b.endpoint, b"torn") as worker,
        MdpClient(a.endpoint) as client,
    ):
        client.request(b"torn", b"x")
        worker.take()
        b.kill()
        other = serve(c, b"torn")
        assert client.answer(b"torn").final == [b"x"]
        other.stop()


def test_the_link_lost_returns_its_jobs_and_what_is_done_for_nobody_is_stopped():
    """The asking broker dies: the worker there is told, and free for others."""
    with BrokerProcess(http=True) as b:
        port = free_port()
        with (
            BrokerProcess(zmq=f"tcp://127.0.0.1:{port}") as a,
            BrokerProcess("--join", wmp(a), "--join", wmp(b), http=True) as c,
            WmpWorker(c.endpoint, b"wanted") as worker,
            MdpClient(a.endpoint) as client,
        ):
            client.request(b"wanted", b"x")
            worker.take()
            assert joins(c)["running"] == 1
            a.kill()
            assert worker.hear().headers == {"job": worker.job}  # CANCEL
            wait_for(lambda: joins(c)["running"] == 0)
            worker.ready()
            job = Site(b.http).post("/v1/services/wanted/jobs", b"y").headers["location"]
            worker.reply(worker.take(), [b"z"])
            wait_for(lambda: Site(b.http).get(job).json()["state"] == "done")


def test_three_brokers_in_a_ring_and_no_job_goes_round():
    ports = [free_port() for _ in range(3)]
    places = [f"127.0.0.1:{port}" for port in ports]
    with ExitStack() as stack:
        ring = [
            stack.enter_context(
                BrokerProcess("--join", f"wmp://{places[(number + 1) % 3]}", zmq=f"tcp://{place}", http=True)
            )
            for number, place in enumerate(places)
        ]
        for broker in ring:
            wait_for(lambda broker=broker: joins(broker)["above"] == 1)
        clients = [stack.enter_context(MdpClient(broker.endpoint)) for broker in ring]
        for client in clients:
            client.request(b"nobody-has-this", b"x")
        time.sleep(1.0)
        assert [joins(broker)["taken_total"] for broker in ring] == [0, 0, 0]
        # A worker at the second: the first is offered nothing by the third, whose own it is not.
        worker = stack.enter_context(MdpWorker(ring[1].endpoint, b"one"))
        clients[2].request(b"one", b"from the third")  # the second is joined to it
        task = worker.take()
        time.sleep(0.3)
        assert Counter(joins(broker)["taken_total"] for broker in ring) == {0: 2, 1: 1}
        worker.reply(task, [b"done"])
        assert clients[2].answer(b"one").final == [b"done"]
        clients[0].request(b"one", b"from the first")
        with pytest.raises(Silence):
            worker.take(1.0)


def test_two_brokers_joined_to_each_other():
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        pair = [
            stack.enter_context(
                BrokerProcess(
                    "--join",
                    f"wmp://127.0.0.1:{ports[1 - number]}",
                    zmq=f"tcp://127.0.0.1:{port}",
                    http=True,
                )
            )
            for number, port in enumerate(ports)
        ]
        workers = [serve(broker, b"echo") for broker in pair]
        clients = [stack.enter_context(MdpClient(broker.endpoint)) for broker in pair]
        for client in clients:
            for number in range(200):
                client.request(b"echo", b"%d" % number)
        for client in clients:
            assert sorted(int(client.answer(b"echo").final[0]) for _ in range(200)) == list(range(200))
        for worker in workers:
            worker.stop()


async def test_clients_fail_over_between_joined_brokers():
    """Two brokers that clients know, and a third that has the workers and helps both."""
    with BrokerProcess() as a, BrokerProcess() as b, BrokerProcess("--join", wmp(a), "--join", wmp(b)) as c:
        worker = serve(c, b"steady")
        urls = ",".join(broker.endpoint.removeprefix("tcp://") for broker in (a, b))
        async with Client(f"mdp://{urls}", codec="raw") as client:
            assert await client.call("steady", b"one") == b"one"
            a.kill()
            assert await client.call("steady", b"two") == b"two"
        worker.stop()


def test_a_url_of_another_dialect_is_refused():
    with pytest.raises(RuntimeError, match=r"join\.up"):
        BrokerProcess("--join", "mdp://127.0.0.1:1")
