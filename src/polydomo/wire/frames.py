"""Frames: multipart messages in memory, and how to read their front without copying their body.

A message is a sequence of frames. Each has a flags byte (bit 0: MORE frames follow, bit 1: LONG, the size takes eight
bytes instead of one, bit 2: COMMAND), its size, and that many bytes: ZMTP's own framing (RFC 37/ZMTP §Framing).

The same encoding is the *canonical form of a body* everywhere inside Polydomo: a body of n frames is the bytes of
those n frames, the last without MORE; a body without frames is `b""`. A body that arrived on one ZeroMQ connection
therefore leaves on another unchanged, after a head made for that peer, and is never split, copied frame by frame or
joined again. Wires with another framing convert with `split` and `join`.
"""

from collections.abc import Iterable
from typing import Final

MORE: Final = 1
LONG: Final = 2
COMMAND: Final = 4

# The empty frame that ends an envelope, with MORE; and a body of one empty frame.
DELIMITER: Final = b"\x01\x00"
EMPTY_BODY: Final = b"\x00\x00"


class Message:
    """A complete message inside a buffer: `take` frames from its front, get the remaining wire bytes with `rest`.

    The frames were measured when the message was found, so no method can read past the end.
    """

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int, end: int) -> None:
        self.data = data
        self.pos = pos
        self.end = end

    def take(self) -> bytes | None:
        """Read the next frame; None after the last."""
        pos = self.pos
        if pos >= self.end:
            return None
        data = self.data
        if data[pos] & LONG:
            start = pos + 9
            stop = start + int.from_bytes(data[pos + 1 : start], "big")
        else:
            start = pos + 2
            stop = start + data[pos + 1]
        self.pos = stop
        return data[start:stop]

    def rest(self) -> bytes:
        """Return everything not yet taken, still framed: a canonical body."""
        return self.data[self.pos : self.end]

    def frames(self) -> list[bytes]:
        """Read all frames not yet taken."""
        found: list[bytes] = []
        frame = self.take()
        while frame is not None:
            found.append(frame)
            frame = self.take()
        return found


def frame(body: bytes, more: bool = False) -> bytes:
    """Encode one frame, with MORE if others follow."""
    size = len(body)
    if size > 255:
        return bytes((LONG | more,)) + size.to_bytes(8, "big") + body
    return bytes((more, size)) + body


def join(frames: Iterable[bytes]) -> bytes:
    """Encode frames as a message, with MORE on all but the last; no frames give `b""`."""
    parts = [frame(body, True) for body in frames]
    if not parts:
        return b""
    last = parts[-1]
    parts[-1] = bytes((last[0] & ~MORE,)) + last[1:]
    return b"".join(parts)


def split(data: bytes) -> list[bytes]:
    """Decode a canonical body, which is known to be complete and valid, to frames."""
    return Message(data, 0, len(data)).frames()


def head(*frames: bytes) -> bytes:
    """Encode frames with MORE on every one: the bytes before a body."""
    return b"".join([frame(body, True) for body in frames])


def measure(buffer: bytearray, start: int) -> tuple[int, int, int]:
    """Measure the message that begins at `start`.

    Return (end, 0, frames) if the message is complete, else (start of the first incomplete frame, bytes the buffer must
    hold before another call is useful, complete frames seen). Flags and sizes are not validated: callers check limits
    on the result before they allocate memory for it.
    """
    have = len(buffer)
    pos = start
    count = 0
    while True:
        if have < pos + 2:
            return pos, pos + 2, count
        flags = buffer[pos]
        if flags & LONG:
            if have < pos + 9:
                return pos, pos + 9, count
            end = pos + 9 + int.from_bytes(buffer[pos + 1 : pos + 9], "big")
        else:
            end = pos + 2 + buffer[pos + 1]
        if have < end:
            return pos, end, count
        pos = end
        count += 1
        if not flags & MORE or flags > 3:  # above 3: a command, or reserved flags
            return pos, 0, count


def shown(body: bytes | None) -> str:
    """Return a frame's repr for a log line or an error message: at most its first 32 bytes."""
    if body is None or len(body) <= 32:
        return repr(body)
    return f"{body[:32]!r}... ({len(body)} bytes)"
