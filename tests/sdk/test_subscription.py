"""Subscriptions to events: with a pyzmq PUB socket, and with a Polydomo broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import zmq

from polydomo.errors import ConfigError
from polydomo.sdk import Client, Context, SyncClient, SyncContext, SyncWorker, Worker
from polydomo.sdk.subscription import event_endpoints, parse_topic, topic_prefix
from polydomo.sdk.testing import LocalBroker
from tests.support.broker import BrokerProcess


class Publisher:
    """A pyzmq socket that sees who subscribes."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.XPUB)
        self.socket.linger = 0
        port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"

    async def subscription(self) -> bytes:
        for _ in range(2000):
            if self.socket.poll(0):
                return self.socket.recv()
            await asyncio.sleep(0.002)
        raise AssertionError("nobody subscribed")

    def publish(self, topic: bytes, body: bytes) -> None:
        self.socket.send_multipart([topic, body])


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    publisher = Publisher()
    yield publisher
    publisher.socket.close()
    publisher.context.term()


@pytest.mark.parametrize(
    ("wanted", "prefix"),
    [
        ((None, None, None), b""),
        (("svc", None, None), b"svc."),
        (("svc", "w1", None), b"svc.w1."),
        (("svc", "w1", "step"), b"svc.w1.step"),
        (("svc", None, "step"), b"svc."),
        ((None, "w1", "step"), b""),
    ],
)
def test_what_is_subscribed_to(wanted: tuple[str | None, str | None, str | None], prefix: bytes):
    assert topic_prefix(*wanted) == prefix


@pytest.mark.parametrize(
    ("topic", "service", "worker", "found"),
    [
        ("svc.w1.step", None, None, ("svc", "w1", "step")),
        ("my.svc.w1.step", None, None, ("my.svc", "w1", "step")),
        ("my.svc.w.1.step", "my.svc", None, ("my.svc", "w.1", "step")),
        ("svc.w1.step.done", "svc", "w1", ("svc", "w1", "step.done")),
        ("svc", None, None, None),
        ("svc.step", "svc", None, None),
        ("other.w1.step", "svc", None, None),
    ],
)
def test_topics(topic: str, service: str | None, worker: str | None, found: tuple[str, str, str] | None):
    assert parse_topic(topic.encode(), service, worker) == found


def test_topics_with_names_that_are_no_text():
    topic = b"\xff.\xca\xfe.step"
    assert parse_topic(topic, None, None) == ("0xff", "0xcafe", "step")
    assert parse_topic(topic, "0xff", None) == ("0xff", "0xcafe", "step")
    assert parse_topic(topic, "0xff", "0xcafe") == ("0xff", "0xcafe", "step")
    assert topic.startswith(topic_prefix("0xff", "0xcafe", "step"))


def test_where_events_are():
    assert [str(place) for place in event_endpoints(["tcp://0.0.0.0:5556"], "10.1.2.3")] == [
        "tcp://10.1.2.3:5556"
    ]
    assert [str(place) for place in event_endpoints("tcp://*:5556", "")] == ["tcp://127.0.0.1:5556"]
    assert [str(place) for place in event_endpoints(["ipc:///run/x"], "h")] == ["ipc:///run/x"]
    for nothing in (None, [], {}):
        with pytest.raises(ConfigError, match="publishes no events"):
            event_endpoints(nothing, "h")


async def test_a_publisher_we_did_not_write(publisher: Publisher):
    """A SUB that subscribes, hears, comes back by itself, and cancels by going."""
    async with Client("nfp://127.0.0.1:1", events=publisher.endpoint) as client:
        subscription = client.events("svc", kind="step")
        listening = asyncio.create_task(subscription.start())
        assert await publisher.subscription() == b"\x01svc."
        await listening
        events = aiter(subscription)
        publisher.publish(b"svc.w1.other", b"")
        publisher.publish(b"another.w1.step", b"")
        publisher.publish(b"svc.w1.step", b'{"n":1}')
        publisher.publish(b"svc.w2.step", b"\xff")
        assert tuple(await anext(events)) == ("svc", "w1", "step", {"n": 1})
        assert tuple(await anext(events)) == ("svc", "w2", "step", b"\xff")
        assert subscription._transport is not None
        subscription._transport._transport.abort()  # type: ignore[union-attr]
        assert await publisher.subscription() == b"\x00svc."
        assert await publisher.subscription() == b"\x01svc."
        publisher.publish(b"svc.w3.step", b"")
        assert tuple(await anext(events)) == ("svc", "w3", "step", None)
        subscription.close()
        assert [event async for event in events] == []
        assert await publisher.subscription() == b"\x00svc."


async def test_a_broker_without_events_is_told_at_once(local: LocalBroker):
    async with Client(local.url_for("nfp")) as client:
        with pytest.raises(ConfigError, match="publishes no events"):
            async with client.events():
                pass


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess("--events", "tcp://127.0.0.1:*") as process:
        yield process


@pytest.fixture
async def talker(broker: BrokerProcess) -> AsyncIterator[str]:
    """Somebody who tells what happens; the broker's URL."""
    url = broker.endpoint.replace("tcp", "nfp")
    worker = Worker(url, name="w1")

    @worker.service
    async def talk(body: Any, ctx: Context) -> str:
        ctx.event("begun", body)
        ctx.event("done", b"\x00raw")
        return "ok"

    async with worker:
        yield url


async def test_a_brokers_events_reach_those_who_did_not_ask(talker: str):
    async with (
        Client(talker, timeout=10) as client,
        Client(talker) as observer,
        observer.events() as everything,
        observer.events("talk", "w1", "done") as ends,
    ):
        assert await client.call("talk", {"x": 1}) == "ok"
        heard = [event async for event, _ in _some(everything, 2)]
        assert [tuple(event) for event in heard] == [
            ("talk", "w1", "begun", {"x": 1}),
            ("talk", "w1", "done", b"\x00raw"),
        ]
        assert [event.body async for event, _ in _some(ends, 1)] == [b"\x00raw"]


async def _some(events: Any, number: int) -> AsyncIterator[tuple[Any, int]]:
    count = 0
    async with asyncio.timeout(10):
        async for event in events:
            yield event, count
            count += 1
            if count == number:
                return


def test_the_sync_twin(broker: BrokerProcess):
    url = broker.endpoint.replace("tcp", "nfp")
    worker = SyncWorker(url, name="w2")

    @worker.service
    def chat(body: Any, ctx: SyncContext) -> str:
        ctx.event("said", body)
        return "ok"

    with worker, SyncClient(url, timeout=10) as client, client.events("chat") as events:
        assert client.call("chat", 5) == "ok"
        heard = iter(events)
        assert tuple(next(heard)) == ("chat", "w2", "said", 5)
        events.close()
        assert list(heard) == []
