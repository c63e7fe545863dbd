"""The core's journal that becomes the ledger: it notes what ended, and hands it on in batches."""

from __future__ import annotations

from typing import Final

from polydomo.core.broker import Broker
from polydomo.core.client import Client
from polydomo.core.job import Job
from polydomo.core.job_columns import ColumnJournal, ColumnSink
from polydomo.core.registry import is_question
from polydomo.core.worker import Worker
from polydomo.ledger.arrow_columns import batch_of
from polydomo.ledger.job_batch import is_durable, job_id, sheet_of, text
from polydomo.ledger.schema import ATTEMPTS, EVENTS, JOBS, Table
from polydomo.ledger.segments import Segments
from polydomo.redaction import redact
from polydomo.safe_text import safe_line

# Jobs that are handed on at once: many enough that the work per batch is shared, few enough that the loop stands still
# for a few milliseconds at most, if all of them are durable.
BATCH: Final = 4096

# Characters of a text in an event.
LONGEST: Final = 1000

_MICROS: Final = 1_000_000


class LedgerJournal(ColumnSink):
    """Belongs to one broker, whose journal is `rows`. The owner calls `collect` from time to time."""

    def __init__(self, broker: Broker, name: str, run: str, segments: Segments) -> None:
        self.rows = ColumnJournal(BATCH, self)
        self.broker = broker
        self.name = name
        self.run = run
        self.segments = segments
        self.jobs = 0  # rows
        self._attempts: list[dict[str, object]] = []
        self._events: list[dict[str, object]] = []
        self._number = 0  # of events

    def attempt(self, job: Job, reason: str) -> None:
        extra, worker = job.extra, job.worker
        if worker is None or is_question(job):
            return
        durable = extra is not None and is_durable(job)
        self._attempts.append(
            {
                "job_id": job_id(job, self.run),
                "number": extra.number if extra is not None and durable else job.attempt,
                "service": text(job.service.name),
                "worker": text(worker.name),
                "dialect_out": worker.dialect,
                "dispatched": extra.began if extra is not None and durable else self._wall(job.dispatched),
                "ended": self._wall(self.broker.now),
                "outcome": reason,
                "ran_us": int((self.broker.now - job.dispatched) * _MICROS),
                "rebuilt": False,
            }
        )

    def event(self, kind: str, worker: Worker, reason: str) -> None:
        services = worker.services[-1:] if kind == "joined" else worker.services
        offered = ",".join(text(service.name) for service in services[:LONGEST])
        self.note(kind, "worker", text(worker.name), reason, offered, worker.dialect)

    def client(self, kind: str, client: Client, reason: str) -> None:
        self.note(kind, "client", text(client.name), reason, "", client.dialect)

    def note(
        self, kind: str, role: str, peer: str, reason: str = "", service: str = "", dialect: str = ""
    ) -> None:
        """Something happened to a peer, or to the broker. What peers say of themselves is cut."""
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

    def collect(self) -> None:
        """What was noted so far goes to the segments."""
        if self._attempts:
            self._attempts = self._hand_over(ATTEMPTS, self._attempts)
        if self._events:
            self._events = self._hand_over(EVENTS, self._events)
        if self.rows.rows.count:
            rows = self.rows.take()
            self.jobs += rows.count
            self.segments.add(JOBS.name, sheet_of(rows, self.broker.lifecycle.epoch), rows.ending)

    def full(self) -> None:
        self.collect()

    def _hand_over(self, table: Table, rows: list[dict[str, object]]) -> list[dict[str, object]]:
        self.segments.add(table.name, batch_of(table, rows, self.name, self.run))
        return []

    def _wall(self, now: float) -> int:
        return self.broker.lifecycle.wall(now)
