"""Opening a store: addresses, permissions, schema versions, one broker at a time."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from polydomo.store import open_store
from polydomo.store import postgres as postgres_module
from polydomo.store.database import migrate
from polydomo.store.errors import (
    StoreInvalid,
    StoreLocked,
    StoreNewer,
    StoreUnreachable,
    StoreUnusable,
)
from polydomo.store.postgres_database import PostgresDatabase
from polydomo.store.queries import VERSION
from polydomo.store.records import DONE, AttemptRecord
from polydomo.store.schema import MIGRATIONS, Migration
from polydomo.store.sqlite_database import SqliteDatabase
from tests.store.desk import NOW, Desk, job, name
from tests.store.server import PostgresServer

Urls = Callable[[str], str]

DATABASES = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


def database(url: str) -> SqliteDatabase | PostgresDatabase:
    """A bare connection to a store."""
    if url.startswith("sqlite"):
        return SqliteDatabase(Path(url.removeprefix("sqlite:///")))
    return PostgresDatabase(url)


@pytest.mark.parametrize(
    "url", ["", "mysql://host/base", "sqlite:", "sqlite:///", "sqlite://host/file", "memory"]
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(StoreInvalid, match="not the URL") as caught:
        open_store(url, lambda task: None)
    assert "sqlite:///FILE" in caught.value.advice


def test_a_relative_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Desk("sqlite:///folder/store.db").close()
    assert (tmp_path / "folder" / "store.db").exists()


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        desk = Desk(f"sqlite:///{tmp_path}/store.db")
        assert desk.do(desk.store.add, job(1)) is None
        files = list(tmp_path.iterdir())
        assert {file.name for file in files} == {"store.db", "store.db-wal", "store.db-shm", "store.db.lock"}
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        desk.close()
    finally:
        os.umask(mask)


def test_a_commit_is_on_disk(tmp_path: Path) -> None:
    """SQLite's settings for that: write-ahead log, synchronised at every commit."""
    connection = SqliteDatabase(tmp_path / "store.db")
    assert connection.pragma("journal_mode") == ("wal",)
    assert connection.pragma("synchronous") == (2,)
    assert connection.pragma("wal_autocheckpoint") == (0,)
    connection.close()


def test_the_log_is_moved_into_the_database_when_things_are_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polydomo.store.checkpoint.PAUSE", 0.01)
    desk = Desk(f"sqlite:///{tmp_path}/store.db")
    empty = (tmp_path / "store.db").stat().st_size
    assert desk.do(desk.store.add, job(1, body=bytes(100_000))) is None
    wait_for(lambda: (tmp_path / "store.db").stat().st_size > empty + 100_000)
    desk.close()


def test_a_log_that_grows_too_long_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polydomo.store.checkpoint.PAUSE", 60.0)
    monkeypatch.setattr("polydomo.store.checkpoint.TRUNCATE_SIZE", 500_000)
    desk = Desk(f"sqlite:///{tmp_path}/store.db")
    sizes = []
    for number in range(1, 30):
        assert desk.do(desk.store.add, job(number, body=bytes(50_000))) is None
        sizes.append((tmp_path / "store.db-wal").stat().st_size)
    assert max(sizes) < 700_000
    assert 0 in sizes
    desk.close()


