"""ZMTP connection without a socket, for either end.

    bytes from the peer → `receive` → handler.peer_ready, handler.message, handler.subscription
    bytes for the peer  ← handler.transmit

Phases: GREETING until the peer's 64 bytes have arrived, HANDSHAKE until the security mechanism has the peer's metadata
and they were accepted, TRAFFIC (plain) or SECURE_TRAFFIC, CLOSED. `receive` takes chunks of any size: all bytes at once
or one by one cause the same calls on the handler. Sizes are checked as soon as a frame's header is complete, before
memory is allocated for its body.

The security mechanism is NULL unless another is given. With one that encrypts (CURVE), each message is decrypted before
`_scan` sees it, and the owner passes its own messages through `seal` in the order in which it writes them. The commands
that a connection sends itself are encrypted here.

The loop in `_scan` is the hottest of the broker. A message that lies within the chunk just read (nearly all do) is
passed on as a window into that chunk; only a message that spans chunks is collected in a bytearray.
"""

from abc import ABC, abstractmethod
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from polydomo.errors import ProtocolError
from polydomo.wire.frames import COMMAND, LONG, Message, frame, measure
from polydomo.wire.stream import (
    BUFFER_STEP,
    CLOSED,
    GREETING,
    HANDSHAKE,
    SECURE_TRAFFIC,
    TRAFFIC,
    Stream,
    StreamHandler,
)
from polydomo.wire.zmtp import commands, greeting
from polydomo.wire.zmtp.mechanism import Mechanism, NullMechanism, SecureTraffic

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
    key: bytes = b""  # the long-term public key that the peer has proved to own; b"": NULL


