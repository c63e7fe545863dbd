"""A broker with jobs of every kind in its store, and the workers that ran them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from polydomo.errors import JobFailed
from polydomo.sdk.sync import SyncClient, SyncWorker
from tests.support.broker import BrokerProcess

DONE, FAILED = 30, 5

# A job that exceeds its timeout, without retries, becomes a dead letter.
TOML = """
[services.mortal]
timeout = "200ms"
retries = 0
"""


class Live(NamedTuple):
    """A running broker. `url` is its MDP URL, the most common form."""

    broker: BrokerProcess
    url: str
    nfp: str


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with BrokerProcess(toml=TOML) as broker:
        place = broker.endpoint.removeprefix("tcp://")
        nfp = f"nfp://{place}"
        worker = SyncWorker(nfp, name="anna", concurrency=8)
        add_services(worker)
        with worker:
            with SyncClient(nfp, name="tester") as client:
                fill(client)
            yield Live(broker, f"mdp://{place}", nfp)


def add_services(worker: SyncWorker) -> None:
    async def mortal(body: object) -> None:
        await asyncio.sleep(1)

    def double(body: int) -> int:
        return body * 2

    def fails(body: object) -> None:
        raise ValueError(f"no {body}")

    def talks(body: str, ctx: object) -> str:
        ctx.event("begun", body)
        ctx.event("ended", {"of": body})
        return body.upper()

    for function in (mortal, double, fails, talks):
        worker.add(function.__name__, function)


def fill(client: SyncClient) -> None:
    under_way = [client.submit("double", number) for number in range(DONE)]
    under_way += [client.submit("fails", number) for number in range(FAILED)]
    under_way += [client.submit("mortal", "the last words"), client.submit("talks", "hello")]
    for job in under_way:
        try:
            job.result()
        except JobFailed:
            pass
