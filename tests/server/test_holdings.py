"""Bytes on disk of each principal, counted from the job to the store and back, and room that is made in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from polydomo.core.policy import Policy
from polydomo.core.principals import UNLIMITED, Principal, Quota
from polydomo.core.tracked_job import Options
from polydomo.server.store_adapter import StoreAdapter
from polydomo.store import open_store
from polydomo.store.records import ROW, JobFilter
from polydomo.wire.frames import frame
from tests.core.test_quotas import Rations
from tests.support.core import Bench, FakeClient, FakeWorker

BODY = frame(bytes(1000))
OPTIONS = 80  # at most so many bytes of a job's options are stored, as JSON


class Place:
    """A core with a real store on disk."""

    def __init__(self, path: Path, limit: int, **quotas: Quota) -> None:
        self.bench = Bench()
        self.broker = self.bench.broker
        self.broker.services.policies[b"safe"] = Policy(durable=True, retries=0)
        self.broker.principals.use(Rations(**quotas))
        loop = asyncio.get_running_loop()
        self.store = open_store(f"sqlite:///{path}", loop.call_soon_threadsafe)
        self.adapter = StoreAdapter(self.broker, self.store, lambda: None, limit)
        self.holdings = self.adapter.holdings
        self.broker.use_store(self.adapter)

    def client(self, principal: str) -> FakeClient:
        return self.bench.client(principal=principal)

    def principal(self, name: str) -> Principal:
        return self.broker.principals.get(name)

    async def run(self, client: FakeClient, worker: FakeWorker, uid: str = "", fail: bool = False) -> None:
        """One durable job, until its end is on disk."""
        ends = len(client.heard)
        assert client.ask(b"safe", BODY, options=Options(uid=uid)) is not None
        await until(lambda: bool(worker.holds))
        if fail:
            worker.leave()
        else:
            worker.answer(bytes(500))
        await until(lambda: len(client.heard) > ends)

    async def stored(self) -> list[tuple[str, str]]:
        page = await self.store.find(JobFilter(oldest_first=True))
        return [(job.principal, job.state) for job in page.jobs]


@asynccontextmanager
async def place(path: Path, limit: int = UNLIMITED, **quotas: Quota) -> AsyncIterator[Place]:
    made = Place(path, limit, **quotas)
    try:
        await made.holdings.refresh()
        await made.adapter.recovery.recover()
        yield made
    finally:
        await asyncio.to_thread(made.store.close)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def test_what_is_counted_is_what_the_store_has(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path / "jobs.db") as here:
            client, worker = here.client("shop"), here.bench.worker(b"safe")
            await here.run(client, worker)
            await here.run(client, worker)
            client.ask(b"safe", BODY)
            shop = here.principal("shop")
            counted = shop.stored
            assert abs(counted - 3 * (ROW + len(BODY)) - 2 * 500) <= 3 * OPTIONS
            await until(lambda: bool(worker.holds))
            await here.holdings.refresh()
            assert shop.stored == counted == here.holdings.total
            (job, *_) = here.broker.jobs.known.values()
            assert here.broker.cancel(job)
            await until(lambda: client.reasons() == ["cancelled"])
        async with place(tmp_path / "jobs.db") as again:
            assert again.principal("shop").stored == counted

    asyncio.run(work())


def test_a_burst_cannot_pass_the_quota_before_its_first_commit(tmp_path: Path) -> None:
    async def work() -> None:
        job = ROW + len(BODY) + OPTIONS
        async with place(tmp_path / "jobs.db", shop=Quota(stored=10 * job)) as here:
            client, other = here.client("shop"), here.client("bank")
            accepted = sum(client.ask(b"safe", BODY) is not None for _ in range(100))
            assert 9 <= accepted <= 11
            assert set(client.reasons()) == {"quota"}
            assert other.ask(b"safe", BODY) is not None
            await until(lambda: not here.broker.busy())
            await here.holdings.refresh()
            assert here.principal("shop").stored <= 10 * job
        async with place(tmp_path / "jobs.db", shop=Quota(stored=10 * job)) as again:
            assert again.client("shop").ask(b"safe", BODY) is None
            assert again.client("bank").ask(b"safe", BODY) is not None

    asyncio.run(work())


def test_what_could_not_be_stored_is_not_counted(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path / "jobs.db") as here:
            client = here.client("shop")
            client.ask(b"safe", BODY, options=Options(uid="same"))
            await until(lambda: not here.broker.accounting.undecided)
            before = here.principal("shop").stored
            here.broker.jobs.known.clear()  # so that only the store knows the id
            client.ask(b"safe", frame(b"other"), options=Options(uid="same"))
            await until(lambda: client.reasons() == ["duplicate-id"])
            assert here.principal("shop").stored == before

    asyncio.run(work())


def test_the_oldest_results_make_room_within_a_quota_and_the_rest_stays(tmp_path: Path) -> None:
    async def work() -> None:
        job = ROW + len(BODY) + 500
        async with place(tmp_path / "jobs.db", shop=Quota(stored=8 * job)) as here:
            client, bank, worker = here.client("shop"), here.client("bank"), here.bench.worker(b"safe")
            await here.run(bank, worker, "bank")
            for number in range(6):
                await here.run(client, worker, f"shop-{number}")
            assert not here.holdings.crowded.is_set()
            await here.run(client, worker, "shop-6")
            assert here.holdings.crowded.is_set()
            await here.holdings.make_room()
            assert not here.holdings.crowded.is_set()
            assert here.principal("shop").stored <= 6 * job
            kept = [number for number in range(7) if await here.store.get(f"shop-{number}") is not None]
            assert kept == list(range(7 - len(kept), 7))
            assert len(kept) in (5, 6)
            assert await here.store.get("bank") is not None

    asyncio.run(work())


def test_beyond_the_limit_of_all_the_principal_with_most_loses_its_oldest(tmp_path: Path) -> None:
    async def work() -> None:
        job = ROW + len(BODY) + 500
        async with place(tmp_path / "jobs.db", limit=5 * job) as here:
            noisy, quiet, worker = here.client("noisy"), here.client("quiet"), here.bench.worker(b"safe")
            await here.run(quiet, worker)
            for _ in range(9):
                await here.run(noisy, worker)
            assert here.holdings.crowded.is_set()
            await here.holdings.make_room()
            assert here.holdings.total <= 5 * job
            rows = await here.stored()
            assert rows[0] == ("quiet", "done")
            assert len(rows) in (4, 5)
            assert here.holdings.show()["evicted"] == 10 - len(rows)

    asyncio.run(work())


def test_dead_letters_go_last_and_the_log_names_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with place(tmp_path / "jobs.db", limit=ROW) as here:
            client = here.client("shop")
            await here.run(client, here.bench.worker(b"safe"), "letter", fail=True)
            await here.run(client, here.bench.worker(b"safe"), "result")
            assert [state for _, state in await here.stored()] == ["dead", "done"]
            here.holdings.limit = here.holdings.total - 1
            await here.holdings.make_room()
            assert [state for _, state in await here.stored()] == ["dead"]
            here.holdings.limit = ROW
            await here.holdings.make_room()
            assert await here.stored() == []

    asyncio.run(work())
    first, second = [record.getMessage() for record in caplog.records]
    assert "results=1 dead_letters=0" in first
    assert "results=0 dead_letters=1" in second
    assert "first_dead_letters=letter" in second
    assert "shop has reached store.bytes (1024 bytes)" in second


def test_unfinished_jobs_are_never_removed(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path / "jobs.db", limit=ROW) as here:
            here.client("shop").ask(b"safe", BODY)
            await until(lambda: not here.broker.accounting.undecided)
            await here.holdings.make_room()
            assert await here.stored() == [("shop", "waiting")]

    asyncio.run(work())


def test_a_key_with_another_body_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        key = Options(key=b"order-4711")
        async with place(tmp_path / "jobs.db") as here:
            client, worker = here.client("shop"), here.bench.worker(b"safe")
            client.ask(b"safe", BODY, options=key)
            await until(lambda: bool(worker.holds))
            worker.answer(b"42")
            await until(lambda: client.finals() == [b"42"])
            client.ask(b"safe", frame(b"something else"), options=key)
            await until(lambda: client.reasons() == ["key-reused"])
        async with place(tmp_path / "jobs.db") as again:
            client = again.client("shop")
            client.ask(b"safe", frame(b"something else"), options=key)
            await until(lambda: client.reasons() == ["key-reused"])
            client.ask(b"safe", BODY, options=key)
            await until(lambda: client.finals() == [b"42"])
            stranger, worker = again.client("bank"), again.bench.worker(b"safe")
            stranger.ask(b"safe", frame(b"something else"), options=key)
            await until(lambda: bool(worker.holds))
            worker.answer(b"43")
            await until(lambda: stranger.finals() == [b"43"])

    asyncio.run(work())
