"""One broker for most tests of MemoDB's REST."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess
from tests.web.memodb.rest import Rest

TOML = """
[defaults]
wait = 5.0

[services."quick.*"]
durable = false
wait = 0.2
timeout = 0.2
retries = 0
"""


@pytest.fixture(scope="session")
def rest() -> Iterator[Rest]:
    with BrokerProcess(toml=TOML, http=True) as broker:
        yield Rest(broker)
