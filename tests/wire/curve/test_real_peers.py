"""wire/curve against libzmq itself, over TCP: both ends, with a peer we did not write."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import zmq
import zmq.asyncio

from polydomo.wire.curve.client import CurveClient
from polydomo.wire.curve.keys import KeyPair, encode_key, new_key_pair
from polydomo.wire.curve.server import CurveServer
from tests.support.zmq_ends import SIZES, connected, listening, patient, zmq_socket

SERVER = new_key_pair(os.urandom)
CLIENT = new_key_pair(os.urandom)

BODIES = (*SIZES, 1 << 20)

MISMATCH = (
    "the peer requires the security mechanism NULL, this side CURVE",
    "the peer requires the security mechanism CURVE, this side NULL",
)


def as_client(keys: KeyPair = CLIENT, server: bytes = SERVER.public) -> dict[str, object]:
    """Options of a libzmq socket."""
    return {
        "curve_publickey": encode_key(keys.public).encode(),
        "curve_secretkey": encode_key(keys.secret).encode(),
        "curve_serverkey": encode_key(server).encode(),
    }


def as_server() -> dict[str, object]:
    """Options of a libzmq socket."""
    return {"curve_server": True, "curve_secretkey": encode_key(SERVER.secret).encode()}


def our_server() -> CurveServer:
    return CurveServer(SERVER, os.urandom)


def our_client(server: bytes = SERVER.public) -> CurveClient:
    return CurveClient(CLIENT, server, os.urandom)


def test_libzmq_derives_the_same_public_key() -> None:
    public, secret = zmq.curve_keypair()
    assert encode_key(SERVER.public).encode() == zmq.curve_public(encode_key(SERVER.secret).encode())
    assert len(public) == len(secret) == 40


@pytest.mark.parametrize("kind", [zmq.DEALER, zmq.REQ])
@patient
async def test_our_router_serves(kind: int) -> None:
    async with (
        listening(b"ROUTER", our_server) as (address, ends),
        zmq_socket(kind, routing_id=b"anna", **as_client()) as theirs,
    ):
        theirs.connect(address)
        end = await ends.get()
        peer = await end.ready
        assert (peer.identity, peer.key, peer.minor) == (b"anna", CLIENT.public, 1)
        end.echo = True
        for size in BODIES:
            await theirs.send_multipart([b"", os.urandom(size), b"end"])
            sent = (await end.messages.get())[-2]
            assert (await theirs.recv_multipart()) == [b"", sent, b"end"]
            assert len(sent) == size


@pytest.mark.parametrize("kind", [zmq.ROUTER, zmq.REP, zmq.DEALER])
@patient
async def test_our_dealer_calls(kind: int) -> None:
    async with zmq_socket(kind, **as_server()) as theirs:
        port = theirs.bind_to_random_port("tcp://127.0.0.1")
        async with connected(b"DEALER", port, identity=b"otto", mechanism=our_client()) as end:
            peer = await end.ready
            assert peer.key == SERVER.public
            lead = [b""] if kind == zmq.REP else []
            for size in BODIES:
                body = os.urandom(size)
                end.send(*lead, b"number", body)
                frames = await theirs.recv_multipart()
                assert frames == ([b"otto"] if kind == zmq.ROUTER else []) + [b"number", body]
                await theirs.send_multipart(frames)
                assert await end.messages.get() == [*lead, b"number", body]


@patient
async def test_thousands_of_messages_in_one_burst_arrive_in_order() -> None:
    async with (
        listening(b"ROUTER", our_server) as (address, ends),
        zmq_socket(zmq.DEALER, sndhwm=0, rcvhwm=0, **as_client()) as dealer,
    ):
        dealer.connect(address)
        end = await ends.get()
        await end.ready
        end.echo = True
        for number in range(3000):
            await dealer.send_multipart([b"%d" % number, b"x" * (number % 300)])
        for number in range(3000):
            assert await dealer.recv_multipart() == [b"%d" % number, b"x" * (number % 300)]


@patient
async def test_libzmq_and_our_router_ping_each_other() -> None:
    async with (
        listening(b"ROUTER", our_server) as (address, ends),
        zmq_socket(zmq.DEALER, heartbeat_ivl=20, heartbeat_ttl=3000, **as_client()) as dealer,
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
async def test_libzmq_and_our_dealer_ping_each_other() -> None:
    async with zmq_socket(zmq.ROUTER, heartbeat_ivl=20, heartbeat_ttl=3000, **as_server()) as router:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        async with connected(b"DEALER", port, mechanism=our_client()) as end:
            await end.ready
            end.connection.ping(1.0, b"our context")
            assert await end.pongs.get() == b"our context"
            while end.connection.ttl != 3.0:
                await end.heard.wait()
                end.heard.clear()
            end.send(b"still here")
            assert (await router.recv_multipart())[1:] == [b"still here"]


@patient
async def test_our_publisher_serves_a_sub() -> None:
    async with listening(b"PUB", our_server) as (address, ends), zmq_socket(zmq.SUB, **as_client()) as sub:
        sub.connect(address)
        sub.subscribe(b"jobs.")
        sub.subscribe(b"workers.")
        end = await ends.get()
        await end.ready
        await end.until(lambda: len(end.subscriptions) == 2)
        end.send(b"jobs.done", b"7")
        assert await sub.recv_multipart() == [b"jobs.done", b"7"]
        sub.unsubscribe(b"jobs.")
        await end.until(lambda: len(end.subscriptions) == 1)
        assert not end.subscriptions.matches(b"jobs.done")


@patient
async def test_our_subscriber_hears() -> None:
    async with zmq_socket(zmq.XPUB, **as_server()) as theirs:
        port = theirs.bind_to_random_port("tcp://127.0.0.1")
        async with connected(b"SUB", port, mechanism=our_client()) as end:
            await end.ready
            end.connection.subscribe(b"jobs.")
            assert await theirs.recv() == b"\1jobs."
            await theirs.send_multipart([b"clients", b"no"])
            await theirs.send_multipart([b"jobs.done", b"7"])
            assert await end.messages.get() == [b"jobs.done", b"7"]
            end.connection.subscribe(b"jobs.", False)
            assert await theirs.recv() == b"\0jobs."


@patient
async def test_a_refused_libzmq_client_understands_error() -> None:
    async with (
        listening(b"ROUTER", our_server, refuse="the key is unknown") as (address, ends),
        zmq_socket(zmq.DEALER, reconnect_ivl=60_000, **as_client()) as dealer,
    ):
        monitor = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED)
        dealer.connect(address)
        end = await ends.get()
        assert await end.closed == "the key is unknown"
        assert await monitor.recv_multipart()
        dealer.disable_monitor()
        monitor.close()


@patient
async def test_a_libzmq_client_with_another_server_key_is_refused() -> None:
    stranger = new_key_pair(os.urandom)
    async with (
        listening(b"ROUTER", our_server) as (address, ends),
        zmq_socket(zmq.DEALER, reconnect_ivl=60_000, **as_client(server=stranger.public)) as dealer,
    ):
        dealer.connect(address)
        end = await ends.get()
        assert "another key" in await end.closed
        assert not end.ready.done()


@patient
async def test_our_client_with_another_server_key_is_refused_by_libzmq() -> None:
    stranger = new_key_pair(os.urandom)
    async with zmq_socket(zmq.ROUTER, **as_server()) as theirs:
        port = theirs.bind_to_random_port("tcp://127.0.0.1")
        async with connected(b"DEALER", port, mechanism=our_client(stranger.public)) as end:
            await end.closed
            assert not end.ready.done()


@pytest.mark.parametrize("mechanism", [None, our_server])
@patient
async def test_a_libzmq_peer_with_the_other_mechanism_is_refused(
    mechanism: Callable[[], CurveServer] | None,
) -> None:
    options = as_client() if mechanism is None else {}
    async with (
        listening(b"ROUTER", mechanism) as (address, ends),
        zmq_socket(zmq.DEALER, reconnect_ivl=60_000, **options) as dealer,
    ):
        dealer.connect(address)
        end = await ends.get()
        # libzmq closes when it has read our greeting, sometimes before it has sent its own mechanism.
        assert await end.closed in ("", MISMATCH[mechanism is None])
        assert not end.ready.done()
