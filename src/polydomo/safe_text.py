"""Text from somewhere else, made safe for where it is shown: a terminal, a log line, a spreadsheet.

A terminal obeys control characters: ESC and the C1 controls (U+009B is one byte for `ESC [`) move the cursor, change
the window's title or its colours, in some terminals more. Bidirectional overrides make a text read otherwise than it
is. All of these are shown as what they are (`\\x1b`, `\\u202e`); other text stays as it is, in any language.
"""

from __future__ import annotations

import re

# C0 and C1 controls with DEL; marks, embeddings, overrides and isolates of direction; line and paragraph separators;
# halves of surrogates, which no file can hold.
_UNSAFE = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_LINE = re.compile(f"[{_UNSAFE}]")
_TEXT = re.compile(f"(?![\n\t])[{_UNSAFE}]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

# How a cell begins that a spreadsheet takes for a formula.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")

CUT = "…"


def safe(text: str) -> str:
    """The text with everything visible that a terminal would obey; lines and tabs stay."""
    return _TEXT.sub(_shown, text)


def safe_line(text: str, longest: int = 0) -> str:
    """The same in one line, and no longer than so many characters (0: as long as it is)."""
    if longest and len(text) > longest:
        text = text[: longest - 1] + CUT
    return _LINE.sub(_shown, text)


def safe_json(text: str) -> str:
    """JSON text with the same characters written as JSON's own escapes: it still means the same."""
    return _TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def safe_cell(value: object) -> object:
    """A value for a CSV file: text that a spreadsheet would run as a formula gets an apostrophe in front, and control
    characters are shown. Numbers stay, those in text too."""
    if not isinstance(value, str):
        return value
    if _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        value = "'" + value
    return safe(value)


def _shown(match: re.Match[str]) -> str:
    letter = match[0]
    number = ord(letter)
    return _NAMED.get(letter) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")
