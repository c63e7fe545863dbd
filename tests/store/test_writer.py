"""Group commit: many writes in one transaction, reported together and in order."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from polydomo.deferred import Deferred
from polydomo.store import open_store
from polydomo.store.errors import StoreBusy, StoreClosed, StoreError, StoreInvalid
from polydomo.store.records import DONE, JobFilter
from tests.store.desk import NOW, Desk, job, name


def test_writes_that_wait_together_are_one_transaction(lasting: Desk) -> None:
    heard: list[int] = []
    gate = lasting.hold()
    for number in range(1, 201):
        lasting.store.add(job(number), lambda error, number=number: heard.append(number))  # type: ignore[misc]
    gate.opened.set()
    lasting.until(lambda: len(heard) == 200)
    assert heard == list(range(1, 201))
    assert lasting.store.commits == 2  # the gate's, and this one
    assert lasting.turns == 2  # the owner was called once for each


def test_callbacks_run_after_the_commit(new_url: Callable[[str], str]) -> None:
    """Whoever hears `done` finds the job with a connection of its own."""
    url = new_url("sqlite")
    desk = Desk(url)
    other = sqlite3.connect(url.removeprefix("sqlite:///"))
    found: list[int] = []

    def look(error: StoreError | None) -> None:
        found.append(other.execute("SELECT count(*) FROM jobs").fetchone()[0])

    for number in range(1, 11):
        desk.store.add(job(number), look)
        desk.until(lambda: len(found) == number)  # noqa: B023 (called in this turn of the loop)
    assert found == list(range(1, 11))
    other.close()
    desk.close()


def test_done_is_called_on_the_owners_thread(desk: Desk) -> None:
    threads: list[int] = []
    desk.store.add(job(1), lambda error: threads.append(threading.get_ident()))
    desk.store.get(name(1)).then(lambda found: threads.append(threading.get_ident()), lambda error: None)
    desk.until(lambda: len(threads) == 2)
    assert set(threads) == {threading.get_ident()}


def test_a_callback_that_raises_does_not_keep_others_from_hearing(desk: Desk) -> None:
    heard: list[int] = []

    def bad(error: StoreError | None) -> None:
        raise ZeroDivisionError

    gate = desk.hold()
    desk.store.add(job(1), bad)
    desk.store.add(job(2), lambda error: heard.append(2))
    gate.opened.set()
    with pytest.raises(ZeroDivisionError):
        desk.until(lambda: False)
    assert heard == [2]


def test_a_callback_may_write(desk: Desk) -> None:
    outcomes: list[StoreError | None] = []
    desk.store.add(
        job(1),
        lambda error: desk.store.attempt(
            name(1),
            1,
            b"w",
            NOW,
            done=lambda error: desk.store.finish(name(1), 1, DONE, b"", NOW, outcomes.append),
        ),
    )
    desk.until(lambda: bool(outcomes))
    assert outcomes == [None]


def test_too_much_waiting_refuses_new_jobs_only(new_url: Callable[[str], str]) -> None:
    desk = Desk(new_url("sqlite"), backlog_limit=100_000)
    done: list[StoreError | None] = []
    desk.store.add(job(1, body=bytes(200_000)), done.append)  # alone it is not too much, however large
    desk.until(lambda: bool(done))
    gate = desk.hold()
    desk.store.add(job(2, body=bytes(60_000)), done.append)
    with pytest.raises(StoreBusy, match="wait to be written"):
        desk.store.add(job(3, body=bytes(60_000)))
    desk.store.attempt(name(1), 1, b"worker", NOW)
    desk.store.finish(name(1), 1, DONE, bytes(200_000), NOW, done.append)  # a result is always taken
    assert desk.store.backlog > 260_000
    gate.opened.set()
    desk.until(lambda: len(done) == 3)
    assert done == [None] * 3
    assert desk.store.backlog == 0
    assert desk.do(desk.store.add, job(3, body=bytes(60_000))) is None
    desk.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_long_queue_is_several_transactions(
    kind: str, new_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polydomo.store.writer.BATCH_BYTES", 50_000)
    desk = Desk(new_url(kind), batch=10)
    gate = desk.hold()
    for number in range(1, 31):
        desk.store.add(job(number), lambda error: None)
        desk.store.event(name(number), "kind", b"", NOW)  # nobody waits for it: it goes along
    for number in range(31, 34):
        desk.store.add(job(number, body=bytes(50_000)))
    gate.opened.set()
    assert desk.do(desk.store.event, name(1), "last", b"", NOW) is None
    assert desk.store.commits == 1 + 3 + 3 + 1
    desk.close()


def test_close_writes_what_is_queued(lasting: Desk) -> None:
    gate = lasting.hold()
    heard: list[StoreError | None] = []
    for number in range(1, 101):
        lasting.store.add(job(number), heard.append)
    threading.Timer(0.05, gate.opened.set).start()
    lasting.close()
    assert heard == [None] * 100
    lasting.reopen()
    assert sum(count.jobs for count in lasting.ask(lasting.store.counts())) == 100


def test_a_closed_store_takes_and_answers_nothing(desk: Desk) -> None:
    desk.close()
    desk.close()  # twice is fine
    with pytest.raises(StoreClosed):
        desk.store.add(job(1))
    with pytest.raises(StoreClosed):
        desk.ask(desk.store.get(name(1)))


def test_a_closed_loop_is_tolerated(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    store = open_store(f"sqlite:///{tmp_path}/store.db", loop.call_soon_threadsafe)
    loop.close()
    store.add(job(1))
    store.get(name(1))
    store.close()
    desk = Desk(f"sqlite:///{tmp_path}/store.db")
    assert desk.ask(desk.store.get(name(1))) is not None
    desk.close()


async def test_replies_can_be_awaited(new_url: Callable[[str], str]) -> None:
    loop = asyncio.get_running_loop()
    store = open_store(new_url("sqlite"), loop.call_soon_threadsafe)
    added: asyncio.Future[StoreError | None] = loop.create_future()
    store.add(job(1), added.set_result)
    assert await added is None
    reply = store.get(name(1))
    found = await reply
    assert found is not None
    assert await reply is found  # again
    with pytest.raises(StoreInvalid):
        await store.find(JobFilter(page="nonsense"))
    await loop.run_in_executor(None, store.close)


async def test_a_result_for_a_cancelled_task_is_dropped() -> None:
    reply: Deferred[int] = Deferred()
    waiting = asyncio.ensure_future(asyncio.wait_for(reply, 10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    reply.settle(1)
    assert await reply == 1  # and whoever asks later still hears it


async def test_the_loop_is_not_held_up_by_large_bodies(new_url: Callable[[str], str]) -> None:
    """While 16 MB are written and read, the loop goes on turning."""
    loop = asyncio.get_running_loop()
    store = open_store(new_url("sqlite"), loop.call_soon_threadsafe)
    added: asyncio.Future[StoreError | None] = loop.create_future()
    store.add(job(1, body=bytes(16 * 1024 * 1024)), added.set_result)
    turns = 0
    started = time.monotonic()
    while not added.done() and time.monotonic() - started < 30:
        await asyncio.sleep(0.001)
        turns += 1
    assert added.result() is None
    assert turns > 1
    await loop.run_in_executor(None, store.close)
