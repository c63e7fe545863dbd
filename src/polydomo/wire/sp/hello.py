"""The first eight bytes of each side: `00 53 50 00`, the protocol it speaks as a 16-bit number, `00 00`.

Both are sent at once. Who speaks is told apart by the number: a REQ talks to a REP and to nobody else.
"""

from typing import Final

from polydomo.errors import ProtocolError

SIZE: Final = 8
SIGNATURE: Final = b"\0SP\0"

REQ: Final = 0x0030
REP: Final = 0x0031

# What others there are, for the line that says who was refused.
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
    """Our hello."""
    return SIGNATURE + protocol.to_bytes(2, "big") + b"\0\0"


def check_start(data: bytes) -> None:
    """Refuse what can be refused already, so that a ZeroMQ peer or a web browser is told apart from a slow one."""
    for index in range(min(len(data), len(SIGNATURE))):
        if data[index] != SIGNATURE[index]:
            raise ProtocolError(
                f"the peer does not speak SP (0x{data[index]:02x} is its byte {index}, not 0x{SIGNATURE[index]:02x})",
                hint="NNG or nanomsg is needed on the other side",
            )


def decode(data: bytes) -> int:
    """A whole hello: the protocol its sender speaks."""
    check_start(data)
    if data[6:8] != b"\0\0":
        raise ProtocolError(f"the last two bytes of an SP hello are {data[6:8].hex(' ')}, not zero")
    return int.from_bytes(data[4:6], "big")


def name(protocol: int) -> str:
    """For people."""
    return NAMES.get(protocol, f"0x{protocol:04x}")
