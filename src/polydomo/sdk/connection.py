"""One connection to a broker: a ZMTP DEALER (`sdk.transport` has the part that is not ZMTP's).

Messages go up to the owner's `on_message`. A broker that says nothing while something is awaited is asked with ZMTP's
PING.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from polydomo._version import __version__
from polydomo.dialects.session import NATIVE_PROPERTY
from polydomo.errors import ProtocolError
from polydomo.sdk.clock import Clock
from polydomo.sdk.transport import Lost, PeerTransport, open_link, release
from polydomo.sdk.url import Address
from polydomo.wire.frames import Message
from polydomo.wire.zmtp.connection import TRAFFIC, Connection, ConnectionLimits, Handler, PeerInfo

__all__ = ["Dealer", "Lost", "connect"]

# A broker may answer with anything its own limits allow; this only bounds nonsense.
LIMITS: Final = ConnectionLimits(message_bytes=1 << 31, frames=1 << 16)

# The context of a PING that asks whether all before it was dealt with.
_SETTLED: Final = b"settled"


class Dealer(PeerTransport, Handler):
    """See the module's text; made by `connect`."""

    def __init__(
        self,
        place: Address,
        clock: Clock,
        on_message: Callable[[Message], None],
        on_lost: Callable[[str], None],
        properties: dict[bytes, bytes],
        ping: float,
        identity: bytes = b"",
    ) -> None:
        super().__init__(place, clock, on_lost, ping)
        self._on_message = on_message
        self._connection = Connection(
            self,
            b"DEALER",
            False,
            LIMITS,
            identity=identity,
            properties={NATIVE_PROPERTY: __version__.encode(), **properties},
        )
        self._settling: deque[asyncio.Future[None]] = deque()

    async def settled(self) -> None:
        """Until the broker has dealt with everything sent before: it answers a PING in its turn. At once if
        it knows no PING, or is lost meanwhile."""
        peer = self._connection.peer
        if peer is None or peer.minor < 1 or self.closed:
            return
        answered: asyncio.Future[None] = self._loop.create_future()
        self._settling.append(answered)
        self._flush()
        self._connection.ping(0.0, _SETTLED)
        await answered

    # The link's side

    def _begin(self) -> None:
        self._connection.start()

    def _receive(self, data: bytes) -> None:
        self._connection.receive(data)

    def _ask(self) -> bool:
        peer = self._connection.peer
        if peer is None or peer.minor < 1 or self._connection.phase != TRAFFIC:
            return False
        self._connection.ping(0.0)  # no TTL: it would hold us to pinging for ever
        return True

    def _end(self) -> None:
        super()._end()
        while self._settling:
            release(self._settling.popleft())

    # ZMTP's side

    def transmit(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def peer_ready(self, peer: PeerInfo) -> None:
        self.native = NATIVE_PROPERTY.lower() in peer.properties
        # Not before the connection counts itself ready, which is after this call.
        self._loop.call_soon(release, self._ready)

    def message(self, message: Message) -> None:
        if not self.closed:
            self._on_message(message)

    def ponged(self, context: bytes) -> None:
        if context == _SETTLED and self._settling:
            release(self._settling.popleft())

    def failed(self, error: ProtocolError) -> None:
        self.abort(error.message)


async def connect(
    place: Address,
    on_message: Callable[[Message], None],
    on_lost: Callable[[str], None],
    *,
    clock: Clock,
    properties: dict[bytes, bytes] | None = None,
    ping: float = 5.0,
    timeout: float | None = 5.0,
    identity: bytes = b"",
) -> Dealer:
    """A connection whose handshake is done, or Lost with the reason. `identity`: what the other side knows us by."""
    dealer = Dealer(place, clock, on_message, on_lost, properties or {}, ping, identity)
    await open_link(dealer, timeout)
    return dealer
