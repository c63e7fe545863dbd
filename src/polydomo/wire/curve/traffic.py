r"""Traffic of CURVE: every frame of a message, and every ZMTP command, is one MESSAGE (RFC 26 §The MESSAGE Command).

    "\x07MESSAGE"  short nonce  Box [flags, body](C'->S') or (S'->C')

The flags in the box are 1 for MORE and 2 for a command. libzmq sends a MESSAGE as a message frame without flags, not as
a command frame, and takes one with the COMMAND flag for a plain command; so none is sent or accepted here. Bit 1 is
reserved in RFC 26, but it is how libzmq sends PING, PONG, SUBSCRIBE and CANCEL.

A frame's size is checked when its header has arrived, before it is collected and decrypted. The decrypted frames of a
message are put together in the encoding of `wire.frames`, as if they had come over a plain connection.
"""

from typing import Final

from polydomo.errors import ProtocolError
from polydomo.wire.curve.boxes import BOX_OVERHEAD, SHORT_NONCE, ShortNonces, open_box, seal_box
from polydomo.wire.frames import COMMAND, LONG, MORE, frame
from polydomo.wire.zmtp.mechanism import SecureTraffic

NAME: Final = b"\x07MESSAGE"

# Prefixes of the short nonces, by sender.
FROM_CLIENT: Final = b"CurveZMQMESSAGEC"
FROM_SERVER: Final = b"CurveZMQMESSAGES"

# Flags inside the box.
BOXED_MORE: Final = 1
BOXED_COMMAND: Final = 2

# Where the box begins, and the size of a MESSAGE without a body.
_BOX: Final = len(NAME) + SHORT_NONCE
OVERHEAD: Final = _BOX + BOX_OVERHEAD + 1


class CurveTraffic(SecureTraffic):
    """Encryption of one connection's traffic with the shared key of both ends' short-term keys."""

    def __init__(
        self, key: bytes, nonces: ShortNonces, as_server: bool, message_bytes: int, frames: int
    ) -> None:
        self._key = key
        self._nonces = nonces
        self._ours = FROM_SERVER if as_server else FROM_CLIENT
        self._theirs = FROM_CLIENT if as_server else FROM_SERVER
        self._max_bytes = message_bytes
        self._max_frames = frames
        self._buffer = bytearray()  # encrypted, incomplete
        self._frames: list[bytes] = []  # decrypted frames of an incomplete message
        self._size = 0  # of these frames

    def seal(self, frames: bytes) -> bytes:
        out: list[bytes] = []
        pos = 0
        while pos < len(frames):
            flags = frames[pos]
            if flags & LONG:
                start = pos + 9
                end = start + int.from_bytes(frames[pos + 1 : start], "big")
            else:
                start = pos + 2
                end = start + frames[pos + 1]
            boxed = (BOXED_MORE if flags & MORE else 0) | (BOXED_COMMAND if flags & COMMAND else 0)
            nonce = self._nonces.take()
            box = seal_box(bytes((boxed,)) + frames[start:end], self._ours + nonce, self._key)
            out.append(frame(NAME + nonce + box))
            pos = end
        return b"".join(out)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_message(self) -> bytes | None:
        buffer = self._buffer
        while len(buffer) >= 2:
            flags = buffer[0]
            if flags & ~LONG:
                raise ProtocolError(f"a frame has the flags 0x{flags:02x}: not allowed in CURVE traffic")
            start = 2
            size = buffer[1]
            if flags & LONG:
                start = 9
                if len(buffer) < start:
                    return None
                size = int.from_bytes(buffer[1:start], "big")
            self._check_size(size)
            end = start + size
            if len(buffer) < end:
                return None
            body = bytes(buffer[start:end])
            del buffer[:end]
            if self._open(body):
                message = self._frames[0] if len(self._frames) == 1 else b"".join(self._frames)
                self._frames = []
                self._size = 0
                return message
        return None

    def kept(self) -> int:
        return len(self._buffer) + self._size

    def _check_size(self, size: int) -> None:
        """Raise ProtocolError if a MESSAGE of this size is too small, or its frame too much for its message."""
        if size < OVERHEAD:
            raise ProtocolError(f"a frame of {size} bytes in CURVE traffic; MESSAGE has at least {OVERHEAD}")
        body = size - OVERHEAD
        if self._size + body + (9 if body > 255 else 2) > self._max_bytes:
            raise ProtocolError(
                f"a message of more than {self._max_bytes} bytes",
                hint="raise limits.message_bytes to allow it",
            )
        if len(self._frames) >= self._max_frames:
            raise ProtocolError(
                f"a message of more than {self._max_frames} frames", hint="raise limits.frames to allow it"
            )

    def _open(self, body: bytes) -> bool:
        """Decrypt a MESSAGE and keep its frame; return whether the frame is the last of its message."""
        if not body.startswith(NAME):
            raise ProtocolError("something else than MESSAGE in CURVE traffic")
        nonce = body[len(NAME) : _BOX]
        self._nonces.check(nonce)
        content = open_box(body[_BOX:], self._theirs + nonce, self._key, "a MESSAGE cannot be decrypted")
        boxed = content[0]
        if boxed > BOXED_COMMAND or (boxed == BOXED_COMMAND and self._frames):
            # RFC 37: a command has one frame and does not stand between the frames of a message.
            raise ProtocolError(f"a MESSAGE has the flags 0x{boxed:02x}: not allowed there")
        plain = frame(content[1:], boxed == BOXED_MORE)
        if boxed == BOXED_COMMAND:
            plain = bytes((plain[0] | COMMAND,)) + plain[1:]
        self._frames.append(plain)
        self._size += len(plain)
        return boxed != BOXED_MORE
