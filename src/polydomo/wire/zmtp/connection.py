"""One ZMTP connection, either end, without a socket.

    bytes from the peer → `receive` → handler.peer_ready, handler.message, handler.subscription
    bytes for the peer  ← handler.transmit

Phases: GREETING until the peer's 64 bytes are here, HANDSHAKE until the mechanism is done and the peer's metadata
was accepted, TRAFFIC, CLOSED. `receive` may be called with any cut of the byte stream: whole or byte by byte gives
the same calls on the handler. Sizes are checked when a frame's header is seen, before room is made for its body.

The loop in `_scan` is the hottest of the broker. A message that lies whole in the chunk just read (nearly all do) is
handed on as a window into that chunk; only a message cut by the chunk's end is collected in a bytearray.
"""

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.errors import ProtocolError
from polydomo.wire.frames import COMMAND, LONG, Message, measure
from polydomo.wire.zmtp import commands, greeting
from polydomo.wire.zmtp.mechanism import Mechanism, Null

GREETING: Final = 0
HANDSHAKE: Final = 1
TRAFFIC: Final = 2
CLOSED: Final = 3

# RFC 37 §Socket Type compatibility: who may be on the other end of whom.
COMPATIBLE: Final[dict[bytes, tuple[bytes, ...]]] = {
    b"ROUTER": (b"DEALER", b"REQ", b"ROUTER"),
    b"DEALER": (b"ROUTER", b"REP", b"DEALER"),
    b"PUB": (b"SUB", b"XSUB"),
    b"SUB": (b"PUB", b"XPUB"),
}

# An identity fits one length byte (RFC 37: up to 255 octets).
IDENTITY_MAX: Final = 255

NOTHING_EXPECTED: Final = b""

# A message that arrives in many chunks is reported each time it has grown by this much.
BUFFER_STEP: Final = 65536

# Commands between messages are PINGs and subscriptions; nobody needs a topic longer than this.
COMMAND_MAX: Final = 65536


class Limits:
    """What one connection may make us hold."""

    __slots__ = ("frames", "handshake_bytes", "message_bytes")

    def __init__(
        self, message_bytes: int = 64 * 1024 * 1024 + 65536, frames: int = 1024, handshake_bytes: int = 8192
    ) -> None:
        self.message_bytes = message_bytes  # all frames of a message with their headers
        self.frames = frames
        self.handshake_bytes = handshake_bytes


class Peer:
    """What is known of the other end once the handshake is over."""

    __slots__ = ("identity", "minor", "properties", "socket_type")

    def __init__(
        self, socket_type: bytes, identity: bytes, minor: int, properties: dict[bytes, bytes]
    ) -> None:
        self.socket_type = socket_type
        self.identity = identity  # b"" if the peer did not choose one
        self.minor = minor  # of ZMTP 3.x: PING, SUBSCRIBE and CANCEL commands need 1
        self.properties = properties


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(ABC):
    """What a connection needs of its owner.

    An owner that knows how the next message will probably begin may say so in `expected`: whole frames, each with MORE.
    A message that does begin so is handed to `expected_message` and not to `message`. One comparison then stands for
    measuring and cutting up those frames one by one, which is what the broker spends most of its time on.
    """

    expected: bytes = b""  # nothing

    @abstractmethod
    def transmit(self, data: bytes) -> None:
        """Send these bytes to the peer."""

    @abstractmethod
    def peer_ready(self, peer: Peer) -> None:
        """The handshake is done. Raise ProtocolError to refuse the peer with a reason."""

    @abstractmethod
    def message(self, message: Message) -> None:
        """A whole message."""

    def expected_message(self, data: bytes, rest: int, end: int) -> None:  # noqa: B027 (only if it sets `expected`)
        """A whole message that begins with `expected`; what follows lies in `data` from `rest` to `end`."""

    @abstractmethod
    def failed(self, error: ProtocolError) -> None:
        """The peer broke the protocol (or said ERROR); nothing more will come. Close the socket."""

    def subscription(self, topic: bytes, wanted: bool) -> None:  # noqa: B027 (only publishers care)
        """The peer subscribed to a prefix, or cancelled it."""

    def ponged(self, context: bytes) -> None:  # noqa: B027 (only those who ping care)
        """The peer answered a PING."""

    def buffered(self, size: int) -> None:  # noqa: B027 (only those who watch their memory care)
        """An unfinished message has grown to `size` bytes; 0: it is whole. Called in steps of `BUFFER_STEP`."""


