"""Two workers with one name: the second is refused, and continues under another name."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from polydomo.errors import NameTaken
from polydomo.sdk import Client, Worker, worker_name, worker_session
from polydomo.sdk.transport import PeerTransport
from polydomo.sdk.worker_session import WorkerSession
from polydomo.sdk.worker_session_nfp import NfpWorkerSession
from polydomo.sdk.worker_session_wmp import WmpWorkerSession
from tests.sdk.support import until
from tests.support.broker import BrokerProcess


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_name, "RETRY_SECONDS", 0.3)
    monkeypatch.setattr(worker_session, "PAUSE", 0.05)


def named(url: str, done: list[tuple[str, int]], label: str, **options: object) -> Worker:
    worker = Worker(url, name="same", **options)  # type: ignore[arg-type]

    @worker.service
    async def work(number: int) -> int:
        done.append((label, number))
        await asyncio.sleep(0.002)
        return number

    return worker


@pytest.mark.parametrize("dialect", ["nfp", "wmp"])
async def test_the_second_of_two_goes_on_under_a_name_of_its_own(
    dialect: str, caplog: pytest.LogCaptureFixture
):
    done: list[tuple[str, int]] = []
    with BrokerProcess() as broker:
        place = broker.endpoint.removeprefix("tcp://")
        first, second = (named(f"{dialect}://{place}", done, label) for label in ("first", "second"))
        async with first, second, Client(f"nfp://{place}") as client:
            assert first.name == "same"
            assert second.name.startswith("same-")
            assert {worker["name"] for worker in await client.workers()} == {first.name, second.name}
            calls = [client.call("work", number) for number in range(200)]
            assert await asyncio.gather(*calls) == list(range(200))
            assert Counter(number for _, number in done) == Counter(range(200))
            assert {label for label, _ in done} == {"first", "second"}
        assert "name-taken" in broker.log()
    assert "the name 'same' is refused: another worker has it" in caplog.text
    assert f"another worker has the name 'same'; continuing as {second.name!r}" in caplog.text


@pytest.mark.parametrize("dialect", ["nfp", "wmp"])
async def test_the_second_of_two_ends_if_it_is_told_to(dialect: str):
    with BrokerProcess() as broker:
        url = f"{dialect}://{broker.endpoint.removeprefix('tcp://')}"
        async with named(url, [], "first"):
            with pytest.raises(NameTaken, match="another worker has the name 'same'"):
                async with asyncio.timeout(30):
                    await named(url, [], "second", name_taken="stop").run()


def transports(session: WorkerSession) -> list[PeerTransport]:
    if isinstance(session, WmpWorkerSession):
        return list(session._connections.dealers.values())
    assert isinstance(session, NfpWorkerSession)
    assert session.connection is not None
    return [session.connection.transport]


@pytest.mark.parametrize("dialect", ["nfp", "wmp"])
async def test_a_worker_whose_connection_breaks_comes_back_under_its_name(dialect: str):
    done: list[tuple[str, int]] = []
    with BrokerProcess() as broker:
        place = broker.endpoint.removeprefix("tcp://")
        async with named(f"{dialect}://{place}", done, "one") as worker, Client(f"nfp://{place}") as client:
            for number in range(5):
                assert await client.call("work", number) == number
                for session in worker._sessions:
                    for transport in transports(session):
                        transport.abort("the cable was cut")
                await until(lambda: not all(session.registered.is_set() for session in worker._sessions))
                await worker.ready()
            assert await client.call("work", 5) == 5
            assert worker.name == "same"
