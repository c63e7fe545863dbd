"""Parsed documentation pages: fenced blocks, the comments that say how to run them, headings and links.

A block of `sh` or `python` is run; a `text` block below it shows its output. An HTML comment on the line
above a block changes that:

    <!-- run: background -->                  keeps running, as in its own terminal; the next block is run
                                              when the output shown in the text block below has appeared
    <!-- run: background, until service X --> the same, and a worker must offer the service X
    <!-- run: fails 4 -->                     ends with this exit code
    <!-- run: skip: WHY -->                   not run, for a reason a reader would accept
    <!-- file: NAME -->                       contents of this file; of any language

and one anywhere in the page, `<!-- page: own settings -->`, says that the page is about configuration: it is
run without the two variables that direct its commands to a separate port (see runner.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(\w*)\s*$")
COMMENT = re.compile(r"^<!--\s*(run|file|page):\s*(.*?)\s*-->$")
HEADING = re.compile(r"^#+\s+(.*)$")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*\bsrc=\"([^\"]+)\"")
RUN = ("sh", "python")
# Blocks with a program that uses Spark, except those that only look at files.
ON_SPARK = re.compile(r"polydomo\.spark\b|\bpolydomo spark (?!doctor --no-job|sql --data data \|)")


@dataclass
class Block:
    """One fenced block."""

    line: int
    language: str
    text: str
    kind: str = ""  # of the comment above: run, file, or none
    note: str = ""  # text of that comment
    expected: str = ""  # the text block below


@dataclass
class Page:
    """One Markdown file."""

    path: Path
    blocks: list[Block]
    anchors: set[str]
    links: list[tuple[int, str]]
    own_settings: bool
    prose: str

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    def on_spark(self) -> list[Block]:
        """Return the blocks that run a program that uses Spark: their own or that of a file."""
        played = [
            block
            for block in self.blocks
            if block.kind != "file" and block.language in RUN and not block.note.startswith("skip")
        ]
        return [block for block in played if any(map(ON_SPARK.search, (block.text, *self._files(block))))]

    def _files(self, block: Block) -> list[str]:
        return [file.text for file in self.blocks if file.kind == "file" and file.note in block.text]


def all_pages() -> list[Page]:
    """Return README and all pages in docs/."""
    return [read(path) for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]]


def read(path: Path) -> Page:
    """Parse a page into blocks, headings and links."""
    page = Page(path, [], set(), [], False, "")
    kind = note = ""
    inside: Block | None = None
    prose = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        comment = COMMENT.match(line)
        if inside is not None:
            if line == "```":
                inside = None
            else:
                inside.text += f"{line}\n"
        elif fence:
            inside = Block(number, fence[1], "", kind, note)
            page.blocks.append(inside)
            kind = note = ""
        elif comment and comment[1] == "page":
            page.own_settings = comment[2] == "own settings"
        elif comment:
            kind, note = comment[1], comment[2]
        else:
            prose.append(line)
            kind = note = ""
            heading = HEADING.match(line)
            if heading:
                page.anchors.add(anchor(heading[1]))
            page.links += [(number, found[0] or found[1]) for found in LINK.findall(_without_code(line))]
    assert inside is None, f"{page.name}: a block is not closed"
    _join_output(page.blocks)
    page.prose = "\n".join(prose)
    return page


def anchor(heading: str) -> str:
    """Return GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _join_output(blocks: list[Block]) -> None:
    """Attach each text block to the executable block before it."""
    for block, following in pairwise(blocks):
        if block.language in RUN and following.language == "text":
            block.expected = following.text


def _without_code(line: str) -> str:
    return re.sub(r"`[^`]*`", "", line)
