"""Tests that run every command and snippet of every page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, RUN, Block, Page, all_pages
from tests.docs.runner import SparkFolder, Stage, first_missing
from tests.support.curl import need_curl

PAGES = all_pages()
PLAYED = [page for page in PAGES if any(block.language in RUN for block in page.blocks)]


def _marked(page: Page) -> Any:
    return pytest.param(page, marks=pytest.mark.slow if page.on_spark() else (), id=page.name)


@pytest.fixture(scope="session")
def spark_folder(no_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkFolder]:
    made = SparkFolder(tmp_path_factory.mktemp("spark"))
    yield made
    made.stop()


@pytest.mark.parametrize("page", [_marked(page) for page in PLAYED])
def test_its_blocks_do_what_it_says(page: Page, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    spark = request.getfixturevalue("spark_folder") if page.on_spark() else None
    if any(re.search(r"\bcurl ", block.text) for block in page.blocks if block.language == "sh"):
        need_curl()
    stage = Stage(page, tmp_path, spark)
    try:
        for block in page.blocks:
            stage.play(block)
    finally:
        stage.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_it_shows_are_used(page: Page) -> None:
    """A file that no later block runs or reads would never be tried."""
    for number, block in enumerate(page.blocks):
        if block.kind == "file":
            name = Path(block.note)
            later = [other.text for other in page.blocks[number + 1 :]]
            used = any(re.search(rf"\b{re.escape(name.stem)}\b", text) for text in later)
            assert used or name.name == "polydomo.toml", f"{page.name}:{block.line}: {name} is not used"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_are_run_or_say_why_not(page: Page) -> None:
    for block in page.blocks:
        where = f"{page.name}:{block.line}"
        assert block.language, f"{where}: the block has no language (use text for none)"
        assert block.language not in ("bash", "shell", "console", "py"), f"{where}: write sh or python"
        if block.kind == "run":
            assert block.language in RUN, f"{where}: only sh and python blocks are run"
            assert _known(block), f"{where}: unknown comment run: {block.note}"


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.prose + "".join(block.text for block in page.blocks)
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
            assert target in targets, f"{page.name}: there is no make {target}"


def test_outputs_are_compared_line_by_line() -> None:
    said = "21:50:04 [info] listening  zmq=tcp://127.0.0.1:5555\nhello Ada\n3.5ms\n"
    assert first_missing("12:00:00 [info] listening zmq=tcp://127.0.0.1:5555\n…\n4ms", said) == ""
    assert first_missing("hello …", said) == ""
    assert first_missing("hello Bob", said) == "hello Bob"
    assert first_missing("hello Ada\n12:00:00 [info] listening …", said) == "12:00:00 [info] listening …"


def _known(block: Block) -> bool:
    return bool(re.fullmatch(r"background(, until service \S+)?|fails \d+|skip: .{10,}", block.note))
