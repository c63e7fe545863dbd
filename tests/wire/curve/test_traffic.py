"""wire/curve/traffic: MESSAGE (RFC 26 §The MESSAGE Command)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import ProtocolError
from polydomo.wire.curve.boxes import ShortNonces, seal_box, shared_key
from polydomo.wire.curve.traffic import FROM_CLIENT, OVERHEAD, CurveTraffic
from polydomo.wire.frames import frame, join, split
from tests.support import zmtp
from tests.support.curve import CLIENT, SERVER, box, short
from tests.support.effort import examples

KEY = bytes(range(32))
BODIES = st.one_of(
    st.binary(max_size=9), st.sampled_from([bytes(222), bytes(223), bytes(255), bytes(256), bytes(3000)])
)
BIG = 1 << 30


def new_traffic(as_server: bool, message_bytes: int = BIG, frames: int = 1024) -> CurveTraffic:
    return CurveTraffic(KEY, ShortNonces(), as_server, message_bytes, frames)


def pair(message_bytes: int = BIG, frames: int = 1024) -> tuple[CurveTraffic, CurveTraffic]:
    """A client that sends and a server with limits."""
    return new_traffic(False), new_traffic(True, message_bytes, frames)


def sealed(nonce: int, content: bytes) -> bytes:
    """A client's MESSAGE whose box has any content."""
    return frame(b"\7MESSAGE" + short(nonce) + seal_box(content, FROM_CLIENT + short(nonce), KEY))


def read(traffic: CurveTraffic, data: bytes, step: int = 0) -> list[bytes]:
    """All messages in the data, fed at once or `step` bytes at a time."""
    found: list[bytes] = []
    step = step or len(data) or 1
    for start in range(0, len(data), step):
        traffic.feed(data[start : start + step])
        message = traffic.next_message()
        while message is not None:
            found.append(message)
            message = traffic.next_message()
    return found


@given(st.lists(st.lists(BODIES, min_size=1, max_size=4), max_size=5), st.integers(0, 50))
@examples(60)
def test_messages_arrive_as_they_were_sent(messages: list[list[bytes]], step: int) -> None:
    for client_sends in (True, False):
        sender, receiver = new_traffic(not client_sends), new_traffic(client_sends)
        wire = sender.seal(b"".join([join(frames) for frames in messages]))
        assert read(receiver, wire, step) == [join(frames) for frames in messages]
        assert receiver.kept() == 0


def test_each_frame_is_one_message_frame_without_flags_as_libzmq_sends_it() -> None:
    client, _ = pair()
    wire = client.seal(zmtp.message(b"a", b"b" * 300) + zmtp.command(b"PING", b"\0\0"))
    first = sealed(1, b"\1a")
    second = sealed(2, b"\0" + b"b" * 300)
    third = sealed(3, b"\2\4PING\0\0")
    assert wire == first + second + third
    assert (first[0], second[0], third[0]) == (0, 2, 0)
    assert len(first) == 2 + OVERHEAD + 1


def test_commands_are_marked_inside_the_box() -> None:
    for data in (zmtp.command(b"PONG", b"x"), zmtp.command(b"SUBSCRIBE", b"t" * 300)):
        client, server = pair()
        assert read(server, client.seal(data)) == [data]


def test_a_known_message() -> None:
    """Fixed keys give fixed bytes: a change here breaks connections to other releases."""
    client, _ = pair()
    assert client.seal(zmtp.message(b"hello")).hex() == (
        "0026074d4553534147450000000000000001309c54fce8cba406b4ac21fbcf78211894dc46fcc607"
    )


def test_the_same_message_is_never_encrypted_to_the_same_bytes() -> None:
    client, _ = pair()
    assert client.seal(zmtp.message(b"a")) != client.seal(zmtp.message(b"a"))


def test_the_two_directions_have_different_nonces() -> None:
    """What one side sent cannot be returned to it."""
    client, _ = pair()
    with pytest.raises(ProtocolError, match="decrypted"):
        read(new_traffic(False), client.seal(zmtp.message(b"a")))


def test_a_repeated_message_is_refused() -> None:
    client, server = pair()
    wire = client.seal(zmtp.message(b"a"))
    assert read(server, wire) == [zmtp.message(b"a")]
    with pytest.raises(ProtocolError, match="repeated or out of order"):
        read(server, wire)


def test_exchanged_messages_are_refused() -> None:
    client, server = pair()
    first, second = client.seal(zmtp.message(b"a")), client.seal(zmtp.message(b"b"))
    assert read(server, second) == [zmtp.message(b"b")]
    with pytest.raises(ProtocolError, match="repeated or out of order"):
        read(server, first)


