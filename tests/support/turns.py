"""Distribution of the tests over processes (`pytest -n`).

All tests on the run's Spark session go to one process, because the session is expensive. Tests that start their own
Java go to another, one after the other: three of them compiling at the same time would use up two cores. Other tests
mostly wait. A file's tests stay together, because they share brokers and peers; slow tests are distributed one by one.
Slow tests come first, so that no process is left alone with them in the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.docs.pages import all_pages

SESSION = "session"
JAVA = "java"

# Pages that start Spark in their own processes.
PAGES = tuple(
    f"tests/docs/test_pages.py::test_its_blocks_do_what_it_says[{page.name}]"
    for page in all_pages()
    if page.on_spark()
)
OWN = (
    "tests/abuse/test_sql.py",
    "tests/pipeline/test_cluster.py",
    "tests/pipeline/test_run_process.py",
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
    """Scheduling of units in the order of collection."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """Return the unit that a test belongs to."""
    if nodeid.startswith(OWN):
        return JAVA
    if nodeid.startswith("tests/pipeline/"):
        return SESSION
    return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Sort the session's tests first, then units with slow tests, then other tests with a Java, then the rest."""
    slow = {unit(item.nodeid) for item in items if item.get_closest_marker("slow")}
    ranks = {SESSION: 0, JAVA: 2}
    items.sort(key=lambda item: ranks.get(name := unit(item.nodeid), 1 if name in slow else 3))
