"""Who runs what, and when, where several processes share the suite (`pytest -n`).

All that uses the run's Spark session goes to one process, because the session is expensive. What starts a Java of its
own goes to another, one after the other: three that compile themselves at the same time would leave nothing for
anybody else on two cores. The other tests mostly wait. A file's tests stay together, because they share brokers and
peers; tests that take long by themselves are dealt out one by one. What takes long comes first, so that no process is
left alone with it in the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.docs.pages import all_pages

SESSION = "session"
JAVA = "java"

# They start Spark in processes of their own.
PAGES = tuple(
    f"tests/docs/test_pages.py::test_its_blocks_do_what_it_says[{page.name}]"
    for page in all_pages()
    if page.on_spark()
)
OWN = (
    "tests/abuse/test_sql.py",
    "tests/pipeline/test_cluster.py",
    "tests/pipeline/test_serve_process.py",
    "tests/cli/test_shows.py::test_the_demo_succeeds",
    *PAGES,
)

ONE_BY_ONE = (
    "tests/bench/",
    "tests/cli/test_shows.py",
    "tests/dialects/wmp/test_wakeup.py",
    "tests/docs/test_pages.py",
    "tests/server/test_durable.py",
    "tests/server/test_ledger_service.py",
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
    if nodeid.startswith(OWN):
        return JAVA
    if nodeid.startswith("tests/pipeline/"):
        return SESSION
    return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]


def longest_first(items: list[pytest.Item]) -> None:
    """The session's tests, then the units with slow tests, then the other Javas, then all else."""
    slow = {unit(item.nodeid) for item in items if item.get_closest_marker("slow")}
    ranks = {SESSION: 0, JAVA: 2}
    items.sort(key=lambda item: ranks.get(name := unit(item.nodeid), 1 if name in slow else 3))
