"""The architecture page: its diagram is drawn from the table, and every name in its walks exists where it says."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from polydomo.core.states import draw

PAGE = (Path(__file__).parents[2] / "docs/explanation/architecture.md").read_text()
WALKS = PAGE[PAGE.index("## The walk of a request") : PAGE.index("## The hot path")]

# A name in backticks and the module behind it: `Broker.submit` (core/broker), or several names before one module.
NAMED = re.compile(r"((?:`[\w.]+`(?:,\s|\sand\s|\s\()*)+)\(?([a-z_]+(?:/[a-z_]+)+)\)")


def references() -> list[tuple[str, str]]:
    found = []
    for names, module in NAMED.findall(WALKS):
        found += [(name, module) for name in re.findall(r"`([\w.]+)`", names)]
    return found


def test_the_states_are_drawn_from_the_table() -> None:
    drawn = re.search(r"<!-- states -->\n```mermaid\n(.*?)\n```", PAGE, re.DOTALL)
    assert drawn is not None
    assert drawn[1] == draw(), "write what polydomo.core.states.draw() returns into the page"


@pytest.mark.parametrize(("name", "module"), references())
def test_names_in_the_walks_exist(name: str, module: str) -> None:
    found: object = importlib.import_module("polydomo." + module.replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)


def test_the_walks_name_what_they_tell_of() -> None:
    assert len(references()) > 25


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(core/[a-z_]+\.py)`", PAGE))))
def test_files_of_the_core_exist(path: str) -> None:
    assert (Path(__file__).parents[2] / "src/polydomo" / path).is_file()
