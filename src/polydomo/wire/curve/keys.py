"""Long-term keys of CURVE, and their text form Z85 (RFC 32): 40 printable characters for 32 bytes.

Z85 writes four bytes as five digits of base 85, the most significant first. Errors never quote the text: it may be a
secret key with a typing error.
"""

from collections.abc import Callable
from typing import Final

from nacl.bindings import crypto_scalarmult_base

KEY_SIZE: Final = 32
TEXT_SIZE: Final = 40

# The digits of Z85 by value (RFC 32 §Specification).
DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES: Final[dict[str, int]] = {digit: value for value, digit in enumerate(DIGITS)}


class KeyPair:
    """A secret key and the public key derived from it. Neither `repr` nor `str` shows the secret key."""

    __slots__ = ("public", "secret")

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.public = public_key(secret)

    def __repr__(self) -> str:
        return f"<KeyPair {encode_key(self.public)}>"


def new_key_pair(random: Callable[[int], bytes]) -> KeyPair:
    """Return a new key pair; `random` returns that many bytes from a secure source."""
    return KeyPair(random(KEY_SIZE))


def public_key(secret: bytes) -> bytes:
    """Return the public key that belongs to a secret key; raise ValueError if its size is wrong."""
    if len(secret) != KEY_SIZE:
        raise ValueError(f"a secret key has {KEY_SIZE} bytes, not {len(secret)}")
    return crypto_scalarmult_base(secret)


def encode_key(key: bytes) -> str:
    """Return the text of a public or secret key; raise ValueError if its size is wrong."""
    if len(key) != KEY_SIZE:
        raise ValueError(f"a key has {KEY_SIZE} bytes, not {len(key)}")
    digits: list[str] = []
    for start in range(0, KEY_SIZE, 4):
        value = int.from_bytes(key[start : start + 4], "big")
        digits += [DIGITS[value // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(digits)


def decode_key(text: str) -> bytes:
    """Return the key of a text; raise ValueError, without quoting the text, if it is malformed."""
    if len(text) != TEXT_SIZE:
        raise ValueError(f"the text of a key has {TEXT_SIZE} characters (Z85), not {len(text)}")
    parts: list[bytes] = []
    for start in range(0, TEXT_SIZE, 5):
        value = 0
        for position in range(start, start + 5):
            digit = _VALUES.get(text[position])
            if digit is None:
                raise ValueError(f"character {position + 1} of the text of a key is not allowed in Z85")
            value = value * 85 + digit
        if value > 0xFFFFFFFF:
            raise ValueError(f"characters {start + 1} to {start + 5} of the text of a key are no Z85")
        parts.append(value.to_bytes(4, "big"))
    return b"".join(parts)
