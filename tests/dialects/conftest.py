"""Brokers for a module's tests and peers for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess
from tests.support.peers import Manager, Peers, peers_of

# A rhythm for tests about silence: a worker that says nothing for a second is gone.
INTERVAL = 0.2
LIVENESS = 5

BRISK = f"""
[heartbeat]
interval = {INTERVAL}
liveness = {LIVENESS}
[limits]
client_grace = 1.0
[services."hasty.*"]
wait = 0.3
[services."slow.*"]
timeout = 1.5
[services."once.*"]
retries = 0
"""


@pytest.fixture(scope="module")
def calm() -> Iterator[BrokerProcess]:
    """A broker with its defaults: nobody is given up within a test."""
    with BrokerProcess() as process:
        yield process


@pytest.fixture(scope="module")
def brisk() -> Iterator[BrokerProcess]:
    """A broker that gives silent workers up after a second."""
    with BrokerProcess(toml=BRISK) as process:
        yield process


@pytest.fixture
def peers(calm: BrokerProcess) -> Iterator[Peers]:
    """Peers of the calm broker."""
    with peers_of(calm.endpoint) as opened:
        yield opened


@pytest.fixture
def brisk_peers(brisk: BrokerProcess) -> Iterator[Peers]:
    """Peers of the brisk broker."""
    with peers_of(brisk.endpoint) as opened:
        yield opened


@pytest.fixture
def manager(peers: Peers) -> Manager:
    """Asks the calm broker about itself."""
    return peers(Manager)


@pytest.fixture
def brisk_manager(brisk_peers: Peers) -> Manager:
    """Asks the brisk broker about itself."""
    return brisk_peers(Manager)


@pytest.fixture
def service(request: pytest.FixtureRequest) -> bytes:
    """A service name no other test uses."""
    return request.node.name.encode()[:200]
