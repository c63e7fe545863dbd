"""ZMTP's greeting, the first 64 bytes of each side (RFC 37/ZMTP §Version Negotiation and Framing).

signature  10  FF, eight bytes of padding, 7F
version     2  major, minor
mechanism  20  ASCII, padded with zeros
as-server   1  0 or 1
filler     31  zeros
"""

from typing import Final, NamedTuple

from polydomo.errors import ProtocolError

SIZE: Final = 64
SIGNATURE_SIZE: Final = 10


class Greeting(NamedTuple):
    """The fields of a peer's greeting that matter here."""

    major: int
    minor: int
    mechanism: bytes
    as_server: bool


def encode(mechanism: bytes, as_server: bool = False) -> bytes:
    """Encode a greeting of version 3.1."""
    start = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01"
    return start + mechanism.ljust(20, b"\0") + bytes((as_server,)) + bytes(31)


def check_start(data: bytes) -> None:
    """Raise ProtocolError at the first wrong byte, so that an old peer or a browser is not taken for a slow one."""
    if data and data[0] != 0xFF:
        raise ProtocolError(
            f"the peer does not speak ZMTP 3 (its first byte is 0x{data[0]:02x}, not 0xff): "
            "ZMTP 1.0 or another protocol",
            hint="ZeroMQ 4.0 or newer is needed on the other side",
        )
    if len(data) >= SIGNATURE_SIZE and not data[9] & 0x01:
        raise ProtocolError(
            "the peer speaks ZMTP 1.0 (long frame instead of a signature)",
            hint="ZeroMQ 4.0 or newer is needed on the other side",
        )
    if len(data) > SIGNATURE_SIZE and data[10] < 3:
        raise ProtocolError(
            f"the peer speaks ZMTP {'2.0' if data[10] else '1.0'}, which is refused",
            hint="ZeroMQ 4.0 or newer is needed on the other side",
        )


def decode(data: bytes) -> Greeting:
    """Decode a complete greeting; raise ProtocolError if it is malformed."""
    check_start(data)
    mechanism = data[12:32].rstrip(b"\0")
    if not mechanism or not all(0x20 < byte < 0x7F for byte in mechanism):
        raise ProtocolError(f"the peer's security mechanism {mechanism!r} is not a name")
    return Greeting(data[10], data[11], mechanism, data[32] == 1)
