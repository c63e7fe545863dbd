"""DCP v1's header and message types.

Every message: an empty frame (the address delimiter), `DGBX` and the version byte, the type. The specification's type
is one byte; DagBox itself sends four, little-endian. Both are understood, and each peer is answered in its own width.
"""

from typing import Final

from polydomo.wire.frames import close, head

PROTOCOL: Final = b"DGBX\x01"

REGISTER: Final = 1
PING: Final = 2
PONG: Final = 3
REQUEST: Final = 4
REPLY: Final = 5
RECONNECT: Final = 6


class Width:
    """The prepared messages and heads of one type width."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.variant = str(size)  # in records
        self.register_head = self.head(REGISTER)
        self.request_head = self.head(REQUEST)
        self.reply_head = self.head(REPLY)
        self.ping = close(self.head(PING))
        self.pong = close(self.head(PONG))
        self.reconnect = close(self.head(RECONNECT))

    def head(self, kind: int) -> bytes:
        """Delimiter, protocol and type as wire bytes, more to follow."""
        return head(b"", PROTOCOL, kind.to_bytes(self.size, "little"))


ONE_BYTE: Final = Width(1)
FOUR_BYTES: Final = Width(4)


def read_kind(frame: bytes | None) -> tuple[int, Width] | None:
    """The type and its width, or None for a frame that is neither width."""
    if frame is None:
        return None
    if len(frame) == 1:
        return frame[0], ONE_BYTE
    if len(frame) == 4:
        return int.from_bytes(frame, "little"), FOUR_BYTES
    return None
