"""Broker-PUB: a ZeroMQ PUB socket on which everybody who subscribed hears what workers say about their jobs.

A message has two frames: the topic `service.worker.kind`, and the event's body. Subscribers choose by prefix, in either
form (RFC 37's SUBSCRIBE and CANCEL, or the messages of ZMTP 3.0). As with any PUB socket there is no promise: what was
said before somebody subscribed is not repeated, and one that reads too slowly loses messages (they are counted) and
makes nobody wait. If nobody listens, an event costs one look at an empty set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polydomo.core.ports import Publisher
from polydomo.dialects.session import LARGE_WRITE
from polydomo.errors import ProtocolError
from polydomo.server.log import Log
from polydomo.server.peer_base import PeerBase
from polydomo.wire.frames import Message, frame
from polydomo.wire.zmtp.connection import Connection, Handler, PeerInfo
from polydomo.wire.zmtp.pubsub import Subscriptions

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

log = Log()


class Events(Publisher):
    """The core's publisher: everybody who is connected to the events' endpoints."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.bound: list[str] = []
        self.subscribers: set[Subscriber] = set()
        self.listening: dict[Subscriber, None] = {}  # those who have subscribed to something
        self.sent = 0  # messages
        self.lost = 0  # messages that somebody was too slow for
        self._dirty: list[Subscriber] = []

    def published(self, service: bytes, worker: bytes, kind: str, body: bytes) -> None:
        if not self.listening:
            return
        topic = b"%b.%b.%b" % (service, worker, kind.encode(errors="replace"))
        data = b""
        for subscriber in self.listening:
            if subscriber.subscriptions.matches(topic):
                if not data:
                    data = frame(topic, True) + frame(body, False)
                subscriber.send(data)

    def show(self) -> dict[str, Any]:
        """For the catalogue."""
        return {
            "endpoints": list(self.bound),
            "subscribers": len(self.subscribers),
            "sent": self.sent,
            "lost": self.lost,
        }

    def dirty(self, subscriber: Subscriber) -> None:
        """It has something to send at the end of this turn."""
        if not self._dirty:
            self.server.loop.call_soon(self.flush)
        self._dirty.append(subscriber)

    def flush(self) -> None:
        """One write per subscriber and turn."""
        dirty = self._dirty
        self._dirty = []
        for subscriber in dirty:
            subscriber.flush()

    def inspect(self, now: float) -> None:
        """Every few seconds: who is still there?"""
        for subscriber in list(self.subscribers):
            subscriber.inspect(now)

    def close(self, *, hurry: bool = False) -> None:
        """The broker stops: send what is there, then close; or close at once."""
        self.flush()
        for subscriber in list(self.subscribers):
            if hurry:
                subscriber.transport.abort()
            else:
                subscriber.transport.close()


class Subscriber(PeerBase, Handler):
    """One connection. It is its own outlet."""

    def __init__(self, events: Events, listener: str) -> None:
        super().__init__(events.server, listener)
        self.events = events
        self.connection: Connection
        self.write: Callable[[bytes], object]
        self.subscriptions = Subscriptions()
        self.lost = 0
        self.heard = self.server.clock.read()
        self._pinged = False
        self._out: list[bytes] = []
        self._waiting = 0  # bytes in `_out`

    def send(self, data: bytes) -> None:
        """At the end of this turn; or never, if it has not read what was sent before."""
        waiting = self._waiting + self.transport.get_write_buffer_size()
        if waiting and waiting + len(data) > self.server.settings.limits.subscriber_bytes:
            self.lost += 1
            self.events.lost += 1
            if self.lost == 1:
                self.server.note("events lost", self, reason="the subscriber does not read them fast enough")
            return
        if not self._out:
            self.events.dirty(self)
        self._out.append(data)
        self._waiting += len(data)
        self.events.sent += 1

    def flush(self) -> None:
        """Write out what was collected."""
        out = self._out
        self._out = []
        self._waiting = 0
        if out and not self.transport.is_closing():
            data = b"".join(out)
            if len(data) > LARGE_WRITE:
                self.write_large(data)
            else:
                self.write(data)

    def works(self) -> bool:
        """Return True: subscriptions are read whether it reads its events or not."""
        return True

    def inspect(self, now: float) -> None:
        """Is it still there, does it read?"""
        super().inspect(now)
        silence = now - self.heard
        ping = self.server.settings.zmq.ping
        if self.connection.ttl and silence > self.connection.ttl:
            self.cut("silent for longer than the TTL of its own PING")
        elif ping and not self.transport.get_write_buffer_size():
            if silence <= ping:
                self._pinged = False
            elif silence > 3 * ping and self._pinged:
                self.cut(f"silent for {silence:.0f} s and did not answer PING")
            elif self.connection.peer is not None and self.connection.peer.minor >= 1:
                self.connection.ping(3 * ping)
                self._pinged = True

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.attach(transport)
        # It must count as a slow reader before it loses events, or it would never be cut.
        self.high_water = min(self.high_water, self.server.settings.limits.subscriber_bytes // 2)
        self.transport.set_write_buffer_limits(self.high_water, 0)
        self.write = self.transport.write
        self.outlet = self
        self.parser = self.connection = Connection(self, b"PUB", True, self.server.wire_limits)
        if self.admit():
            self.connection.start()

    def data_received(self, data: bytes) -> None:
        self.heard = self.server.clock.read()
        self.connection.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.events.subscribers.discard(self)
        self.events.listening.pop(self, None)
        if self.lost:
            log.info("a subscriber that lost events is gone", peer=self.address, lost=self.lost)
        del self.outlet, self.write, self.parser, self.connection  # they refer to this object

    # The connection's side

    def transmit(self, data: bytes) -> None:
        """The handshake, and PONGs: of a peer that pings and never reads there could be many."""
        if self.transport.get_write_buffer_size() > self.server.settings.limits.subscriber_bytes:
            self.cut("it does not read what it asks for")
        else:
            self.flush()  # in order
            self.write(data)

    def peer_ready(self, peer: PeerInfo) -> None:
        self.server.seat(self)
        self.settled()
        self.events.subscribers.add(self)

    def message(self, message: Message) -> None:
        """A PUB socket hears subscriptions only."""

    def subscription(self, topic: bytes, wanted: bool) -> None:
        self.subscriptions.change(topic, wanted)
        if len(self.subscriptions):
            self.events.listening[self] = None
        else:
            self.events.listening.pop(self, None)

    def failed(self, error: ProtocolError) -> None:
        self.events.listening.pop(self, None)
        self.refuse(str(error))
