"""Broker-PUB: a ZeroMQ PUB socket that publishes the events of workers.

A message has two frames: the topic `service.worker.kind` and the event's body. Subscribers choose by prefix, in either
form (RFC 37's SUBSCRIBE and CANCEL, or the messages of ZMTP 3.0), and get the events that their principal may observe.
As with any PUB socket there is no guarantee: events before a subscription are not repeated, and a slow subscriber loses
messages (which are counted) without delaying others. Without subscribers an event costs one check of an empty
dictionary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from polydomo.core.ports import Publisher
from polydomo.core.principals import OBSERVE
from polydomo.dialects.session import LARGE_WRITE
from polydomo.errors import ProtocolError
from polydomo.server.identification import Identification
from polydomo.server.log import Log
from polydomo.server.peer_base import PeerBase, PeerGroup, PeerHost
from polydomo.server.ping import SilenceCheck
from polydomo.wire.frames import Message, frame
from polydomo.wire.zmtp.connection import Connection, Handler, PeerInfo
from polydomo.wire.zmtp.pubsub import Subscriptions

log = Log()


class Events(PeerGroup["Subscriber"], Publisher):
    """The core's publisher, with all connections to the events' endpoints."""

    def __init__(self, server: PeerHost) -> None:
        super().__init__(server, partial(Subscriber, self))
        self.listening: dict[Subscriber, None] = {}  # with at least one subscription
        self.sent = 0  # messages
        self.lost = 0  # messages dropped for slow subscribers
        self._dirty: list[Subscriber] = []

    def published(self, service: bytes, worker: bytes, kind: str, body: bytes) -> None:
        if not self.listening:
            return
        topic = b"%b.%b.%b" % (service, worker, kind.encode(errors="replace"))
        data = b""
        principals = self.server.broker.principals
        for subscriber in self.listening:
            if subscriber.subscriptions.matches(topic) and (
                principals.authority is None
                or principals.allows(principals.get(subscriber.principal), OBSERVE, service, worker)
            ):
                if not data:
                    data = frame(topic, True) + frame(body, False)
                subscriber.send(data)

    def show(self) -> dict[str, Any]:
        """Describe the publisher for `show_broker`."""
        return {
            "endpoints": list(self.bound),
            "subscribers": len(self.peers),
            "sent": self.sent,
            "lost": self.lost,
        }

    def schedule_flush(self, subscriber: Subscriber) -> None:
        """Flush the subscriber at the end of this turn of the event loop."""
        if not self._dirty:
            self.server.loop.call_soon(self.flush)
        self._dirty.append(subscriber)

    def flush(self) -> None:
        """Write the collected messages, once per subscriber."""
        dirty = self._dirty
        self._dirty = []
        for subscriber in dirty:
            subscriber.flush()


class Subscriber(PeerBase, Handler):
    """One connection, which is also its own output buffer."""

    def __init__(self, events: Events, listener: str, identification: Identification) -> None:
        super().__init__(events, listener, identification)
        self.events = events
        self.connection: Connection
        self.write: Callable[[bytes], object]
        self.subscriptions = Subscriptions()
        self.lost = 0
        self._silence = SilenceCheck()
        self._out: list[bytes] = []
        self._waiting = 0  # bytes in `_out`

    def send(self, data: bytes) -> None:
        """Send at the end of this turn, or drop the message if the subscriber has too much unread."""
        waiting = self._waiting + self.transport.get_write_buffer_size()
        if waiting and waiting + len(data) > self.server.settings.limits.subscriber_bytes:
            self.lost += 1
            self.events.lost += 1
            if self.lost == 1:
                self.server.log_peer("events lost", self, "the subscriber does not read them fast enough")
            return
        if not self._out:
            self.events.schedule_flush(self)
        self._out.append(data)
        self._waiting += len(data)
        self.events.sent += 1

    def flush(self) -> None:
        """Write the collected messages."""
        out = self._out
        self._out = []
        self._waiting = 0
        if out and not self.transport.is_closing():
            data = self.connection.seal(b"".join(out))
            if len(data) > LARGE_WRITE:
                self.write_large(data)
            else:
                self.write(data)

    def has_worker(self) -> bool:
        """Return True: subscriptions are read even from a peer that does not read its events."""
        return True

    def inspect(self, now: float) -> None:
        super().inspect(now)
        ping = 0.0 if self.transport.get_write_buffer_size() else self.server.settings.zmq.ping
        reason = self._silence.check(self.connection, now - self.heard, ping)
        if reason:
            self.cut(reason)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.attach(transport)
        # A subscriber must count as a slow reader before it loses events, or it would never be cut.
        self.high_water = min(self.high_water, self.server.settings.limits.subscriber_bytes // 2)
        self.transport.set_write_buffer_limits(self.high_water, 0)
        self.write = self.transport.write
        self.output = self
        security = self.security
        mechanism = None if security is None else security.new_mechanism()
        self.parser = self.connection = Connection(
            self, b"PUB", True, self.server.wire_limits, mechanism=mechanism
        )
        self.authenticating = mechanism is not None
        self.begin_handshake()

    def data_received(self, data: bytes) -> None:
        self.heard = self.server.clock.read()
        self.connection.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.events.listening.pop(self, None)
        if self.lost:
            log.info("subscriber that lost events disconnected", peer=self.address, lost=self.lost)
        del self.output, self.write, self.parser, self.connection  # break reference cycles

    # The connection's side

    def transmit(self, data: bytes) -> None:
        """Send a part of the handshake or a PONG; cut a peer that pings and never reads."""
        if self.transport.get_write_buffer_size() > self.server.settings.limits.subscriber_bytes:
            self.cut("does not read the answers to its PINGs")
        else:
            self.write(data)

    def peer_ready(self, peer: PeerInfo) -> None:
        security = self.security
        if security is None or security.admits(self, peer):
            self.take_seat()
            self.end_handshake()
            self.events.peers.add(self)

    def message(self, message: Message) -> None:
        """Ignore messages: a PUB socket receives subscriptions only."""

    def subscription(self, topic: bytes, wanted: bool) -> None:
        self.subscriptions.change(topic, wanted)
        if len(self.subscriptions):
            self.events.listening[self] = None
        else:
            self.events.listening.pop(self, None)

    def failed(self, error: ProtocolError) -> None:
        self.events.listening.pop(self, None)
        self.refuse(str(error))
