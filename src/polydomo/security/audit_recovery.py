"""Recovery of the audit log's end, before each append.

A record is on disk before the head file names it. So after a crash the log may be longer than the head file says; the
further records are taken over if they continue the chain. The rest of a write that did not finish may follow. It is
moved aside, in steps of which each may be the last one: copy the rest to a hidden file, cut it off, record that, rename
the copy.

A log that is shorter than the head file says has lost records. Numbers and hashes go on after those of the head file,
in a new segment, so the gap stays visible to `audit_check`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from polydomo import private_files
from polydomo.security.audit_folder import HEAD, SUFFIX, Head, give_to_owner, read_head, segments
from polydomo.security.audit_record import EVENT, AuditEntry, BrokenRecord, decode_line

TORN: Final = "torn-"


class LogEnd(NamedTuple):
    """The end of the log, and the entries to append because of damage that was found."""

    head: Head
    entries: list[AuditEntry]


def find_end(folder: Path) -> LogEnd:
    """Return the end of the log, after moving aside what follows the last record."""
    names = segments(folder)
    damage: list[str] = []
    head = _head(folder, names, damage)
    if head.segment:
        size = (folder / head.segment).stat().st_size if head.segment in names else -1
        if size < head.size:
            what = "is missing" if size < 0 else f"has {size} of {head.size} bytes"
            damage.append(f"{head.segment} {what}: records up to {head.number} were removed")
            names = [name for name in names if name > head.segment]
            head = msgspec.structs.replace(head, segment="", size=0)
    for name in names:
        if name >= head.segment:
            head = _take_over(folder / name, head)
    entries = [AuditEntry(EVENT, action="damaged", reason=reason) for reason in damage]
    return LogEnd(head, entries + [_repaired(path) for path in torn_files(folder)])


def torn_files(folder: Path) -> list[Path]:
    """Return the copies that are not recorded yet."""
    return sorted(folder.glob(f".{TORN}*"))


def _head(folder: Path, names: Sequence[str], damage: list[str]) -> Head:
    """Return what the head file says; without one, what comes before the last segment that begins with a record."""
    try:
        head = read_head(folder)
    except ValueError as error:
        damage.append(str(error))
    else:
        if head is not None:
            return head
        if names:
            damage.append(f"{HEAD} is missing")
    for name in reversed(names):
        with (folder / name).open("rb") as file, suppress(BrokenRecord):
            first = decode_line(file.readline())
            return Head(first.number - 1, first.previous, name)
    return Head()


def _take_over(path: Path, head: Head) -> Head:
    """Return the latest record after reading those that a segment has after `head`."""
    start = end = head.size if path.name == head.segment else 0
    with path.open("rb") as file:
        file.seek(start)
        data = file.read()
    for line in data.splitlines(keepends=True):
        try:
            record = decode_line(line)
        except BrokenRecord:
            break
        if (record.number, record.previous) != (head.number + 1, head.hash):
            break
        end += len(line)
        head = Head(record.number, record.hash, path.name, end)
    if end < start + len(data):
        _move_aside(path, end, data[end - start :])
    return head


def _move_aside(path: Path, end: int, rest: bytes) -> None:
    """Cut a segment off at `end`, after copying the rest."""
    aside = path.with_name(f".{TORN}{path.name.removesuffix(SUFFIX)}-{end}")
    private_files.make_file(aside)
    give_to_owner(aside)
    aside.write_bytes(rest)
    private_files.sync(aside)
    private_files.sync(path.parent)
    os.truncate(path, end)
    private_files.sync(path)


def _repaired(path: Path) -> AuditEntry:
    size = path.stat().st_size
    reason = f"an unfinished write left {size} bytes, which were moved to {path.name[1:]}"
    return AuditEntry(EVENT, action="repaired", target=path.name[1:], reason=reason)
