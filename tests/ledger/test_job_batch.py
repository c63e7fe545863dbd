"""Names of peers in the ledger."""

from __future__ import annotations

import pytest

from polydomo.ledger.job_batch import text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"plain", "plain"),
        ("größe".encode(), "größe"),
        (b"", ""),
        (b"\x00\x80", "0x0080"),
        (b"line\nbreak", "0x6c696e650a627265616b"),
        (b"\xff\xfe", "0xfffe"),
    ],
)
def test_names_of_peers_are_readable_and_never_ambiguous_bytes(name: bytes, shown: str) -> None:
    assert text(name) == shown
