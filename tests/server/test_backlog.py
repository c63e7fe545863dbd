"""A store that cannot take more: who can be told is told, it is logged, and counted as refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from polydomo import web
from polydomo.errors import Refused
from polydomo.sdk import Client
from polydomo.server import keeping
from polydomo.server.house import House
from polydomo.server.settings import ServiceSection, Settings
from tests.support.peers import MdpClient
from tests.web.api.site import Site, is_problem


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    settings = Settings()
    settings.broker.zmq = ["tcp://127.0.0.1:*"]
    settings.broker.http = ["127.0.0.1:*"]
    settings.broker.data = str(tmp_path)
    settings.services = {"kept": ServiceSection(durable=True)}
    settings.store.backlog = 123_456
    house = House(settings, (web.join,))
    await house.start()
    try:
        yield house
    finally:
        house.stop(drain=False)
        await house.wait()


@pytest.fixture
def lines(house: House, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """What was logged: the words, and of how many jobs."""
    found: list[tuple[str, object]] = []
    monkeypatch.setattr(keeping.log, "warning", lambda what, **more: found.append((what, more.get("jobs"))))
    assert house.store is not None
    assert house.store.backlog_limit == 123_456
    house.store.backlog += 1 << 30  # a disk that stands still
    return found


@pytest.mark.parametrize("dialect", ["mdp", "dcp", "nfp"])
async def test_our_own_client_is_told(house: House, lines: list[tuple[str, object]], dialect: str) -> None:
    url = house.bound[0].replace("tcp://", f"{dialect}://")
    async with Client(url) as client:
        with pytest.raises(Refused, match="wait to be written"):
            await client.call("kept", b"x", timeout=20)
    assert (house.broker.refused, house.broker.failed, house.broker.accepted) == (1, 0, 0)
    assert [words for words, _ in lines] == ["durable jobs refused: the store cannot keep up"]


async def test_http_says_so(house: House, lines: list[tuple[str, object]]) -> None:
    site = Site(house.places()["http"][0])
    answer = await asyncio.to_thread(site.post, "/v1/services/kept/jobs", b"x")
    is_problem(answer, 503, "store")
    assert (house.broker.refused, house.broker.failed) == (1, 0)


async def test_a_flood_of_refusals_is_a_line_or_two(
    house: House, lines: list[tuple[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign MDP client cannot be told; the log has how many there were."""
    house.broker.lifecycle.keeper.behind = lambda: False  # type: ignore[union-attr, method-assign]
    client = MdpClient(house.bound[0])
    for _ in range(50):
        client.request(b"kept", b"x")
    await asyncio.wait_for(_until(lambda: house.broker.refused == 50), 20)
    assert [jobs for _, jobs in lines] == [1]
    monkeypatch.setattr(keeping, "QUIET", 0.0)
    client.request(b"kept", b"x")
    await asyncio.wait_for(_until(lambda: house.broker.refused == 51), 20)
    assert [jobs for _, jobs in lines] == [1, 50]
    client.close()


async def _until(condition: object) -> None:
    while not condition():  # type: ignore[operator]
        await asyncio.sleep(0.01)
