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
    """

    def __init__(
        self,
        path: Path,
        report: Callable[[str], object],
        *,
        clock: Callable[[], float] = time.time,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.path = path
        self._report = report
        self._clock = clock
        self._segment_bytes = segment_bytes

    def open(self) -> None:
        """Create the folder, and repair and record what a killed process left; raise AuditUnavailable if that fails."""
        self.append([])

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Write records and wait until they are on disk: all of them, or none and raise AuditUnavailable."""
        try:
            if not self.path.is_dir():
                private_files.make_folder(self.path)
                give_to_owner(self.path)
            with locked(self.path):
                self._append(entries)
        except OSError as error:
            raise AuditUnavailable(
                f"the audit log in {self.path} cannot be written: {error.strerror or error}",
                passing=error.errno in PASSING,
            ) from error

    def _append(self, entries: Sequence[AuditEntry]) -> None:
        end = find_end(self.path)
        for entry in end.entries:
            self._report(entry.reason)
        if end.entries or entries:
            self._write(end.head, [*end.entries, *entries])
        for path in torn_files(self.path):
            path.rename(path.with_name(path.name[1:]))

    def _write(self, head: Head, entries: Sequence[AuditEntry]) -> None:
        number, digest, lines = head.number, head.hash, b""
        for entry in entries:
            number += 1
            line, digest = encode_line(entry.cleaned(), number, self._clock(), digest)
            lines += line
        is_new = not head.segment or head.size >= self._segment_bytes
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
            write_head(self.path, Head(number, digest, name, size + len(lines)))
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
