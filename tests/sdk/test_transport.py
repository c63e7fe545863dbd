"""sdk/transport: reports of a connection that breaks at an unusual moment."""

from __future__ import annotations

import asyncio

import pytest

from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.transport import ConnectionLost, PeerTransport
from polydomo.sdk.url import parse


class Bare(PeerTransport):
    """A transport whose handshake is done when the test says so."""

    def __init__(self, told: list[str]) -> None:
        super().__init__(parse("mdp://127.0.0.1:5555").addresses[0], REAL_TIME, told.append, 0.0)

    def shake(self) -> None:
        self._ready.set_result(None)

    def _check_peer(self) -> bool:
        return False


async def test_lost_in_the_same_turn_as_its_handshake_ends() -> None:
    """The loss is raised to the opener and not reported a second time."""
    told: list[str] = []
    transport = Bare(told)
    opening = asyncio.ensure_future(transport.ready())
    await asyncio.sleep(0)
    transport.shake()
    transport.connection_lost(None)
    with pytest.raises(ConnectionLost, match="the broker closed the connection"):
        await opening
    assert told == []


async def test_lost_before_its_handshake_ends() -> None:
    told: list[str] = []
    transport = Bare(told)
    transport.connection_lost(OSError("reset"))
    with pytest.raises(ConnectionLost, match="reset"):
        await transport.ready()
    assert told == []


async def test_lost_later_is_told_once() -> None:
    told: list[str] = []
    transport = Bare(told)
    transport.shake()
    await transport.ready()
    transport.connection_lost(OSError("reset"))
    transport.abort("again")
    assert told == ["reset"]
