"""wire/curve/boxes: boxes and nonces."""

from __future__ import annotations

import pytest

from polydomo.errors import ProtocolError
from polydomo.wire.curve.boxes import BOX_OVERHEAD, ShortNonces, open_box, seal_box, shared_key
from tests.support.curve import CLIENT, LOW_ORDER, SERVER

# The example of "Cryptography in NaCl" (D. J. Bernstein, 2009), sections 2 to 10.
BOB_SECRET = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
KEY = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
NONCE = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
CONTENT = bytes.fromhex(
    "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffc"
    "e5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb31"
    "0e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde"
    "048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f93776384864"
    "5e0705"
)
BOX = bytes.fromhex(
    "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce"
    "48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c972"
    "71d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae"
    "90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b3"
    "7973f622a43d14a6599b1f654cb45a74e355a5"
)


def test_the_published_example() -> None:
    assert shared_key(ALICE_PUBLIC, BOB_SECRET) == KEY
    assert seal_box(CONTENT, NONCE, KEY) == BOX
    assert open_box(BOX, NONCE, KEY, "") == CONTENT
    assert len(BOX) == len(CONTENT) + BOX_OVERHEAD


def test_both_sides_have_the_same_key() -> None:
    assert shared_key(CLIENT.public, SERVER.secret) == shared_key(SERVER.public, CLIENT.secret)


@pytest.mark.parametrize("public", LOW_ORDER)
def test_keys_of_low_order_are_refused(public: bytes) -> None:
    with pytest.raises(ProtocolError, match="public key"):
        shared_key(public, SERVER.secret)


@pytest.mark.parametrize("size", [0, 1, 15, 16, len(BOX) - 1])
def test_a_cut_box_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="the reason"):
        open_box(BOX[:size], NONCE, KEY, "the reason")


def test_every_changed_bit_of_a_box_its_nonce_or_its_key_is_noticed() -> None:
    for position in range(len(BOX)):
        for bit in range(8):
            changed = bytearray(BOX)
            changed[position] ^= 1 << bit
            with pytest.raises(ProtocolError):
                open_box(bytes(changed), NONCE, KEY, "changed")
    with pytest.raises(ProtocolError):
        open_box(BOX, b"\0" + NONCE[1:], KEY, "changed")
    with pytest.raises(ProtocolError):
        open_box(BOX, NONCE, b"\0" + KEY[1:], "changed")


def test_our_nonces_count_from_one() -> None:
    nonces = ShortNonces()
    assert [nonces.take() for _ in range(3)] == [bytes(7) + b"\1", bytes(7) + b"\2", bytes(7) + b"\3"]


def test_the_peers_nonces_must_grow_but_may_skip() -> None:
    nonces = ShortNonces()
    for number in (1, 2, 300, (1 << 64) - 1):
        nonces.check(number.to_bytes(8, "big"))
    for number in (0, 1, 300, (1 << 64) - 1):
        with pytest.raises(ProtocolError, match="repeated or out of order"):
            nonces.check(number.to_bytes(8, "big"))


def test_zero_is_no_nonce() -> None:
    with pytest.raises(ProtocolError):
        ShortNonces().check(bytes(8))
