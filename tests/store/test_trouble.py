"""The disk is full, read-only or fails: a clear error, no partial write, and recovery without a restart."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest

from polydomo.store.errors import StoreCorrupt, StoreFull, StoreReadonly, StoreUnusable
from polydomo.store.records import DONE, JobFilter
from polydomo.store.sqlite import SqliteStore
from polydomo.store.sqlite_database import SqliteDatabase
from tests.store.desk import NOW, Desk, code, job, name
from tests.store.disks import FragileDisk, small_disk
from tests.store.server import PostgresServer


def jobs(desk: Desk) -> list[int]:
    page = desk.ask(desk.store.find(JobFilter(oldest_first=True, limit=10_000)))
    return [record.submitted - NOW for record in page.jobs]


def writer(desk: Desk) -> SqliteDatabase:
    """Its connection, to be used while it rests."""
    assert isinstance(desk.store, SqliteStore)
    return desk.store._writing


def test_full(new_url: Callable[[str], str]) -> None:
    """SQLite is told that the disk ends here."""
    desk = Desk(new_url("sqlite"))
    store = desk.store
    assert desk.do(store.add, job(1)) is None
    pages = writer(desk).pragma("page_count")[0]
    writer(desk).pragma(f"max_page_count = {pages + 2}")
    adds = [partial(store.add, job(n, body=bytes(10_000))) for n in range(2, 12)]
    assert desk.burst(*adds) == ["store-full"] * 10
    assert isinstance(store.trouble, StoreFull)
    assert "space" in store.trouble.advice
    assert jobs(desk) == [1]
    assert desk.do(store.attempt, name(1), 1, b"worker", NOW) is None  # what fits is written
    assert store.trouble is None
    writer(desk).pragma("max_page_count = 1000000")
    assert desk.burst(*adds) == ["ok"] * 10
    assert jobs(desk) == list(range(1, 12))
    desk.close()


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "2m") as disk:
        desk = Desk(f"sqlite:///{disk}/store.db")
        taken: list[int] = []
        number = 0
        while True:
            number += 1
            error = desk.do(desk.store.add, job(number, body=bytes(50_000)))
            if error is not None:
                break
            taken.append(number)
        assert isinstance(error, StoreFull)
        assert len(taken) > 5
        assert jobs(desk) == taken
        assert isinstance(desk.do(desk.store.add, job(999, body=bytes(50_000))), StoreFull)
        subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)  # space returns
        assert desk.do(desk.store.add, job(999, body=bytes(50_000))) is None
        assert jobs(desk) == [*taken, 999]
        desk.reopen()
        assert jobs(desk) == [*taken, 999]
        desk.close()


def test_readonly(new_url: Callable[[str], str]) -> None:
    desk = Desk(new_url("sqlite"))
    assert desk.do(desk.store.add, job(1)) is None
    writer(desk).execute("PRAGMA query_only = ON")
    assert isinstance(desk.do(desk.store.add, job(2)), StoreReadonly)
    assert jobs(desk) == [1]
    assert desk.do(desk.store.add, job(3)) is None  # the connection was made anew
    assert jobs(desk) == [1, 3]
    desk.close()


def test_a_disk_that_turns_readonly(tmp_path: Path) -> None:
    disk = FragileDisk(tmp_path)
    try:
        desk = Desk(f"sqlite:///{disk.folder}/store.db")
        assert desk.do(desk.store.add, job(1)) is None
        disk.fail()
        assert [code(desk.do(desk.store.add, job(n))) for n in (2, 3)] == ["store-readonly"] * 2
        disk.repair()
        assert desk.do(desk.store.add, job(4)) is None
        assert jobs(desk) == [1, 4]
        desk.close()
    finally:
        disk.unmount()


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "2m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(StoreUnusable, match="Read-only"):
            Desk(f"sqlite:///{disk}/store.db")


WITH_A_LIMIT = """
import resource, sys
from tests.store.desk import Desk, code, job
desk = Desk("sqlite:///" + sys.argv[1])
print(code(desk.do(desk.store.add, job(1))))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
print(code(desk.do(desk.store.add, job(2, body=bytes(100_000)))))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(code(desk.do(desk.store.add, job(3, body=bytes(100_000)))))
print(sum(count.jobs for count in desk.ask(desk.store.counts())))
desk.close()
"""


def test_an_input_output_error(tmp_path: Path) -> None:
    """The system refuses to let the log grow; in a process of its own, for the limit is the process's."""
    done = subprocess.run(
        [sys.executable, "-c", WITH_A_LIMIT, tmp_path / "store.db"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == ["ok", "store-io", "ok", "2"], done.stderr


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    desk = Desk(f"sqlite:///{path}")
    for number in range(1, 400):
        desk.store.add(job(number))
    assert desk.do(desk.store.finish, name(1), 0, DONE, b"", NOW) is None
    desk.close()
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)
    path.write_bytes(data)

    def use() -> None:
        """It shows when the file is opened, or when something is written; it must show."""
        damaged = Desk(f"sqlite:///{path}")
        error = damaged.do(damaged.store.add, job(1000))
        damaged.close()
        if error is not None:
            raise error

    with pytest.raises(StoreCorrupt, match="malformed"):
        use()


def add_until(desk: Desk, expected: str, first: int) -> int:
    """Add one job after the other until that happens; the last one's number. The server takes settings over soon,
    not at once."""
    for number in range(first, first + 1000):
        if code(desk.do(desk.store.add, job(number))) == expected:
            return number
        time.sleep(0.01)
    raise AssertionError(f"never {expected}")


def test_postgres_turns_readonly(new_url: Callable[[str], str], postgres: PostgresServer) -> None:
    desk = Desk(new_url("postgres"))
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        try:
            admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            admin.execute("SELECT pg_reload_conf()")
            refused = add_until(desk, "store-readonly", 1)
        finally:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
            admin.execute("SELECT pg_reload_conf()")
    accepted = add_until(desk, "ok", refused + 1)
    assert jobs(desk) == [*range(1, refused), accepted]
    desk.close()


def test_postgres_has_a_full_disk(
    new_url: Callable[[str], str], postgres: PostgresServer, tmp_path: Path
) -> None:
    desk = Desk(new_url("postgres"))
    assert desk.do(desk.store.add, job(1)) is None
    schema = desk.url.rpartition("%3D")[2]
    with small_disk(Path(postgres.url.rpartition("=")[2]) / "small", "2m") as disk:
        postgres.own(disk)
        with psycopg.connect(postgres.url, autocommit=True) as admin:
            admin.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
            admin.execute(f"ALTER TABLE {schema}.requests SET TABLESPACE small")
            admin.execute("ALTER TABLESPACE small OWNER TO postgres")
            body = bytes(range(256)) * 4000
            adds = [partial(desk.store.add, job(n, body=body)) for n in range(2, 6)]
            assert desk.burst(*adds) == ["store-full"] * 4
            assert jobs(desk) == [1]
            subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
            assert desk.burst(*adds) == ["ok"] * 4
            assert jobs(desk) == [1, 2, 3, 4, 5]
            desk.close()
            admin.execute(f"DROP SCHEMA {schema} CASCADE")
            admin.execute("DROP TABLESPACE small")
