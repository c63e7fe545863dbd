"""Pieces of Markdown for pages that are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def escape(text: str) -> str:
    """For a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def flow(text: str) -> str:
    """On one line: Markdown wraps it."""
    return " ".join(text.split())
