"""Who runs what, and when, where several processes share the suite (`pytest -n`).

All that uses Spark goes to one process, one after the other: the run's session is expensive, and two Javas that
compile themselves at the same time leave nothing for anybody else on two cores. The other tests mostly wait, and two
processes have them. A file's tests stay together, because they share brokers and peers; tests that take long by
themselves are dealt out one by one. What takes long comes first, so that no process is left alone with it in the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.docs.pages import all_pages

SPARK = "spark"

# They start Spark in processes of their own, when the session's tests are over.
PAGES = tuple(
    f"tests/docs/test_pages.py::test_its_blocks_do_what_it_says[{page.name}]"
    for page in all_pages()
    if page.on_spark()
)
OWN = (
    "tests/pipeline/test_cluster.py",
    "tests/pipeline/test_serve_process.py",
    "tests/cli/test_shows.py::test_the_demo_succeeds",
    *PAGES,
)

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
    if nodeid.startswith(("tests/pipeline/", *OWN)):
        return SPARK
    return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Spark's tests, then the units with slow tests, then the others."""
    slow = {unit(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> int:
        name = unit(item.nodeid)
        if name == SPARK:
            return 1 if item.nodeid.startswith(OWN) else 0
        return 2 if name in slow else 3

    items.sort(key=rank)
