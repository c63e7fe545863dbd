"""Tests of links: targets exist, and no page mentions the machine it was written on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page, all_pages, read

PAGES = [
    *all_pages(),
    *[read(ROOT / name) for name in ("CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md")],
]
MACHINE = re.compile(r"/(home|root|work|Users|tmp|private)/\S*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Page) -> None:
    for line, target in page.links:
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.path.parent / file).resolve() if file else page.path
        assert path.exists(), f"{page.name}:{line}: {target} does not exist"
        assert path.is_relative_to(ROOT), f"{page.name}:{line}: {target} is outside of the repository"
        if anchor and path.suffix == ".md":
            assert anchor in read(path).anchors, f"{page.name}:{line}: {target} has no such heading"


def test_every_page_is_reached_from_the_map() -> None:
    index = read(ROOT / "docs" / "index.md")
    reached = {(index.path.parent / target.partition("#")[0]).resolve() for _, target in index.links}
    missing = [page.name for page in all_pages() if page.path.is_relative_to(ROOT / "docs")]
    missing = [name for name in missing if ROOT / name not in reached and name != "docs/index.md"]
    assert not missing, f"docs/index.md does not link to {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_path_of_somebodys_machine(page: Page) -> None:
    text = Path(page.path).read_text(encoding="utf-8")
    found = MACHINE.search(text)
    assert found is None, f"{page.name} mentions {found[0] if found else ''}"
