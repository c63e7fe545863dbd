"""Six kinds of clients call five kinds of workers, through one broker."""

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
    with BrokerProcess(nng=True, http=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def workers(broker: BrokerProcess) -> Iterator[dict[str, Serving]]:
    """One of each kind, each at a service of its own name, giving back what it gets."""
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
