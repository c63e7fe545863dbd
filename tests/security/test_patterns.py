"""Patterns of names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.security.patterns import matches, matches_principal, precision

TEXTS = st.text("ab*", max_size=8)


@given(TEXTS, TEXTS)
def test_a_star_stands_for_any_text(pattern: str, text: str) -> None:
    expression = ".*".join(re.escape(piece) for piece in pattern.split("*"))
    assert matches(pattern, text) == (re.fullmatch(expression, text, re.DOTALL) is not None)


@pytest.mark.parametrize(
    ("pattern", "name", "result"),
    [
        ("ann", "ann", True),
        ("ann", "anna", False),
        ("shop-*", "shop-1", True),
        ("shop-*", "shop", False),
        ("*", "ann", True),
        ("*", "oidc:ann", True),
        ("*", "anonymous", False),
        ("anon*", "anonymous", False),
        ("anonymous", "anonymous", True),
        ("*-admin", "shop-admin", True),
        ("*-admin", "oidc:shop-admin", False),
        ("*:shop-admin", "oidc:shop-admin", False),
        ("oidc:*", "oidc:ann", True),
        ("oidc:*-admin", "oidc:shop-admin", True),
        ("user:*", "oidc:ann", False),
        ("cert:*", "cert:a:b", True),
        ("oidc:a*b", "oidc:a*b", True),
    ],
)
def test_names_of_others_match_only_what_is_meant_for_them(pattern: str, name: str, result: bool) -> None:
    assert matches_principal(pattern, name) is result


def test_a_name_is_more_precise_than_any_pattern() -> None:
    patterns = ["*", "shop-*", "shop-1*", "a"]
    assert sorted(["shop-1*", "a", "*", "shop-*"], key=precision) == patterns
