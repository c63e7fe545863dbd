"""Checks of the store's disk: trouble is logged once, durable jobs are refused until it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from polydomo.server import store_watch
from polydomo.server.store_watch import StoreWatch
from polydomo.store import Store, open_store
from polydomo.store import sqlite as sqlite_module
from polydomo.store.errors import StoreCorrupt, StoreFull, StoreIO, StoreReadonly, StoreTrouble
from polydomo.store.records import JobRecord


class Scene:
    """A watched store, the log, and what the watch told its owner."""

    def __init__(self, path: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.log = log
        self.found: StoreTrouble | None = None  # what a look at the disk finds
        self.refused: list[str] = []
        self.recoveries = 0
        self.looks = 0
        monkeypatch.setattr(sqlite_module, "check_disk", self.look)
        monkeypatch.setattr(store_watch, "CHECK", 0.01)
        monkeypatch.setattr(store_watch, "RETRY", 0.01)
        log.set_level(logging.INFO, "polydomo")

    async def open(self) -> None:
        self.store: Store = open_store(
            f"sqlite:///{self.path}", asyncio.get_running_loop().call_soon_threadsafe
        )
        self.watch = StoreWatch(self.store, "the store", self.recover, self.changed)
        await self.watch.start()

    async def close(self) -> None:
        self.watch.close()
        await asyncio.to_thread(self.store.close)

    def look(self, path: Path) -> None:
        self.looks += 1
        if self.found is not None:
            raise self.found

    async def recover(self) -> None:
        await self.store.unfinished()
        self.recoveries += 1

    def changed(self, trouble: StoreTrouble | None) -> None:
        self.refused.append("" if trouble is None else trouble.code)

    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.log.records if record.name == "polydomo"]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    async def add(self, size: int) -> str:
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        job = JobRecord(id="job", service=b"s", body=bytes(size), submitted=1, queued=1)
        self.store.add(job, lambda error: done.set_result("" if error is None else error.code))
        return await done


@pytest.fixture
async def scene(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    made = Scene(tmp_path / "jobs.db", caplog, monkeypatch)
    yield made
    await made.close()


@pytest.mark.parametrize("trouble", [StoreFull("no space"), StoreReadonly("read-only")])
async def test_a_disk_is_seen_to_be_in_trouble_before_anything_is_written(
    scene: Scene, trouble: StoreTrouble
) -> None:
    await scene.open()
    assert scene.refused == []
    scene.found = trouble
    await scene.until(lambda: scene.watch.trouble is trouble)
    assert trouble.message in scene.watch.show()["trouble"]
    scene.found = None
    await scene.until(lambda: scene.watch.trouble is None)
    assert {*scene.refused[:-1]} == {trouble.code}
    assert scene.refused[-1] == ""
    begun, ended = scene.lines()
    assert begun.startswith("store in trouble: durable jobs are refused")
    assert trouble.message in begun
    assert trouble.advice in begun
    assert ended.startswith("store recovered")


async def test_a_failed_transaction_is_trouble_until_a_large_write_succeeds(scene: Scene) -> None:
    await scene.open()
    database = scene.store._writing  # type: ignore[attr-defined]
    pages = database.pragma("page_count")[0]
    database.pragma(f"max_page_count = {pages + 20}")
    assert await scene.add(1_000_000) == "store-full"
    assert isinstance(scene.watch.trouble, StoreFull)
    commits = scene.store.commits
    await scene.until(lambda: scene.store.commits > commits + 3)  # tried, and refused
    assert isinstance(scene.watch.trouble, StoreFull)
    assert len(scene.lines()) == 1
    database.pragma("max_page_count = 1000000")
    await scene.until(lambda: scene.watch.trouble is None)
    assert await scene.add(1_000_000) == ""
    assert await scene.store.items(store_watch.SPACE) == []  # what was tried with is removed


async def test_another_reason_is_another_line(scene: Scene) -> None:
    await scene.open()
    scene.found = StoreFull("no space")
    await scene.until(lambda: isinstance(scene.watch.trouble, StoreFull))
    scene.found = StoreIO("broken")
    await scene.until(lambda: isinstance(scene.watch.trouble, StoreIO))
    assert len(scene.lines()) == 2


async def test_a_store_that_cannot_be_opened_is_opened_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_module, "_create", full)
        await scene.open()
        assert isinstance(scene.watch.trouble, StoreFull)
        assert await scene.add(10) == "store-full"
        with pytest.raises(StoreFull):
            await scene.store.counts()
        assert scene.recoveries == 0
    await scene.until(lambda: scene.watch.trouble is None)
    assert scene.recoveries == 1
    assert await scene.add(10) == ""


async def test_damage_does_not_pass(scene: Scene) -> None:
    await scene.open()
    scene.watch.begin(StoreCorrupt("malformed"))
    scene.watch.begin(StoreFull("no space"))
    looks = scene.looks
    await scene.until(lambda: scene.looks > looks + 3)
    assert isinstance(scene.watch.trouble, StoreCorrupt)
    assert len(scene.lines()) == 1
