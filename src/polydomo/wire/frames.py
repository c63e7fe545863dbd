"""Frames: how a message of several parts lies in memory, and how its front is cut off without touching its body.

A message is a run of frames. Each has a flags byte (bit 0: MORE frames follow, bit 1: LONG, the size takes eight
bytes instead of one, bit 2: COMMAND), its size, and that many bytes: ZMTP's own framing (RFC 37/ZMTP §Framing).

The same encoding is the *canonical form of a body* everywhere inside Polydomo: a body of n frames is the bytes of
those n frames, the last without MORE; a body of no frame at all is `b""`. A body that arrived on one ZeroMQ
connection therefore leaves on another exactly as it came, behind a head made for that peer, and is never split,
copied frame by frame or joined again. Wires with another framing convert with `split` and `join`.
"""

from collections.abc import Iterable
from typing import Final

MORE: Final = 1
LONG: Final = 2
COMMAND: Final = 4

# The empty frame that ends an envelope, with more to follow; and an empty frame as a whole body.
DELIMITER: Final = b"\x01\x00"
EMPTY_BODY: Final = b"\x00\x00"


class Message:
    """A whole message inside a buffer: `take` frames from its front, `rest` is what follows, as wire bytes.

    The frames were measured when the message was found, so nothing here can run past the end.
    """

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int, end: int) -> None:
        self.data = data
        self.pos = pos
        self.end = end

    def take(self) -> bytes | None:
        """The next frame, or None when there is none left."""
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
        """Everything not yet taken, still framed: a canonical body."""
        return self.data[self.pos : self.end]

    def frames(self) -> list[bytes]:
        """All frames not yet taken."""
        found: list[bytes] = []
        frame = self.take()
        while frame is not None:
            found.append(frame)
            frame = self.take()
        return found


def frame(body: bytes, more: bool = False) -> bytes:
    """One frame as wire bytes."""
    size = len(body)
    if size > 255:
        return bytes((LONG | more,)) + size.to_bytes(8, "big") + body
    return bytes((more, size)) + body


def join(frames: Iterable[bytes]) -> bytes:
    """Frames to wire bytes, MORE on all but the last. No frames give `b""`."""
    parts = [frame(body, True) for body in frames]
    if not parts:
        return b""
    last = parts[-1]
    parts[-1] = bytes((last[0] & ~MORE,)) + last[1:]
    return b"".join(parts)


def split(data: bytes) -> list[bytes]:
    """Wire bytes that are known to be whole and sound (a canonical body) to frames."""
    return Message(data, 0, len(data)).frames()


def head(*frames: bytes) -> bytes:
    """Frames to wire bytes with MORE on every one: what is put before a body."""
    return b"".join([frame(body, True) for body in frames])


def close(prefix: bytes) -> bytes:
    """A head made of short frames only, as a whole message: takes MORE off its last frame."""
    pos = 0
    last = 0
    while pos < len(prefix):
        last = pos
        pos += 2 + prefix[pos + 1]
    return prefix[:last] + bytes((prefix[last] & ~MORE,)) + prefix[last + 1 :]


def measure(buffer: bytearray, start: int) -> tuple[int, int, int]:
    """How far the frames of one message reach that begin at `start`.

    Returns (end, 0, frames) when the message is whole, else (start of the first frame that is not whole, bytes the
    buffer must hold before looking again can be worth it, whole frames seen). It looks only at flags and sizes and
    believes neither: callers check limits on what it returns before they make room for it.
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
        if not flags & MORE or flags > 3:  # above 3: a command, or flags that nobody may use
            return pos, 0, count


def shown(body: bytes | None) -> str:
    """A frame for a complaint that people read: its beginning says enough, and it may have 64 MiB."""
    if body is None or len(body) <= 32:
        return repr(body)
    return f"{body[:32]!r}... ({len(body)} bytes)"
