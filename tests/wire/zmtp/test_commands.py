"""wire/zmtp/commands: commands and the metadata of READY (RFC 37 §Commands, §The NULL Security Mechanism)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import ProtocolError
from polydomo.wire.frames import split
from polydomo.wire.zmtp import commands
from tests.support import zmtp
from tests.support.effort import examples


@given(st.binary(min_size=1, max_size=255), st.one_of(st.binary(max_size=300), st.just(bytes(70_000))))
@examples(50)
def test_commands_survive_the_way_there_and_back(name: bytes, data: bytes) -> None:
    wire = commands.encode(name, data)
    assert wire == zmtp.command(name, data)
    assert commands.decode(split(wire)[0]) == (name, data)


@pytest.mark.parametrize("body", [b"", b"\0", b"\0PING", b"\5PING"])
def test_a_command_without_a_whole_name_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="name"):
        commands.decode(body)


@given(st.dictionaries(st.binary(min_size=1, max_size=255), st.binary(max_size=300), max_size=5))
@examples(50)
def test_properties_survive_with_their_names_in_lower_case(properties: dict[bytes, bytes]) -> None:
    found = commands.decode_properties(commands.encode_properties(properties))
    assert found == {name.lower(): value for name, value in properties.items()}


def test_property_names_are_case_insensitive() -> None:
    assert commands.decode_properties(b"\x0bSOCKET-type\0\0\0\6DEALER") == {b"socket-type": b"DEALER"}


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0\0",  # no name
        b"\4Na",  # cut in the name
        b"\4Name\0\0\0",  # cut in the size
        b"\4Name\0\0\0\2a",  # cut in the value
        b"\4Name\xff\xff\xff\xffa",  # 4 GB announced
        b"\4Name\0\0\0\1a\0",  # a good one, then rubbish
    ],
)
def test_metadata_that_reaches_past_its_end_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        commands.decode_properties(data)


@given(st.binary(max_size=40))
@examples(100)
def test_any_metadata_is_read_or_refused(data: bytes) -> None:
    try:
        found = commands.decode_properties(data)
    except ProtocolError:
        return
    assert sum(len(name) + len(value) + 5 for name, value in found.items()) <= len(data)


def test_a_reason_is_cut_to_what_one_length_byte_can_say() -> None:
    name, data = commands.decode(split(commands.encode_error("x" * 300))[0])
    assert name == commands.ERROR
    assert commands.decode_error(data) == "x" * 255


def test_a_reason_is_ascii_on_the_wire() -> None:
    _, data = commands.decode(split(commands.encode_error("zu groß"))[0])
    assert commands.decode_error(data) == "zu gro?"


@pytest.mark.parametrize("data", [b"", b"\5abc", b"\xff"])
def test_a_malformed_error_is_shown_as_it_is(data: bytes) -> None:
    assert commands.decode_error(data) == repr(data)
