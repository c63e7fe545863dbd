"""Broker sides of the dialects: Hypothesis plays several peers at once, the books are looked at each time.

The same targets run on for as long as one likes with `python -m tests.fuzz mixed_sessions --seconds 600`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.targets import dcp_sessions, mdp_sessions, mixed_sessions, nfp_sessions, wmp_sessions
from tests.support import invariants, zmtp
from tests.support.dialects import Desk
from tests.support.effort import examples

DCP = [b"", b"DGBX\x01"]
BODIES = st.lists(
    st.one_of(st.binary(max_size=5), st.sampled_from([b"", bytes(255), bytes(256)])), max_size=4
)
METADATA = st.lists(st.binary(min_size=1, max_size=300), max_size=3)
SERVICES = st.one_of(st.sampled_from([b"echo", b"x" * 255]), st.binary(min_size=1, max_size=40)).filter(
    lambda name: not name.startswith((b"mmi.", b"sid.", b"fss."))
)


@pytest.mark.parametrize("target", [mdp_sessions, dcp_sessions, nfp_sessions, wmp_sessions, mixed_sessions])
@given(data=st.binary(max_size=200))
@examples(60)
def test_any_play_leaves_the_books_right(target, data: bytes) -> None:  # type: ignore[no-untyped-def]
    target(data)


@given(SERVICES, BODIES, BODIES, st.booleans())
@examples(60)
def test_an_mdp_body_goes_through_untouched(
    service: bytes, body: list[bytes], answer: list[bytes], again: bool
) -> None:
    body, answer = body or [b""], answer or [b""]
    desk = Desk()
    client, worker = desk.seat(), desk.seat()
    worker.send(b"MDPW02", b"\1", service)
    for _ in range(1 + again):  # the second time by the way that was expected
        client.send(b"MDPC02", b"\1", service, *body)
        (request,) = worker.take()
        assert request == [b"MDPW02", b"\2", request[2], b"", *body]
        worker.send(b"MDPW02", b"\4", request[2], b"", *answer)
        assert client.take() == [[b"MDPC02", b"\3", service, *answer]]
    assert not client.complaints + worker.complaints
    invariants.check(desk.broker)


@given(SERVICES, METADATA, BODIES, BODIES, st.sampled_from([1, 4]), st.booleans())
@examples(60)
def test_dcp_metadata_and_data_go_through_untouched(
    service: bytes, metadata: list[bytes], body: list[bytes], answer: list[bytes], width: int, again: bool
) -> None:
    desk = Desk()
    client, worker = desk.seat(), desk.seat()
    kinds = [number.to_bytes(width, "little") for number in range(7)]
    assert worker.call(*DCP, kinds[1], service) == [[*DCP, kinds[1], service]]
    for _ in range(1 + again):
        client.send(*DCP, kinds[4], service, b"", *metadata, b"", *body)
        (request,) = worker.take()
        token = request[4]
        assert request == [*DCP, kinds[4], service, token, b"", *metadata, b"", *body]
        worker.send(*DCP, kinds[5], token, b"", *metadata, b"", *answer)
        assert client.take() == [[*DCP, kinds[5], client.link.identity, b"", *metadata, b"", *answer]]
    assert not client.complaints + worker.complaints
    invariants.check(desk.broker)


@given(BODIES, BODIES)
@examples(40)
def test_bodies_go_from_each_dialect_to_the_other(body: list[bytes], answer: list[bytes]) -> None:
    """A body of no frames at all, which MDP cannot say, becomes one empty frame there."""
    desk = Desk()
    mdp, dcp = desk.seat(), desk.seat()
    mdp.send(b"MDPW02", b"\1", b"of-mdp")
    dcp.call(*DCP, b"\1", b"of-dcp")
    dcp.send(*DCP, b"\4", b"of-mdp", b"", b"", *body)
    (request,) = mdp.take()
    assert request[4:] == (body or [b""])
    mdp.send(b"MDPW02", b"\4", request[2], b"", *(answer or [b""]))
    assert dcp.take()[0][6:] == (answer or [b""])
    mdp.send(b"MDPC02", b"\1", b"of-dcp", *(body or [b""]))
    (request,) = dcp.take()
    assert request[7:] == (body or [b""])
    dcp.send(*DCP, b"\5", request[4], b"", b"", *answer)
    assert mdp.take() == [[b"MDPC02", b"\3", b"of-dcp", *(answer or [b""])]]
    assert desk.broker.accounting.active == 0


@given(st.data())
@examples(60)
def test_how_the_bytes_are_cut_makes_no_difference_to_anybody(data: st.DataObject) -> None:
    messages = [
        [b"MDPW02", b"\1", b"echo"],
        [b"MDPC02", b"\1", b"echo", b"1"],
        [b"MDPC02", b"\1", b"echo", b"2", b""],
        [b"MDPW02", b"\4", b"00000001", b"", b"one"],
        [b"MDPC02", b"\1", b"mmi.service", b"echo"],
        [b"MDPW02", b"\3", b"00000002", b"", b"half"],
        [b"MDPW02", b"\4", b"00000002", b"", b"two"],
        [b"MDPW02", b"\5"],
    ]
    stream = b"".join([zmtp.message(*frames) for frames in messages])
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=12)))
    heard = []
    for places in ([], range(1, len(stream)), cuts):
        seat = Desk().seat()
        start = 0
        for cut in [*places, len(stream)]:
            seat.feed(stream[start:cut])
            start = cut
        heard.append((seat.take(), seat.complaints))
    assert heard[0] == heard[1] == heard[2]
    assert [message[-1] for message in heard[0][0] if message[0] == b"MDPC02"] == [
        b"one",
        b"200",
        b"half",
        b"two",
    ]
