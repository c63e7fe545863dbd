"""Failback: all peers return to the first broker when it is back, and no job is lost in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest

from polydomo.errors import Unreachable
from polydomo.sdk import Client
from polydomo.sdk.failover import EndpointSelector
from polydomo.sdk.testing import LocalBroker
from polydomo.sdk.url import parse
from polydomo.sdk.worker_log import WorkerLog
from polydomo.sdk.worker_name import WorkerName
from polydomo.sdk.worker_session import SessionSettings, SingleBrokerSession
from tests.sdk.support import gated_worker, until
from tests.sdk.test_outages import calling, start
from tests.support.broker import BrokerProcess


def ignore(*anything: object) -> None:
    pass


def unused(*arguments: object) -> Any:
    raise AssertionError


@pytest.fixture
async def second(virtual: LocalBroker) -> AsyncIterator[LocalBroker]:
    """On the first one's clock."""
    async with LocalBroker(clock=virtual.clock) as broker:
        yield broker


@pytest.fixture
def both(virtual: LocalBroker, second: LocalBroker, dialect: str) -> str:
    return f"{dialect}+local://{virtual.name},{second.name}"


async def offered(broker: LocalBroker) -> bool:
    async with Client(broker.url) as client:
        return await client.offered("gated")


# Looking


async def test_an_earlier_broker_is_noticed_when_it_is_back(virtual: LocalBroker, second: LocalBroker):
    async with LocalBroker(clock=virtual.clock) as third:
        selector = EndpointSelector(
            parse(f"mdp+local://{virtual.name},{second.name},{third.name}"), failback=10
        )
        returns: list[bool] = []
        selector.on_return = lambda: returns.append(True)
        for broker in (virtual, second):
            await broker.crash()
        dealer = await selector.connect(ignore, ignore, timeout=1)
        assert dealer.address.local == third.name
        assert not selector.is_behind(dealer.address)
        await third.advance(60)
        assert returns == []
        await second.restart()
        await third.advance(13)
        assert returns == [True]
        assert selector.is_behind(dealer.address)
        await virtual.restart()
        await third.advance(13)
        assert returns == [True, True]
        again = await selector.connect(ignore, ignore, timeout=1)
        assert again.address.local == virtual.name
        for found in (dealer, again):
            found.close()
        selector.close()


@pytest.mark.parametrize("failback", [0, 10])
async def test_nobody_is_looked_for_if_not_told_to_or_no_more(
    virtual: LocalBroker, second: LocalBroker, failback: float
):
    selector = EndpointSelector(parse(f"mdp+local://{virtual.name},{second.name}"), failback)
    await virtual.crash()
    dealer = await selector.connect(ignore, ignore, timeout=1)
    selector.close()
    await virtual.restart()
    await virtual.advance(60)
    assert not selector.is_behind(dealer.address)
    dealer.close()


async def test_a_session_that_is_still_connecting_ignores_a_broker_that_is_back(both: str):
    """All sessions of a worker share a selector, so one may be notified before its own first connection."""
    url = parse(both)
    selector = EndpointSelector(url)
    settings = SessionSettings(selector, 1, unused, WorkerLog(selector.clock, [], 1), WorkerName(""))
    session = SingleBrokerSession(settings, unused)
    session.reconsider()
    assert not session.registered.is_set()


async def test_a_broker_that_does_not_speak_is_not_back(virtual: LocalBroker, second: LocalBroker, both: str):
    async with gated_worker(both)[0]:
        await virtual.crash()
        await second.advance(1)
        await virtual.restart()
        virtual.freeze()
        await second.advance(60)
        assert await offered(second)


# Workers


async def test_a_worker_goes_back_and_leaves_the_second_when_it_is_quiet_there(
    virtual: LocalBroker, second: LocalBroker, both: str
):
    worker, gate, _ = gated_worker(both, concurrency=2)
    gate.set()
    told: list[str] = []
    worker.on_offering = told.append
    async with worker:
        await virtual.crash()
        await second.advance(1)
        assert await offered(second)
        await virtual.restart()
        await virtual.advance(13)
        assert await offered(virtual)
        assert await offered(second), "its clients need time to go back as well"
        await virtual.advance(40)
        assert await offered(virtual)
        assert not await offered(second)
        assert told == [f"local://{broker.name}" for broker in (virtual, second, virtual)]
    assert not await offered(virtual)


async def test_a_worker_stays_at_the_second_while_it_is_asked_there(
    virtual: LocalBroker, second: LocalBroker, both: str
):
    worker, gate, asked = gated_worker(both)
    gate.set()
    async with worker, Client(second.url) as client:
        await virtual.crash()
        await second.advance(1)
        await virtual.restart()
        for number in range(12):
            await virtual.advance(10)
            assert await client.call("gated", number) == number
        assert await offered(virtual)
        await virtual.advance(50)
        assert not await offered(second)
        assert asked == list(range(12))


