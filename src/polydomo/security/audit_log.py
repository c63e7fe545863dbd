"""The audit log: records in segments, appended under a lock by the broker and by the commands that change its keys."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from polydomo import private_files
from polydomo.errors import PolydomoError
from polydomo.security.audit_folder import Head, give_to_owner, locked, segment_name, write_head
from polydomo.security.audit_record import AuditEntry, encode_line
from polydomo.security.audit_recovery import find_end, torn_files
from polydomo.security.audit_retention import Expired, expired

# Size in bytes from which on a segment gets no further records.
SEGMENT_BYTES: Final = 16 * 1024 * 1024

# Errors of a full or read-only disk, which may pass.
PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class AuditUnavailable(PolydomoError):
    """The audit log cannot be written, so the administrative act was refused. `passing`: the disk is full."""

    code = "audit-unavailable"
    hint = "administration is possible again as soon as the audit log can be written"

    def __init__(self, message: str, *, hint: str | None = None, passing: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.passing = passing


class AuditLog:
    """Audit log in a folder, which is created on first use.

    - `report` is called with each damage of the log that an append finds and records.
    - `clock` returns seconds since 1970.
    - `keep`: age in seconds from which on a segment is removed when a new one begins; 0: never.
    """

    def __init__(
        self,
        path: Path,
        report: Callable[[str], object],
        *,
        clock: Callable[[], float] = time.time,
        segment_bytes: int = SEGMENT_BYTES,
        keep: float = 0.0,
    ) -> None:
        self.path = path
        self._report = report
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._keep = keep

    def open(self) -> Head:
        """Create the folder, repair what a killed process left, and return the latest record."""
        return self.append([])

    def append(self, entries: Sequence[AuditEntry]) -> Head:
        """Write records, wait until they are on disk, and return the latest one.

        Raises AuditUnavailable if one of them cannot be written; none is then.
        """
        try:
            if not self.path.is_dir():
                private_files.make_folder(self.path)
                give_to_owner(self.path)
            with locked(self.path):
                return self._append(entries)
        except OSError as error:
            raise AuditUnavailable(
                f"the audit log in {self.path} cannot be written: {error.strerror or error}",
                passing=error.errno in PASSING,
            ) from error

    def _append(self, entries: Sequence[AuditEntry]) -> Head:
        end = find_end(self.path)
        head = end.head
        for entry in end.entries:
            self._report(entry.reason)
        old = self._expired(head) if end.entries or entries else []
        if end.entries or entries:
            head = self._write(head, [*end.entries, *entries, *(one.entry for one in old)])
        with suppress(OSError):  # the records are on disk; a later append does the rest
            for one in old:
                one.path.unlink()
            for path in torn_files(self.path):
                path.rename(path.with_name(path.name[1:]))
        return head

    def _begins_segment(self, head: Head) -> bool:
        """Return whether the next record begins a segment."""
        return not head.segment or head.size >= self._segment_bytes

    def _expired(self, head: Head) -> list[Expired]:
        """Return the old segments, if a new one begins."""
        if not self._keep or not self._begins_segment(head):
            return []
        return expired(self.path, self._clock() - self._keep)

    def _write(self, head: Head, entries: Sequence[AuditEntry]) -> Head:
        """Write records after `head` and return the latest one."""
        number, digest, lines = head.number, head.hash, b""
        for entry in entries:
            number += 1
            line, digest = encode_line(entry.cleaned(), number, self._clock(), digest)
            lines += line
        is_new = self._begins_segment(head)
        name, size = (segment_name(head.number + 1), 0) if is_new else (head.segment, head.size)
        path = self.path / name
        private_files.make_file(path)
        give_to_owner(path)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            _write_all(handle, lines)
            os.fsync(handle)
            if is_new:
                private_files.sync(self.path)
            latest = Head(number, digest, name, size + len(lines))
            write_head(self.path, latest)
            return latest
        except OSError:
            with suppress(OSError):  # otherwise the next append moves the rest aside
                os.ftruncate(handle, size)
            raise
        finally:
            os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
