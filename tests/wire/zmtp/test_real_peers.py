"""wire/zmtp/connection against libzmq itself, over TCP: each of our roles with a peer we did not write."""

from __future__ import annotations

import asyncio

import pytest
import zmq
import zmq.asyncio

from polydomo.wire.stream import TRAFFIC
from tests.support.zmq_ends import SIZES, connected, listening, patient, zmq_socket


@patient
async def test_our_router_serves_a_dealer() -> None:
    async with (
        listening(b"ROUTER") as (address, ends),
        zmq_socket(zmq.DEALER, routing_id=b"anna") as dealer,
    ):
        dealer.connect(address)
        end = await ends.get()
        peer = await end.ready
        assert (peer.socket_type, peer.identity, peer.minor) == (b"DEALER", b"anna", 1)
        end.echo = True
        for size in SIZES:
            await dealer.send_multipart([b"", bytes(size), b"end"])
            assert await dealer.recv_multipart() == [b"", bytes(size), b"end"]


@patient
async def test_our_router_serves_a_req() -> None:
    async with listening(b"ROUTER") as (address, ends), zmq_socket(zmq.REQ) as req:
        req.connect(address)
        end = await ends.get()
        assert (await end.ready).identity == b""
        end.echo = True
        for size in SIZES:
            await req.send(bytes(size))
            assert await req.recv() == bytes(size)
            assert await end.messages.get() == [b"", bytes(size)]


@patient
async def test_ten_thousand_messages_in_one_burst_arrive_in_order() -> None:
    async with listening(b"ROUTER") as (address, ends), zmq_socket(zmq.DEALER, sndhwm=0, rcvhwm=0) as dealer:
        dealer.connect(address)
        end = await ends.get()
        await end.ready
        end.echo = True
        for number in range(10_000):
            await dealer.send_multipart([b"%d" % number, b"x" * (number % 300)])
        for number in range(10_000):
            assert await dealer.recv_multipart() == [b"%d" % number, b"x" * (number % 300)]


@patient
async def test_libzmq_and_our_router_ping_each_other() -> None:
    async with (
        listening(b"ROUTER") as (address, ends),
        zmq_socket(zmq.DEALER, heartbeat_ivl=20, heartbeat_ttl=3000) as dealer,
    ):
        dealer.connect(address)
        end = await ends.get()
        await end.ready
        end.connection.ping(1.0, b"our context")
        assert await end.pongs.get() == b"our context"
        while end.connection.ttl != 3.0:
            await end.heard.wait()
            end.heard.clear()
        await dealer.send(b"still here")
        assert await end.messages.get() == [b"still here"]


@patient
async def test_a_refused_libzmq_peer_understands_error() -> None:
    async with (
        listening(b"ROUTER", refuse="the identity is taken") as (address, ends),
        zmq_socket(zmq.DEALER, reconnect_ivl=60_000) as dealer,
    ):
        monitor = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED)
        dealer.connect(address)
        end = await ends.get()
        assert await end.closed == "the identity is taken"
        assert await monitor.recv_multipart()
        dealer.disable_monitor()
        monitor.close()


@patient
async def test_a_socket_of_the_wrong_type_is_refused() -> None:
    async with listening(b"ROUTER") as (address, ends), zmq_socket(zmq.PUSH, reconnect_ivl=60_000) as push:
        push.connect(address)
        end = await ends.get()
        assert "PUSH" in await end.closed


@patient
async def test_our_publisher_serves_a_sub() -> None:
    async with listening(b"PUB") as (address, ends), zmq_socket(zmq.SUB) as sub:
        sub.connect(address)
        sub.subscribe(b"jobs.")
        sub.subscribe(b"workers.")
        end = await ends.get()
        await end.ready
        await end.until(lambda: len(end.subscriptions) == 2)
        assert end.subscriptions.matches(b"jobs.done")
        assert not end.subscriptions.matches(b"clients")
        end.send(b"jobs.done", b"7")
        assert await sub.recv_multipart() == [b"jobs.done", b"7"]
        sub.unsubscribe(b"jobs.")
        await end.until(lambda: len(end.subscriptions) == 1)
        assert not end.subscriptions.matches(b"jobs.done")


@pytest.mark.parametrize("kind", [zmq.ROUTER, zmq.REP, zmq.DEALER])
@patient
async def test_our_dealer_calls(kind: int) -> None:
    async with zmq_socket(kind) as theirs:
        port = theirs.bind_to_random_port("tcp://127.0.0.1")
        async with connected(b"DEALER", port, identity=b"otto") as end:
            await end.ready
            lead = [b""] if kind == zmq.REP else []
            for size in SIZES:
                end.send(*lead, b"number", bytes(size))
                frames = await theirs.recv_multipart()
                assert frames == ([b"otto"] if kind == zmq.ROUTER else []) + [b"number", bytes(size)]
                await theirs.send_multipart(frames)
                assert await end.messages.get() == [*lead, b"number", bytes(size)]


@pytest.mark.parametrize("kind", [zmq.PUB, zmq.XPUB])
@patient
async def test_our_subscriber_hears(kind: int) -> None:
    async with zmq_socket(kind) as theirs:
        port = theirs.bind_to_random_port("tcp://127.0.0.1")
        async with connected(b"SUB", port) as end:
            await end.ready
            end.connection.subscribe(b"jobs.")
            if kind == zmq.XPUB:
                assert await theirs.recv() == b"\1jobs."
            heard = asyncio.create_task(end.messages.get())
            while not heard.done():  # PUB does not tell when the subscription has reached it
                await theirs.send_multipart([b"clients", b"no"])
                await theirs.send_multipart([b"jobs.done", b"7"])
                await asyncio.wait({heard}, timeout=0.01)
            assert heard.result() == [b"jobs.done", b"7"]


@patient
async def test_libzmq_tells_our_dealer_why_it_is_refused() -> None:
    """libzmq sends ERROR to a socket of the wrong type, or only closes; we are not left waiting."""
    async with zmq_socket(zmq.PULL) as theirs:
        port = theirs.bind_to_random_port("tcp://127.0.0.1")
        async with connected(b"DEALER", port) as end:
            await end.closed
            assert end.connection.phase != TRAFFIC