async def test_a_job_in_hand_is_finished_before_and_during_the_move(
    virtual: LocalBroker, second: LocalBroker, both: str
):
    worker, gate, asked = gated_worker(both)
    async with worker, Client(second.url, retries=0) as there, Client(virtual.url, retries=0) as here:
        await virtual.crash()
        await second.advance(1)
        first = asyncio.create_task(there.call("gated", 1))
        await until(lambda: asked == [1])
        await virtual.restart()
        await virtual.advance(20)
        assert not await offered(virtual), "its only slot is busy"
        gate.set()
        assert await first == 1
        await worker.ready()
        gate.clear()
        calls = [asyncio.create_task(client.call("gated", n)) for client, n in ((there, 2), (here, 3))]
        await until(lambda: len(asked) == 2)
        await virtual.advance(1)
        assert len(asked) == 2, "one slot is one slot, whoever asks"
        gate.set()
        assert await asyncio.gather(*calls) == [2, 3]
        assert sorted(asked) == [1, 2, 3]


async def test_stopping_during_the_move_finishes_the_job_in_hand(
    virtual: LocalBroker, second: LocalBroker, both: str
):
    worker, gate, asked = gated_worker(both)
    async with Client(second.url, retries=0) as client:
        async with worker:
            await virtual.crash()
            await second.advance(1)
            await virtual.restart()
            await virtual.advance(13)
            call = asyncio.create_task(client.call("gated", 1))
            await until(lambda: asked)
            worker.stop()
            await virtual.advance(1)
            gate.set()
        assert await call == 1
        assert not await offered(virtual)
        assert not await offered(second)


async def test_a_first_broker_that_is_lost_again_is_no_harm(
    virtual: LocalBroker, second: LocalBroker, both: str
):
    worker, gate, _ = gated_worker(both, concurrency=2)
    gate.set()
    async with worker, Client(both, timeout=None) as client:
        for number in range(3):
            await virtual.crash()
            await second.advance(3)
            assert await client.call("gated", number) == number
            await virtual.restart()
            await virtual.advance(14)
            assert await offered(virtual)
            assert await client.call("gated", number) == number


async def test_a_worker_may_be_told_to_stay(virtual: LocalBroker, second: LocalBroker, both: str):
    async with gated_worker(both, failback=0)[0]:
        await virtual.crash()
        await second.advance(1)
        await virtual.restart()
        await virtual.advance(60)
        assert await offered(second)
        assert not await offered(virtual)


# Clients


async def test_an_idle_client_goes_back(virtual: LocalBroker, second: LocalBroker, both: str):
    async with Client(both) as client, Client(both, failback=0) as stays:
        await virtual.crash()
        for each in (client, stays):
            assert not await each.offered("gated")
        await virtual.restart()
        await virtual.advance(13)
        worker, gate, _ = gated_worker(virtual.url)
        gate.set()
        async with worker:
            assert await client.offered("gated")
            assert not await stays.offered("gated")


async def test_calls_under_way_are_answered_where_they_were_asked(
    virtual: LocalBroker, second: LocalBroker, both: str
):
    here, here_gate, _ = gated_worker(virtual.url)
    there, there_gate, asked = gated_worker(second.url)
    here_gate.set()
    await virtual.crash()
    async with there, Client(both, retries=0) as client:
        call = asyncio.create_task(client.call("gated", "there"))
        await until(lambda: asked)
        await virtual.restart()
        async with here:
            await virtual.advance(13)
            assert await client.call("gated", "here") == "here"
            there_gate.set()
            assert await call == "there"
        assert asked == ["there"]


async def test_closing_ends_calls_that_are_under_way_there(
    virtual: LocalBroker, second: LocalBroker, both: str
):
    await virtual.crash()
    async with Client(both) as client:
        call = asyncio.create_task(client.call("nobody"))
        await second.advance(1)
        await virtual.restart()
        await virtual.advance(13)
    with pytest.raises(Unreachable, match="the client was closed"):
        await call


# With brokers in processes of their own


async def test_everybody_goes_back_and_every_call_is_answered(dialect: str):
    with ExitStack() as brokers:
        one = brokers.enter_context(BrokerProcess("--name", "first"))
        two = brokers.enter_context(BrokerProcess("--name", "second"))
        places = [process.endpoint.removeprefix("tcp://") for process in (one, two)]
        url = f"{dialect}://{','.join(places)}"
        worker, gate, _ = gated_worker(url, concurrency=2, failback=0.3)
        gate.set()
        async with (
            worker,
            Client(f"{dialect}://{places[1]}") as behind,
            Client(url, failback=0.3) as client,
            calling(client, "gated") as answered,
        ):
            await until(lambda: answered.total() > 20)
            await asyncio.to_thread(one.kill)
            before = answered.total()
            await until(lambda: answered.total() > before + 20, 20)
            assert (await client.broker())["name"] == "second"
            port = int(places[0].rpartition(":")[2])
            brokers.enter_context(await asyncio.to_thread(start, port))
            async with Client(url) as fresh:
                assert await fresh.call("gated", "new") == "new"
                assert (await fresh.broker())["name"] != "second"
            async with asyncio.timeout(20):
                while (await client.broker())["name"] == "second" or await behind.offered("gated"):
                    await asyncio.sleep(0.01)
            before = answered.total()
            await until(lambda: answered.total() > before + 20)
    assert set(answered.values()) == {1}
