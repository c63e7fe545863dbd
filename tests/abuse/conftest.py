from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Return whether the tests run at full size."""
    return bool(request.config.getoption("--full"))
