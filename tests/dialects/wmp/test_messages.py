"""WMP's framing, as docs/reference/wmp-framing.md has it."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.device import RoutedMessage
from polydomo.dialects.wmp.messages import NAMES, READY, TAKE
from polydomo.errors import ProtocolError
from polydomo.wire.frames import Message, join, split

HOP = st.binary(min_size=1, max_size=300)
PATH = st.lists(HOP, max_size=messages.HOPS)
NAME = st.one_of(st.text(min_size=1).map(str.encode), st.binary(min_size=1))


def look(frames: list[bytes]) -> RoutedMessage:
    data = join(frames)
    return RoutedMessage(Message(data, 0, len(data)), messages.HOPS)


@pytest.mark.clause("WMP-P-02")
@given(PATH, st.integers(1, 8), PATH, st.lists(st.binary(), max_size=4))
def test_what_is_written_is_read_again(
    to: list[bytes], command: int, source: list[bytes], payload: list[bytes]
):
    headers = cbor2.dumps({"job": "x"})
    data = messages.write(to, command, source, headers, join(payload))
    assert split(data) == [*to, b"", b"WMP1", bytes((command,)), *source, b"", headers, *payload]
    way = look(split(data))
    assert (way.hop, way.command, way.source) == (to[0] if to else b"", command, source)
    assert split(way.forwarded(b"origin")) == [
        *to[1:],
        b"",
        b"WMP1",
        bytes((command,)),
        b"origin",
        *source,
        b"",
        headers,
        *payload,
    ]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"", b"WMP1"],
        [b"", b"WMP1", b"\x01"],
        [b"", b"WMP1", b"\x01", b""],
        [b"", b"WMP2", b"\x01", b"", b"\xa0"],
        [b"", b"WMP1", b"\x00", b"", b"\xa0"],
        [b"", b"WMP1", b"\x09", b"", b"\xa0"],
        [b"", b"WMP1", b"\x01\x01", b"", b"\xa0"],
        [b"", b"WMP1", b"", b"", b"\xa0"],
        [b"hop"] * 3,
        [*[b"hop"] * (messages.HOPS + 1), b"", b"WMP1", b"\x01", b"", b"\xa0"],
        [b"", b"WMP1", b"\x01", *[b"hop"] * (messages.HOPS + 1), b"", b"\xa0"],
    ],
)
def test_what_is_no_message_is_refused(frames: list[bytes]):
    with pytest.raises(ProtocolError):
        look(frames)


@given(st.integers(0, 2**64 - 1), NAME, NAME, NAME, st.floats(0.001, 1e9))
def test_headers_written_by_hand_are_what_everybody_reads(
    wake: int, role: bytes, job: bytes, manager: bytes, timeout: float
):
    said = cbor2.loads(messages.wake_headers(wake, messages.wake_tail(role)))
    assert (said["wake"], _bytes(said["roles"][0])) == (wake, role)
    assert cbor2.loads(messages.only_wake(wake)) == {"wake": wake}
    tail = messages.take_tail(manager, timeout)
    said = cbor2.loads(messages.take_headers(job, messages.encode_name(role), wake, tail, 2))
    assert (_bytes(said["job"]), _bytes(said["role"]), _bytes(said["manager"])) == (job, role, manager)
    assert (said["wake"], said["timeout"]) == (wake, min(round(timeout * 1000), messages.TIMEOUT_MAX))
    assert _bytes(cbor2.loads(messages.only_job(job))["job"]) == job
    done = cbor2.loads(messages.done_headers(job))
    assert (_bytes(done["job"]), done["status"]) == (job, 200)


@given(st.integers(0, 2**64 - 1), st.text(min_size=1, max_size=40))
def test_the_usual_headers_are_recognised_and_others_are_not_taken_for_them(wake: int, job: str):
    assert messages.slots_in(cbor2.dumps({"slots": wake})) == wake
    assert messages.slots_in(cbor2.dumps({"slots": wake, "x": 1})) == -1
    assert messages.slots_in(cbor2.dumps({"slots": [wake]})) == -1
    assert messages.wake_in(cbor2.dumps({"wake": wake}), -1) == wake
    assert messages.wake_in(cbor2.dumps({"wake": wake, "x": 1}), -1) == wake
    assert messages.wake_in(cbor2.dumps({"x": wake}), -1) == -1
    with pytest.raises(ProtocolError):
        messages.wake_in(cbor2.dumps({"wake": [wake]}), -1)
    known = messages.job_done_well(cbor2.dumps({"job": job, "status": 200}, canonical=True))
    assert known == (job.encode() if len(job.encode()) < 24 else b"")
    assert messages.job_done_well(cbor2.dumps({"job": job, "status": 500}, canonical=True)) == b""
    assert messages.job_done_well(cbor2.dumps({"job": [job], "status": 200}, canonical=True)) == b""


@given(st.binary(max_size=40))
def test_nothing_is_made_of_noise(noise: bytes):
    slots = messages.slots_in(noise)
    assert slots == -1 or cbor2.loads(noise) == {"slots": slots}
    try:
        wake = messages.wake_in(noise, -1)
    except ProtocolError:
        wake = -1
    assert wake == -1 or cbor2.loads(noise)["wake"] == wake
    job = messages.job_done_well(noise)
    if job:
        assert cbor2.loads(noise)["status"] == 200


@pytest.mark.clause("WMP-P-01")
def test_there_are_the_specification_s_six_commands_and_its_two_extensions():
    assert NAMES[1:] == ("READY", "WAKE", "GIVE", "TAKE", "NO", "DONE", "STATUS", "CANCEL")
    assert set(messages.FROM_WORKERS) == {READY, 3, 6, 7}
    assert set(messages.FROM_MANAGERS) == {2, TAKE, 5, 8}


@pytest.mark.parametrize(
    ("name", "value"), [("slots", -1), ("slots", True), ("slots", "1"), ("slots", 1.5), ("slots", [1])]
)
def test_numbers_must_be_numbers(name: str, value: object):
    with pytest.raises(ProtocolError):
        messages.whole({name: value}, name)


def test_lists_and_maps_must_be_such():
    for value in ("x", {"a": 1}, 3):
        with pytest.raises(ProtocolError):
            messages.tokens({"roles": value}, "roles")
    for bad in ("x", [1], 3):
        with pytest.raises(ProtocolError):
            messages.table({"labels": bad}, "labels")
    with pytest.raises(ProtocolError):
        messages.tokens({"roles": [1]}, "roles")
    assert messages.tokens({"roles": ["a", b"a", "b"]}, "roles") == [b"a", b"b"]


def _bytes(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else value  # type: ignore[return-value]
