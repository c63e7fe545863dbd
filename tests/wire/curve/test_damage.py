"""wire/curve: whatever is changed or cut on the way is refused, with a ProtocolError and no other exception."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import ProtocolError
from polydomo.wire.curve.client import CurveClient
from polydomo.wire.curve.server import CurveServer
from polydomo.wire.curve.traffic import OVERHEAD
from polydomo.wire.frames import split
from polydomo.wire.stream import SECURE_TRAFFIC
from polydomo.wire.zmtp import commands
from tests.support import zmtp
from tests.support.curve import CLIENT, SERVER, Side, curve_pair
from tests.support.effort import examples
from tests.support.recorder import run_to_rest

STEPS = [b"HELLO", b"WELCOME", b"INITIATE", b"READY"]


def new_pair() -> tuple[CurveServer, CurveClient]:
    random = Random(5)
    server = CurveServer(SERVER, random.randbytes)
    server.start(b"\1a\0\0\0\1b")
    return server, CurveClient(CLIENT, SERVER.public, random.randbytes)


def shake(damage: bytes, change: object) -> tuple[CurveServer, CurveClient]:
    """Do the handshake; `change` gets the data of the command named `damage`, and returns what arrives instead."""
    server, client = new_pair()

    def carried(command: bytes) -> tuple[bytes, bytes]:
        name, data = commands.decode(split(command)[0])
        return name, change(data) if name == damage else data  # type: ignore[operator]

    welcome = server.receive(*carried(client.start(b"\1c\0\0\0\1d")))
    server.receive(*carried(client.receive(*carried(welcome))))
    client.receive(*carried(server.finish()))
    return server, client


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_the_handshake_works_without_damage() -> None:
    server, client = shake(b"", None)
    assert (server.key, server.metadata) == (CLIENT.public, b"\1c\0\0\0\1d")
    assert (client.key, client.metadata) == (SERVER.public, b"\1a\0\0\0\1b")


@pytest.mark.parametrize("step", STEPS)
def test_every_flipped_bit_of_the_handshake_is_refused(step: bytes) -> None:
    """At once, except the highest bit of C' in HELLO: Curve25519 ignores it, but the vouch does not fit any more."""
    sizes: list[int] = []

    def note(data: bytes) -> bytes:
        sizes.append(len(data))
        return data

    shake(step, note)
    for bit in range(sizes[0] * 8):
        with pytest.raises(ProtocolError):
            shake(step, lambda data, bit=bit: flip(data, bit))


@pytest.mark.parametrize("step", STEPS)
@given(cut=st.integers(0, 400), extra=st.binary(max_size=20))
@examples(30)
def test_cut_and_extended_commands_are_refused(step: bytes, cut: int, extra: bytes) -> None:
    def change(data: bytes) -> bytes:
        changed = data[:cut] + extra
        return changed if changed != data else data + b"\0"

    with pytest.raises(ProtocolError):
        shake(step, change)


@given(st.sampled_from([True, False]), st.sampled_from([*STEPS, b"MESSAGE", b"X"]), st.binary(max_size=400))
@examples(100)
def test_any_command_is_answered_or_refused(to_server: bool, name: bytes, data: bytes) -> None:
    server, client = new_pair()
    client.start(b"")
    with pytest.raises(ProtocolError):
        (server if to_server else client).receive(name, data)


def established() -> tuple[Side, Side]:
    router, dealer = curve_pair()
    run_to_rest(router, dealer)
    router[1].calls.clear()
    return router, dealer


MESSAGE = zmtp.message(b"a", b"body")


def test_every_flipped_bit_in_traffic_is_refused() -> None:
    for bit in range((2 * (2 + OVERHEAD) + len(b"a" + b"body")) * 8):
        router, dealer = established()
        wire = dealer[0].seal(MESSAGE)
        router[0].receive(flip(wire, bit))
        if (
            router[0].phase == SECURE_TRAFFIC
        ):  # a frame that seems to be longer is refused with the bytes of the next one
            router[0].receive(dealer[0].seal(zmtp.message(bytes(300))))
        assert [call[0] for call in router[1].calls] == ["failed"], bit


@given(st.binary(max_size=200), st.integers(0, 120))
@examples(100)
def test_anything_at_all_after_the_handshake_delivers_nothing(noise: bytes, keep: int) -> None:
    router, dealer = established()
    router[0].receive(dealer[0].seal(MESSAGE)[:keep] + noise)
    allowed = ([], [[b"a", b"body"]]) if keep >= len(dealer[0].seal(MESSAGE)) else ([],)
    assert router[1].messages in allowed


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
@examples(80)
def test_frames_arrive_in_their_order_or_not_at_all(order: list[int]) -> None:
    """Lost frames are noticed by the missing part of their message; TCP loses none between messages."""
    router, dealer = established()
    frames = [dealer[0].seal(zmtp.message(b"%d" % number)) for number in range(6)]
    for number in order:
        router[0].receive(frames[number])
    rising: list[int] = []
    for number in order:
        if rising and number <= rising[-1]:
            break
        rising.append(number)
    assert router[1].messages == [[b"%d" % number] for number in rising]
    assert bool(router[1].failures) == (rising != order)
