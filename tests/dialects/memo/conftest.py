"""Brokers for MemoDB peers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess
from tests.support.memo import Contexts

# HEARTBEATs often enough to see some, and a short wait for jobs that nobody takes.
RHYTHM = """
[memodb]
heartbeat = 0.3
reply = 1.0
wait = 0.5
"""


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(nng=True, toml=RHYTHM) as process:
        yield process


@pytest.fixture
def contexts(server: BrokerProcess) -> Iterator[Contexts]:
    """All on one connection."""
    with Contexts(server.nng) as opened:
        yield opened


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A service name no other test uses."""
    return str(request.node.name)[:100]
