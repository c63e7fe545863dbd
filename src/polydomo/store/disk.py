"""The disk under SQLite's file: whether it can be written, and what an error of SQLite's says about it."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

from polydomo.store.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreIO,
    StoreReadonly,
    StoreTrouble,
    StoreUnusable,
)

# With less free space than this the disk counts as full: the results of running jobs still have to fit, and a log
# that can be overwritten in place hides for a while that nothing more can be added to it.
RESERVE: Final = 1024 * 1024

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_WRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


def inspect(path: Path) -> None:
    """Raise StoreTrouble if the file system around `path` is full or read-only, without writing anything."""
    try:
        status = os.statvfs(path.parent)
    except OSError as error:
        raise StoreIO(f"{path}: {error.strerror or error}") from error
    if status.f_flag & os.ST_RDONLY:
        raise StoreReadonly(f"{path}: the file system is read-only")
    free = (status.f_bfree if os.geteuid() == 0 else status.f_bavail) * status.f_frsize
    if status.f_blocks and free < RESERVE:  # without blocks: a file system that does not tell
        raise StoreFull(f"{path}: the disk is full, only {free // 1024} KiB are free")


def explain(error: Exception, path: Path) -> StoreError | None:
    """What an error of SQLite, or of the file system, means; None if it is about the values that were
    given."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return _explain_system(error, path)
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(error, sqlite3.Error) or code is None:
        return None
    meaning = MEANINGS.get(code & 0xFF)  # the higher bits say more than we need
    said = str(error)
    if meaning is StoreIO:
        meaning = _diagnose(path)
        said = WORDS.get(meaning, said)
    return None if meaning is None else meaning(f"{path}: {said}")


def _explain_system(error: OSError, path: Path) -> StoreError:
    said = f"cannot use {path}: {error.strerror or error}"
    if error.errno in NO_SPACE:
        return StoreFull(said)
    if error.errno == errno.EROFS:
        return StoreReadonly(said)
    return StoreUnusable(said, hint="choose another place")


def _diagnose(path: Path) -> type[StoreTrouble]:
    """SQLite says "disk I/O error" for a disk that turned read-only, or a quota. Writing a little shows which."""
    probe = Path(f"{path}.probe")
    try:
        try:
            with probe.open("wb") as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in NO_SPACE:
            return StoreFull
        if error.errno in NOT_WRITABLE:
            return StoreReadonly
    return StoreIO


# What SQLite only calls an I/O error.
WORDS: Final[dict[type[StoreError], str]] = {
    StoreFull: "the disk is full",
    StoreReadonly: "the disk is read-only",
}

MEANINGS: Final[dict[int, type[StoreError]]] = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_READONLY: StoreReadonly,
    sqlite3.SQLITE_PERM: StoreReadonly,
    sqlite3.SQLITE_IOERR: StoreIO,
    sqlite3.SQLITE_CANTOPEN: StoreIO,
    sqlite3.SQLITE_BUSY: StoreIO,  # another program holds the file for longer than our patience
    sqlite3.SQLITE_LOCKED: StoreIO,
    sqlite3.SQLITE_NOMEM: StoreIO,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreUnusable,
}
