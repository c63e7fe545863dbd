"""ZMTP connections to a broker (`sdk.transport` has the part that does not depend on ZMTP).

Messages are passed to the owner's `on_message`. A broker that is silent while a reply is awaited is checked with
ZMTP's PING.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from polydomo._version import __version__
from polydomo.dialects.session import JOIN_PROPERTY, NATIVE_PROPERTY
from polydomo.sdk.clock import AsyncClock
from polydomo.sdk.transport import PING, PeerTransport, release
from polydomo.sdk.url import Address
from polydomo.wire.frames import Message
from polydomo.wire.zmtp.connection import Connection, ConnectionLimits, Handler, PeerInfo

# A broker may send anything its own limits allow; these only bound malformed input.
LIMITS: Final = ConnectionLimits(message_bytes=1 << 31, frames=1 << 16)

# The context of a PING that is answered when everything sent before it has been processed.
_SETTLED: Final = b"settled"


class ZmtpTransport(PeerTransport, Handler):
    """A ZeroMQ socket with one connection; opened by `open_transport`. `identity` is the routing id that the peer
    sees. If the address has keys, the connection uses CURVE."""

    socket_type: bytes

    def __init__(
        self,
        address: Address,
        clock: AsyncClock,
        on_message: Callable[[Message], None],
        on_lost: Callable[[str], None],
        *,
        ping: float = PING,
        properties: Mapping[bytes, bytes] | None = None,
        identity: bytes = b"",
    ) -> None:
        super().__init__(address, clock, on_lost, ping)
        self._on_message = on_message
        mechanism = None if address.keys is None else address.keys.new_mechanism()
        own = {NATIVE_PROPERTY: __version__.encode()}
        if address.keys is not None and address.keys.join:
            own[JOIN_PROPERTY] = address.keys.join.encode()
        self._connection: Connection = Connection(
            self,
            self.socket_type,
            False,
            LIMITS,
            identity=identity,
            properties={**own, **(properties or {})},
            mechanism=mechanism,
        )
        if mechanism is not None:
            self._seal = self._connection.seal
        self._settling: deque[asyncio.Future[None]] = deque()

    async def settled(self) -> None:
        """Wait until the broker has processed everything sent before: it answers a PING in order. Returns at once if
        the broker does not support PING, and when the connection is lost."""
        peer = self._connection.peer
        if peer is None or peer.minor < 1 or self.closed:
            return
        answered: asyncio.Future[None] = self._loop.create_future()
        self._settling.append(answered)
        self._flush()
        self._connection.ping(0.0, _SETTLED)
        await answered

    # PeerTransport

    def _check_peer(self) -> bool:
        peer = self._connection.peer
        if peer is None or peer.minor < 1 or not self._connection.established:
            return False
        self._connection.ping(0.0)  # no TTL: it would oblige this side to ping for ever
        return True

    def _end(self) -> None:
        super()._end()
        while self._settling:
            release(self._settling.popleft())

    # wire.zmtp's Handler

    def peer_ready(self, peer: PeerInfo) -> None:
        self.native = NATIVE_PROPERTY.lower() in peer.properties
        # The connection's own state is "ready" only after this call.
        self._loop.call_soon(release, self._ready)

    def message(self, message: Message) -> None:
        if not self.closed:
            self._on_message(message)

    def ponged(self, context: bytes) -> None:
        if context == _SETTLED and self._settling:
            release(self._settling.popleft())


class Dealer(ZmtpTransport):
    """A DEALER socket."""

    socket_type = b"DEALER"