def test_a_message_of_another_connection_is_refused() -> None:
    other = CurveTraffic(bytes(32), ShortNonces(), False, BIG, 10)
    with pytest.raises(ProtocolError, match="decrypted"):
        read(pair()[1], other.seal(zmtp.message(b"a")))


def test_another_nonce_in_front_of_a_box_is_refused() -> None:
    wire = bytearray(pair()[0].seal(zmtp.message(b"a")))
    wire[17] = 9
    with pytest.raises(ProtocolError, match="decrypted"):
        read(pair()[1], bytes(wire))


@pytest.mark.parametrize("flags", [3, 4, 5, 8, 0x80, 0xFF])
def test_unknown_flags_in_the_box_are_refused(flags: int) -> None:
    with pytest.raises(ProtocolError, match=f"0x{flags:02x}"):
        read(pair()[1], sealed(1, bytes((flags,)) + b"a"))


def test_a_command_between_the_frames_of_a_message_is_refused() -> None:
    with pytest.raises(ProtocolError, match="0x02"):
        read(pair()[1], sealed(1, b"\1a") + sealed(2, b"\2\4PING\0\0"))


@pytest.mark.parametrize("flags", [1, 3, 4, 6, 8, 0xFF])
@pytest.mark.parametrize("step", [0, 1])
def test_flags_outside_the_box_are_refused_as_soon_as_they_are_seen(flags: int, step: int) -> None:
    with pytest.raises(ProtocolError, match=f"0x{flags:02x}"):
        read(pair()[1], bytes((flags, 40)), step)


@pytest.mark.parametrize(
    "data",
    [
        zmtp.message(b"\7MESSAGE" + bytes(24)),
        zmtp.message(b""),
        b"\x02" + (32).to_bytes(8, "big"),
    ],
)
def test_frames_too_small_for_a_message_are_refused_by_their_header(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="at least 33"):
        read(pair()[1], data)


@pytest.mark.parametrize("name", [b"\7MESSAGF", b"\5READY\0\0", b"\x06MESSAG\0"])
def test_other_commands_are_refused(name: bytes) -> None:
    with pytest.raises(ProtocolError, match="something else"):
        read(pair()[1], zmtp.message(name + bytes(40)))


def test_plain_messages_and_commands_are_refused() -> None:
    for data in (zmtp.message(b"hello", b"world"), zmtp.command(b"PING", b"\0\0"), zmtp.message(bytes(500))):
        with pytest.raises(ProtocolError):
            read(pair()[1], data)


@pytest.mark.parametrize("step", [0, 1])
def test_a_message_of_exactly_the_limit_passes_and_one_more_byte_does_not(step: int) -> None:
    exact = zmtp.message(b"a", b"x" * (1000 - 3 - 9))
    client, server = pair(message_bytes=len(exact))
    assert read(server, client.seal(exact + exact), step) == [exact, exact]
    with pytest.raises(ProtocolError, match="1000 bytes"):
        read(server, client.seal(zmtp.message(b"a", b"x" * (1000 - 3 - 8))), step)


def test_the_size_is_judged_by_the_header_before_anything_is_decrypted() -> None:
    _, server = pair(message_bytes=1000)
    with pytest.raises(ProtocolError, match="1000 bytes"):
        read(server, b"\2" + (1 << 62).to_bytes(8, "big"))
    assert server.kept() == 9


@pytest.mark.parametrize("step", [0, 1])
def test_a_frame_too_many_is_refused(step: int) -> None:
    client, server = pair(frames=3)
    assert len(read(server, client.seal(zmtp.message(b"1", b"2", b"3")), step)) == 1
    with pytest.raises(ProtocolError, match="3 frames"):
        read(server, client.seal(zmtp.message(b"1", b"2", b"3", b"4")), step)


def test_what_is_kept_is_counted() -> None:
    client, server = pair()
    wire = client.seal(zmtp.message(b"a", b"b" * 300))
    first = 2 + OVERHEAD + 1
    assert read(server, wire[:first]) == []
    assert server.kept() == 3  # the decrypted frame
    assert read(server, wire[first : first + 100]) == []
    assert server.kept() == 103
    assert split(read(server, wire[first + 100 :])[0]) == [b"a", b"b" * 300]
    assert server.kept() == 0


def test_a_message_that_nacls_box_makes_with_two_key_pairs_is_understood() -> None:
    """The shared key is the one of NaCl's box, and the nonce has the prefix of RFC 26."""
    server = CurveTraffic(shared_key(CLIENT.public, SERVER.secret), ShortNonces(), True, BIG, 10)
    body = box(CLIENT.secret, SERVER.public, b"CurveZMQMESSAGEC" + short(7), b"\0hello")
    assert read(server, zmtp.message(b"\7MESSAGE" + short(7) + body)) == [zmtp.message(b"hello")]
