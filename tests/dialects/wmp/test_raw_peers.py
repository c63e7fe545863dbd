"""Bare pyzmq sockets, written from docs/reference/wmp-framing.md alone, as WMP's workers of a real broker and as the
manager of our own worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import zmq

from polydomo.sdk import Worker
from polydomo.sdk.context import Context
from tests.support.broker import BrokerProcess
from tests.support.peers import MdpClient, Silence
from tests.support.wmp_peer import (
    CANCEL,
    DONE,
    GIVE,
    NO,
    READY,
    STATUS,
    TAKE,
    WAKE,
    WmpManager,
    WmpWorker,
    read,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml="[services.short]\ntimeout = 0.5\nretries = 0") as broker:
        yield broker


def test_a_raw_dealer_is_a_worker(broker: BrokerProcess):
    with WmpWorker(broker.endpoint, b"raw", b"other") as worker, MdpClient(broker.endpoint) as client:
        client.request(b"raw", b"one", b"two")
        task = worker.take()
        assert (task.body, task.service) == ([b"one", b"two"], b"raw")
        worker.partial(task, [b"half"])
        worker.reply(task, [b"done"])
        answer = client.answer(b"raw")
        assert (answer.partials, answer.final) == ([[b"half"]], [b"done"])
        client.request(b"other", b"x")
        worker.reply(worker.take(), [b"y"])
        assert client.answer(b"other").final == [b"y"]


def test_what_the_framing_says_of_each_message(broker: BrokerProcess):
    with WmpWorker(broker.endpoint, b"exact") as worker, MdpClient(broker.endpoint) as client:
        client.request(b"exact", b"x")
        wake = worker.hear()
        assert (wake.to, wake.command, wake.source) == ([], WAKE, [])
        assert wake.headers == {"wake": wake.headers["wake"], "roles": ["exact"]}
        worker.say(GIVE, {"wake": wake.headers["wake"]})
        take = worker.hear()
        assert (take.command, take.payload) == (TAKE, [b"x"])
        assert {"job", "manager", "role", "timeout", "wake"} == set(take.headers)
        worker.say(STATUS, {"job": take.headers["job"]})
        worker.say(DONE, {"job": take.headers["job"]}, [b"y"])
        assert client.answer(b"exact").final == [b"y"]


def test_workers_that_say_more_than_we_know_are_understood(broker: BrokerProcess):
    about = {"labels": {"zone": "a"}, "colour": ["red", {"deep": 1}]}
    with WmpWorker(broker.endpoint, b"wordy", **about) as worker, MdpClient(broker.endpoint) as client:
        client.request(b"wordy", b"x")
        task = worker.take()
        worker.say(DONE, {"job": task.address.decode(), "status": 200, "mood": 1.5}, [b"y"])
        assert client.answer(b"wordy").final == [b"y"]


def test_one_job_and_many_workers(broker: BrokerProcess):
    workers = [WmpWorker(broker.endpoint, b"many") for _ in range(50)]
    with MdpClient(broker.endpoint) as client:
        poller = zmq.Poller()
        for worker in workers:
            worker.fence()
            poller.register(worker.socket, zmq.POLLIN)
        client.request(b"many", b"x")
        (awake, _), *others = poller.poll(5000)
        assert len(others) < 8  # none, but on a machine that has no time for the first one
        [worker] = [worker for worker in workers if worker.socket is awake]
        worker.reply(worker.take(), [b"y"])
        assert client.answer(b"many").final == [b"y"]
    for worker in workers:
        worker.close()


def test_a_worker_that_does_not_answer_a_wake_costs_a_moment(broker: BrokerProcess):
    with WmpWorker(broker.endpoint, b"deaf") as reading_paused, MdpClient(broker.endpoint) as client:
        reading_paused.fence()
        with WmpWorker(broker.endpoint, b"deaf") as other:
            other.fence()
            client.request(b"deaf", b"x")
            other.reply(other.take(), [b"y"])
            assert client.answer(b"deaf").final == [b"y"]
            wakes = [said.headers["wake"] for said in map(read, reading_paused.fence())]
            assert wakes
            for wake in wakes:
                reading_paused.say(GIVE, {"wake": wake})
                refusal = reading_paused.hear()
                assert (refusal.command, refusal.headers) == (NO, {"wake": wake})


def test_a_worker_that_takes_too_long_is_told_and_its_answer_is_dropped(broker: BrokerProcess):
    with WmpWorker(broker.endpoint, b"short", b"long") as worker, MdpClient(broker.endpoint) as client:
        client.request(b"short", b"x")
        task = worker.take()
        with pytest.raises(Silence):
            client.recv(1.0)
        worker.reply(task, [b"late"])
        client.request(b"long", b"z")
        worker.reply(worker.take(), [b"w"])
        assert client.answer(b"long").final == [b"w"]


async def test_our_worker_under_raw_managers():
    """Two of them at once, and three places."""
    one, other = WmpManager(), WmpManager()
    seen: list[object] = []
    gate = asyncio.Event()
    places = ",".join(manager.endpoint.removeprefix("tcp://") for manager in (one, other))
    worker = Worker(f"wmp://{places}", concurrency=3, codec="raw", labels={"zone": "a"}, name="ours")

    @worker.service
    async def work(body: bytes, ctx: Context) -> bytes:
        seen.append(body)
        if body == b"wait":
            ctx.progress(b"half")
            await gate.wait()
        return body.upper()

    async with worker:
        ready = await asyncio.to_thread(one.hear, READY)
        assert ready.headers == {"roles": ["work"], "labels": {"zone": "a"}, "slots": 3, "beat": 10_000}
        assert ready.to == [b"ours"]
        one.say(ready, WAKE, {"wake": 1, "roles": ["work"]})
        give = await asyncio.to_thread(one.hear, GIVE)
        one.say(give, TAKE, {"wake": 1, "job": "a", "manager": "m", "role": "work"}, [b"wait"])
        status = await asyncio.to_thread(one.hear, STATUS)
        assert (status.headers, status.payload) == ({"job": "a"}, [b"half"])
        await asyncio.to_thread(other.give, "work", [b"quick"], "a")
        done = await asyncio.to_thread(other.hear, DONE)
        assert (done.headers, done.payload) == ({"job": "a", "status": 200}, [b"QUICK"])
        one.say(give, CANCEL, {"job": "a"})
        done = await asyncio.to_thread(one.hear, DONE)
        assert (done.headers["job"], done.headers["status"]) == ("a", 499)
        await asyncio.to_thread(other.give, "nothing", [b"x"], "b")
        done = await asyncio.to_thread(other.hear, DONE)
        assert done.headers["status"] == 500
        assert done.headers["error"]["kind"] == "LookupError"
    assert seen == [b"wait", b"quick"]
    one.close()
    other.close()


async def test_our_worker_says_goodbye_and_finishes():
    manager = WmpManager()
    worker = Worker(manager.endpoint.replace("tcp", "wmp"), codec="raw")
    begun, gate = asyncio.Event(), asyncio.Event()

    @worker.service
    async def work(body: bytes) -> bytes:
        begun.set()
        await gate.wait()
        return b"finished"

    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(manager.give, "work", [b"x"], "a")
    await begun.wait()
    worker.stop()
    assert (await asyncio.to_thread(manager.hear, READY)).headers == {"roles": []}
    gate.set()
    done = await asyncio.to_thread(manager.hear, DONE)
    assert done.payload == [b"finished"]
    await running
    manager.close()
