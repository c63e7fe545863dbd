"""Headers, message types and metadata of DCP v1.

Every message begins with an empty frame (the address delimiter), `DGBX` with the version byte, and the type. The
specification's type is one byte; DagBox itself sends four, little-endian. The broker understands both and replies to
each peer in the peer's own width.
"""

from typing import Final

from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame, head

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
        self.register_head = self._start(REGISTER, True)
        self.request_head = self._start(REQUEST, True)
        self.reply_head = self._start(REPLY, True)
        self.ping = self._start(PING)
        self.pong = self._start(PONG)
        self.reconnect = self._start(RECONNECT)

    def _start(self, kind: int, more: bool = False) -> bytes:
        """Return delimiter, protocol and type as wire bytes: a whole message, or its head if there is `more`."""
        return head(b"", PROTOCOL) + frame(kind.to_bytes(self.size, "little"), more)


ONE_BYTE: Final = Width(1)
FOUR_BYTES: Final = Width(4)


def read_kind(word: bytes | None) -> tuple[int, Width] | None:
    """Return the type and its width, or None for a frame of neither width."""
    if word is None:
        return None
    if len(word) == 1:
        return word[0], ONE_BYTE
    if len(word) == 4:
        return int.from_bytes(word, "little"), FOUR_BYTES
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
