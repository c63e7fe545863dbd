"""Detection of damage in SQLite's files.

The database file: `PRAGMA quick_check` walks its pages, within a time limit. It finds a broken structure; changed bytes
inside a body leave no trace.

The write-ahead log: its frames have checksums, and SQLite silently ends the log at the first wrong one, which loses all
later transactions. So the commit frames in the file are counted before SQLite opens it, and compared with how far
SQLite got. https://sqlite.org/fileformat2.html#walformat
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

HEADER: Final = 32
FRAME: Final = 24
MAGIC: Final = 0x377F0682  # the lowest bit is set if checksums use big-endian words

# Instructions of SQLite's virtual machine between two checks of the clock.
STEPS: Final = 100_000

# Maximum number of problems in a report.
PROBLEMS: Final = 20


class WalScan(NamedTuple):
    """The content of a write-ahead log before it is opened. Frames are numbered from 1."""

    sound: bool  # the header's checksum is right
    frames: int  # the last frame of this log; frames of an older log may follow
    commits: list[int]  # frames that commit a transaction


class DamageReport(NamedTuple):
    """The result of `quick_check`."""

    problems: list[str]
    finished: bool  # False if the time limit ended the check


def scan_log(path: Path) -> WalScan | None:
    """Read the log `path` without changing it. Return None if it is empty."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        header = os.pread(file, HEADER, 0)
        size = os.fstat(file).st_size
        if len(header) < HEADER or size <= HEADER:
            return None
        magic, _, page, _, *salts = struct.unpack_from(">6I", header)
        sums = struct.unpack_from(">2I", header, 24)
        if magic & ~1 != MAGIC or page == 0 or _checksum(header[:24], bool(magic & 1)) != sums:
            return WalScan(False, 0, [])
        last, commits = 0, []
        for number in range(1, (size - HEADER) // (FRAME + page) + 1):
            frame = os.pread(file, 16, HEADER + (number - 1) * (FRAME + page))
            _, committed, *found = struct.unpack(">4I", frame)
            if found == salts:
                last = number
                if committed:
                    commits.append(number)
        return WalScan(True, last, commits)
    finally:
        os.close(file)


def lost_in_log(scan: WalScan | None, valid: int) -> str:
    """Describe what is lost if SQLite could read `valid` frames of the log; empty if nothing acknowledged is.

    An incomplete last transaction is no damage: a power failure leaves it if the commit had not returned.
    """
    if scan is None:
        return ""
    if not scan.sound:
        return "the write-ahead log's header is damaged: all transactions in it are lost"
    lost = [frame for frame in scan.commits if frame > valid]
    if not lost or scan.frames == lost[0]:
        return ""
    return f"the write-ahead log is damaged after frame {valid}: {len(lost)} transactions are lost"


def set_aside(path: Path) -> Path | None:
    """Copy a damaged log, which SQLite is about to overwrite. Return None if there is no space for the copy."""
    copy = path.with_name(f"{path.name}.damaged")
    try:
        os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        shutil.copyfile(path, copy)
    except OSError:
        return None
    return copy


def quick_check(path: Path, seconds: float, stopped: Callable[[], bool] = lambda: False) -> DamageReport:
    """Check the database file for damage on a connection of its own, for at most `seconds`."""
    end = time.monotonic() + seconds
    try:
        with closing(connect_readonly(path)) as connection:
            connection.set_progress_handler(lambda: stopped() or time.monotonic() > end, STEPS)
            rows = connection.execute(f"PRAGMA quick_check({PROBLEMS})").fetchall()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return DamageReport([], False)
        return DamageReport([str(error)], True)
    return DamageReport([row[0] for row in rows if row[0] != "ok"], True)


def connect_readonly(path: Path) -> sqlite3.Connection:
    """Open a read-only connection."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5, isolation_level=None)


def _checksum(data: bytes, big: bool) -> tuple[int, int]:
    one = two = 0
    for even, odd in struct.iter_unpack(">2I" if big else "<2I", data):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return one, two
