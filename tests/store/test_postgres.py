"""PostgreSQL's server stops, crashes and restarts, connections break during commits: no outcome is reported wrongly."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from polydomo.store.errors import StoreError
from polydomo.store.postgres import PostgresConnection, PostgresStore
from polydomo.store.postgres_database import PostgresDatabase
from polydomo.store.records import DONE, JobFilter
from tests.store.desk import NOW, Desk, code, job, name
from tests.store.server import PostgresServer

Commit = Callable[[PostgresDatabase], None]


@pytest.fixture
def desk(new_url: Callable[[str], str]) -> Iterator[Desk]:
    desk = Desk(new_url("postgres"))
    yield desk
    desk.close()


def stored(desk: Desk) -> list[str]:
    return [
        record.id for record in desk.ask(desk.store.find(JobFilter(oldest_first=True, limit=100_000))).jobs
    ]


@pytest.mark.slow
def test_the_server_is_restarted_under_load(desk: Desk, postgres: PostgresServer) -> None:
    """In order and as in a crash. Every job is accepted, run and finished, some a little later."""
    errors: list[StoreError | None] = []
    added: list[int] = []
    finished: list[int] = []
    stop = threading.Event()
    submitted = 0

    def submit() -> None:
        nonlocal submitted
        if not stop.is_set():
            submitted += 1
            number = submitted
            desk.store.add(job(number), lambda error: on_added(error, number))

    def on_added(error: StoreError | None, number: int) -> None:
        errors.append(error)
        added.append(number)
        desk.store.attempt(name(number), 1, b"worker", NOW)
        desk.store.finish(
            name(number), 1, DONE, b"%d" % number, NOW, lambda error: on_finished(error, number)
        )

    def on_finished(error: StoreError | None, number: int) -> None:
        errors.append(error)
        finished.append(number)
        submit()

    def disturb() -> None:
        for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGINT):
            time.sleep(0.2)
            postgres.stop(how)
            time.sleep(0.1)
            postgres.start()
        time.sleep(0.2)
        stop.set()

    thread = threading.Thread(target=disturb)
    thread.start()
    for _ in range(100):
        submit()
    desk.until(lambda: stop.is_set() and len(finished) == submitted)
    thread.join()
    assert set(errors) == {None}
    assert added == sorted(added)
    assert len(finished) > 100
    assert stored(desk) == [name(number) for number in range(1, submitted + 1)]
    assert [(count.state, count.jobs) for count in desk.ask(desk.store.counts())] == [(DONE, submitted)]


def break_once(monkeypatch: pytest.MonkeyPatch, at: str, commits: int = 1) -> list[str]:
    """The connection breaks at this commit, before or after the server did it. Returns what happened so far."""
    commit: Commit = PostgresDatabase.commit
    log: list[str] = []

    def broken(database: PostgresDatabase) -> None:
        log.append("commit" if len(log) + 1 != commits else f"lost {at}")
        if log[-1] != "lost before":
            commit(database)
        if log[-1] != "commit":
            database.connection.close()
            raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(PostgresDatabase, "commit", broken)
    return log


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_commit_whose_answer_was_lost(desk: Desk, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    assert desk.do(desk.store.add, job(1)) is None
    desk.store.attempt(name(1), 1, b"worker", NOW)
    gate = desk.hold()
    log = break_once(monkeypatch, at, commits=2)  # the first is the gate's
    outcomes: list[str] = []
    desk.store.add(job(2), lambda error: outcomes.append(code(error)))
    desk.store.add(job(1), lambda error: outcomes.append(code(error)))
    desk.store.partial(name(1), 1, b"part", NOW)
    desk.store.finish(name(1), 1, DONE, b"first", NOW, lambda error: outcomes.append(code(error)))
    desk.store.finish(name(1), 1, DONE, b"second", NOW, lambda error: outcomes.append(code(error)))
    gate.opened.set()
    desk.until(lambda: len(outcomes) == 4)
    assert log[1] == f"lost {at}"
    assert outcomes == ["ok", "store-duplicate", "ok", "store-finished"]  # as if nothing had happened
    assert stored(desk) == [name(1), name(2)]
    assert len(desk.ask(desk.store.partials(name(1)))) == 1
    result = desk.ask(desk.store.result(name(1)))
    assert result is not None
    assert result.body == b"first"


@pytest.mark.parametrize("at", ["before", "after"])
def test_what_was_reported_as_failed_is_not_there_later(
    new_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The server stays away for longer than we wait, and had or had not committed: the client was told "no"."""
    desk = Desk(new_url("postgres"))
    assert isinstance(desk.store, PostgresStore)
    assert desk.do(desk.store.add, job(1)) is None
    desk.store._writing._patience = 0.2
    connect = PostgresConnection._connect
    away = True

    def unreachable(line: PostgresConnection) -> PostgresDatabase:
        if away:
            raise psycopg.OperationalError("connection refused")
        return connect(line)

    monkeypatch.setattr(PostgresConnection, "_connect", unreachable)
    break_once(monkeypatch, at)
    assert code(desk.do(desk.store.add, job(2))) == "store-unreachable"
    started = time.monotonic()
    assert code(desk.do(desk.store.add, job(3))) == "store-unreachable"
    assert time.monotonic() - started < 0.2  # not every batch waits for a server that is away for long
    assert desk.store.trouble is not None
    away = False
    assert desk.do(desk.store.add, job(4)) is None
    assert desk.store.trouble is None
    assert stored(desk) == [name(1), name(4)]
    assert desk.do(desk.store.add, job(2)) is None  # so it can be submitted again
    desk.close()


def test_a_batch_that_makes_the_server_fall_over_is_given_up(
    new_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(new_url("postgres"))
    assert isinstance(desk.store, PostgresStore)
    desk.store._writing._patience = 0.3
    mark = PostgresDatabase.execute
    falls = []

    def fall_over(database: PostgresDatabase, query: str, **parameters: object) -> None:
        falls.append(query)
        database.connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(PostgresDatabase, "execute", fall_over)
    assert code(desk.do(desk.store.add, job(1))) == "store-unreachable"
    assert len(falls) > 1
    monkeypatch.setattr(PostgresDatabase, "execute", mark)
    assert desk.do(desk.store.add, job(2)) is None
    assert stored(desk) == [name(2)]
    desk.close()


def test_a_connection_that_the_server_ends(desk: Desk, postgres: PostgresServer) -> None:
    assert desk.do(desk.store.add, job(1)) is None
    assert desk.ask(desk.store.get(name(1))) is not None
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'polydomo'"
        )
    assert desk.do(desk.store.add, job(2)) is None
    assert desk.ask(desk.store.get(name(1))) is not None
    assert stored(desk) == [name(1), name(2)]


def test_closing_does_not_wait_for_a_server_that_is_away(
    new_url: Callable[[str], str], postgres: PostgresServer
) -> None:
    desk = Desk(new_url("postgres"))
    assert desk.do(desk.store.add, job(1)) is None
    postgres.stop()
    try:
        outcomes: list[str] = []
        desk.store.add(job(2), lambda error: outcomes.append(code(error)))
        started = time.monotonic()
        desk.close()
        assert time.monotonic() - started < 5
        assert outcomes == ["store-unreachable"]
    finally:
        postgres.start()
