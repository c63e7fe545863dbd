"""A broker in memory for each test, and all dialects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from polydomo.sdk.testing import LocalBroker


@pytest.fixture(params=["mdp", "dcp", "nfp"])
def dialect(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def local() -> AsyncIterator[LocalBroker]:
    """Real time."""
    async with LocalBroker() as broker:
        yield broker


@pytest.fixture
async def virtual() -> AsyncIterator[LocalBroker]:
    """Time stands still until `advance`."""
    async with LocalBroker(virtual=True) as broker:
        yield broker


@pytest.fixture
def url(local: LocalBroker, dialect: str) -> str:
    """Of the real-time broker, in all dialects."""
    return local.url_for(dialect)


@pytest.fixture
def virtual_url(virtual: LocalBroker, dialect: str) -> str:
    """Of the virtual-time broker, in all dialects."""
    return virtual.url_for(dialect)
