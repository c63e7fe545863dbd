"""NFP's commands in both forms."""

from __future__ import annotations

import pytest

from polydomo.dialects.nfp import messages
from polydomo.dialects.nfp.messages import (
    BROKER,
    COMMANDS,
    NORFAB,
    POST,
    READY,
    SPEC,
    WORKER,
    is_valid_uuid,
    read_command,
    status_of,
)
from polydomo.wire.frames import split

NUMBERS = {
    "OPEN": 0,
    "READY": 1,
    "KEEPALIVE": 2,
    "DISCONNECT": 3,
    "POST": 4,
    "RESPONSE": 5,
    "GET": 6,
    "DELETE": 7,
    "EVENT": 8,
    "STREAM": 9,
    "PUT": 0x10,
    "MMI": 0x11,
}


def test_every_command_has_its_number_and_both_words():
    assert {name: code for code, name in COMMANDS.items()} == NUMBERS
    for name, code in NUMBERS.items():
        assert getattr(messages, name) == code
        assert read_command(bytes((code,))) == (code, SPEC)
        assert read_command(b"0x%02x" % code) == (code, NORFAB)


@pytest.mark.parametrize(
    "word", [None, b"", b"\x0a", b"\x12", b"0x4", b"0x0a", b"0X04", b"POST", b"\x04\x00"]
)
def test_other_frames_are_no_commands(word: bytes | None):
    assert read_command(word) is None


@pytest.mark.parametrize(("form", "word"), [(SPEC, b"\x04"), (NORFAB, b"0x04")])
def test_heads_are_frames_with_more_to_follow(form: messages.Form, word: bytes):
    assert split(form.head(BROKER, POST) + b"\0\4last") == [b"", b"NFPB01", word, b"last"]


def test_whole_messages():
    assert split(SPEC.short(WORKER, READY, b"svc")) == [b"", b"NFPW01", b"\1", b"svc"]
    assert split(NORFAB.disconnect(BROKER, b"svc", b"why")) == [b"", b"NFPB01", b"0x03", b"svc", b"why"]
    assert split(NORFAB.disconnect(BROKER, b"", b"")) == [b"", b"NFPB01", b"0x03", b"", b""]


@pytest.mark.parametrize(
    ("frame", "status"),
    [
        (b"200", b"200"),
        (b"200 OK", b"200"),
        (b"300 ", b"300"),
        (b"", b""),
        (b"20", b""),
        (b"2000", b""),
        (b"200OK", b""),
        (b"OK", b""),
        (b" 200", b""),
    ],
)
def test_a_status_is_three_digits_and_perhaps_a_text(frame: bytes, status: bytes):
    assert status_of(frame) == status


@pytest.mark.parametrize("uuid", [b"1", b"0b7a8f", "Größe".encode(), b"x" * 200, b"a b"])
def test_a_uuid_is_a_short_printable_text(uuid: bytes):
    assert is_valid_uuid(uuid)


@pytest.mark.parametrize("uuid", [b"", b"x" * 201, b"\xff", b"a\nb", b"\0"])
def test_other_uuids_are_refused(uuid: bytes):
    assert not is_valid_uuid(uuid)
