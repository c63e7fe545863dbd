"""Who runs what, and when, where several processes share the suite (`pytest -n`).

All that needs the run's Spark session goes to one process, because the session is expensive; a file's tests stay
together, because they share brokers and peers; tests that take long by themselves are dealt out one by one. What takes
long comes first, so that no process is left alone with it in the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SESSION = "tests/pipeline/"

# They start Spark in processes of their own.
WITHOUT_SESSION = ("tests/pipeline/test_cluster.py", "tests/pipeline/test_serve_process.py")

ONE_BY_ONE = (
    "tests/bench/",
    "tests/cli/test_shows.py",
    "tests/dialects/wmp/test_herd.py",
    "tests/docs/test_pages.py",
    "tests/runtime/test_durable.py",
    "tests/runtime/test_ledgering.py",
)


class Turns(LoadScopeScheduling):
    """Deals out units in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """What a test is not parted from."""
    file = nodeid.partition("::")[0]
    if file.startswith(SESSION) and file not in WITHOUT_SESSION:
        return SESSION
    return nodeid if file.startswith(ONE_BY_ONE) else file


def longest_first(items: list[pytest.Item]) -> None:
    """The session's tests, then the units with slow tests, then the others."""
    slow = {unit(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> int:
        name = unit(item.nodeid)
        return 0 if name == SESSION else 1 if name in slow else 2

    items.sort(key=rank)
