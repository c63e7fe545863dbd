"""A handler that records everything a ZMTP connection reports, and helpers to connect two connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from polydomo.errors import ProtocolError
from polydomo.wire.frames import Message, split
from polydomo.wire.stream import TRAFFIC
from polydomo.wire.zmtp.connection import Connection, ConnectionLimits, ExpectedReceiver, Handler, PeerInfo
from polydomo.wire.zmtp.mechanism import Mechanism
from tests.support import zmtp

Call = tuple[object, ...]


class _Expected(ExpectedReceiver):
    """Records predicted messages like any other: whether a message was predicted must make no difference."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def receive_expected(self, body: bytes) -> None:
        recorder = self._recorder
        recorder.guessed += 1
        recorder.calls.append(("message", *split(recorder.expected), *Message(body, 0, len(body)).frames()))


class Recorder(Handler):
    """Records `calls` in order, and `sent` bytes. `on_message` may pause or fail the connection from inside a call."""

    def __init__(self, *, refuse: str = "", on_message: Callable[[list[bytes]], None] | None = None) -> None:
        self.sent = b""
        self.calls: list[Call] = []
        self.guessed = 0  # messages with the expected prefix
        self.refuse = refuse
        self.on_message = on_message
        self.on_ready: Callable[[], None] | None = None
        self.on_subscription: Callable[[bytes, bool], None] | None = None
        self.expected_receiver = _Expected(self)

    def transmit(self, data: bytes) -> None:
        assert type(data) is bytes
        self.sent += data

    def peer_ready(self, peer: PeerInfo) -> None:
        if self.refuse:
            raise ProtocolError(self.refuse)
        self.calls.append(("ready", peer.socket_type, peer.identity, peer.minor))
        if self.on_ready is not None:
            self.on_ready()

    def message(self, message: Message) -> None:
        frames = message.frames()
        self.calls.append(("message", *frames))
        if self.on_message is not None:
            self.on_message(frames)

    def failed(self, error: ProtocolError) -> None:
        self.calls.append(("failed", error.message))

    def subscription(self, topic: bytes, wanted: bool) -> None:
        if self.on_subscription is not None:
            self.on_subscription(topic, wanted)
        self.calls.append(("subscription", topic, wanted))

    def ponged(self, context: bytes) -> None:
        self.calls.append(("ponged", context))

    def take_sent(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent

    @property
    def messages(self) -> list[list[bytes]]:
        return [list(call[1:]) for call in self.calls if call[0] == "message"]  # type: ignore[misc]

    @property
    def failures(self) -> list[str]:
        return [str(call[1]) for call in self.calls if call[0] == "failed"]


def connect(
    socket_type: bytes = b"ROUTER",
    *,
    server: bool = True,
    limits: ConnectionLimits | None = None,
    identity: bytes = b"",
    recorder: Recorder | None = None,
    mechanism: Mechanism | None = None,
) -> tuple[Connection, Recorder]:
    """Return a connection that has sent its greeting."""
    recorder = recorder or Recorder()
    connection = Connection(
        recorder, socket_type, server, limits or ConnectionLimits(), identity, mechanism=mechanism
    )
    connection.start()
    return connection, recorder


PARTNER = {b"ROUTER": b"DEALER", b"DEALER": b"ROUTER", b"PUB": b"SUB", b"SUB": b"PUB"}


def handshake(socket_type: bytes = b"ROUTER", version: bytes = b"\x03\x01") -> bytes:
    """Return what a suitable peer sends before its first message."""
    return zmtp.greeting(version) + zmtp.ready(PARTNER[socket_type])


def in_traffic(
    socket_type: bytes = b"ROUTER",
    *,
    limits: ConnectionLimits | None = None,
    version: bytes = b"\x03\x01",
    recorder: Recorder | None = None,
) -> tuple[Connection, Recorder]:
    """Return a connection after the handshake, without recorded calls."""
    connection, recorder = connect(socket_type, limits=limits, recorder=recorder)
    connection.receive(handshake(socket_type, version))
    assert connection.phase == TRAFFIC
    recorder.calls.clear()
    recorder.take_sent()
    return connection, recorder


def feed(connection: Connection, data: bytes, cuts: Iterable[int]) -> None:
    """Feed `data` in pieces that end at `cuts`."""
    start = 0
    for cut in sorted({min(cut, len(data)) for cut in cuts} | {len(data)}):
        connection.receive(data[start:cut])
        start = cut


def run_to_rest(one: tuple[Connection, Recorder], other: tuple[Connection, Recorder]) -> None:
    """Carry bytes both ways until both sides are idle."""
    while one[1].sent or other[1].sent:
        other[0].receive(one[1].take_sent())
        one[0].receive(other[1].take_sent())
