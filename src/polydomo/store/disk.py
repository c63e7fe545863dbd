"""The disk under a SQLite file: check whether it is writable, and translate errors of SQLite and the file system."""

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

# With less free space than this the disk counts as full: the results of running jobs still have to fit, and a log that
# is overwritten in place hides for a while that the disk is full.
RESERVE: Final = 1024 * 1024

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_WRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


def check_disk(path: Path) -> None:
    """Raise StoreTrouble if the file system around `path` is full or read-only, without writing anything."""
    try:
        status = os.statvfs(path.parent)
    except OSError as error:
        raise StoreIO(f"{path}: {error.strerror or error}") from error
    if status.f_flag & os.ST_RDONLY:
        raise StoreReadonly(f"{path}: the file system is read-only")
    free = (status.f_bfree if os.geteuid() == 0 else status.f_bavail) * status.f_frsize
    if status.f_blocks and free < RESERVE:  # 0 blocks: the file system does not report its size
        raise StoreFull(f"{path}: the disk is full, only {free // 1024} KiB are free")


def translate_error(error: Exception, path: Path) -> StoreError | None:
    """Return the store's error for one of SQLite or the file system; None if it is about the values that were given."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return _translate_os_error(error, path)
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(error, sqlite3.Error) or code is None:
        return None
    kind = ERRORS.get(code & 0xFF)  # the higher bits are SQLite's extended code
    message = str(error)
    if kind is StoreIO:
        kind = _diagnose(path)
        message = DIAGNOSES.get(kind, message)
    return None if kind is None else kind(f"{path}: {message}")


def _translate_os_error(error: OSError, path: Path) -> StoreError:
    message = f"cannot use {path}: {error.strerror or error}"
    if error.errno in NO_SPACE:
        return StoreFull(message)
    if error.errno == errno.EROFS:
        return StoreReadonly(message)
    return StoreUnusable(message, hint="choose another place")


def _diagnose(path: Path) -> type[StoreTrouble]:
    """Find out why SQLite reports "disk I/O error", which it also does for a read-only disk or an exceeded quota."""
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


# Messages for what SQLite only calls an I/O error.
DIAGNOSES: Final[dict[type[StoreError], str]] = {
    StoreFull: "the disk is full",
    StoreReadonly: "the disk is read-only",
}

ERRORS: Final[dict[int, type[StoreError]]] = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_READONLY: StoreReadonly,
    sqlite3.SQLITE_PERM: StoreReadonly,
    sqlite3.SQLITE_IOERR: StoreIO,
    sqlite3.SQLITE_CANTOPEN: StoreIO,
    sqlite3.SQLITE_BUSY: StoreIO,  # another program locks the file for longer than the busy timeout
    sqlite3.SQLITE_LOCKED: StoreIO,
    sqlite3.SQLITE_NOMEM: StoreIO,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreUnusable,
}
