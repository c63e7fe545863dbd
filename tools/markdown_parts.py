"""Markdown parts of generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def escape(text: str) -> str:
    """Escape text for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def flow(text: str) -> str:
    """Join lines: Markdown wraps them."""
    return " ".join(text.split())
