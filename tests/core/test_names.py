"""Names of peers and services as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.core.names import parse_name, printable


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"echo", "echo"),
        ("größe".encode(), "größe"),
        (b"", ""),
        (b"\xca\xfe", "0xcafe"),
        (b"a\nb", "0x610a62"),
        (b"0xcafe", "0x307863616665"),  # it would look like the one above
        (b"0x307863616665", "0x3078333037383633363136363635"),
        (b"0xCAFE", "0xCAFE"),
        (b"0x6162", "0x6162"),  # no other name looks so: b"ab" is a text
        (b"0x", "0x"),
        (b"0xabc", "0xabc"),
        (b"0xca fe", "0xca fe"),
    ],
)
def test_printable_text_is_shown_as_it_is_and_all_else_in_hex(name: bytes, text: str) -> None:
    assert printable(name) == text
    assert parse_name(text) == name


@given(st.binary() | st.binary(max_size=9).map(lambda name: b"0x" + name.hex().encode()))
def test_what_is_shown_can_be_read_back(name: bytes) -> None:
    text = printable(name)
    assert text.isprintable()
    assert parse_name(text) == name


@given(st.text())
def test_every_text_is_a_name(text: str) -> None:
    parse_name(text)
