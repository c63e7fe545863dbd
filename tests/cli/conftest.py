"""A broker with the example services, shared by the tests of a module."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from polydomo.cli import broker_client
from polydomo.cli.processes import url_of
from polydomo.errors import Unreachable
from tests.cli.support import CLEAN
from tests.support.broker import BrokerProcess, wait_for


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of a broker where echo, upper and count are offered."""
    with BrokerProcess() as broker:
        place = url_of(broker.endpoint)
        words = ["worker", "polydomo.cli.demo.workers:majordomo", "--url", place]
        worker = subprocess.Popen(
            [sys.executable, "-m", "polydomo", *words], stderr=subprocess.DEVNULL, env=CLEAN
        )
        try:
            wait_for(lambda: _offered(place) == 3, 20)
            yield place
        finally:
            worker.kill()
            worker.wait()


def _offered(url: str) -> int:
    """Return how many services there are; 0 while a busy machine has no time for the broker's handshake."""
    try:
        return len(broker_client.query(url, "services"))
    except Unreachable:
        return 0
