"""A store that cannot take more: who can be told is told, it is logged, and counted as refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from polydomo import web
from polydomo.errors import Refused
from polydomo.sdk import Client
from polydomo.server import store_adapter
from polydomo.server.server import BrokerServer
from polydomo.server.settings import ServiceSection, Settings
from tests.support.peers import MdpClient
from tests.web.api.site import Site, is_problem


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    settings = Settings()
    settings.broker.zmq = ["tcp://127.0.0.1:*"]
    settings.broker.http = ["127.0.0.1:*"]
    settings.broker.data = str(tmp_path)
    settings.services = {"kept": ServiceSection(durable=True)}
    settings.store.backlog = 123_456
    server = BrokerServer(settings, (web.join,))
    await server.start()
    try:
        yield server
    finally:
        server.stop(drain=False)
        await server.wait()


@pytest.fixture
def lines(server: BrokerServer, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """Return the logged events with their numbers of jobs."""
    found: list[tuple[str, object]] = []
    monkeypatch.setattr(
        store_adapter.log, "warning", lambda what, **more: found.append((what, more.get("jobs")))
    )
    assert server.store is not None
    assert server.store.backlog_limit == 123_456
    server.store.backlog += 1 << 30  # a disk that stands still
    return found


@pytest.mark.parametrize("dialect", ["mdp", "dcp", "nfp"])
async def test_our_own_client_is_told(
    server: BrokerServer, lines: list[tuple[str, object]], dialect: str
) -> None:
    url = server.zmq.bound[0].replace("tcp://", f"{dialect}://")
    async with Client(url) as client:
        with pytest.raises(Refused, match="wait to be written"):
            await client.call("kept", b"x", timeout=20)
    assert (
        server.broker.accounting.totals.refused,
        server.broker.accounting.totals.failed,
        server.broker.accounting.accepted,
    ) == (1, 0, 0)
    assert [words for words, _ in lines] == ["durable jobs refused: the store cannot keep up"]


async def test_http_says_so(server: BrokerServer, lines: list[tuple[str, object]]) -> None:
    site = Site(server.endpoints()["http"][0])
    answer = await asyncio.to_thread(site.post, "/v1/services/kept/jobs", b"x")
    is_problem(answer, 503, "store")
    assert (server.broker.accounting.totals.refused, server.broker.accounting.totals.failed) == (1, 0)


async def test_a_flood_of_refusals_is_a_line_or_two(
    server: BrokerServer, lines: list[tuple[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign MDP client cannot be told; the log has how many there were."""
    server.broker._tracking.store.behind = lambda: False  # type: ignore[union-attr, method-assign]
    client = MdpClient(server.zmq.bound[0])
    for _ in range(50):
        client.request(b"kept", b"x")
    await asyncio.wait_for(_until(lambda: server.broker.accounting.totals.refused == 50), 20)
    assert [jobs for _, jobs in lines] == [1]
    monkeypatch.setattr(store_adapter, "LOG_INTERVAL", 0.0)
    client.request(b"kept", b"x")
    await asyncio.wait_for(_until(lambda: server.broker.accounting.totals.refused == 51), 20)
    assert [jobs for _, jobs in lines] == [1, 50]
    client.close()


async def _until(condition: object) -> None:
    while not condition():  # type: ignore[operator]
        await asyncio.sleep(0.01)
