"""Finished jobs are removed when their time is over, dead letters are not."""

from __future__ import annotations

import pytest

from polydomo.store import store
from polydomo.store.records import CANCELLED, DEAD, DONE, FAILED, JobFilter, Retention
from tests.store.desk import NOW, SECOND, Desk, job, name

HOUR = 3600 * SECOND


def ended(desk: Desk, number: int, state: str, at: int, service: bytes = b"echo") -> None:
    desk.store.add(job(number, service=service))
    desk.store.attempt(name(number), 1, b"worker", at)
    desk.store.partial(name(number), 1, b"part", at)
    desk.store.event(name(number), "kind", b"", at)
    assert desk.do(desk.store.finish, name(number), 1, state, b"result", at) is None


def left(desk: Desk) -> list[int]:
    page = desk.ask(desk.store.find(JobFilter(oldest_first=True, limit=10_000)))
    return [record.submitted - NOW for record in page.jobs]


def test_each_service_keeps_its_jobs_for_its_own_time(desk: Desk) -> None:
    for number, service in enumerate((b"short", b"long", b"default", b"forever"), 1):
        ended(desk, number, DONE, NOW, service)
    retention = Retention(24 * HOUR, {b"short": HOUR, b"long": 48 * HOUR, b"forever": None})
    for hours, gone, rest in ((0.5, 0, [1, 2, 3, 4]), (1, 1, [2, 3, 4]), (24, 1, [2, 4]), (1000, 1, [4])):
        assert desk.ask(desk.store.sweep(NOW + int(hours * HOUR), retention)) == gone
        assert left(desk) == rest


def test_nothing_is_removed_without_a_retention_time(desk: Desk) -> None:
    ended(desk, 1, DONE, NOW)
    assert desk.ask(desk.store.sweep(NOW + 9999 * HOUR, Retention(None))) == 0
    assert left(desk) == [1]


def test_dead_letters_and_unfinished_jobs_stay(desk: Desk) -> None:
    for number, state in enumerate((DONE, FAILED, CANCELLED, DEAD), 1):
        ended(desk, number, state, NOW)
    desk.store.add(job(5))
    desk.store.add(job(6))
    assert desk.do(desk.store.attempt, name(6), 1, b"worker", NOW) is None
    assert desk.ask(desk.store.sweep(NOW + HOUR, Retention(0))) == 3
    assert left(desk) == [4, 5, 6]
    result = desk.ask(desk.store.result(name(4)))
    assert result is not None
    assert result.body == b"result"


def test_what_belongs_to_a_job_goes_with_it(desk: Desk) -> None:
    ended(desk, 1, DONE, NOW)
    assert desk.ask(desk.store.sweep(NOW, Retention(0))) == 1
    assert desk.do(desk.store.add, job(1)) is None  # the same id again finds nothing of the old
    assert desk.ask(desk.store.result(name(1))) is None
    assert desk.ask(desk.store.partials(name(1))) == []
    assert desk.ask(desk.store.events(name(1))) == []


def test_many_jobs_go_in_small_transactions(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SWEEP_JOBS", 10)
    for number in range(1, 36):
        desk.store.add(job(number))
        desk.store.finish(name(number), 0, FAILED, None, NOW)
    assert desk.do(desk.store.add, job(99)) is None
    before = desk.store.commits
    assert desk.ask(desk.store.sweep(NOW, Retention(0))) == 35
    assert desk.store.commits - before == 4
    assert left(desk) == [99]


def test_a_job_that_was_sent_again_while_the_sweep_looked_stays(desk: Desk) -> None:
    ended(desk, 1, FAILED, NOW)
    reply = desk.store.sweep(NOW, Retention(0))
    desk.store.revive(name(1), NOW)
    removed = desk.ask(reply)
    assert left(desk) == ([] if removed else [1])
    assert desk.ask(desk.store.sweep(NOW, Retention(0))) == 0


def test_numbers_are_not_given_out_twice(lasting: Desk) -> None:
    """A page of a list points to a number; after a sweep and a restart it must not mean another job."""
    ended(lasting, 1, DONE, NOW)
    first = lasting.ask(lasting.store.get(name(1)))
    assert first is not None
    assert lasting.ask(lasting.store.sweep(NOW, Retention(0))) == 1
    lasting.reopen()
    record = job(2)
    assert lasting.do(lasting.store.add, record) is None
    assert record.seq > first.seq
