"""Boxes and nonces of CURVE (RFC 26 §General Design).

"Box [X](A->B)" is X encrypted and authenticated with A's secret and B's public key; opening it proves that the
owner of A made it. All cryptography is PyNaCl's; its errors become ProtocolErrors here.

A box needs a nonce of 24 bytes that is never used twice with the same keys. Where a long-term key is involved, 16 bytes
are random (a long nonce). Elsewhere 8 bytes are a counter (a short nonce) that grows with every command of one
direction, from HELLO to the last MESSAGE: a replayed or reordered command is recognized before it is decrypted.
"""

from typing import Final

from nacl.bindings import crypto_box_afternm, crypto_box_beforenm, crypto_box_open_afternm
from nacl.exceptions import CryptoError

from polydomo.errors import ProtocolError

LONG_NONCE: Final = 16
SHORT_NONCE: Final = 8

# What a box adds to its content: the authenticator.
BOX_OVERHEAD: Final = 16


class ShortNonces:
    """The short nonces of one connection, one counter for each direction."""

    __slots__ = ("_received", "_sent")

    def __init__(self) -> None:
        self._sent = 0
        self._received = 0

    def take(self) -> bytes:
        """Return the next nonce to send with."""
        self._sent += 1  # RFC 26 allows 2^64-1 commands; `to_bytes` raises before a nonce would be used again
        return self._sent.to_bytes(SHORT_NONCE, "big")

    def check(self, nonce: bytes) -> None:
        """Raise ProtocolError unless the peer's nonce is greater than all before."""
        number = int.from_bytes(nonce, "big")
        if number <= self._received:
            raise ProtocolError(
                f"a CURVE command with the nonce {number} after {self._received}: repeated or out of order"
            )
        self._received = number


def shared_key(public: bytes, secret: bytes) -> bytes:
    """Return the key of the boxes between two key pairs; raise ProtocolError for a public key of low order."""
    try:
        return crypto_box_beforenm(public, secret)
    except CryptoError:
        # libsodium refuses points of low order: their shared key is the same for all secret keys.
        raise ProtocolError("a CURVE public key is not valid") from None


def seal_box(content: bytes, nonce: bytes, key: bytes) -> bytes:
    """Encrypt with a shared key."""
    return crypto_box_afternm(content, nonce, key)


def open_box(box: bytes, nonce: bytes, key: bytes, problem: str) -> bytes:
    """Decrypt with a shared key; raise ProtocolError with `problem` if the box was made with other keys or changed."""
    try:
        return crypto_box_open_afternm(box, nonce, key)
    except CryptoError:
        raise ProtocolError(problem) from None
