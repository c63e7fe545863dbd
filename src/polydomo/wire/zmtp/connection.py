"""ZMTP connection without a socket, for either end.

    bytes from the peer → `receive` → handler.peer_ready, handler.message, handler.subscription
    bytes for the peer  ← handler.transmit

Phases: GREETING until the peer's 64 bytes have arrived, HANDSHAKE until the peer's READY has arrived and its metadata
was accepted, TRAFFIC, CLOSED. The security mechanism is NULL (RFC 37). `receive` takes chunks of any size: all bytes at
once or one by one cause the same calls on the handler. Sizes are checked as soon as a frame's header is complete,
before memory is allocated for its body.

The loop in `_scan` is the hottest of the broker. A message that lies within the chunk just read (nearly all do) is
passed on as a window into that chunk; only a message that spans chunks is collected in a bytearray.
"""

from abc import abstractmethod
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from polydomo.errors import ProtocolError
from polydomo.wire.frames import COMMAND, LONG, Message, frame, measure
from polydomo.wire.stream import CLOSED, GREETING, HANDSHAKE, TRAFFIC, Stream, StreamHandler
from polydomo.wire.zmtp import commands, greeting

MECHANISM: Final = b"NULL"

# RFC 37 §Socket Type compatibility: socket types of the peer, by our own.
COMPATIBLE: Final[dict[bytes, tuple[bytes, ...]]] = {
    b"ROUTER": (b"DEALER", b"REQ", b"ROUTER"),
    b"DEALER": (b"ROUTER", b"REP", b"DEALER"),
    b"PUB": (b"SUB", b"XSUB"),
    b"SUB": (b"PUB", b"XPUB"),
}

# An identity fits one length byte (RFC 37: up to 255 octets).
IDENTITY_MAX: Final = 255

# Commands between messages are PINGs and subscriptions: this bounds a topic's length.
COMMAND_MAX: Final = 65536


class ConnectionLimits:
    """Limits on what one connection may keep in memory."""

    __slots__ = ("frames", "handshake_bytes", "message_bytes")

    def __init__(
        self, message_bytes: int = 64 * 1024 * 1024 + 65536, frames: int = 1024, handshake_bytes: int = 8192
    ) -> None:
        self.message_bytes = message_bytes  # all frames of a message, with their headers
        self.frames = frames
        self.handshake_bytes = handshake_bytes


class PeerInfo(NamedTuple):
    """The peer's metadata, known after the handshake."""

    socket_type: bytes
    identity: bytes  # b"" if the peer chose none
    minor: int  # of ZMTP 3.x: PING, SUBSCRIBE and CANCEL commands need 1
    properties: dict[bytes, bytes]


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(StreamHandler):
    """Owner of a connection: its output and its events.

    An owner that can predict how the next message begins sets `expected`: complete frames, each with MORE. A message
    that begins so is passed to `expected_message` instead of `message`. One comparison then replaces measuring and
    splitting those frames one by one, which is where the broker spends most of its time.
    """

    expected: bytes = b""  # no prediction

    @abstractmethod
    def peer_ready(self, peer: PeerInfo) -> None:
        """Handle the end of the handshake; raise ProtocolError to refuse the peer with a reason."""

    @abstractmethod
    def message(self, message: Message) -> None:
        """Handle a complete message."""

    def expected_message(self, data: bytes, rest: int, end: int) -> None:
        """Handle a complete message that begins with `expected`; the remainder is in `data[rest:end]`."""

    def subscription(self, topic: bytes, wanted: bool) -> None:
        """Handle a subscription to a prefix, or its cancellation."""

    def ponged(self, context: bytes) -> None:
        """Handle the reply to a PING."""


