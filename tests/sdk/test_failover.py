"""The order in which brokers are tried, and the pauses in between."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from polydomo.errors import Unreachable
from polydomo.sdk.failover import LONGEST_PAUSE, Backoff, EndpointSelector
from polydomo.sdk.testing import LocalBroker
from polydomo.sdk.url import parse


def ignore(*anything: object) -> None:
    pass


def test_pauses_double_up_to_a_bound_and_are_never_the_same():
    backoff = Backoff(1.0, 8.0)
    pauses = [backoff.pause() for _ in range(6)]
    for pause, most in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True):
        assert most / 2 <= pause <= most
    assert len(set(pauses)) == 6
    backoff.reset()
    assert backoff.pause() <= 1.0


def test_pauses_have_a_sane_default():
    backoff = Backoff()
    assert max(backoff.pause() for _ in range(20)) <= LONGEST_PAUSE


async def test_the_first_that_answers_is_kept():
    async with LocalBroker() as one, LocalBroker() as two, LocalBroker() as three:
        selector = EndpointSelector(parse(f"mdp+local://{one.name},{two.name},{three.name}"))
        await one.crash()
        failures: list[str] = []
        dealer = await selector.connect(ignore, ignore, timeout=1, on_failure=failures.append)
        assert dealer.address.local == two.name
        assert failures == [f"local://{one.name}: {one.name} is down"]
        assert selector.last_error == ""
        again = await selector.connect(ignore, ignore, timeout=1)
        assert again.address.local == two.name
        for found in (dealer, again):
            found.close()


async def test_those_who_find_out_together_move_on_once():
    async with LocalBroker() as one, LocalBroker() as two, LocalBroker() as three:
        selector = EndpointSelector(parse(f"mdp+local://{one.name},{two.name},{three.name}"))
        first = selector.addresses[0]
        for _ in range(5):
            selector.failed(first)
        dealer = await selector.connect(ignore, ignore, timeout=1)
        assert dealer.address.local == two.name
        dealer.close()


async def test_a_place_that_swallows_everything_leaves_time_for_the_next():
    """It listens and never says a word: the handshake runs out of time."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [server.getsockname()[1] for server in (silent, other)]
        selector = EndpointSelector(parse(f"mdp://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"))
        tried: list[str] = []
        with pytest.raises(Unreachable, match=r"no handshake within 0\.1 s"):
            await selector.connect(ignore, ignore, timeout=0.2, on_failure=tried.append)
        assert {text.split(": ")[0] for text in tried} == {f"tcp://127.0.0.1:{port}" for port in ports}


async def test_a_refused_connection_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    selector = EndpointSelector(parse(f"mdp://127.0.0.1:{port}"))
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}: .*[Rr]efused"):
        await selector.connect(ignore, ignore, timeout=0.05)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
                "[Errno 113] Connect call failed ('127.0.0.1', 1)"
            ),
            "Connection refused, No route to host",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ConnectionRefusedError("broker-1 is down"), "broker-1 is down"),
    ],
)
async def test_why_it_failed_is_said_in_the_systems_words(
    error: OSError, words: str, monkeypatch: pytest.MonkeyPatch
):
    async def dial(*anything: object) -> None:
        raise error

    monkeypatch.setattr("polydomo.sdk.transport._dial", dial)
    selector = EndpointSelector(parse("mdp://nowhere:1"))
    with pytest.raises(Unreachable) as told:
        await selector.connect(ignore, ignore, timeout=0)
    assert told.value.message == f"no broker could be reached (tcp://nowhere:1: {words})"


async def test_something_else_behind_the_port_is_told_apart():
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(web, "127.0.0.1", 0)
    async with server:
        selector = EndpointSelector(parse(f"mdp://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        with pytest.raises(Unreachable, match="does not speak ZMTP"):
            await selector.connect(ignore, ignore, timeout=0.05)
