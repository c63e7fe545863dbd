"""A broker whose services without workers forget their jobs soon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess
from tests.support.peers import Peers, peers_of

HASTY = """
[services."hasty.*"]
durable = false
wait = 0.3
[services."small.*"]
queue = 1
[services."slow.*"]
timeout = 1.0
retries = 0
"""


@pytest.fixture(scope="module")
def hasty() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml=HASTY) as process:
        yield process


@pytest.fixture
def hasty_peers(hasty: BrokerProcess) -> Iterator[Peers]:
    with peers_of(hasty.endpoint) as opened:
        yield opened
