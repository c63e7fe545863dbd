"""Removal of old segments of the audit log.

The removal is recorded before it is done, with number and hash of the last removed record. So `audit_check` can tell a
log that begins after it from one whose beginning was removed by somebody else.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from polydomo.security.audit_folder import segments
from polydomo.security.audit_record import EVENT, AuditEntry, BrokenRecord, decode_line

# The action of such a record. Its target is NUMBER:HASH.
REMOVED = "removed"


class Expired(NamedTuple):
    """A segment to remove, and the entry that records it."""

    path: Path
    entry: AuditEntry


def expired(folder: Path, oldest: float) -> list[Expired]:
    """Return the segments at the log's beginning that were last written before `oldest`; the last one never is.

    A segment is kept if the one after it does not begin with a record.
    """
    found = []
    names = segments(folder)
    for name, following in pairwise(names):
        path = folder / name
        if path.stat().st_mtime >= oldest:
            break
        try:
            with (folder / following).open("rb") as file:
                first = decode_line(file.readline())
        except BrokenRecord:
            break
        last = f"{first.number - 1}:{first.previous}"
        found.append(Expired(path, AuditEntry(EVENT, action=REMOVED, target=last, reason=f"{name} is old")))
    return found
