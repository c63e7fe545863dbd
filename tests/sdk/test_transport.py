"""sdk/link: what is told to whom when a connection breaks at an odd moment."""

from __future__ import annotations

import asyncio

import pytest

from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.transport import Lost, PeerTransport
from polydomo.sdk.url import parse


class Bare(PeerTransport):
    """A link whose handshake is done when the test says so."""

    def __init__(self, told: list[str]) -> None:
        super().__init__(parse("mdp://127.0.0.1:5555").places[0], REAL_TIME, told.append, 0.0)

    def shake(self) -> None:
        self._ready.set_result(None)

    def _begin(self) -> None:
        pass

    def _receive(self, data: bytes) -> None:
        pass

    def _ask(self) -> bool:
        return False


async def test_lost_in_the_same_turn_as_its_handshake_ends() -> None:
    """Whoever opens it has it not yet: it hears of it there, and nowhere else."""
    told: list[str] = []
    link = Bare(told)
    opening = asyncio.ensure_future(link.ready())
    await asyncio.sleep(0)
    link.shake()
    link.connection_lost(None)
    with pytest.raises(Lost, match="the broker closed the connection"):
        await opening
    assert told == []


async def test_lost_before_its_handshake_ends() -> None:
    told: list[str] = []
    link = Bare(told)
    link.connection_lost(OSError("reset"))
    with pytest.raises(Lost, match="reset"):
        await link.ready()
    assert told == []


async def test_lost_later_is_told_once() -> None:
    told: list[str] = []
    link = Bare(told)
    link.shake()
    await link.ready()
    link.connection_lost(OSError("reset"))
    link.abort("again")
    assert told == ["reset"]
