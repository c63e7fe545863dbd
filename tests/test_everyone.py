"""Tests of six kinds of clients calling six kinds of workers, through one broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.broker import BrokerProcess
from tests.support.everyone import CLIENTS, WORKERS
from tests.support.peers import Serving

BODIES = [b"hello", b"", b'{"task": "echo", "args": ["\xc3\xa9"]}', bytes(range(256)) * 300]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml="[services.remembered]\nmemo = true", nng=True, http=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def workers(broker: BrokerProcess) -> Iterator[dict[str, Serving]]:
    """Start one worker of each kind, each on its own service, that echoes requests."""
    serving = {kind: make(broker, b"echo." + kind.encode()) for kind, make in WORKERS.items()}
    yield serving
    for one in serving.values():
        one.stop()


@pytest.fixture(scope="module", params=list(CLIENTS))
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Any]:
    client = CLIENTS[request.param](broker)
    yield client
    client.close()


@pytest.mark.parametrize("worker", list(WORKERS))
def test_any_client_calls_any_worker(client: Any, workers: dict[str, Serving], worker: str) -> None:
    for body in BODIES:
        assert client.call(f"echo.{worker}", body) == body


@pytest.mark.parametrize("kind", list(WORKERS))
def test_what_one_was_answered_all_are_answered_without_a_worker(broker: BrokerProcess, kind: str) -> None:
    """A memoised service returns the same result to clients of all kinds."""
    body = b"asked first of " + kind.encode()
    worker = WORKERS[kind](broker, b"remembered")
    first = CLIENTS["mdp"](broker)
    assert first.call("remembered", body) == body
    worker.stop()
    first.close()
    for make in CLIENTS.values():
        client = make(broker)
        assert client.call("remembered", body) == body
        client.close()
