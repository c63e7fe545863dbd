"""Request IDs, and messages as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import ProtocolError
from polydomo.wire.sp import requests
from tests.support import sp


@given(number=st.integers(0, 2**31 - 1), content=st.binary(max_size=40), ipc=st.booleans())
def test_a_message_is_size_stack_and_content(number: int, content: bytes, ipc: bool) -> None:
    stack = requests.request_id(number)
    assert requests.encode(stack, content, ipc) == sp.request(number, content, ipc=ipc)
    assert requests.head(stack, len(content), ipc) + content == requests.encode(stack, content, ipc)


@pytest.mark.parametrize("depth", range(1, 9))
def test_a_stack_ends_with_the_word_that_has_its_high_bit_set(depth: int) -> None:
    data = b"\0\0\0\1" * (depth - 1) + b"\x80\0\0\1rest"
    assert requests.stack_end(data, 0, len(data)) == 4 * depth


def test_a_stack_has_eight_words_at_the_most() -> None:
    data = b"\0\0\0\1" * 8 + b"\x80\0\0\1"
    assert requests.stack_end(data, 0, len(data)) == -1


@pytest.mark.parametrize("data", [b"", b"\x80\0\0", b"\0\0\0\1", b"\0\0\0\1\x80\0\0"])
def test_a_message_that_is_over_before_its_stack_is_garbage(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="without a request ID"):
        requests.stack_end(data + b"\xff", 0, len(data))


def test_ids_keep_31_bits() -> None:
    assert requests.request_id(2**31) == requests.request_id(0) == b"\x80\0\0\0"
