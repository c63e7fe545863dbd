"""wire/zmtp/connection: what a stream of bytes does never depends on how the network cut it, sound or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.wire.zmtp.connection import ConnectionLimits
from tests.support import zmtp
from tests.support.effort import examples
from tests.support.recorder import Call, connect, feed, handshake

LIMITS = ConnectionLimits(message_bytes=400, frames=4, handshake_bytes=200)
ROLES = [b"ROUTER", b"DEALER", b"PUB", b"SUB"]


def what_happens(
    role: bytes,
    server: bool,
    stream: bytes,
    cuts: object,
    expected: bytes = b"",
    limits: ConnectionLimits = LIMITS,
) -> tuple[list[Call], bytes, int, float]:
    connection, noted = connect(role, server=server, limits=limits)
    if expected:
        noted.expected = expected
    feed(connection, stream, cuts)  # type: ignore[arg-type]
    return noted.calls, noted.sent, connection.phase, connection.ttl


def same_however_cut(role: bytes, server: bool, stream: bytes, cuts: list[int]) -> None:
    whole = what_happens(role, server, stream, [])
    assert what_happens(role, server, stream, range(len(stream))) == whole
    assert what_happens(role, server, stream, cuts) == whole


BITS = st.one_of(
    st.lists(st.binary(max_size=12), min_size=1, max_size=5).map(lambda frames: zmtp.message(*frames)),
    st.sampled_from([bytes(256), bytes(380), bytes(391), bytes(392)]).map(zmtp.message),
    st.builds(
        zmtp.command,
        st.sampled_from([b"PING", b"PONG", b"SUBSCRIBE", b"CANCEL", b"ERROR", b"READY", b"X"]),
        st.one_of(st.binary(max_size=20), st.just(bytes(300))),
    ),
    # Frame headers with any flags and sizes, and nothing or something behind them.
    st.builds(
        lambda flags, size, rest: bytes((flags, size)) + rest,
        *[st.integers(0, 255)] * 2,
        st.binary(max_size=9),
    ),
    st.builds(
        lambda flags, size: bytes((flags | 2,)) + size.to_bytes(8, "big"),
        st.integers(0, 15),
        st.one_of(st.integers(0, 500), st.integers(65_530, 65_540), st.integers(0, (1 << 64) - 1)),
    ),
    st.binary(max_size=6),
)


@pytest.mark.parametrize("role", ROLES)
@given(
    stream=st.lists(BITS, max_size=5).map(b"".join),
    keep=st.integers(0, 1000),
    cuts=st.lists(st.integers(64, 1000), max_size=5),
    version=st.sampled_from([b"\3\0", b"\3\1"]),
)
@examples(120)
def test_traffic(role: bytes, stream: bytes, keep: int, cuts: list[int], version: bytes) -> None:
    same_however_cut(role, True, handshake(role, version) + stream[:keep], cuts)


@pytest.mark.parametrize("server", [True, False])
@given(
    change=st.tuples(st.integers(0, 120), st.binary(min_size=1, max_size=3)),
    keep=st.integers(0, 200),
    after=BITS,
    cuts=st.lists(st.integers(0, 200), max_size=5),
)
@examples(120)
def test_a_handshake_with_something_wrong_in_it(
    server: bool, change: tuple[int, bytes], keep: int, after: bytes, cuts: list[int]
) -> None:
    stream = bytearray(handshake(b"ROUTER") + after)
    at, wrong = change
    stream[at : at + len(wrong)] = wrong
    same_however_cut(b"ROUTER", server, bytes(stream[:keep]), cuts)


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=5))
@examples(100)
def test_anything_at_all(stream: bytes, cuts: list[int]) -> None:
    same_however_cut(b"ROUTER", True, stream, cuts)


HEADS = [b"\x01\x01a", b"\x01\x00", b"\x01\x00\x01\x01a", b"\x01\x01a\x01\x00", b"\x01\x00\x01\x00\x01\x00"]
WITH_HEADS = st.lists(st.one_of(BITS, st.sampled_from(HEADS)), max_size=6).map(b"".join)


@given(WITH_HEADS, st.integers(0, 1000), st.lists(st.integers(64, 1000), max_size=5), st.sampled_from(HEADS))
@examples(150)
def test_what_the_owner_expects_changes_nothing_but_the_speed(
    stream: bytes, keep: int, cuts: list[int], expected: bytes
) -> None:
    limits = ConnectionLimits(message_bytes=400, frames=1000, handshake_bytes=200)
    stream = handshake() + stream[:keep]
    plain = what_happens(b"ROUTER", True, stream, [], limits=limits)
    for pieces in ([], range(len(stream)), cuts):
        assert what_happens(b"ROUTER", True, stream, pieces, expected, limits) == plain
