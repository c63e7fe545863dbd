"""Damage in SQLite's files, as far as it can be seen.

The database file: `PRAGMA quick_check` walks its pages for as long as it may take. It finds a broken structure; bytes
that were changed inside a body leave no trace.

The write-ahead log: its frames have checksums, and SQLite silently ends the log at the first one that is wrong, which
loses every transaction behind it. So the marks of transactions in the file are counted before SQLite opens it, and
compared with how far SQLite got. https://sqlite.org/fileformat2.html#walformat
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
MAGIC: Final = 0x377F0682  # its lowest bit: checksums are made of big-endian words

# Instructions of SQLite's machine between two looks at the clock.
STEPS: Final = 100_000

# Problems that are listed, at most.
PROBLEMS: Final = 20


class WalScan(NamedTuple):
    """A write-ahead log before it was opened. Frames are counted from 1."""

    sound: bool  # the header's own checksum is right
    frames: int  # the last one of this log, not of an older one that it overwrites
    commits: list[int]  # frames that end a transaction


class DamageReport(NamedTuple):
    """What `quick_check` found."""

    problems: list[str]
    finished: bool  # False: there was no time to look at everything


def scan_log(path: Path) -> WalScan | None:
    """Look through the log `path` without changing it. None: there is nothing in it."""
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
    """What was lost if SQLite could read `valid` frames of the log; empty: nothing that was acknowledged.

    The last transaction alone may be cut short: a power failure does that to one whose commit had not returned.
    """
    if scan is None:
        return ""
    if not scan.sound:
        return "the write-ahead log's header is damaged: all transactions in it are lost"
    lost = [frame for frame in scan.commits if frame > valid]
    if not lost or scan.frames == lost[0]:
        return ""
    return f"the write-ahead log is damaged behind frame {valid}: {len(lost)} transactions are lost"


def set_aside(path: Path) -> Path | None:
    """Keep a copy of a damaged log, which SQLite is about to overwrite. None: there is no room for it."""
    copy = path.with_name(f"{path.name}.damaged")
    try:
        os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        shutil.copyfile(path, copy)
    except OSError:
        return None
    return copy


def quick_check(path: Path, seconds: float, stopped: Callable[[], bool] = lambda: False) -> DamageReport:
    """Look for damage in the database file, on a connection of its own, for so long at most."""
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
    """A connection that cannot change the file."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5, isolation_level=None)


def _checksum(data: bytes, big: bool) -> tuple[int, int]:
    one = two = 0
    for even, odd in struct.iter_unpack(">2I" if big else "<2I", data):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return one, two
