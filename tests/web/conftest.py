"""Brokers with HTTP for the whole session: one with patience, one with none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess
from tests.web.desk import Desk

TOML = """
[http]
patience = 20.0
worker_idle = 0.8

[limits]
client_jobs = 50

[services."brief*"]
wait = 0.2

[services."lossy*"]
retries = 1
"""

# Everything that takes time takes little of it.
STRICT = """
[http]
slow = 0.4
idle = 0.6
patience = 5.0
connections = 40

[limits]
message_bytes = 200000
memory = 1000000
"""

# Whoever dawdles is cut soon, and nobody else is.
BRISK = """
[http]
slow = 0.4
patience = 0.6

[limits]
stalled = 0.6
"""


@pytest.fixture(scope="session")
def desk() -> Iterator[Desk]:
    with BrokerProcess(toml=TOML, http=True) as broker:
        yield Desk(broker)
        assert "Traceback" not in broker.log(), broker.log()[-5000:]


@pytest.fixture(scope="session")
def strict() -> Iterator[Desk]:
    with BrokerProcess(toml=STRICT, http=True) as broker:
        yield Desk(broker)
        assert "Traceback" not in broker.log(), broker.log()[-5000:]


@pytest.fixture(scope="session")
def brisk() -> Iterator[Desk]:
    with BrokerProcess(toml=BRISK, http=True) as broker:
        yield Desk(broker)
        assert "Traceback" not in broker.log(), broker.log()[-5000:]
