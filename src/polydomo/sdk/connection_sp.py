"""One connection to a broker: an NNG REQ on SP (`sdk.transport` has the part that is not SP's).

Replies go up to the owner's `on_reply` with their request IDs. SP has no way to ask a silent broker whether it is
there. A second connection does: whoever still answers SP's hello on that one is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from polydomo.errors import ProtocolError
from polydomo.sdk.clock import Clock
from polydomo.sdk.transport import Lost, PeerTransport, open_link, release
from polydomo.sdk.url import Address
from polydomo.wire.sp.connection import Connection, Handler
from polydomo.wire.sp.hello import REQ

# A broker may answer with anything its own limits allow; this only bounds nonsense.
LIMIT: Final = 1 << 31

# How long a second connection may take, in parts of the silence that made us look.
PROBE: Final = 0.9

# (request IDs, data, start, end)
OnReply = Callable[[bytes, bytes, int, int], None]


class Req(PeerTransport, Handler):
    """See the module's text; made by `connect`."""

    speaks_sp = True

    def __init__(
        self, place: Address, clock: Clock, on_reply: OnReply, on_lost: Callable[[str], None], ping: float
    ) -> None:
        super().__init__(place, clock, on_lost, ping)
        self.ipc = place.endpoint is not None and place.endpoint.is_ipc
        self._on_reply = on_reply
        self._connection = Connection(self, REQ, LIMIT, self.ipc)
        self._probe: asyncio.Task[None] | None = None

    # The link's side

    def _begin(self) -> None:
        self._connection.start()

    def _receive(self, data: bytes) -> None:
        self._connection.receive(data)

    def _ask(self) -> bool:
        self._probe = asyncio.create_task(self._knock())
        return True

    def _end(self) -> None:
        super()._end()
        if self._probe is not None and self._probe is not asyncio.current_task():
            self._probe.cancel()

    async def _knock(self) -> None:
        try:
            await knock(self.place, self.clock, self._ping * PROBE)
        except Lost as lost:
            self.abort(f"it is silent, and a second connection could not be made: {lost}")
        else:
            self._heard = self.clock.time()
            self._asked = False

    # SP's side

    def transmit(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def peer_ready(self) -> None:
        # Not before the connection counts itself ready, which is after this call.
        self._loop.call_soon(release, self._ready)

    def message(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        if not self.closed:
            self._on_reply(stack, data, start, end)

    def dropped(self, reason: str) -> None:
        """Nothing that was awaited."""

    def failed(self, error: ProtocolError) -> None:
        self.abort(error.message)


async def connect(
    place: Address,
    on_reply: OnReply,
    on_lost: Callable[[str], None],
    *,
    clock: Clock,
    ping: float = 5.0,
    timeout: float | None = 5.0,
) -> Req:
    """A connection whose handshake is done, or Lost with the reason."""
    link = Req(place, clock, on_reply, on_lost, ping)
    await open_link(link, timeout)
    return link


async def knock(place: Address, clock: Clock, timeout: float) -> None:
    """Is somebody there? Lost if not."""
    link = await connect(place, _ignore, _forget, clock=clock, timeout=timeout)
    link.close()


def _ignore(stack: bytes, data: bytes, start: int, end: int) -> None:
    """Nothing was asked."""


def _forget(reason: str) -> None:
    """It has served its purpose."""
