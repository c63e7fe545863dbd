"""One SP connection: hello, messages in any cut, limits."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.wire.sp.hello import REQ
from polydomo.wire.stream import CLOSED, TRAFFIC
from tests.support import sp

contents = st.binary(max_size=50)
words = st.integers(0, 2**31 - 1)
messages = st.lists(st.tuples(words, contents, st.lists(words, max_size=7)), max_size=6)


def test_both_sides_say_hello_at_once() -> None:
    _, broker = sp.connect()
    assert broker.sent == sp.REP_HELLO
    _, requester = sp.connect(REQ)
    assert requester.sent == sp.REQ_HELLO


def test_a_requester_reads_replies() -> None:
    connection, noted = sp.connect(REQ)
    connection.receive(sp.REP_HELLO + sp.request(5, b"answer"))
    assert noted.calls == [("ready",), ("message", b"\x80\0\0\5", b"answer")]


@pytest.mark.parametrize("protocol", [0x10, 0x11, 0x20, 0x21, 0x31, 0x50, 0x62, 0x63, 0x70, 0x9999])
def test_only_a_req_may_talk_to_a_rep(protocol: int) -> None:
    connection, noted = sp.connect()
    connection.receive(sp.hello(protocol) + sp.request(1, b"x"))
    assert connection.phase == CLOSED
    (failure,) = noted.failures()
    assert "REQ is needed" in str(failure)
    assert not noted.messages()


@given(sent=messages, cut=st.integers(1, 40), ipc=st.booleans())
def test_the_cut_makes_no_difference(sent: list[tuple[int, bytes, list[int]]], cut: int, ipc: bool) -> None:
    stream = sp.REQ_HELLO + b"".join(
        sp.request(number, content, *devices, ipc=ipc) for number, content, devices in sent
    )
    connection, noted = sp.connect(ipc=ipc)
    for start in range(0, len(stream), cut):
        connection.receive(stream[start : start + cut])
    assert noted.calls[0] == ("ready",)
    assert [content for _, content in noted.messages()] == [content for _, content, _ in sent]
    for (stack, _), (number, _, devices) in zip(noted.messages(), sent, strict=True):
        assert isinstance(stack, bytes)
        assert len(stack) == 4 * (1 + len(devices))
        assert stack[-4:] == (number | 0x80000000).to_bytes(4, "big")


@given(sent=st.lists(contents, max_size=6), cut=st.integers(1, 40))
def test_what_comes_while_paused_is_kept_in_order(sent: list[bytes], cut: int) -> None:
    connection, noted = sp.in_traffic()
    noted.on_message = connection.pause
    stream = b"".join(sp.request(number, content) for number, content in enumerate(sent))
    for start in range(0, len(stream), cut):
        connection.receive(stream[start : start + cut])
    while connection.paused:
        connection.resume()
    assert [content for _, content in noted.messages()] == sent
    assert connection.kept() == 0


def test_a_message_of_the_allowed_size_passes() -> None:
    connection, noted = sp.in_traffic(limit=104)
    connection.receive(sp.request(1, bytes(100)))
    assert len(noted.messages()) == 1


@pytest.mark.parametrize("size", [105, 2**40, 2**64 - 1])
def test_a_larger_one_is_refused_by_its_head(size: int) -> None:
    connection, noted = sp.in_traffic(limit=104)
    tracemalloc.start()
    connection.receive(size.to_bytes(8, "big"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert connection.phase == CLOSED
    assert len(noted.failures()) == 1
    assert connection.kept() == 0
    assert peak < 20_000


def test_nothing_follows_a_failure() -> None:
    connection, noted = sp.in_traffic()
    connection.receive(bytes(8) + sp.request(1, b"x"))
    connection.receive(sp.request(2, b"x"))
    assert [call[0] for call in noted.calls] == ["failed"]


def test_a_loop_s_message_is_left_out_and_the_next_is_read() -> None:
    connection, noted = sp.in_traffic()
    connection.receive(sp.request(1, b"lost", *range(8)) + sp.request(2, b"next"))
    assert noted.calls == [("dropped",), ("message", b"\x80\0\0\2", b"next")]
    assert connection.phase == TRAFFIC


def test_an_ipc_message_begins_with_a_one() -> None:
    connection, noted = sp.in_traffic(ipc=True)
    connection.receive(b"\2")
    assert len(noted.failures()) == 1


def test_an_owner_may_refuse() -> None:
    connection, noted = sp.connect()
    noted.refuse = "not you"
    connection.receive(sp.REQ_HELLO)
    assert noted.failures() == ["not you"]


def test_a_large_message_is_not_copied_with_every_piece() -> None:
    """64 MiB in pieces of 64 KiB: a copy per piece would move 32 GiB."""
    size = 64 * 1024 * 1024
    connection, noted = sp.in_traffic(limit=size + 4)
    connection.receive((size + 4).to_bytes(8, "big") + b"\x80\0\0\1")
    piece = bytes(65536)
    for _ in range(size // len(piece)):
        assert not noted.messages()
        connection.receive(piece)
    ((_, content),) = noted.messages()
    assert isinstance(content, bytes)
    assert len(content) == size
    assert connection.kept() == 0


def test_growth_of_an_unfinished_message_is_told_in_steps_and_its_end() -> None:
    told: list[int] = []
    connection, recorder = sp.in_traffic(limit=1 << 20)
    recorder.buffered = told.append  # type: ignore[method-assign]
    whole = sp.request(1, bytes(300_000))
    for start in range(0, len(whole), 10_000):
        connection.receive(whole[start : start + 10_000])
    assert told == [70_000, 140_000, 210_000, 280_000, 0]
    assert connection.spanned == 1


def test_closed_connection_keeps_nothing_and_takes_nothing() -> None:
    connection, recorder = sp.in_traffic(limit=1 << 20)
    connection.receive(sp.request(1, bytes(1000))[:500])
    connection.close()
    assert connection.kept() == 0
    connection.receive(sp.request(1, b"x"))
    assert connection.kept() == 0
    assert recorder.calls == []
