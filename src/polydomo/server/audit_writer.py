"""The thread that writes the audit log, so that the event loop never waits for the disk.

What is queued while the disk is busy is written together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

from polydomo.deferred import Deferred
from polydomo.security.audit_log import AuditLog, AuditUnavailable
from polydomo.security.audit_record import EVENT, AuditEntry


class _Write(NamedTuple):
    entry: AuditEntry
    done: Deferred[None] | None  # None: nobody waits


class AuditWriter:
    """Writer of one log. `call_soon` schedules a function on the event loop's thread, where `failed` is called when
    records cannot be written for the first time, and `passed` when they can be written again."""

    def __init__(
        self,
        opened: AuditLog,
        call_soon: Callable[[Callable[[], object]], object],
        failed: Callable[[AuditUnavailable], object],
        passed: Callable[[int], object],
    ) -> None:
        self.written = 0  # records
        self.lost = 0  # records that nobody waited for and that could not be written
        self.trouble = ""
        self.latest = ""  # number and hash of the latest record
        self._log = opened
        self._call_soon = call_soon
        self._failed = failed
        self._passed = passed
        self._unrecorded = 0  # lost, and that is not recorded yet
        self._closed = False
        self._queue: SimpleQueue[_Write | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="audit", daemon=True)
        self._thread.start()

    def put(self, entry: AuditEntry) -> None:
        """Write a record; if it cannot be written, it is lost and counted."""
        self._queue.put(_Write(entry, None))

    def write(self, entry: AuditEntry) -> Deferred[None]:
        """Write a record; the deferred value arrives when it is on disk, or fails with AuditUnavailable."""
        done: Deferred[None] = Deferred()
        if self._closed:
            done.fail(AuditUnavailable("the audit log is closed", hint="the broker is stopping"))
        else:
            self._queue.put(_Write(entry, done))
        return done

    def close(self, timeout: float) -> bool:
        """Write what is queued and stop the thread; return False if that took longer, or a record was lost."""
        self._closed = True
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive() and not self._unrecorded

    # The writer's thread

    def _work(self) -> None:
        last = False
        while not last:
            batch, last = self._next_batch()
            if batch:
                self._schedule(partial(_settle, batch, self._append(batch)))

    def _next_batch(self) -> tuple[list[_Write], bool]:
        """Wait for a record and return all that are queued, and whether they are the last."""
        batch: list[_Write] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            try:
                item = self._queue.get_nowait()
            except Empty:
                return batch, False
        return batch, True

    def _append(self, batch: Sequence[_Write]) -> AuditUnavailable | None:
        """Write records; return the error if that failed."""
        entries = [write.entry for write in batch]
        if self._unrecorded:
            entries.insert(0, AuditEntry(EVENT, action="lost", reason=self.trouble, count=self._unrecorded))
        try:
            self.latest = self._log.append(entries).anchor
        except Exception as problem:  # of any kind: the thread must not end
            error = problem if isinstance(problem, AuditUnavailable) else AuditUnavailable(repr(problem))
            lost = sum(write.done is None for write in batch)
            self.lost += lost
            self._unrecorded += lost
            if not self.trouble:
                self._schedule(partial(self._failed, error))
            self.trouble = error.message
            return error
        self.written += len(entries)
        if self.trouble:
            self._schedule(partial(self._passed, self._unrecorded))
        self._unrecorded = 0
        self.trouble = ""
        return None

    def _schedule(self, function: Callable[[], object]) -> None:
        """Schedule a function, unless the event loop was closed."""
        try:
            self._call_soon(function)
        except RuntimeError:
            pass


def _settle(batch: Sequence[_Write], error: AuditUnavailable | None) -> None:
    for write in batch:
        if write.done is None:
            continue
        if error is None:
            write.done.settle(None)
        else:
            write.done.fail(error)
