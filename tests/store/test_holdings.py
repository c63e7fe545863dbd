"""What each principal's jobs take in a store, and the removal of the oldest to make room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from polydomo.store import eviction, open_store
from polydomo.store.database import migrate
from polydomo.store.eviction import Evicted, evict
from polydomo.store.records import CANCELLED, DEAD, DONE, FAILED, ROW, EndedJob, Holding, JobFilter, Retention
from polydomo.store.schema import HOLDINGS, MIGRATIONS
from tests.store.desk import NOW, Desk, job, name
from tests.store.test_opening import database


def add(desk: Desk, number: int, principal: str = "shop", body: bytes = bytes(100)) -> None:
    desk.store.add(job(number, principal=principal, body=body, envelope=b"", options=b""))


def end(desk: Desk, number: int, state: str = DONE, result: bytes | None = bytes(50)) -> None:
    assert desk.do(desk.store.finish, name(number), 0, state, result, NOW) is None


def held(desk: Desk) -> dict[str, tuple[int, int]]:
    return {one.principal: (one.jobs, one.size - ROW * one.jobs) for one in desk.ask(desk.store.holdings())}


def evicted(desk: Desk, principal: str, size: int) -> tuple[Evicted, int]:
    """Make room as the broker does, on an event loop. Return what was removed, in how many transactions."""

    async def run() -> tuple[Evicted, int]:
        store = open_store(desk.url, asyncio.get_running_loop().call_soon_threadsafe)
        try:
            return await evict(store, principal, size), store.commits
        finally:
            await asyncio.to_thread(store.close)

    desk.close()
    removed = asyncio.run(run())
    desk.reopen()
    return removed


def left(desk: Desk) -> list[int]:
    page = desk.ask(desk.store.find(JobFilter(oldest_first=True, limit=10_000)))
    return [record.submitted - NOW for record in page.jobs]


def test_request_envelope_options_partials_and_result_count(desk: Desk) -> None:
    desk.store.add(job(1, principal="shop", body=bytes(100), envelope=bytes(20), options=bytes(3)))
    assert desk.do(desk.store.attempt, name(1), 1, b"w", NOW) is None
    assert held(desk) == {"shop": (1, 123)}
    assert desk.do(desk.store.partial, name(1), 1, bytes(1000), NOW) is None
    assert held(desk) == {"shop": (1, 1123)}
    assert desk.do(desk.store.finish, name(1), 1, FAILED, bytes(5), NOW) is None
    assert held(desk) == {"shop": (1, 1128)}
    assert desk.do(desk.store.forget, name(1)) is None
    assert held(desk) == {}


def test_each_principal_has_a_sum_of_its_own_that_survives(lasting: Desk) -> None:
    for number, principal in enumerate(("shop", "shop", "bank"), 1):
        add(lasting, number, principal)
    end(lasting, 2)
    before = held(lasting)
    assert before == {"shop": (2, 250), "bank": (1, 100)}
    lasting.reopen()
    assert held(lasting) == before


def test_many_changes_in_one_transaction_are_summed(desk: Desk) -> None:
    jobs = [job(number, principal="shop", body=bytes(10), envelope=b"", options=b"") for number in (1, 2, 3)]
    outcomes = desk.burst(
        *(lambda done, one=one: desk.store.add(one, done) for one in jobs),
        lambda done: desk.store.finish(name(1), 0, DONE, bytes(7), NOW, done),
        lambda done: desk.store.forget(name(2), done),
        lambda done: desk.store.forget(name(9), done),
    )
    assert outcomes == [*["ok"] * 5, "store-unknown-job"]
    assert held(desk) == {"shop": (2, 27)}


def test_a_sweep_lowers_the_sums(desk: Desk) -> None:
    for number in (1, 2):
        add(desk, number)
    end(desk, 1)
    assert desk.ask(desk.store.sweep(NOW, Retention(0))) == 1
    assert held(desk) == {"shop": (1, 100)}


def test_the_oldest_ends_come_first(desk: Desk) -> None:
    for number in (1, 2, 3, 4, 5):
        add(desk, number, "bank" if number == 5 else "shop")
    for number, state in ((3, DONE), (1, CANCELLED), (4, DEAD), (5, DONE)):
        end(desk, number, state, None)
    size = ROW + 100
    found = desk.ask(desk.store.oldest_ended("shop", dead=False, limit=10))
    assert found == [EndedJob(name(3), DONE, size), EndedJob(name(1), CANCELLED, size)]
    assert desk.ask(desk.store.oldest_ended("shop", dead=False, limit=1)) == found[:1]
    assert desk.ask(desk.store.oldest_ended("shop", dead=True, limit=10)) == [EndedJob(name(4), DEAD, size)]


def test_results_go_before_dead_letters_and_unfinished_jobs_stay(lasting: Desk) -> None:
    for number in range(1, 7):
        add(lasting, number, "bank" if number == 6 else "shop")
    for number, state in ((1, DEAD), (2, DONE), (3, FAILED), (4, DEAD), (6, DONE)):
        end(lasting, number, state, None)
    size = ROW + 100
    assert evicted(lasting, "shop", size)[0] == Evicted(1, 0, size, [])
    assert left(lasting) == [1, 3, 4, 5, 6]
    assert evicted(lasting, "shop", size + 1)[0] == Evicted(1, 1, 2 * size, [name(1)])
    assert left(lasting) == [4, 5, 6]
    assert evicted(lasting, "shop", 1 << 40)[0] == Evicted(0, 1, size, [name(4)])
    assert left(lasting) == [5, 6]
    assert held(lasting) == {"shop": (1, 100), "bank": (1, 100)}


def test_many_are_removed_in_small_transactions(lasting: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "BATCH", 10)
    for number in range(1, 36):
        add(lasting, number)
        lasting.store.finish(name(number), 0, FAILED, None, NOW)
    removed, commits = evicted(lasting, "shop", 1 << 40)
    assert (removed.results, commits) == (35, 4)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_jobs_of_a_store_without_sums_are_summed(kind: str, new_url: Callable[[str], str]) -> None:
    url = new_url(kind)
    connection = database(url)
    migrate(connection, MIGRATIONS[: MIGRATIONS.index(HOLDINGS)])
    connection.execute(
        """
        INSERT INTO jobs (seq, id, service, state, attempt, worker, queued, code, message, size_out, client, dialect,
            target, priority, max_attempts, submitted, size_in, principal)
        VALUES (1, 'a', :name, 'waiting', 0, :name, 0, '', '', 7, :name, 'mdp', 'any', 0, 1, 0, 30, 'shop')
        """,
        name=b"s",
    )
    connection.close()
    desk = Desk(url)
    assert desk.ask(desk.store.holdings()) == [Holding("shop", 1, ROW + 37)]
    assert desk.do(desk.store.forget, "a") is None
    assert desk.ask(desk.store.holdings()) == []
    desk.close()