@mypyc_attr(allow_interpreted_subclasses=True)
class ExpectedReceiver(ABC):
    """Receiver of predicted messages."""

    @abstractmethod
    def receive_expected(self, body: bytes) -> None:
        """Handle a complete message that began with `Handler.expected`; `body` is the rest of it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(StreamHandler):
    """Owner of a connection: its output and its events.

    An owner that can predict how the next message begins sets `expected`: complete frames, each with MORE. A message
    that begins so is passed to `expected_receiver` instead of `message`. One comparison then replaces measuring and
    splitting those frames one by one, which is where the broker spends most of its time.
    """

    expected: bytes = b""  # no prediction
    expected_receiver: ExpectedReceiver | None = None

    @abstractmethod
    def peer_ready(self, peer: PeerInfo) -> None:
        """Handle the end of the handshake; raise ProtocolError to refuse the peer with a reason, or let it wait for a
        decision (`Connection.defer`)."""

    @abstractmethod
    def message(self, message: Message) -> None:
        """Handle a complete message."""

    def subscription(self, topic: bytes, wanted: bool) -> None:
        """Handle a subscription to a prefix, or its cancellation."""

    def ponged(self, context: bytes) -> None:
        """Handle the reply to a PING."""

    def flush(self) -> None:
        """Write the messages collected so far: a command is transmitted next. A PONG confirms that all messages before
        the PING were handled, and what is encrypted first must be written first."""


class Connection(Stream[Handler]):
    """One end of a ZMTP connection. `server`: the listening end, which refuses a peer with ERROR instead of READY.
    `mechanism`: for this connection only; None: NULL."""

    def __init__(
        self,
        handler: Handler,
        socket_type: bytes,
        server: bool,
        limits: ConnectionLimits,
        identity: bytes = b"",
        properties: dict[bytes, bytes] | None = None,
        mechanism: Mechanism | None = None,
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
        self._metadata = commands.encode_properties(metadata)
        self._mechanism = NullMechanism(server) if mechanism is None else mechanism
        self._secure: SecureTraffic | None = None  # set when encrypted traffic begins
        self._decrypting = False
        self.peer: PeerInfo | None = None
        self.ttl = 0.0  # of the peer's last PING: seconds of silence after which it counts as lost; 0: none
        self._minor = 0
        self._deferred = False  # the owner has not decided about the peer
        self._publisher = socket_type == b"PUB"
        self._measured = 0  # end of the complete frames in _pending
        self._frames = 0  # number of complete frames in _pending

    def start(self) -> None:
        """Send the greeting. Both sides do so at once (RFC 37)."""
        self.handler.transmit(greeting.encode(self._mechanism.name, self._mechanism.as_server))

    @property
    def established(self) -> bool:
        """True from the end of the handshake until the connection is closed."""
        return self.phase == TRAFFIC or self.phase == SECURE_TRAFFIC

    def defer(self) -> None:
        """Let the peer wait, in `Handler.peer_ready`, until `admit` or `fail` ends its handshake."""
        self._deferred = True

    def admit(self) -> None:
        """Accept a peer that had to wait. Without effect if the connection was closed in the meantime."""
        if self._deferred and self.phase == HANDSHAKE:
            self._deferred = False
            self._finish_handshake()
            self.receive(b"")  # what the peer has sent since

    def seal(self, frames: bytes) -> bytes:
        """Return what to write for complete messages: the same bytes with NULL, encrypted with CURVE. Encrypted bytes
        must be written in the order of the calls. Without effect on a closed connection."""
        secure = self._secure
        if secure is not None:
            return secure.seal(frames)
        if not self._mechanism.encrypts:
            return frames
        if self.phase != CLOSED:
            raise RuntimeError("messages cannot be encrypted before the end of the handshake")
        return b""

    def ping(self, ttl: float, context: bytes = b"") -> None:
        """Send PING, which peers of ZMTP 3.1 answer and older ones do not know."""
        tenths = min(int(ttl * 10), 0xFFFF)
        self._send_command(commands.encode(commands.PING, tenths.to_bytes(2, "big") + context))

    def subscribe(self, topic: bytes, wanted: bool = True) -> None:
        """Send a subscription or its cancellation, in the form of the publisher's ZMTP version."""
        if self._minor >= 1:
            self._send_command(commands.encode(commands.SUBSCRIBE if wanted else commands.CANCEL, topic))
            return
        self._send_command(frame((b"\x01" if wanted else b"\x00") + topic))

    def resume(self) -> None:
        """Continue with the bytes kept, then with new ones."""
        super().resume()
        if self._secure is not None:
            self._receive_secure(b"")

    def kept(self) -> int:
        """Return how many received bytes have not been passed to the handler."""
        return super().kept() + (0 if self._secure is None else self._secure.kept())

    def fail(self, error: ProtocolError) -> None:
        """Close the connection because of an error; send it as ERROR during the handshake."""
        if self.phase == HANDSHAKE and self._mechanism.sends_error:
            self.handler.transmit(commands.encode_error(error.message))
        super().fail(error)

    def close(self) -> None:
        """Drop the bytes kept and ignore new ones; the handler is not called."""
        super().close()
        self._secure = None

    def _send_command(self, command: bytes) -> None:
        self.handler.flush()
        if self.established:  # `flush` may have closed the connection
            self.handler.transmit(self.seal(command))

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
                receiver = handler.expected_receiver
                if receiver is not None:
                    receiver.receive_expected(data[rest:pos])
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
        if self.phase == SECURE_TRAFFIC:
            self._receive_secure(data)
            return
        pos = 0
        if self._is_deferred():
            self._pending += data
            return
        if self.phase == GREETING:
            greeting.check_start(data)
            if len(data) < greeting.SIZE:
                self._pending += data
                return
            theirs = greeting.decode(data[: greeting.SIZE])
            self.phase = HANDSHAKE
            self._minor = 0 if theirs.major == 3 and theirs.minor == 0 else 1
            self._check_mechanism(theirs)
            self._transmit_handshake(self._mechanism.start(self._metadata))
            pos = greeting.SIZE
        while self.phase == HANDSHAKE and not self._is_deferred() and pos < len(data):
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
            self._transmit_handshake(self._mechanism.receive(name, body))
            metadata = self._mechanism.metadata
            if metadata is not None:
                self._accept_peer(commands.decode_properties(metadata))
        if pos < len(data):
            if self._is_deferred():
                self._pending += data[pos:]
            elif self.phase == TRAFFIC:
                self._scan(data, pos)
            elif self.phase == SECURE_TRAFFIC:
                self._receive_secure(data[pos:])

    def _check_mechanism(self, theirs: greeting.Greeting) -> None:
        """Raise ProtocolError unless the peer uses the same mechanism in the other role."""
        ours = self._mechanism
        if theirs.mechanism != ours.name:
            raise ProtocolError(
                f"the peer requires the security mechanism {theirs.mechanism.decode('ascii', 'replace')}, "
                f"this side {ours.name.decode()}"
            )
        # RFC 37 asks for as-server 1 and 0 on the two sides, but libzmq sends 0 as a server, too.
        if theirs.as_server and ours.as_server:
            raise ProtocolError(f"both sides are servers of the security mechanism {ours.name.decode()}")

    def _transmit_handshake(self, command: bytes) -> None:
        if command:
            self.handler.transmit(command)

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
        peer = PeerInfo(socket_type, identity, self._minor, properties, self._mechanism.key)
        self.peer = peer
        # The owner may still refuse the peer (its key, a duplicate identity, too many peers). So one side sends READY
        # after this: a refused peer gets ERROR instead and never considers itself connected.
        self.handler.peer_ready(peer)
        if self.phase == HANDSHAKE and not self._deferred:
            self._finish_handshake()

    def _is_deferred(self) -> bool:
        return self._deferred

    def _finish_handshake(self) -> None:
        self._transmit_handshake(self._mechanism.finish())
        self._secure = self._mechanism.open_traffic(self.limits.message_bytes, self.limits.frames)
        self.phase = TRAFFIC if self._secure is None else SECURE_TRAFFIC

    def _receive_secure(self, data: bytes) -> None:
        """Decrypt what the peer sent and pass on each complete message."""
        secure = self._secure
        if secure is None:
            return
        started = secure.kept() > 0  # an earlier chunk began the message
        secure.feed(data)
        if self._decrypting:  # the owner paused and resumed in a call from the loop below, which goes on
            return
        self._decrypting = True
        try:
            while self.phase == SECURE_TRAFFIC and not self.paused:
                message = secure.next_message()
                if message is None:
                    break
                if started:
                    started = False
                    self.spanned += 1
                if self._told:
                    self._told = 0
                    self.handler.buffered(0)
                self._scan(message, 0)
        except ProtocolError as error:
            self.fail(error)
        finally:
            self._decrypting = False
        if self.phase == SECURE_TRAFFIC and secure.kept() - self._told >= BUFFER_STEP:
            self._told = secure.kept()
            self.handler.buffered(self._told)

    def _command(self, message: Message) -> None:
        """Handle a command between messages. Unknown ones are ignored, for compatibility with newer peers."""
        name, data = commands.decode(message.take() or b"")
        if name == commands.PING:
            if len(data) < 2 or len(data) > 2 + commands.PING_CONTEXT_MAX:
                raise ProtocolError("a PING without a TTL, or with a context of more than 16 bytes")
            self.ttl = int.from_bytes(data[:2], "big") / 10
            self._send_command(commands.encode(commands.PONG, data[2:]))
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