def wait_for(condition: Callable[[], bool], patience: float = 10.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@DATABASES
def test_one_broker_at_a_time(kind: str, new_url: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "LOCK_PATIENCE", 0.2)
    url = new_url(kind)
    desk = Desk(url)
    with pytest.raises(StoreLocked, match="another broker"):
        Desk(url)
    assert desk.do(desk.store.add, job(1)) is None  # and the first was not disturbed
    desk.close()
    Desk(url).close()


@DATABASES
def test_a_store_of_a_newer_version_is_refused(kind: str, new_url: Urls) -> None:
    url = new_url(kind)
    Desk(url).close()
    connection = database(url)
    connection.execute("UPDATE meta SET number = :version WHERE name = 'version'", version=99)
    connection.close()
    with pytest.raises(StoreNewer, match="version 99") as caught:
        Desk(url)
    assert "install that version" in caught.value.advice


@DATABASES
def test_a_store_of_an_older_version_is_brought_up_to_date(kind: str, new_url: Urls) -> None:
    url = new_url(kind)
    desk = Desk(url)
    assert desk.do(desk.store.add, job(1)) is None
    desk.close()
    connection = database(url)
    newer = (
        *MIGRATIONS,
        Migration(("ALTER TABLE jobs ADD COLUMN mood TEXT NOT NULL DEFAULT 'good'",)),
    )
    migrate(connection, newer)
    migrate(connection, newer)  # nothing left to do
    assert connection.fetch(VERSION) == [(len(MIGRATIONS) + 1,)]
    assert connection.fetch("SELECT id, mood FROM jobs") == [(name(1), "good")]
    connection.close()
    with pytest.raises(StoreNewer):
        Desk(url)


FIRST_VERSION_JOB = """
    INSERT INTO jobs (seq, id, service, state, attempt, worker, queued, not_before, dispatched, finished, code,
        message, size_out, client, dialect, key, parent, target, priority, max_attempts, timeout, deadline,
        submitted, size_in, key_service)
    VALUES (:seq, :id, :service, 'running', 2, :worker, 1, NULL, 5, NULL, '', '', 0, :client, 'mdp', NULL, NULL,
        'any', 0, 3, NULL, NULL, 1, 4, NULL)
    """


@DATABASES
def test_a_store_of_the_first_version_with_jobs_in_it(kind: str, new_url: Urls) -> None:
    """Attempts had no tokens then: its jobs go on without."""
    url = new_url(kind)
    connection = database(url)
    migrate(connection, MIGRATIONS[:1])
    assert connection.fetch(VERSION) == [(1,)]
    connection.execute(FIRST_VERSION_JOB, seq=1, id=name(1), service=b"echo", worker=b"w", client=b"c")
    connection.execute(
        "INSERT INTO requests (seq, body, envelope, options) VALUES (1, :body, :body, :body)",
        body=b"body",
    )
    connection.execute("INSERT INTO attempts VALUES (1, 1, :worker, 2, 3, 'worker-lost')", worker=b"v")
    connection.execute(
        "INSERT INTO tallies (service, state, jobs) VALUES (:service, 'running', 1)",
        service=b"echo",
    )
    connection.close()

    desk = Desk(url)
    (old,) = desk.ask(desk.store.unfinished())
    assert (old.id, old.worker, old.token, old.body) == (name(1), b"w", b"", b"body")
    assert desk.ask(desk.store.attempts(name(1))) == [
        AttemptRecord(1, b"v", 2, 3, "worker-lost", b""),
        AttemptRecord(2, b"w", 5, None, "", b""),
    ]
    assert desk.do(desk.store.attempt, name(1), 3, b"x", NOW, b"00c0ffee") is None
    assert desk.do(desk.store.finish, name(1), 3, DONE, b"result", NOW) is None
    desk.reopen()
    assert [record.token for record in desk.ask(desk.store.attempts(name(1)))] == [b"", b"", b"00c0ffee"]
    assert [(count.state, count.jobs) for count in desk.ask(desk.store.counts())] == [(DONE, 1)]
    desk.close()


@DATABASES
def test_a_migration_that_fails_changes_nothing(kind: str, new_url: Urls) -> None:
    url = new_url(kind)
    Desk(url).close()
    connection = database(url)
    bad = Migration(("CREATE TABLE half (id {int})", "CREATE TABLE jobs (id {int})"))
    with pytest.raises((sqlite3.Error, psycopg.Error)):
        migrate(connection, (*MIGRATIONS, bad))
    assert connection.fetch(VERSION) == [(len(MIGRATIONS),)]
    with pytest.raises((sqlite3.Error, psycopg.Error)):
        connection.fetch("SELECT * FROM half")
    connection.close()
    Desk(url).close()  # still as good as before


def test_a_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is not a database " * 100)
    with pytest.raises(StoreUnusable, match="not a database"):
        Desk(f"sqlite:///{path}")
    assert path.read_bytes().startswith(b"this is not")


@DATABASES
def test_a_database_of_another_program_is_left_as_it_was(kind: str, new_url: Urls) -> None:
    url = new_url(kind)
    connection = database(url)
    connection.execute("CREATE TABLE jobs (title TEXT, salary INTEGER)")
    connection.close()
    with pytest.raises(StoreUnusable, match="jobs") as caught:
        Desk(url)
    assert "another program" in caught.value.advice
    connection = database(url)
    assert connection.fetch("SELECT title, salary FROM jobs") == []
    with pytest.raises((sqlite3.Error, psycopg.Error)):
        connection.fetch("SELECT * FROM meta")
    connection.close()


def test_a_schema_that_is_not_there(postgres: PostgresServer) -> None:
    with pytest.raises(StoreUnusable, match="schema"):
        Desk(f"{postgres.url}&options=-csearch_path%3Dnowhere")


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnusable, match="choose another place"):
        Desk(f"sqlite:///{tmp_path}/file/store.db")


def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "LOCK_PATIENCE", 0.1)
    with pytest.raises(StoreUnreachable, match="connection"):
        Desk(f"postgresql://postgres@/postgres?host={tmp_path}")


def test_the_driver_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "polydomo.store.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreUnusable, match="driver is missing") as caught:
        open_store("postgresql://host/base", lambda task: None)
    assert "polydomo[postgres]" in caught.value.advice