class Connection:
    """See the module's text. `server` says which end listens (it answers a refused peer with ERROR, not READY)."""

    def __init__(
        self,
        handler: Handler,
        socket_type: bytes,
        server: bool,
        limits: Limits,
        identity: bytes = b"",
        properties: dict[bytes, bytes] | None = None,
    ) -> None:
        self.handler = handler
        self.socket_type = socket_type
        self.server = server
        self.limits = limits
        metadata = {b"Socket-Type": socket_type}
        if socket_type != b"PUB" and socket_type != b"SUB":
            metadata[b"Identity"] = identity
        if properties:
            metadata.update(properties)
        self.mechanism: Mechanism = Null(metadata, server)
        self.phase = GREETING
        self.paused = False
        self.peer: Peer | None = None
        self.spanned = 0  # messages handed on that came in more than one chunk
        self.ttl = 0.0  # seconds of silence after which the peer told us to give it up; 0: never said
        self._minor = 0
        self._publisher = socket_type == b"PUB"
        self._pending = bytearray()  # the start of a message whose end has not come
        self._need = 0  # no use looking at _pending before it holds this many bytes
        self._measured = 0  # frames up to here in _pending are whole
        self._frames = 0  # and this many they are
        self._told = 0  # bytes in _pending that the handler knows of

    def start(self) -> None:
        """Send our greeting. Both sides do so at once (RFC 37)."""
        self.handler.transmit(greeting.encode(self.mechanism.name, False))

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer, in any cut."""
        pending = self._pending
        if pending:
            pending += data
            if (
                len(pending) < self._need
                or (self.paused and self.phase == TRAFFIC)
                or (self.phase == TRAFFIC and not self._grown())
            ):
                if len(pending) - self._told >= BUFFER_STEP:
                    self._told = len(pending)
                    self.handler.buffered(self._told)
                return
            data = bytes(pending)
            pending.clear()
            self._need = self._measured = self._frames = 0
            self.spanned += 1
            if self._told:
                self._told = 0
                self.handler.buffered(0)
        try:
            if self.phase == TRAFFIC:
                self._scan(data, 0)
            elif self.phase != CLOSED:
                self._handshake(data)
        except ProtocolError as error:
            self.fail(error)

    def pause(self) -> None:
        """Hand on no more messages until `resume`; what the peer already sent is kept."""
        self.paused = True

    def resume(self) -> None:
        """Go on with what was kept, then with new bytes."""
        if not self.paused:
            return
        self.paused = False
        if self._pending:
            self._need = 0
            self.receive(b"")

    def kept(self) -> int:
        """Bytes received and not yet handed on."""
        return len(self._pending)

    def ping(self, ttl: float, context: bytes = b"") -> None:
        """Ask the peer for a sign of life; only peers of ZMTP 3.1 understand it."""
        tenths = min(int(ttl * 10), 0xFFFF)
        self.handler.transmit(commands.encode(commands.PING, tenths.to_bytes(2, "big") + context))

    def subscribe(self, topic: bytes, wanted: bool = True) -> None:
        """SUB's side: say which prefixes we want, in the form the publisher understands."""
        if self._minor >= 1:
            self.handler.transmit(commands.encode(commands.SUBSCRIBE if wanted else commands.CANCEL, topic))
            return
        body = (b"\x01" if wanted else b"\x00") + topic
        long = len(body) > 255
        size = len(body).to_bytes(8 if long else 1, "big")
        self.handler.transmit(bytes((LONG if long else 0,)) + size + body)

    def fail(self, error: ProtocolError) -> None:
        """Give the peer up: tell it why while it still listens to commands, then close."""
        if self.phase == CLOSED:
            return
        if self.phase == HANDSHAKE:
            self.handler.transmit(commands.encode_error(error.message))
        self.phase = CLOSED
        self._pending.clear()
        self.handler.failed(error)

    def close(self) -> None:
        """Drop what was kept and take nothing more; the handler is not told."""
        self.phase = CLOSED
        self._pending = bytearray()
        self._told = 0

    def _scan(self, data: bytes, pos: int) -> None:
        """Cut whole messages off `data` from `pos` and hand each on."""
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
                    hint="raise limits.message_bytes if it is meant",
                )
            if count > max_frames:
                raise ProtocolError(
                    f"a message of more than {max_frames} frames", hint="raise limits.frames if it is meant"
                )
            if need:  # cut by the end of the chunk
                self._pending += data[start:]
                self._need = need - start
                return
            if rest:
                handler.expected_message(data, rest, pos)
            elif data[start] & COMMAND:
                self._command(Message(data, start, pos))
            elif self._publisher:
                self._old_subscription(Message(data, start, pos))
            else:
                handler.message(Message(data, start, pos))
            if self.phase != TRAFFIC:
                return

    def _grown(self) -> bool:
        """More of a cut message has come: is it whole now? Sizes only; `_scan` then checks and hands it on."""
        pending = self._pending
        reached, need, frames = measure(pending, self._measured)
        if need == 0:
            return True
        self._measured = reached
        self._frames += frames
        self._need = need
        # Refused by a header, if it must be: let _scan see it now, it raises with the right words.
        return (
            need > self.limits.message_bytes
            or self._frames >= self.limits.frames
            or (len(pending) >= reached + 2 and pending[reached] > 3)
        )

    def _handshake(self, data: bytes) -> None:
        """GREETING and HANDSHAKE: few bytes, so simply kept until a step is whole."""
        pos = 0
        if self.phase == GREETING:
            greeting.check_start(data)
            if len(data) < greeting.SIZE:
                self._pending += data
                return
            theirs = greeting.decode(data[: greeting.SIZE])
            self.phase = HANDSHAKE
            self._minor = 0 if theirs.major == 3 and theirs.minor == 0 else 1
            if theirs.mechanism != self.mechanism.name:
                raise ProtocolError(
                    f"the peer wants the security mechanism {theirs.mechanism.decode('ascii', 'replace')}, "
                    f"here it is {self.mechanism.name.decode()}"
                )
            self._transmit(self.mechanism.start())
            pos = greeting.SIZE
        while self.phase == HANDSHAKE and pos < len(data):
            reached, need, _ = measure(bytearray(data), pos)
            if (need or reached) - pos > self.limits.handshake_bytes:
                raise ProtocolError(f"a handshake command of more than {self.limits.handshake_bytes} bytes")
            if need:
                self._pending += data[pos:]
                return
            if data[pos] & ~LONG != COMMAND:
                raise ProtocolError("a message before the handshake was done")
            frame = Message(data, pos, reached).take()
            name, body = commands.decode(frame or b"")
            pos = reached
            if name == commands.ERROR:
                self.phase = CLOSED  # nothing to tell a peer that has refused us
                self.handler.failed(ProtocolError(f"the peer refused us: {commands.decode_error(body)}"))
                return
            self._transmit(self.mechanism.receive(name, body))
            if self.mechanism.done:
                self._welcome()
        if pos < len(data) and self.phase == TRAFFIC:
            self._scan(data, pos)

    def _welcome(self) -> None:
        """The peer's metadata is here: may it be on the other end?"""
        properties = self.mechanism.peer_properties
        socket_type = properties.get(b"socket-type", b"")
        if socket_type not in COMPATIBLE[self.socket_type]:
            raise ProtocolError(
                f"a {socket_type.decode('ascii', 'replace') or 'nameless'} socket cannot talk to a "
                f"{self.socket_type.decode()}"
            )
        identity = properties.get(b"identity", b"")
        if len(identity) > IDENTITY_MAX:
            raise ProtocolError(f"an identity of {len(identity)} bytes; {IDENTITY_MAX} are allowed")
        if identity[:1] == b"\0":
            raise ProtocolError(
                "an identity may not begin with a zero byte (RFC 37: those are made by the router)"
            )
        peer = Peer(socket_type, identity, self._minor, properties)
        self.peer = peer
        # The owner may still refuse (a taken identity, too many peers): it does so before our READY goes out.
        self.handler.peer_ready(peer)
        if self.phase == HANDSHAKE:
            self._transmit(self.mechanism.finish())
            self.phase = TRAFFIC

    def _command(self, message: Message) -> None:
        """Commands between messages. Unknown ones are ignored, so that newer peers can be talked to."""
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
            raise ProtocolError(f"the peer gave up: {commands.decode_error(data)}")

    def _old_subscription(self, message: Message) -> None:
        """ZMTP 3.0 subscribers send messages: 1 or 0, then the prefix. Anything else is not for a publisher."""
        body = message.take() or b""
        if body[:1] == b"\x01":
            self.handler.subscription(body[1:], True)
        elif body[:1] == b"\x00":
            self.handler.subscription(body[1:], False)

    def _transmit(self, data: bytes) -> None:
        if data:
            self.handler.transmit(data)
