r"""Escaping of untrusted text for a terminal, a log line or a spreadsheet.

Terminals execute control characters: ESC and the C1 controls (U+009B is one byte for `ESC [`) move the cursor, change
the window's title or its colours, and more in some terminals. Bidirectional overrides change the order in which text is
displayed. All of these are escaped (`\x1b`, `\u202e`); other text is unchanged, in any language.
"""

from __future__ import annotations

import re

# C0 and C1 controls with DEL; marks, embeddings, overrides and isolates of direction; line and paragraph separators;
# lone surrogates, which cannot be encoded.
_UNSAFE = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_LINE = re.compile(f"[{_UNSAFE}]")
_TEXT = re.compile(f"(?![\n\t])[{_UNSAFE}]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

# Beginning of a cell that a spreadsheet takes for a formula.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")

CUT = "…"


def safe(text: str) -> str:
    """Return the text with control characters escaped, except line breaks and tabs."""
    return _TEXT.sub(_shown, text)


def safe_line(text: str, longest: int = 0) -> str:
    """Return the text in one line with all control characters escaped, truncated to `longest` characters (0: not)."""
    if longest and len(text) > longest:
        text = text[: longest - 1] + CUT
    return _LINE.sub(_shown, text)


def safe_json(text: str) -> str:
    """Return JSON text with the same characters in JSON's escapes, so that its meaning is unchanged."""
    return _TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def safe_cell(value: object) -> object:
    """Return a value for a CSV file.

    Text that a spreadsheet would run as a formula is prefixed with an apostrophe, and control characters are escaped.
    Numbers are unchanged, also in text.
    """
    if not isinstance(value, str):
        return value
    if _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        value = "'" + value
    return safe(value)


def _shown(match: re.Match[str]) -> str:
    character = match[0]
    number = ord(character)
    return _NAMED.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")
