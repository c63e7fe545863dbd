"""pytest fixtures for the tests of applications that use Polydomo; pytest loads them automatically.

    def test_doubling(polydomo_worker, polydomo_client):
        polydomo_worker.add("double", lambda x: 2 * x)
        with polydomo_worker:
            assert polydomo_client.call("double", 21) == 42

An async test gets the async classes, a plain one their sync twins. `@pytest.mark.polydomo(virtual=True)` gives the
broker a clock that only `polydomo_broker.advance(seconds)` moves; `dialect="dcp"` sets the dialect of client and
worker. No other module of Polydomo is imported before a fixture is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from polydomo.sdk.client import Client
    from polydomo.sdk.sync import SyncClient, SyncWorker
    from polydomo.sdk.testing import LocalBroker, SyncLocalBroker
    from polydomo.sdk.worker import Worker


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `polydomo`."""
    config.addinivalue_line(
        "markers", "polydomo(virtual=False, dialect='mdp'): the broker's clock, and its peers' dialect"
    )


@pytest.fixture
def polydomo_broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker | SyncLocalBroker]:
    """Provide a broker in the test's own process."""
    from polydomo.sdk.testing import LocalBroker, SyncLocalBroker

    virtual = bool(_option(request, "virtual", False))
    if _is_async(request):
        broker = LocalBroker(virtual=virtual)
        yield broker
        broker.abandon()  # the test's event loop is closed, with everything that ran on it
    else:
        with SyncLocalBroker(virtual=virtual) as sync_broker:
            yield sync_broker


@pytest.fixture
def polydomo_client(
    request: pytest.FixtureRequest, polydomo_broker: LocalBroker | SyncLocalBroker
) -> Iterator[Client | SyncClient]:
    """Provide a client of that broker."""
    from polydomo.sdk.client import Client
    from polydomo.sdk.sync import SyncClient

    url = polydomo_broker.url_for(_option(request, "dialect", "mdp"))
    if _is_async(request):
        yield Client(url)
    else:
        with SyncClient(url) as client:
            yield client


@pytest.fixture
def polydomo_worker(
    request: pytest.FixtureRequest, polydomo_broker: LocalBroker | SyncLocalBroker
) -> Worker | SyncWorker:
    """Provide a worker of that broker, without services: add them, then start it with `with` or `async with`."""
    from polydomo.sdk.sync import SyncWorker
    from polydomo.sdk.worker import Worker

    url = polydomo_broker.url_for(_option(request, "dialect", "mdp"))
    return Worker(url) if _is_async(request) else SyncWorker(url)


def _is_async(request: pytest.FixtureRequest) -> bool:
    return inspect.iscoroutinefunction(request.function)


def _option(request: pytest.FixtureRequest, name: str, default: Any) -> Any:
    marker = request.node.get_closest_marker("polydomo")
    return default if marker is None else marker.kwargs.get(name, default)
