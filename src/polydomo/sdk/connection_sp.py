"""One NNG REQ connection to a broker over SP (`sdk.transport` has the part that does not depend on SP).

Replies are passed to the owner's `on_reply` with their request IDs. SP has no PING. A silent broker is checked with a
second connection: if SP's handshake succeeds there, the broker is alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from polydomo.sdk.clock import AsyncClock
from polydomo.sdk.transport import PING, ConnectionLost, PeerTransport, open_transport, release
from polydomo.sdk.url import Address
from polydomo.wire.sp.connection import Connection, Handler
from polydomo.wire.sp.hello import REQ

# A broker may send anything its own limits allow; this only bounds malformed input.
LIMIT: Final = 1 << 31

# The time limit of a second connection, as a fraction of the silence that made it necessary.
PROBE_FRACTION: Final = 0.9

# (request IDs, data, start, end)
OnReply = Callable[[bytes, bytes, int, int], None]


class Req(PeerTransport, Handler):
    """A REQ socket with one connection; opened by `open_transport`."""

    speaks_sp = True

    def __init__(
        self,
        address: Address,
        clock: AsyncClock,
        on_reply: OnReply,
        on_lost: Callable[[str], None],
        ping: float = PING,
    ) -> None:
        super().__init__(address, clock, on_lost, ping)
        self.ipc = address.endpoint is not None and address.endpoint.is_ipc
        self._on_reply = on_reply
        self._connection = Connection(self, REQ, LIMIT, self.ipc)
        self._probe: asyncio.Task[None] | None = None

    # PeerTransport

    def _check_peer(self) -> bool:
        self._probe = asyncio.create_task(self._probe_broker())
        return True

    def _end(self) -> None:
        super()._end()
        if self._probe is not None and self._probe is not asyncio.current_task():
            self._probe.cancel()

    async def _probe_broker(self) -> None:
        try:
            probe = Req(self.address, self.clock, _ignore, _ignore)
            (await open_transport(probe, self._ping * PROBE_FRACTION)).close()
        except ConnectionLost as lost:
            self.abort(f"it is silent, and a second connection could not be made: {lost}")
        else:
            self._heard()

    # wire.sp's Handler

    def peer_ready(self) -> None:
        # The connection's own state is "ready" only after this call.
        self._loop.call_soon(release, self._ready)

    def message(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        if not self.closed:
            self._on_reply(stack, data, start, end)

    def dropped(self, reason: str) -> None:
        """Ignore a message that is no reply."""


def _ignore(*args: object) -> None: ...
