"""Lines about peers: some of each kind, the number of the rest, none too long."""

from __future__ import annotations

import logging

import pytest
import structlog

from polydomo.server import peer_notes
from polydomo.server.peer_notes import LINES, LONGEST, SAME, PeerLog


@pytest.fixture(autouse=True)
def quiet() -> None:
    structlog.reset_defaults()


async def test_a_flood_is_a_few_lines_and_a_number(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "polydomo")
    denied: list[str] = []
    notes = PeerLog(lambda address, reason: denied.append(reason))
    for number in range(500):
        notes.note("peer refused", f"127.0.0.1:{number}", "tcp://x", "not ZMTP")
    notes.note("peer cut", "127.0.0.1:1", "tcp://x", "another reason is heard all the same")
    assert len(caplog.messages) == SAME + 1
    assert "another reason" in caplog.messages[-1]
    notes.end_period()
    assert caplog.messages[-1].startswith(f"suppressed {500 - SAME} repeated messages")
    assert len(denied) == 501
    notes.note("peer refused", "127.0.0.1:1", "tcp://x", "not ZMTP")
    assert "not ZMTP" in caplog.messages[-1], "a new period"
    notes.end_period()


async def test_different_reasons_are_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "polydomo")
    notes = PeerLog(lambda address, reason: None)
    for number in range(10 * LINES):
        notes.note("peer refused", "127.0.0.1:1", "tcp://x", f"no mechanism {number}")
    assert len(caplog.messages) == LINES
    notes.end_period()


async def test_a_strangers_text_is_cut_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    denied: list[str] = []
    notes = PeerLog(lambda address, reason: denied.append(reason))
    notes.note("peer refused", "127.0.0.1:1", "tcp://x", "\x1b[2J\n" + "x" * 1_000_000)
    (reason,) = denied
    assert reason.startswith("\\x1b[2J\\n")
    assert len(reason) <= LONGEST + 10
    assert len(caplog.messages[0]) < LONGEST + 200
    notes.end_period()


async def test_the_number_comes_by_itself(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    monkeypatch.setattr(peer_notes, "PERIOD", 0.01)
    caplog.set_level(logging.INFO, "polydomo")
    notes = PeerLog(lambda address, reason: None)
    for _ in range(SAME + 5):
        notes.note("peer refused", "127.0.0.1:1", "tcp://x", "not ZMTP")
    async with asyncio.timeout(10):
        while "suppressed 5 repeated messages" not in caplog.text:
            await asyncio.sleep(0.005)
