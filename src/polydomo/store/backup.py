"""Online backup of a SQLite store, also while a broker uses it.

SQLite's backup API reads one snapshot, some pages at a time, without blocking the writer. The copy is a plain database
file without a log. It gets its final name when it is complete, checked and on disk.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from polydomo import private_files
from polydomo.store.damage import connect_readonly, quick_check
from polydomo.store.disk import translate_error
from polydomo.store.errors import StoreCorrupt, StoreError, StoreUnusable
from polydomo.store.queries import VERSION

# Pages copied in one step.
PAGES: Final = 1024

FOREVER: Final = float("inf")


class BackupResult(NamedTuple):
    """A completed backup."""

    file: str
    bytes: int
    jobs: int
    seconds: float


def back_up(
    source: Path, target: Path, *, force: bool = False, progress: Callable[[int, int], object] | None = None
) -> BackupResult:
    """Copy the store `source` to `target`. `progress` is called with the number of pages copied, and of all pages.

    Raises StoreUnusable if there is no store, or if the target exists and `force` is not set, and StoreCorrupt if the
    copy does not pass the check: then the store itself is damaged.
    """
    if not source.exists():
        raise StoreUnusable(f"there is no store at {source}", hint="name it with --data or --config")
    if target.exists() and not force:
        raise StoreUnusable(f"{target} exists already", hint="choose another name, or give --force")
    started = time.monotonic()
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        jobs = _copy(source, partial, progress)
        found = quick_check(partial, FOREVER)
        if found.problems:
            raise StoreCorrupt(f"{source} is damaged: {found.problems[0]}", hint="restore an older copy")
        private_files.sync(partial)
        partial.replace(target)
        private_files.sync(target.parent)
    except (OSError, sqlite3.Error) as error:
        translated = translate_error(error, target if isinstance(error, OSError) else source)
        raise translated or StoreUnusable(f"{source}: {error}", hint="is it a store?") from error
    finally:
        partial.unlink(missing_ok=True)
    return BackupResult(str(target), target.stat().st_size, jobs, round(time.monotonic() - started, 3))


def _copy(source: Path, partial: Path, progress: Callable[[int, int], object] | None) -> int:
    """Copy the database and return the number of jobs in the copy."""

    def copied(status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    with closing(connect_readonly(source)) as reading, closing(sqlite3.connect(partial)) as writing:
        # A transaction keeps the snapshot: otherwise every commit of the broker would restart the copy.
        reading.execute("BEGIN")
        reading.execute(VERSION).fetchall()
        writing.execute("PRAGMA synchronous = OFF")  # one sync at the end is enough
        reading.backup(writing, pages=PAGES, progress=copied, sleep=0)
        writing.execute("PRAGMA journal_mode = DELETE")
        jobs: int = writing.execute("SELECT count(*) FROM jobs").fetchone()[0]
        return jobs


def store_file(url: str) -> Path:
    """Return the path in a SQLite store's URL. Raises StoreError for other stores."""
    if url.startswith(("postgresql://", "postgres://")):
        raise StoreUnusable("the store is a PostgreSQL database", hint="copy it with pg_dump, see its manual")
    if not url.startswith("sqlite:///"):
        raise StoreError("there is no store on disk", hint="name it with --data or --config")
    return Path(url.removeprefix("sqlite:///"))
