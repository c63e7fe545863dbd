"""The core's journal for the ledger: collects ended jobs, attempts and events, and passes them on in batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from polydomo.core.broker import Broker
from polydomo.core.job_columns import ColumnJournal, ColumnSink
from polydomo.core.model import Client, Job, Worker
from polydomo.core.services import is_question
from polydomo.ledger.arrow_columns import batch_of
from polydomo.ledger.denials import Denials
from polydomo.ledger.job_batch import MICROS, is_durable, job_batch, job_id, text
from polydomo.ledger.schema import ATTEMPTS, EVENTS, JOBS, LedgerTable
from polydomo.ledger.segments import Segments
from polydomo.redaction import redact
from polydomo.safe_text import safe_line

# Jobs per batch: enough to share the cost of a batch, few enough to block the event loop for a few milliseconds at most
# if all of them are durable.
BATCH: Final = 4096

# Longest text in an event, in characters.
LONGEST: Final = 1000


class LedgerJournal(ColumnSink):
    """Journal of one broker; `rows` is the core's port. The owner calls `collect` regularly."""

    def __init__(self, broker: Broker, name: str, run: str, segments: Segments) -> None:
        self.rows = ColumnJournal(BATCH, self)
        self.broker = broker
        self.name = name
        self.run = run
        self.segments = segments
        self.denials = Denials(lambda peer, reason: self.add_event("denied", "peer", peer, reason))
        self.jobs = 0  # rows
        self._attempts: list[dict[str, object]] = []
        self._events: list[dict[str, object]] = []
        self._number = 0  # of the latest event

    def attempt(self, job: Job, reason: str) -> None:
        worker = job.worker
        if worker is None or is_question(job):
            return
        self._attempts.append(
            {
                "job_id": job_id(job, self.run),
                "number": job.number if is_durable(job) else job.attempt,
                "service": text(job.service.name),
                "worker": text(worker.name),
                "dialect_out": worker.dialect,
                "dispatched": job.began if is_durable(job) else self._wall(job.dispatched),
                "ended": self._wall(self.broker.now),
                "outcome": reason,
                "ran_us": int((self.broker.now - job.dispatched) * MICROS),
                "rebuilt": False,
            }
        )

    def event(self, kind: str, worker: Worker, reason: str) -> None:
        services = worker.services[-1:] if kind == "joined" else worker.services
        offered = ",".join(text(service.name) for service in services[:LONGEST])
        self.add_event(kind, "worker", text(worker.name), reason, offered, worker.dialect)

    def client(self, kind: str, client: Client, reason: str) -> None:
        self.add_event(kind, "client", text(client.name), reason, "", client.dialect)

    def add_event(
        self, kind: str, role: str, peer: str, reason: str = "", service: str = "", dialect: str = ""
    ) -> None:
        """Record an event of a peer or of the broker. Texts from peers are truncated."""
        self._number += 1
        self._events.append(
            {
                "event_id": f"{self.run}-{self._number}",
                "at": self._wall(self.broker.now),
                "kind": kind,
                "role": role,
                "peer": safe_line(peer, LONGEST) or None,
                "service": safe_line(service, LONGEST) or None,
                "dialect": dialect or None,
                "reason": safe_line(redact(reason), LONGEST) or None,
            }
        )

    def add_rows(self, table: LedgerTable, rows: Iterable[dict[str, object]]) -> None:
        """Pass rows of one table to the segments."""
        self.segments.add(table.name, batch_of(table, rows, self.name, self.run))

    def collect(self) -> None:
        """Pass the collected rows to the segments."""
        for table, rows in ((ATTEMPTS, self._attempts), (EVENTS, self._events)):
            if rows:
                self.add_rows(table, rows)
                rows.clear()
        if self.rows.rows.count:
            buffer = self.rows.take()
            self.jobs += buffer.count
            self.segments.add(JOBS.name, job_batch(buffer, self.broker.clock.epoch), buffer.ending)

    def full(self) -> None:
        self.collect()

    def _wall(self, now: float) -> int:
        return self.broker.clock.wall(now)
