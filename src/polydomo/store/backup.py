"""A copy of a SQLite store, made while a broker uses it.

SQLite's online backup reads one snapshot, some pages at a time, and keeps nobody from writing. The copy is a plain
database without a log. It appears under its name when it is whole, checked and on disk.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from polydomo.store.damage import connect_readonly, quick_check
from polydomo.store.disk import explain
from polydomo.store.errors import StoreCorrupt, StoreError, StoreUnusable
from polydomo.store.queries import VERSION

# Pages that are copied at once.
PAGES: Final = 1024

FOREVER: Final = float("inf")


class BackupResult(NamedTuple):
    """A finished copy."""

    file: str
    bytes: int
    jobs: int
    seconds: float


def back_up(
    source: Path, target: Path, *, force: bool = False, progress: Callable[[int, int], object] | None = None
) -> BackupResult:
    """Copy the store `source` to `target`. `progress` is told how many pages are copied, and of how many.

    Raises StoreUnusable if there is no store, or something at the target already and `force` is not given, and
    StoreCorrupt if the copy does not pass a check: then the store itself is damaged.
    """
    if not source.exists():
        raise StoreUnusable(f"there is no store at {source}", hint="name it with --data or --config")
    if target.exists() and not force:
        raise StoreUnusable(f"{target} exists already", hint="choose another name, or give --force")
    begun = time.monotonic()
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        os.close(os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        jobs = _copy(source, aside, progress)
        found = quick_check(aside, FOREVER)
        if found.problems:
            raise StoreCorrupt(f"{source} is damaged: {found.problems[0]}", hint="restore an older copy")
        _sync(aside)
        aside.replace(target)
        _sync(target.parent)
    except (OSError, sqlite3.Error) as error:
        meaning = explain(error, target if isinstance(error, OSError) else source)
        raise meaning or StoreUnusable(f"{source}: {error}", hint="is it a store?") from error
    finally:
        aside.unlink(missing_ok=True)
    return BackupResult(str(target), target.stat().st_size, jobs, round(time.monotonic() - begun, 3))


def _copy(source: Path, aside: Path, progress: Callable[[int, int], object] | None) -> int:
    """Return how many jobs are in the copy."""

    def copied(status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    with closing(connect_readonly(source)) as reading, closing(sqlite3.connect(aside)) as writing:
        # A transaction holds the snapshot: otherwise every commit of the broker would start the copy over.
        reading.execute("BEGIN")
        reading.execute(VERSION.text).fetchall()
        writing.execute("PRAGMA synchronous = OFF")  # one synchronisation at the end does
        reading.backup(writing, pages=PAGES, progress=copied, sleep=0)
        writing.execute("PRAGMA journal_mode = DELETE")
        jobs: int = writing.execute("SELECT count(*) FROM jobs").fetchone()[0]
        return jobs


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def store_file(url: str) -> Path:
    """The file of a SQLite store's address."""
    if url.startswith(("postgresql://", "postgres://")):
        raise StoreUnusable("the store is a PostgreSQL database", hint="copy it with pg_dump, see its manual")
    if not url.startswith("sqlite:///"):
        raise StoreError("there is no store on disk", hint="name it with --data or --config")
    return Path(url.removeprefix("sqlite:///"))
