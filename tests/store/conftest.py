"""One suite, three stores and their model: a test that takes `desk` runs with each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.store.desk import Desk
from tests.store.server import NoServer, PostgresServer

KINDS = ("model", "memory", "sqlite", "postgres")
DATABASES = ("sqlite", "postgres")

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests; one that stops it must start it again."""
    try:
        server = PostgresServer()
    except NoServer as error:
        pytest.skip(f"NO POSTGRESQL, its store is not tested: {error}")
    yield server
    server.close()


@pytest.fixture
def new_url(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The address of a new, empty store of that kind."""

    def make(kind: str) -> str:
        if kind in ("model", "memory"):
            return f"{kind}:"
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/store{next(_numbers)}.db"
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.space(f"store{next(_numbers)}")

    return make


@pytest.fixture(params=KINDS)
def desk(request: pytest.FixtureRequest, new_url: Callable[[str], str]) -> Iterator[Desk]:
    """An empty store of each kind."""
    desk = Desk(new_url(request.param))
    yield desk
    desk.close()


@pytest.fixture(params=DATABASES)
def lasting(request: pytest.FixtureRequest, new_url: Callable[[str], str]) -> Iterator[Desk]:
    """An empty store of each kind that survives."""
    desk = Desk(new_url(request.param))
    yield desk
    desk.close()
