"""Headers, message types and metadata of DCP v1.

Every message begins with an empty frame (the address delimiter), `DGBX` with the version byte, and the type. The
specification's type is one byte; DagBox itself sends four, little-endian. The broker understands both and replies to
each peer in the peer's own width.
"""

from typing import Final

from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, close, head

DIALECT: Final = "dcp/1"
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
        """Return delimiter, protocol and type as wire bytes, each with MORE."""
        return head(b"", PROTOCOL, kind.to_bytes(self.size, "little"))


ONE_BYTE: Final = Width(1)
FOUR_BYTES: Final = Width(4)


def read_kind(frame: bytes | None) -> tuple[int, Width] | None:
    """Return the type and its width, or None for a frame of neither width."""
    if frame is None:
        return None
    if len(frame) == 1:
        return frame[0], ONE_BYTE
    if len(frame) == 4:
        return int.from_bytes(frame, "little"), FOUR_BYTES
    return None


def take_metadata(message: Message) -> bytes | None:
    """Take the metadata parts and the delimiter after them; return the parts as wire bytes, None without delimiter."""
    start = message.pos
    while True:
        end = message.pos
        part = message.take()
        if part is None:
            return None
        if not part:
            return message.data[start:end]


def close_metadata(body: bytes) -> bytes:
    """Return the delimiter that ends the metadata and the body. Without any body the delimiter is the last frame."""
    return DELIMITER + body if body else EMPTY_BODY
