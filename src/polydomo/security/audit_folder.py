"""The files of the audit log.

000000000001.jsonl        a segment, named after the number of its first record (`audit_record`)
head.json                 the latest record: its number and hash, its segment and the segment's size
torn-000000000001-4711    what followed the records in a segment when a process was killed (`audit_recovery`)
lock                      held by whoever appends
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from polydomo import private_files
from polydomo.security.audit_record import NOTHING

HEAD: Final = "head.json"
LOCK: Final = "lock"
SUFFIX: Final = ".jsonl"


class Head(msgspec.Struct, frozen=True):
    """The latest record and where it ends. The file may be behind, if the writer was killed, and never ahead."""

    number: int = 0
    hash: str = NOTHING
    segment: str = ""  # empty: the next record begins one
    size: int = 0

    @property
    def anchor(self) -> str:
        """Number and hash as text, to be noted elsewhere (`audit_check.Anchor`); `none` if there is no record."""
        return f"{self.number}:{self.hash}" if self.number else "none"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock for an append. It ends with the process."""
    private_files.make_file(folder / LOCK)
    give_to_owner(folder / LOCK)
    with locked_for_reading(folder):
        yield


@contextmanager
def locked_for_reading(folder: Path) -> Iterator[None]:
    """Hold the folder's lock if there is one: not in a copy on a read-only disk."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def segment_name(number: int) -> str:
    """Return the name of the segment whose first record has this number."""
    return f"{number:012d}{SUFFIX}"


def segments(folder: Path) -> list[str]:
    """Return the names of all segments, the oldest first."""
    return sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))


def read_head(folder: Path) -> Head | None:
    """Return what the head file says; None: there is none. Raises ValueError if it cannot be understood."""
    try:
        data = (folder / HEAD).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=Head)
    except msgspec.DecodeError as error:
        raise ValueError(f"{HEAD} is damaged: {error}") from error


def write_head(folder: Path, head: Head) -> None:
    """Replace the head file, and wait until it is on disk."""
    aside = folder / f".{HEAD}"
    private_files.make_file(aside)
    give_to_owner(aside)
    aside.write_bytes(msgspec.json.encode(head) + b"\n")
    private_files.sync(aside)
    aside.replace(folder / HEAD)


def give_to_owner(path: Path) -> None:
    """Give what root has made to the owner of the folder above, or the broker could not write it."""
    if os.geteuid() == 0:
        above = path.parent.stat()
        os.chown(path, above.st_uid, above.st_gid)
