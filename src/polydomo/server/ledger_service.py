"""The broker's ledger: connects the core's journal and the store with the segments.

Durable jobs are never missing from the ledger. The store numbers their ends; after segments are on disk it is told up
to which number the ledger is complete (`Store.settle`). After a crash the rows after that number are rebuilt from the
store's records. Some of them may also have been written before the crash: such duplicates have the same key, and the
pipeline keeps one.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from polydomo.core import failure as reasons
from polydomo.errors import ConfigError
from polydomo.ledger.job_batch import authenticated, target_text, text
from polydomo.ledger.schema import ATTEMPTS, JOBS
from polydomo.server.data_dir import warn_if_open
from polydomo.server.host import ServerHost
from polydomo.server.log import Log
from polydomo.server.record_codec import read_target
from polydomo.server.settings import AUTO
from polydomo.store import Store
from polydomo.store.errors import StoreError
from polydomo.store.records import CANCELLED, DEAD, DONE, FAILED, AttemptRecord, JobRecord

if TYPE_CHECKING:
    from polydomo.ledger.journal import LedgerJournal
    from polydomo.ledger.segments import Segments

log = Log()

# Seconds between two collections of ended jobs.
COLLECT: Final = 1.0

# Seconds between two attempts to read the store.
REBUILD_RETRY: Final = 10.0

# Seconds that a stopping broker waits for the rebuilding of rows.
REBUILD_TIMEOUT: Final = 5.0

# Error codes with which a worker itself ended a job, by state. Such an attempt is part of the job's own row; every
# other attempt has a row of its own.
_ANSWERED: Final = {DONE: ("",), FAILED: (reasons.WORKER_ERROR,), CANCELLED: (), DEAD: ()}


class LedgerService:
    """Ledger of one server. Without a ledger nothing is started, and pyarrow is not imported."""

    def __init__(self, server: ServerHost) -> None:
        self.server = server
        self.run = uuid.uuid4().hex[:12]
        self.rebuilt = 0  # rows made from the store
        self._journal: LedgerJournal | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rebuilding: asyncio.Task[None] | None = None
        self._safe = 0  # the number for `Store.settle`, once all rows before it are written

    @property
    def on(self) -> bool:
        """Return whether the broker writes a ledger."""
        return self._journal is not None

    def start(self) -> None:
        """Open the segments and begin to rebuild the rows that a crash left out."""
        settings = self.server.settings
        folder = settings.ledger_folder()
        if not folder:
            if settings.ledger.folder:
                raise ConfigError(
                    "the ledger has no folder: there is no data folder",
                    hint="set --data, or ledger.folder to a path",
                )
            return
        from polydomo.ledger.journal import LedgerJournal
        from polydomo.ledger.segments import SegmentLimits, Segments

        ledger = settings.ledger
        try:
            segments = Segments(
                Path(folder),
                settings.broker.name,
                self.run,
                SegmentLimits(ledger.roll, ledger.rows, ledger.keep, ledger.bytes),
                safe=lambda ending: self.server.loop.call_soon_threadsafe(self._settle, ending),
                warn=lambda what, reason: log.warning(what, folder=folder, reason=reason),
            )
            if ledger.folder != AUTO:
                warn_if_open(Path(folder))
        except OSError as error:
            raise ConfigError(
                f"cannot write the ledger to {folder}: {error.strerror or error}",
                hint="choose another ledger.folder",
            ) from error
        self._journal = LedgerJournal(self.server.broker, settings.broker.name, self.run, segments)
        self._journal.add_event("started", "broker", settings.broker.name)
        self.server.broker.accounting.journal = self._journal.rows
        self.rebuild()
        self._collect(self._journal)

    def rebuild(self) -> None:
        """Begin to rebuild the rows that a crash left out, if the store is open."""
        store = self.server.store
        if self._journal is not None and store is not None and store.unopened is None:
            self._rebuilding = self.server.loop.create_task(self._rebuild(self._journal, store, store.ending))

    def denied(self, peer: str, reason: str) -> None:
        """Count a peer that was refused or cut off."""
        if self._journal is not None:
            self._journal.denials.add(peer, reason, self.server.clock.read())

    async def flush(self) -> None:
        """Wait until all rows so far are on disk; to be called before records are removed that rows are rebuilt
        from."""
        if self._journal is None:
            return
        if self._rebuilding is not None:
            await asyncio.wait([self._rebuilding])
        self._journal.collect()
        await self._written(self._journal.segments)

    async def close(self) -> None:
        """Write the last rows and tell the store about them."""
        journal = self._journal
        if journal is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._rebuilding is not None:
            await asyncio.wait([self._rebuilding], timeout=REBUILD_TIMEOUT)
            self._rebuilding.cancel()  # the next start continues
        journal.denials.collect()
        journal.add_event("stopped", "broker", self.server.settings.broker.name)
        journal.collect()
        if not await asyncio.to_thread(journal.segments.close):
            log.error("last rows of the ledger not written", reason=journal.segments.trouble)
        await asyncio.sleep(0)  # the writer's last call of `_settle` comes before the store is closed

    def show(self) -> dict[str, Any]:
        """Describe the ledger for `show_broker`."""
        if self._journal is None:
            return {}
        segments = self._journal.segments
        return {
            "folder": str(segments.folder),
            "run": self.run,
            "jobs": self._journal.jobs,
            "rows_written": segments.written,
            "segments": segments.segments,
            "rebuilt": self.rebuilt,
            "lost": segments.lost,
            "pruned": segments.pruned,
            "trouble": segments.trouble,
        }

    def _collect(self, journal: LedgerJournal) -> None:
        self.server.advance()
        if journal.denials.is_due(self.server.broker.now):
            journal.denials.collect()
        journal.collect()
        self._timer = self.server.loop.call_later(COLLECT, self._collect, journal)

    def _settle(self, ending: int) -> None:
        self._safe = max(self._safe, ending)
        if self.server.store is not None and (self._rebuilding is None or self._rebuilding.done()):
            try:
                self.server.store.set_ledger_position(self._safe)
            except StoreError:
                pass  # the store is closed: the next start rebuilds these rows

    async def _rebuild(self, journal: LedgerJournal, store: Store, last: int) -> None:
        """Rebuild the rows that may be missing, up to the job with the number `last`."""
        while True:
            try:
                return await self._rebuild_rows(journal, store, last)
            except StoreError as error:  # rows that were made already become duplicates
                log.warning("cannot read missing rows of the ledger yet", reason=str(error))
                await asyncio.sleep(REBUILD_RETRY)

    async def _rebuild_rows(self, journal: LedgerJournal, store: Store, last: int) -> None:
        after = await store.ledger_position()
        while after < last:
            records = [record for record in await store.endings(after) if (record.ending or 0) <= last]
            if not records:
                break
            after = records[-1].ending or last
            tried = [(record, await store.attempts(record.id)) for record in records if record.attempt]
            lost = [row for record, attempts in tried for row in attempt_rows(record, attempts)]
            if lost:
                journal.add_rows(ATTEMPTS, lost)
            journal.add_rows(JOBS, map(job_row, records))
            self.rebuilt += len(records)
            self._safe = max(self._safe, after)
        if self.rebuilt:
            log.info("rebuilt rows of the ledger", jobs=self.rebuilt)
        await self._written(journal.segments)
        self.server.loop.call_soon(self._settle, self._safe)

    async def _written(self, segments: Segments) -> None:
        written = asyncio.Event()
        segments.flush(lambda: self.server.loop.call_soon_threadsafe(written.set))
        await written.wait()


def job_row(record: JobRecord) -> dict[str, object]:
    """Return the row of the table `jobs` for a record of the store."""
    finished = record.finished or 0
    target = read_target(record.target)
    answered = record.code in _ANSWERED.get(record.state, ())
    return {
        "job_id": record.id,
        "parent": record.parent,
        "key": None if record.key is None else text(record.key.encode("latin-1")),
        "service": text(record.service),
        "asked": text(record.service),
        "dialect_in": record.dialect,
        "client": text(record.client),
        "principal": authenticated(record.principal),
        "worker": text(record.worker) if record.worker and answered else None,
        "target": "any" if target is None else target_text(target),
        "submitted": record.submitted,
        "queued": record.queued or record.submitted,
        "dispatched": record.dispatched,
        "finished": finished,
        "outcome": record.state,
        "error": record.code or None,
        "attempts": record.attempt,
        "bytes_in": record.size_in,
        "bytes_out": record.size_out,
        "durable": True,
        "memo_hit": False,
        "repeat": False,
        "priority": record.priority,
        "deadline": record.deadline,
        "rebuilt": True,
    }


def attempt_rows(record: JobRecord, attempts: list[AttemptRecord]) -> list[dict[str, object]]:
    """Return the rows of the attempts that did not end the job."""
    answered = record.code in _ANSWERED.get(record.state, ())
    return [
        {
            "job_id": record.id,
            "number": one.number,
            "service": text(record.service),
            "worker": text(one.worker),
            "dispatched": one.started,
            "ended": one.ended or one.started,
            "outcome": one.outcome or "superseded",
            "rebuilt": True,
        }
        for one in attempts
        if not (answered and one.number == record.attempt)
    ]