class Connection(Stream[Handler]):
    """One end of a ZMTP connection. `server`: the listening end, which refuses a peer with ERROR instead of READY."""

    def __init__(
        self,
        handler: Handler,
        socket_type: bytes,
        server: bool,
        limits: ConnectionLimits,
        identity: bytes = b"",
        properties: dict[bytes, bytes] | None = None,
    ) -> None:
        super().__init__(handler)
        self.socket_type = socket_type
        self.server = server
        self.limits = limits
        metadata = {b"Socket-Type": socket_type}
        if socket_type != b"PUB" and socket_type != b"SUB":
            metadata[b"Identity"] = identity
        if properties:
            metadata.update(properties)
        self._ready = commands.encode(commands.READY, commands.encode_properties(metadata))
        self.peer: PeerInfo | None = None
        self.ttl = 0.0  # of the peer's last PING: seconds of silence after which it counts as lost; 0: none
        self._minor = 0
        self._publisher = socket_type == b"PUB"
        self._measured = 0  # end of the complete frames in _pending
        self._frames = 0  # number of complete frames in _pending

    def start(self) -> None:
        """Send the greeting. Both sides do so at once (RFC 37)."""
        self.handler.transmit(greeting.encode(MECHANISM))

    def ping(self, ttl: float, context: bytes = b"") -> None:
        """Send PING, which peers of ZMTP 3.1 answer and older ones do not know."""
        tenths = min(int(ttl * 10), 0xFFFF)
        self.handler.transmit(commands.encode(commands.PING, tenths.to_bytes(2, "big") + context))

    def subscribe(self, topic: bytes, wanted: bool = True) -> None:
        """Send a subscription or its cancellation, in the form of the publisher's ZMTP version."""
        if self._minor >= 1:
            self.handler.transmit(commands.encode(commands.SUBSCRIBE if wanted else commands.CANCEL, topic))
            return
        self.handler.transmit(frame((b"\x01" if wanted else b"\x00") + topic))

    def fail(self, error: ProtocolError) -> None:
        """Close the connection because of an error; send it as ERROR during the handshake."""
        if self.phase == HANDSHAKE:
            self.handler.transmit(commands.encode_error(error.message))
        super().fail(error)

    def _scan(self, data: bytes, pos: int) -> None:
        size = len(data)
        handler = self.handler
        max_bytes = self.limits.message_bytes
        max_frames = self.limits.frames
        while pos < size:
            if self.paused:
                self._pending += data[pos:]
                return
            start = pos
            count = 0
            rest = 0
            expected = handler.expected
            if expected and data.startswith(expected, pos):
                rest = pos = pos + len(expected)
                count = 1
            while True:
                need = pos + 2
                if need > size:
                    break
                flags = data[pos]
                if flags > 3 and (flags & ~(COMMAND | LONG) or count):
                    raise ProtocolError(f"a frame has the flags 0x{flags:02x}: not allowed there in ZMTP 3")
                if flags & 2:
                    need = pos + 9
                    if need > size:
                        break
                    need += int.from_bytes(data[pos + 1 : need], "big")
                    if flags > 3 and need > pos + 9 + COMMAND_MAX:
                        raise ProtocolError(f"a command of more than {COMMAND_MAX} bytes")
                else:
                    need += data[pos + 1]
                count += 1
                if need > size:
                    break
                pos = need
                if not flags & 1:
                    need = 0
                    break
            if (need or pos) - start > max_bytes:
                raise ProtocolError(
                    f"a message of more than {max_bytes} bytes",
                    hint="raise limits.message_bytes to allow it",
                )
            if count > max_frames:
                raise ProtocolError(
                    f"a message of more than {max_frames} frames", hint="raise limits.frames to allow it"
                )
            if need:  # incomplete
                self._pending += data[start:]
                self._need = need - start
                return
            if rest:
                handler.expected_message(data, rest, pos)
            elif data[start] & COMMAND:
                self._command(Message(data, start, pos))
            elif self._publisher:
                self._subscription_message(Message(data, start, pos))
            else:
                handler.message(Message(data, start, pos))
            if self.phase != TRAFFIC:
                return

    def _can_parse(self) -> bool:
        """Return whether the pending message is complete, or breaks a limit or a rule: `_scan` raises the error that
        says so."""
        pending = self._pending
        reached, need, frames = measure(pending, self._measured)
        self._measured = reached
        self._frames += frames
        self._need = need
        if (
            need == 0
            or need > self.limits.message_bytes
            or self._frames >= self.limits.frames
            or (len(pending) >= reached + 2 and pending[reached] > 3)
        ):
            self._measured = self._frames = 0
            return True
        return False

    def _handshake(self, data: bytes) -> None:
        pos = 0
        if self.phase == GREETING:
            greeting.check_start(data)
            if len(data) < greeting.SIZE:
                self._pending += data
                return
            theirs = greeting.decode(data[: greeting.SIZE])
            self.phase = HANDSHAKE
            self._minor = 0 if theirs.major == 3 and theirs.minor == 0 else 1
            if theirs.mechanism != MECHANISM:
                raise ProtocolError(
                    f"the peer requires the security mechanism {theirs.mechanism.decode('ascii', 'replace')}, "
                    f"this side {MECHANISM.decode()}"
                )
            if not self.server:
                self.handler.transmit(self._ready)
            pos = greeting.SIZE
        while self.phase == HANDSHAKE and pos < len(data):
            reached, need, _ = measure(bytearray(data), pos)
            if (need or reached) - pos > self.limits.handshake_bytes:
                raise ProtocolError(f"a handshake command of more than {self.limits.handshake_bytes} bytes")
            if need:
                self._pending += data[pos:]
                return
            if data[pos] & ~LONG != COMMAND:
                raise ProtocolError("a message before the end of the handshake")
            name, body = commands.decode(Message(data, pos, reached).take() or b"")
            pos = reached
            if name == commands.ERROR:
                self.phase = CLOSED  # no ERROR in reply to an ERROR
                self.handler.failed(
                    ProtocolError(f"the peer refused the connection: {commands.decode_error(body)}")
                )
                return
            if name != commands.READY:
                raise ProtocolError(f"expected READY in the handshake, the peer sent {name!r}")
            self._accept_peer(commands.decode_properties(body))
        if pos < len(data) and self.phase == TRAFFIC:
            self._scan(data, pos)

    def _accept_peer(self, properties: dict[bytes, bytes]) -> None:
        """Check the peer's metadata and finish the handshake."""
        socket_type = properties.get(b"socket-type", b"")
        if socket_type not in COMPATIBLE[self.socket_type]:
            raise ProtocolError(
                f"a {socket_type.decode('ascii', 'replace') or 'nameless'} socket cannot be connected to a "
                f"{self.socket_type.decode()}"
            )
        identity = properties.get(b"identity", b"")
        if len(identity) > IDENTITY_MAX:
            raise ProtocolError(f"an identity of {len(identity)} bytes; {IDENTITY_MAX} are allowed")
        if identity[:1] == b"\0":
            raise ProtocolError(
                "an identity may not begin with a zero byte (RFC 37: reserved for the router)"
            )
        peer = PeerInfo(socket_type, identity, self._minor, properties)
        self.peer = peer
        # The owner may still refuse the peer (a duplicate identity, too many peers). So the listening side sends READY
        # after this: a refused peer gets ERROR instead and never considers itself connected.
        self.handler.peer_ready(peer)
        if self.phase == HANDSHAKE:
            if self.server:
                self.handler.transmit(self._ready)
            self.phase = TRAFFIC

    def _command(self, message: Message) -> None:
        """Handle a command between messages. Unknown ones are ignored, for compatibility with newer peers."""
        name, data = commands.decode(message.take() or b"")
        if name == commands.PING:
            if len(data) < 2 or len(data) > 2 + commands.PING_CONTEXT_MAX:
                raise ProtocolError("a PING without a TTL, or with a context of more than 16 bytes")
            self.ttl = int.from_bytes(data[:2], "big") / 10
            self.handler.transmit(commands.encode(commands.PONG, data[2:]))
        elif name == commands.PONG:
            self.handler.ponged(data)
        elif name == commands.SUBSCRIBE or name == commands.CANCEL:
            if self._publisher:
                self.handler.subscription(data, name == commands.SUBSCRIBE)
        elif name == commands.ERROR:
            raise ProtocolError(f"the peer sent ERROR: {commands.decode_error(data)}")

    def _subscription_message(self, message: Message) -> None:
        """Handle a subscription of ZMTP 3.0, a message: 1 or 0, then the prefix. Others are ignored."""
        body = message.take() or b""
        if body[:1] == b"\x01":
            self.handler.subscription(body[1:], True)
        elif body[:1] == b"\x00":
            self.handler.subscription(body[1:], False)
