"""Lines about peers: some of each kind, the number of the rest, none too long."""

from __future__ import annotations

import logging
from typing import NamedTuple

import pytest
import structlog

from polydomo.server import peer_log
from polydomo.server.peer_log import LINES, LONGEST, SAME, PeerLog


class Peer(NamedTuple):
    address: str
    listener: str = "tcp://x"


@pytest.fixture(autouse=True)
def quiet() -> None:
    structlog.reset_defaults()


async def test_a_flood_is_a_few_lines_and_a_number(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "polydomo")
    denied: list[str] = []
    lines = PeerLog(lambda address, reason: denied.append(reason))
    for number in range(500):
        lines.add("peer refused", Peer(f"127.0.0.1:{number}"), "not ZMTP")
    lines.add("peer cut", Peer("127.0.0.1:1"), "another reason is heard all the same")
    assert len(caplog.messages) == SAME + 1
    assert "another reason" in caplog.messages[-1]
    lines.end_period()
    assert caplog.messages[-1].startswith(f"suppressed {500 - SAME} repeated messages")
    assert len(denied) == 501
    lines.add("peer refused", Peer("127.0.0.1:1"), "not ZMTP")
    assert "not ZMTP" in caplog.messages[-1], "a new period"
    lines.end_period()


async def test_different_reasons_are_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "polydomo")
    lines = PeerLog(lambda address, reason: None)
    for number in range(10 * LINES):
        lines.add("peer refused", Peer("127.0.0.1:1"), f"no mechanism {number}")
    assert len(caplog.messages) == LINES
    lines.end_period()


async def test_a_strangers_text_is_cut_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    denied: list[str] = []
    lines = PeerLog(lambda address, reason: denied.append(reason))
    lines.add("peer refused", Peer("127.0.0.1:1"), "\x1b[2J\n" + "x" * 1_000_000)
    (reason,) = denied
    assert reason.startswith("\\x1b[2J\\n")
    assert len(reason) <= LONGEST + 10
    assert len(caplog.messages[0]) < LONGEST + 200
    lines.end_period()


async def test_the_number_comes_by_itself(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    monkeypatch.setattr(peer_log, "PERIOD", 0.01)
    caplog.set_level(logging.INFO, "polydomo")
    lines = PeerLog(lambda address, reason: None)
    for _ in range(SAME + 5):
        lines.add("peer refused", Peer("127.0.0.1:1"), "not ZMTP")
    async with asyncio.timeout(10):
        while "suppressed 5 repeated messages" not in caplog.text:
            await asyncio.sleep(0.005)
