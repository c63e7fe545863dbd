"""Recovery after a restart: unfinished jobs in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from polydomo.store import open_store
from polydomo.store import store as store_module
from polydomo.store.records import CANCELLED, DEAD, DELAYED, DONE, RUNNING, WAITING, JobRecord
from polydomo.store.store import RECOVERY_JOBS
from tests.store import model
from tests.store.desk import NOW, Desk, job, name


def all_unfinished(desk: Desk, limit: int = 7) -> list[JobRecord]:
    found: list[JobRecord] = []
    while jobs := desk.ask(desk.store.unfinished(found[-1].seq if found else 0, limit)):
        assert len(jobs) <= limit
        found += jobs
    return found


def test_unfinished_jobs_come_in_order_of_arrival(desk: Desk) -> None:
    store = desk.store
    order = [5, 3, 9, 1, 7, 2, 8, 4, 6, 10, 12, 11]
    for number in order:
        store.add(job(number, state=DELAYED if number == 4 else WAITING))
    store.attempt(name(3), 1, b"worker", NOW)
    store.finish(name(9), 0, DONE, b"", NOW)
    store.finish(name(1), 0, DEAD, None, NOW)
    store.attempt(name(7), 1, b"worker", NOW)
    store.finish(name(7), 1, DEAD, None, NOW)
    assert desk.do(store.revive, name(7), NOW) is None
    found = all_unfinished(desk)
    assert [record.id for record in found] == [name(number) for number in order if number not in (9, 1)]
    states = {record.id: record.state for record in found}
    assert (states[name(3)], states[name(4)], states[name(7)]) == (RUNNING, DELAYED, WAITING)
    assert found[0].body == b"body 5"
    assert found[0].options == b'{"memo": true}'


def test_everything_survives_a_restart(lasting: Desk) -> None:
    store = lasting.store
    for number in range(1, 21):
        store.add(job(number, key=f"key {number}"))
    store.attempt(name(1), 1, b"worker", NOW)
    store.partial(name(1), 1, b"part", NOW)
    store.event(name(1), "kind", b"event", NOW)
    store.finish(name(2), 0, DONE, b"result", NOW)
    assert lasting.do(store.finish, name(3), 0, CANCELLED, None, NOW) is None
    before = [lasting.ask(store.get(name(number))) for number in range(1, 21)]
    lasting.reopen()
    store = lasting.store
    assert [lasting.ask(store.get(name(number))) for number in range(1, 21)] == before
    assert [record.id for record in all_unfinished(lasting)] == [
        name(n) for n in range(1, 21) if n not in (2, 3)
    ]
    assert lasting.ask(store.partials(name(1)))[0].body == b"part"
    result = lasting.ask(store.result(name(2)))
    assert result is not None
    assert result.body == b"result"
    # Numbers go on where they were: new jobs are behind old ones, new events behind old events.
    assert lasting.do(store.add, job(21)) is None
    assert lasting.do(store.event, name(1), "kind", b"later", NOW) is None
    assert all_unfinished(lasting)[-1].id == name(21)
    assert [event.body for event in lasting.ask(store.events(name(1)))] == [b"event", b"later"]


def test_large_bodies_come_a_few_at_a_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (store_module, model):
        monkeypatch.setattr(module, "RECOVERY_BYTES", 250)
    for number in range(1, 11):
        desk.store.add(job(number, body=bytes(1000 if number == 3 else 100)))
    assert desk.do(desk.store.event, name(1), "", b"", NOW) is None
    sizes = []
    after = 0
    while jobs := desk.ask(desk.store.unfinished(after)):
        sizes.append(len(jobs))
        after = jobs[-1].seq
    assert sizes == [2, 1, 2, 2, 2, 1]


def test_a_body_of_64_megabytes(lasting: Desk) -> None:
    body = bytes(range(256)) * (256 * 1024)
    assert len(body) == 64 * 1024 * 1024
    store = lasting.store
    assert lasting.do(store.add, job(1, body=body)) is None
    store.attempt(name(1), 1, b"worker", NOW)
    assert lasting.do(store.finish, name(1), 1, DONE, body, NOW) is None
    found = lasting.ask(store.get(name(1)))
    assert found is not None
    assert found.body == body
    result = lasting.ask(store.result(name(1)))
    assert result is not None
    assert result.body == body


async def test_recover_streams_everything(new_url: Callable[[str], str]) -> None:
    loop = asyncio.get_running_loop()
    store = open_store(new_url("sqlite"), loop.call_soon_threadsafe)
    last: asyncio.Future[object] = loop.create_future()
    for number in range(1, 1001):
        store.add(job(number), last.set_result if number == 1000 else None)
    await last
    found = [record.id async for jobs in store.recover(limit=300) for record in jobs]
    assert found == [name(number) for number in range(1, 1001)]
    assert RECOVERY_JOBS > 300
    await loop.run_in_executor(None, store.close)
