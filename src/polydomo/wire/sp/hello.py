"""SP's hello, the first eight bytes of each side: `00 53 50 00`, the socket's protocol as 16 bits, `00 00`.

Both sides send it at once. A REQ socket may only be connected to a REP socket.
"""

from typing import Final

from polydomo.errors import ProtocolError

SIZE: Final = 8
SIGNATURE: Final = b"\0SP\0"

REQ: Final = 0x0030
REP: Final = 0x0031

# Protocol numbers, for error messages.
NAMES: Final = {
    0x0010: "PAIR",
    0x0011: "PAIR1",
    0x0020: "PUB",
    0x0021: "SUB",
    REQ: "REQ",
    REP: "REP",
    0x0050: "PUSH",
    0x0051: "PULL",
    0x0062: "SURVEYOR",
    0x0063: "RESPONDENT",
    0x0070: "BUS",
}


def encode(protocol: int) -> bytes:
    """Encode the hello of a socket of this protocol."""
    return SIGNATURE + protocol.to_bytes(2, "big") + b"\0\0"


def check_start(data: bytes) -> None:
    """Raise ProtocolError at the first wrong byte, so that a ZeroMQ peer or a browser is not taken for a slow one."""
    for index in range(min(len(data), len(SIGNATURE))):
        if data[index] != SIGNATURE[index]:
            raise ProtocolError(
                f"the peer does not speak SP (0x{data[index]:02x} is its byte {index}, not 0x{SIGNATURE[index]:02x})",
                hint="NNG or nanomsg is needed on the other side",
            )


def decode(data: bytes) -> int:
    """Decode a complete hello and return the sender's protocol."""
    check_start(data)
    if data[6:8] != b"\0\0":
        raise ProtocolError(f"the last two bytes of an SP hello are {data[6:8].hex(' ')}, not zero")
    return int.from_bytes(data[4:6], "big")


def name(protocol: int) -> str:
    """Return the name of a protocol, or its number in hexadecimal."""
    return NAMES.get(protocol, f"0x{protocol:04x}")
