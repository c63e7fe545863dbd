"""The broker's ledger: between the core's journal, the store and the segments.

Durable jobs are never missing from it. The store numbers their ends; when segments are on disk it is told up to which
number the ledger has them all (`Store.settle`). After a crash the rows behind that number are made anew from the
store's records. Some of them may have been written before the crash as well: such twins agree in their key, and the
pipeline keeps one.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from polydomo.core import job as jobs
from polydomo.errors import ConfigError
from polydomo.server.data_dir import warn_if_open
from polydomo.server.log import Log
from polydomo.server.record_codec import read_target
from polydomo.server.settings import AUTO
from polydomo.store.errors import StoreError
from polydomo.store.records import CANCELLED, DEAD, DONE, FAILED, AttemptRecord, JobRecord

if TYPE_CHECKING:
    from polydomo.ledger.denials import Denials
    from polydomo.ledger.journal import LedgerJournal
    from polydomo.ledger.segments import Segments
    from polydomo.server.server import BrokerServer

log = Log()

# Seconds between two looks at what has ended.
COLLECT: Final = 1.0

# Seconds before a store that cannot be read is asked again.
REBUILD_RETRY: Final = 10.0

# How long a broker that stops waits for the rows that a crash has left out.
PATIENCE: Final = 5.0

# How a job's record can end. An attempt that answered is in the job's own row, any other one has a row of its own.
_BY_WORKER: Final = {DONE: ("",), FAILED: (jobs.WORKER_ERROR,), CANCELLED: (), DEAD: ()}


class LedgerService:
    """Belongs to one server. Nothing of it is there, nor loaded, if there is no ledger."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.run = uuid.uuid4().hex[:12]
        self.rebuilt = 0  # rows that were made from the store
        self._journal: LedgerJournal | None = None
        self._segments: Segments | None = None
        self._denials: Denials | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rebuilding: asyncio.Task[None] | None = None
        self._safe = 0  # what the store may be told as soon as everything of before is written

    @property
    def on(self) -> bool:
        """Is there one?"""
        return self._journal is not None

    def start(self) -> None:
        """Open the segments, and begin with what a crash has left out."""
        settings = self.server.settings
        folder = settings.ledger_folder()
        if not folder:
            if settings.ledger.folder:
                raise ConfigError(
                    "the ledger has no place: there is no data folder",
                    hint="set --data, or ledger.folder to a path",
                )
            return
        from polydomo.ledger.denials import Denials
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
            if settings.ledger.folder != AUTO:
                warn_if_open(Path(folder))
        except OSError as error:
            raise ConfigError(
                f"cannot write the ledger to {folder}: {error.strerror or error}",
                hint="choose another ledger.folder",
            ) from error
        self._segments = segments
        journal = LedgerJournal(self.server.broker, settings.broker.name, self.run, segments)
        self._journal = journal
        self._denials = Denials(lambda peer, reason: journal.note("denied", "peer", peer, reason))
        self._journal.note("started", "broker", settings.broker.name)
        self.server.broker.journal = self._journal.rows
        self.rebuild()
        self._collect()

    def rebuild(self) -> None:
        """Begin to make the rows that a crash has left out, as soon as there is a store to make them from."""
        store = self.server.store
        if self._segments is not None and store is not None and store.unopened is None:
            self._rebuilding = self.server.loop.create_task(self._rebuild(store.ending))

    def denied(self, peer: str, reason: str) -> None:
        """Count a peer that was not let in, or was cut off."""
        if self._denials is not None:
            self._denials.add(peer, reason, self.server.clock.read())

    async def flush(self) -> None:
        """Until all that has happened so far is on disk. For those who are about to remove what a row could be made
        from again."""
        if self._journal is None or self._segments is None:
            return
        if self._rebuilding is not None:
            await asyncio.wait([self._rebuilding])
        self._journal.collect()
        loop, written = self.server.loop, asyncio.Event()
        self._segments.flush(lambda: loop.call_soon_threadsafe(written.set))
        await written.wait()

    async def close(self) -> None:
        """The broker stops: the last rows, and what the store is to know of them."""
        if self._journal is None or self._segments is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._rebuilding is not None:
            await asyncio.wait([self._rebuilding], timeout=PATIENCE)
            self._rebuilding.cancel()  # the next start goes on with it
        if self._denials is not None:
            self._denials.collect()
        self._journal.note("stopped", "broker", self.server.settings.broker.name)
        self._journal.collect()
        if not await asyncio.to_thread(self._segments.close):
            log.error("the end of the ledger could not be written", reason=self._segments.trouble)
        await asyncio.sleep(0)  # what the writer had to say comes before the store is closed

    def show(self) -> dict[str, Any]:
        """How it goes, for people."""
        if self._segments is None or self._journal is None:
            return {}
        segments = self._segments
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

    def _collect(self) -> None:
        if self._journal is not None:
            self.server.enter()
            if self._denials is not None and self._denials.is_due(self.server.broker.now):
                self._denials.collect()
            self._journal.collect()
        self._timer = self.server.loop.call_later(COLLECT, self._collect)

    def _settle(self, ending: int) -> None:
        self._safe = max(self._safe, ending)
        if self.server.store is not None and (self._rebuilding is None or self._rebuilding.done()):
            try:
                self.server.store.set_ledger_position(self._safe)
            except StoreError:
                pass  # it is closed: the next start makes these rows anew

    async def _rebuild(self, last: int) -> None:
        """The ends that the store knows and the ledger may not, up to the latest of before this run."""
        while True:
            try:
                return await self._rebuild_rows(last)
            except StoreError as error:  # rows that were made already are twins then
                log.warning("the ledger's missing rows cannot be read yet", reason=str(error))
                await asyncio.sleep(REBUILD_RETRY)

    async def _rebuild_rows(self, last: int) -> None:
        store, segments = self.server.store, self._segments
        assert store is not None
        assert segments is not None
        from polydomo.ledger.arrow_columns import batch_of
        from polydomo.ledger.schema import ATTEMPTS, JOBS

        after = await store.ledger_position()
        name = self.server.settings.broker.name
        while after < last:
            records = [record for record in await store.endings(after) if (record.ending or 0) <= last]
            if not records:
                break
            after = records[-1].ending or last
            tried = [(record, await store.attempts(record.id)) for record in records if record.attempt]
            lost = [row for record, attempts in tried for row in attempt_rows(record, attempts)]
            if lost:
                segments.add(ATTEMPTS.name, batch_of(ATTEMPTS, lost, name, self.run))
            segments.add(JOBS.name, batch_of(JOBS, map(job_row, records), name, self.run))
            self.rebuilt += len(records)
            self._safe = max(self._safe, after)
        if self.rebuilt:
            log.info("the ledger has rows made anew", jobs=self.rebuilt)
        written = asyncio.Event()
        segments.flush(lambda: self.server.loop.call_soon_threadsafe(written.set))
        await written.wait()
        self.server.loop.call_soon(self._settle, self._safe)


def job_row(record: JobRecord) -> dict[str, object]:
    """A row of the ledger's jobs from the store's record of one."""
    from polydomo.ledger.job_batch import target_text, text

    finished = record.finished or 0
    target = read_target(record.target)
    answered = record.code in _BY_WORKER.get(record.state, ())
    return {
        "job_id": record.id,
        "parent": record.parent,
        "key": None if record.key is None else text(record.key.encode("latin-1")),
        "service": text(record.service),
        "asked": text(record.service),
        "dialect_in": record.dialect,
        "client": text(record.client),
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
    """Rows of the attempts that did not end the job."""
    from polydomo.ledger.job_batch import text

    answered = record.code in _BY_WORKER.get(record.state, ())
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
