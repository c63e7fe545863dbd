"""Patterns of names, in which `*` stands for any text, also for none."""

from __future__ import annotations

from typing import Final

from polydomo.core.principals import ANONYMOUS

ANY: Final = "*"

# The beginnings of names that others than the operator have given: a user of this machine, the subject of a
# certificate or of an OIDC token.
ORIGINS: Final = ("user", "cert", "oidc")


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern. Linear in both: peers choose texts."""
    first, *middle = pattern.split(ANY)
    if not middle:
        return pattern == text
    last = middle.pop()
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def matches_principal(pattern: str, name: str) -> bool:
    """Return whether a principal's name matches.

    No pattern matches `anonymous`, which must be named. The pattern `*` matches all other names. Any other pattern
    matches names that a third party gave only if it begins with their origin: `*-admin` is not `oidc:x-admin`.
    """
    if pattern == name:
        return True
    if ANY not in pattern or name == ANONYMOUS:
        return False
    origin, colon, _ = name.partition(":")
    if colon and pattern != ANY and not pattern.startswith(f"{origin}:"):
        return False
    return matches(pattern, name)


def precision(pattern: str) -> tuple[bool, int]:
    """Return how precise a pattern is, for comparisons: a plain name, then that with the most characters."""
    return ANY not in pattern, len(pattern.replace(ANY, ""))
